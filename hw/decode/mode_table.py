"""The mode that each native tile was loaded in, in program order."""

from amaranth import *
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.spec.isa import ADDRESS_BITS, REGISTER_BITS

__all__ = ["CHUNK", "ModeRequest", "ModeTable"]

CHUNK = 32  #: Tiles looked at in one cycle.


#: To set the mode of the tiles first..first+count-1, or ask whether it is theirs.
ModeRequest = data.StructLayout({"set": 1, "integer": 1, "first": ADDRESS_BITS, "count": REGISTER_BITS})


class ModeTable(wiring.Component):
    """One bit a tile: integer mode or not. Loading sets a range of tiles; a product asks for one.

    Args:
        tiles: Native tiles of MatrixRf.

    Members:
        i: In(stream ModeRequest). `count` is at least 1, and all tiles are within MatrixRf.
        done: Out(1). The request is over; `agree` holds its answer in that cycle.
        agree: Out(1). All tiles of the range are of mode `integer`.

    Timing:
        One cycle for every 32 tiles that the range touches; reset leaves the table as it is.
    """

    def __init__(self, tiles: int):
        self.tiles = tiles
        super().__init__({
            "i": In(stream.Signature(ModeRequest)),
            "done": Out(1), "agree": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = table = memory.Memory(shape=CHUNK, depth=max(2, -(-self.tiles // CHUNK)), init=[])
        read, write = table.read_port(domain="comb"), table.write_port()

        request = self.i.p
        chunk, started = Signal(range(table.depth)), Signal()
        disagree = Signal()  # in the chunks before this one
        last = request.first + request.count - 1
        here = Mux(started, chunk, request.first[CHUNK.bit_length() - 1:])
        begin = Mux(started, 0, request.first[:CHUNK.bit_length() - 1])
        ends = here == last[CHUNK.bit_length() - 1:]
        end = Mux(ends, last[:CHUNK.bit_length() - 1], CHUNK - 1)
        mask = Signal(CHUNK)
        m.d.comb += mask.eq(Cat((k >= begin) & (k <= end) for k in range(CHUNK)))

        wanted = request.integer.replicate(CHUNK)
        differs = ((read.data ^ wanted) & mask).any()
        m.d.comb += [
            read.addr.eq(here), write.addr.eq(here),
            write.data.eq((read.data & ~mask) | (wanted & mask)),
            write.en.eq(self.i.valid & request.set),
            self.done.eq(self.i.valid & ends), self.i.ready.eq(self.done),
            self.agree.eq(~disagree & ~differs),
        ]
        with m.If(self.i.valid):
            m.d.sync += [chunk.eq(here + 1), started.eq(~ends), disagree.eq((disagree | differs) & ~ends)]
        return m
