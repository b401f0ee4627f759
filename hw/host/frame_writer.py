"""Encodes a frame into a memory."""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.host.crc import CRC32
from concord.spec.host.serial import BODY, LAST, FrameKind


class FrameStep(enum.Enum):
    """What the next byte of the frame is."""

    IDLE = 0
    NUMBER = 1
    BODY = 2
    KIND = 3
    CRC = 4
    CLOSE = 5  #: No byte: the length of the last run is written.


class FrameWriter(wiring.Component):
    """Writes a frame to a memory from address 0 on, encoded without zero bytes.

    Where a byte is zero, the length of the run behind it is written instead, as soon as that is known.

    Args:
        kind: Kind of the frames.

    Members:
        start: In(1). Begins a frame with `number`: In(8).
        i: In(stream {byte, last}). The body, to `last` or the largest number of bytes.
        clear: In(1). Gives the frame up.
        enable: Out(1), address, byte: Out(8). Writes to the memory.
        busy: Out(1). A frame has begun. done: Out(1). It is complete, and has `length`: Out(8) bytes.

    Timing:
        One byte in each cycle.
    """

    codes = (FrameKind,)

    def __init__(self, kind: FrameKind):
        self.kind = kind
        super().__init__({
            "start": In(1), "number": In(8), "i": In(stream.Signature(data.StructLayout({"byte": 8, "last": 1}))),
            "clear": In(1), "enable": Out(1), "address": Out(8), "byte": Out(8), "busy": Out(1), "done": Out(1),
            "length": Out(8)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.crc = crc = CRC32(8)
        step, plain, emit = Signal(FrameStep), Signal(8), Signal()
        code, following = Signal(8), Signal(8)  # address of the run's length, and of the next byte
        last, place = Signal(), Signal(2)
        zero, closing = emit & (plain == 0), step == FrameStep.CLOSE
        m.d.comb += [
            self.busy.eq(step != FrameStep.IDLE), self.enable.eq(emit | closing),
            self.address.eq(Mux(zero | closing, code, following)),
            self.byte.eq(Mux(zero | closing, following - code, plain)),
            self.done.eq(closing), self.length.eq(following),
            crc.data.eq(plain), crc.valid.eq(emit & (step != FrameStep.CRC)), crc.start.eq(step == FrameStep.NUMBER)]
        with m.If(emit):
            m.d.sync += following.eq(following + 1)
        with m.If(zero):
            m.d.sync += code.eq(following)
        with m.Switch(step):
            with m.Case(FrameStep.IDLE):
                with m.If(self.start):
                    m.d.sync += [step.eq(FrameStep.NUMBER), code.eq(0), following.eq(1)]
            with m.Case(FrameStep.NUMBER):
                m.d.comb += [emit.eq(1), plain.eq(self.number)]
                m.d.sync += step.eq(FrameStep.BODY)
            with m.Case(FrameStep.BODY):
                m.d.comb += [self.i.ready.eq(1), emit.eq(self.i.valid), plain.eq(self.i.p.byte)]
                m.d.sync += last.eq(self.i.p.last)
                with m.If(self.i.valid & (self.i.p.last | (following == BODY + 1))):
                    m.d.sync += step.eq(FrameStep.KIND)
            with m.Case(FrameStep.KIND):
                m.d.comb += [emit.eq(1), plain.eq(self.kind | Mux(last, LAST if self.kind == FrameKind.DATA else 0, 0))]
                m.d.sync += [step.eq(FrameStep.CRC), place.eq(0)]
            with m.Case(FrameStep.CRC):
                m.d.comb += [emit.eq(1), plain.eq(crc.crc.word_select(place, 8))]
                m.d.sync += place.eq(place + 1)
                with m.If(place == 3):
                    m.d.sync += step.eq(FrameStep.CLOSE)
            with m.Case(FrameStep.CLOSE):
                m.d.sync += step.eq(FrameStep.IDLE)
        with m.If(self.clear):
            m.d.sync += step.eq(FrameStep.IDLE)
        return m
