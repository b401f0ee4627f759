"""Makes words of mantissas: relu and mask, planes of bytes, and their writes to the chip."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.queue import Queue
from concord.hw.lib.reserved_queue import ReservedQueue
from concord.hw.trainer.sum_converter import converted_mantissas
from concord.hw.trainer.wires import CHIP_ADDRESS, STRIDE, ChipAnswer, Word, chip_writer
from concord.spec.trainer.config import LANES

ROOM = 32  #: Words that are asked for and not yet written.
_PLANES, _BYTE = 4, 8


class MantissaWords(wiring.Component):
    """Write rows of mantissas that come in halves, one plane after the other.

    Args:
        lanes: Lanes of a half.

    Members:
        row, word: In(1), In(16). A row is asked for, whose low plane goes to `word`.
        room: Out(1). One more row may be asked for.
        empty: Out(1). All rows that were asked for are written.
        i: In(mantissas). The halves of the rows.
        mask: In(ChipAnswer). Words of the mask, each two cycles ahead of the first half of its row, or earlier.
        relu: In(1). Mantissas below 0 become 0. This and what follows is held as long as rows are under way.
        masked: In(1). Mantissas whose byte of the mask is not above 0 become 0.
        planes, plane: In. Number of planes, and words from one to the next.
        write: The chip.

    Timing:
        A row takes 2 cycles, or as many as it has planes.
    """

    def __init__(self, lanes: int):
        self.lanes = lanes
        super().__init__({
            "row": In(1), "word": In(CHIP_ADDRESS), "room": Out(1), "empty": Out(1), "mask": In(ChipAnswer),
            "i": In(converted_mantissas(lanes, _PLANES)), "relu": In(1), "masked": In(1), "planes": In(3),
            "plane": In(STRIDE), **chip_writer()})

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = ReservedQueue(Word, ROOM, deep=True)
        odd, left = Signal(), Signal(range(_PLANES))
        first, second, halves = ([Signal(_PLANES * _BYTE, name=f"{name}{k}") for k in range(self.lanes)]
                                 for name in ("first", "second", "half"))
        whole = self.i.valid & odd
        m.d.sync += odd.eq(odd ^ self.i.valid)
        for half, mantissa, live in zip(halves, self.i.mantissas, self._live(m, odd, whole), strict=True):
            m.d.comb += half.eq(mantissa & (live & ~(self.relu & mantissa[-1])).replicate(len(half)))
        # The low plane is written as soon as the second half comes; what is left moves down by a byte for each plane.
        for now, held, half in zip(first, second, halves, strict=True):
            m.d.sync += [held.eq(Mux(whole, half, held) >> _BYTE), now.eq(now >> _BYTE)]
            with m.If(self.i.valid & ~odd):
                m.d.sync += now.eq(half)
        m.d.sync += left.eq(Mux(whole, self.planes - 1, left - (left != 0)))
        m.d.comb += [queue.i.valid.eq(whole | (left != 0)), Value.cast(queue.i.p).eq(Cat(
            *(now[:_BYTE] for now in first), *(Mux(whole, half, held)[:_BYTE]
                                               for half, held in zip(halves, second, strict=True))))]
        self._write(m, queue.o)
        return m

    def _live(self, m, odd, whole):
        """Whether each lane of this half passes its mask."""
        m.submodules.masks = masks = ReservedQueue(LANES, ROOM // 2)
        m.d.comb += [masks.i.valid.eq(self.mask.valid), masks.o.ready.eq(whole),
                     masks.i.p.eq(Cat(~byte[-1] & byte.any() for byte in self.mask.bytes))]
        return Mux(odd, masks.o.p[self.lanes:], masks.o.p[:self.lanes]) | (~self.masked).replicate(self.lanes)

    def _write(self, m, words):
        """Give the words of the queue, each at its address."""
        m.submodules.places = places = Queue(CHIP_ADDRESS, ROOM)
        count, offset, number = Signal(range(ROOM + 1)), Signal(CHIP_ADDRESS), Signal(3)
        taken = self.write.valid & self.write.ready
        last = number == self.planes - 1
        m.d.comb += [
            places.i.valid.eq(self.row), places.i.p.eq(self.word), places.o.ready.eq(taken & last),
            self.write.valid.eq(words.valid), self.write.p.bytes.eq(words.p), words.ready.eq(self.write.ready),
            self.write.p.word.eq(places.o.p + offset), self.empty.eq(count == 0)]
        m.d.sync += [count.eq(count + Mux(self.row, self.planes, 0) - taken),
                     self.room.eq(count <= ROOM - 2 * _PLANES)]
        with m.If(taken):
            m.d.sync += [number.eq(Mux(last, 0, number + 1)), offset.eq(Mux(last, 0, offset + self.plane))]
