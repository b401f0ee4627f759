"""Takes frames from the host: messages in order, and requests."""

from amaranth import *
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.host.crc import CRC32
from concord.spec.host.serial import REQUEST, RESIDUE, RUN, WINDOW, FrameKind

SLOTS = 1 << WINDOW.bit_length()  #: Most frames. A frame that is dropped, or a request, takes one until it ends.

#: A request.
Request = data.StructLayout({"number": 8, "kind": 7, "again": 1, "taken": 8, "address": 16, "value": 32})


class FrameInput(wiring.Component):
    """Decodes frames, drops those that are damaged, and keeps parts of messages until they are passed on.

    Members:
        valid: In(1). A byte has come from the line. byte: In(8). That byte.
        open: In(1). Forgets all messages; the next one begins with number 0.
        request: Out(Request). The request that has come, with `asked`: Out(1).
        came: Out(1). Part of a message has come. dropped: Out(1). A frame was dropped.
        o: Out(stream {byte, last}). Bytes of messages.
        taken, passed: Out(8). Number of parts of messages that have come, and that `o` has passed on, modulo 256.

    Timing:
        Two cycles or more from byte to byte. `o` gives a byte every other cycle.
    """

    def __init__(self):
        super().__init__({
            "valid": In(1), "byte": In(8), "open": In(1), "request": Out(Request), "asked": Out(1), "came": Out(1),
            "dropped": Out(1), "o": Out(stream.Signature(data.StructLayout({"byte": 8, "last": 1}))),
            "taken": Out(8), "passed": Out(8)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.frames = frames = memory.Memory(shape=8, depth=256 * SLOTS, init=[])
        sizes = Signal(data.ArrayLayout(8, SLOTS))  # bytes of the body
        ends = Signal(SLOTS)
        decoded, emit, count, end, good = self._decode(m)

        write, slot = frames.write_port(), self.taken[:len(Const(SLOTS - 1))]
        m.d.comb += [write.addr.eq(Cat(count, slot)), write.data.eq(decoded), write.en.eq(emit)]
        latest = Signal(data.ArrayLayout(8, 5))  # the last bytes, the latest one first: CRC and kind
        fields = Signal(64)  # the first ones: number, and what a request says
        with m.If(emit):
            m.d.sync += latest.eq(Cat(decoded, latest))
            with m.If(count < 8):
                m.d.sync += fields.word_select(count[:3], 8).eq(decoded)

        kind, room = latest[4], (self.taken - self.passed)[:8] < WINDOW
        is_data = kind[:7] == FrameKind.DATA
        doubled = good & is_data & ((fields[:8] - self.taken)[7])  # it has come before
        m.d.comb += [
            self.request.number.eq(fields[:8]), self.request.kind.eq(kind), self.request.again.eq(kind[7]),
            self.request.taken.eq(fields[8:16]),
            self.request.address.eq(fields[16:32]), self.request.value.eq(fields[32:]),
            self.asked.eq(end & good & (kind[:7] >= FrameKind.READ) & (kind[:7] <= FrameKind.OPEN)
                          & (count == REQUEST.size + 6)),
            self.came.eq(end & good & is_data & (fields[:8] == self.taken) & room & (count > 6)),
            self.dropped.eq(end & ~self.asked & ~self.came & ~doubled)]
        with m.If(self.came):
            m.d.sync += [self.taken.eq(self.taken + 1), sizes[slot].eq(count - 6), ends.bit_select(slot, 1).eq(kind[7])]
        with m.If(self.open):
            m.d.sync += self.taken.eq(0)
        self._pass_on(m, frames.read_port(), sizes, ends)
        return m

    def _decode(self, m):
        """Decode bytes. Returns the byte, whether there is one, its index, the end, and whether the frame is good."""
        m.submodules.crc = crc = CRC32(8)
        left, started, count = Signal(8), Signal(), Signal(range(256))
        decoded, emit, end, good = Signal(8), Signal(), Signal(), Signal()
        m.d.comb += [
            end.eq(self.valid & (self.byte == 0) & started),
            emit.eq(self.valid & (self.byte != 0) & started & (count != RUN)),
            decoded.eq(Mux(left == 0, 0, self.byte)),
            crc.valid.eq(emit), crc.data.eq(decoded), crc.start.eq(count == 0),
            good.eq((left == 0) & (count >= 6) & (count != RUN) & (crc.crc == RESIDUE))]
        with m.If(self.valid):
            with m.If(self.byte == 0):
                m.d.sync += [started.eq(0), left.eq(0), count.eq(0)]
            with m.Else():
                m.d.sync += [started.eq(1), left.eq(Mux(left == 0, self.byte, left) - 1), count.eq(count + emit)]
        return decoded, emit, count, end, good

    def _pass_on(self, m, read, sizes, ends):
        """Read the bytes of the messages that have come, in order."""
        slot, index, fresh = self.passed[:len(Const(SLOTS - 1))], Signal(8), Signal()
        last = Signal()
        m.d.comb += [last.eq(index == sizes[slot]), read.addr.eq(Cat((index + 1)[:8], slot)), read.en.eq(~fresh),
                     self.o.p.byte.eq(read.data), self.o.p.last.eq(last & ends.bit_select(slot, 1))]
        taken = self.o.valid & self.o.ready
        m.d.comb += self.o.valid.eq(fresh)
        with m.If(self.open):
            m.d.sync += [index.eq(0), fresh.eq(0), self.passed.eq(0)]
        with m.Elif(taken):
            m.d.sync += fresh.eq(0)
            with m.If(last):
                m.d.sync += [index.eq(0), self.passed.eq(self.passed + 1)]
        with m.Elif(~fresh & (self.passed != self.taken)):
            m.d.sync += [fresh.eq(1), index.eq(index + 1)]
