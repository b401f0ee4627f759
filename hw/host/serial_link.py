"""The machine's end of a serial link: frames become messages and register accesses, and the other way round."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from concord.hw.host.frame_input import FrameInput
from concord.hw.host.frame_output import FrameOutput
from concord.hw.lib import message_payloads
from concord.spec.host.serial import Flag, FrameKind
from concord.spec.machine.config import Config

QUIET = 256  #: Cycles without a beat after which nothing can be under way inside the machine.

#: An access to the control port.
Access = data.StructLayout({"write": 1, "address": 12, "value": 32})


class SerialLink(wiring.Component):
    """Implements `spec.host.serial` between bytes of a line and the ports of a machine.

    Args:
        config: The machine.

    Members:
        valid: In(1). A byte has come from the line. byte: In(8). That byte.
        line: Out(stream 8). Bytes for the line.
        to_machine: Out(stream {data, last}). Beats of messages for the machine. from_machine: In. Of its messages.
        access: Out(stream Access). An access to the control port. finished: In(1). It is done, and has read
            `value`: In(32).
        opened: Out(1). A host has opened the link. dropped: Out(1). A frame was dropped since then.
        waits: Out(1). A beat waits for the machine.

    Timing:
        A byte of a message every other cycle.
    """

    codes = (FrameKind, Flag)

    def __init__(self, config: Config):
        self.config = config
        beats = stream.Signature(message_payloads.beat(config))
        super().__init__({
            "valid": In(1), "byte": In(8), "line": Out(stream.Signature(8)), "to_machine": Out(beats),
            "from_machine": In(beats), "access": Out(stream.Signature(Access)), "finished": In(1), "value": In(32),
            "opened": Out(1), "dropped": Out(1), "waits": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.input = inward = FrameInput()
        m.submodules.output = outward = FrameOutput()
        wiring.connect(m, outward.o, wiring.flipped(self.line))
        m.d.comb += [inward.valid.eq(self.valid), inward.byte.eq(self.byte), outward.open.eq(inward.open)]
        forward = self._join(m, inward)
        backward = self._split(m, outward)
        value, number = self._requests(m, inward, outward)

        idle, missed = Signal(range(QUIET + 1)), Signal()
        moves = forward | backward | inward.came | (self.finished & self.access.p.write)
        m.d.sync += idle.eq(Mux(moves, 0, idle + (idle != QUIET)))
        m.d.comb += [
            outward.answer.flags.eq(Mux(idle == QUIET, Flag.QUIET, 0) | Mux(missed, Flag.MISSED, 0)
                                    | Mux(self.opened, 0, Flag.CLOSED)),
            outward.answer.taken.eq(inward.taken), outward.answer.passed.eq(inward.passed),
            outward.answer.value.eq(value), outward.answer_number.eq(number), self.waits.eq(self.to_machine.valid)]
        with m.If(outward.sending):
            m.d.sync += missed.eq(0)
        with m.If(inward.dropped):
            m.d.sync += [missed.eq(1), self.dropped.eq(1)]
        with m.If(inward.open):
            m.d.sync += [self.opened.eq(1), self.dropped.eq(0)]
        return m

    def _requests(self, m, inward, outward):
        """Execute requests. Returns the value that was read last, and the number of the last request that is done."""
        request = inward.request
        value, number, done, under_way = Signal(32), Signal(8), Signal(8), Signal()
        is_access = (request.kind == FrameKind.READ) | (request.kind == FrameKind.WRITE)
        fresh = (request.number != number) & ~under_way
        m.d.comb += [
            inward.open.eq(inward.asked & (request.kind == FrameKind.OPEN)),
            outward.told.eq(inward.asked & ~inward.open), outward.host.eq(request.taken),
            outward.again.eq(request.again), outward.hint.eq(inward.came),
            outward.ask.eq(self.finished | inward.dropped | (inward.asked & ~under_way & ~(is_access & fresh)))]
        with m.If(inward.asked & ~under_way):
            m.d.sync += number.eq(request.number)
            with m.If(~(is_access & fresh)):
                m.d.sync += done.eq(request.number)
            with m.Else():
                m.d.sync += [under_way.eq(1), self.access.valid.eq(1), self.access.p.address.eq(request.address),
                             self.access.p.write.eq(request.kind == FrameKind.WRITE),
                             self.access.p.value.eq(request.value)]
        with m.If(self.access.valid & self.access.ready):
            m.d.sync += self.access.valid.eq(0)
        with m.If(self.finished):
            m.d.sync += [under_way.eq(0), value.eq(self.value), done.eq(number)]
        return value, done

    def _join(self, m, inward):
        """Collect bytes of messages into beats. Returns whether a byte or a beat moves."""
        beat, size = self.to_machine, self.config.message_bytes
        place, inside, ending = Signal(exact_log2(size)), Signal(), Signal()
        m.d.comb += inward.o.ready.eq(~beat.valid & ~ending)
        with m.If(beat.valid & beat.ready):
            m.d.sync += [beat.valid.eq(0), inside.eq(~beat.p.last)]
        with m.If(ending & ~beat.valid):  # the machine takes the rest of a message, however wrong, for part of it
            m.d.sync += [beat.valid.eq(inside), beat.p.last.eq(1), ending.eq(0)]
        with m.If(inward.o.valid & inward.o.ready):
            m.d.sync += [beat.p.data.eq(Cat(beat.p.data, inward.o.p.byte)[8:]), beat.p.last.eq(inward.o.p.last),
                         place.eq(Mux(inward.o.p.last, 0, place + 1)),
                         beat.valid.eq((place == size - 1) | inward.o.p.last)]
        with m.If(inward.open):
            m.d.sync += [place.eq(0), ending.eq(1)]
        return (inward.o.valid & inward.o.ready) | (beat.valid & beat.ready)

    def _split(self, m, outward):
        """Take beats of messages apart into bytes. Returns whether a byte or a beat moves, or waits for the host."""
        size = self.config.message_bytes
        beat, place, full = Signal(message_payloads.beat(self.config)), Signal(exact_log2(size)), Signal()
        m.d.comb += [self.from_machine.ready.eq(~full), outward.i.valid.eq(full), outward.i.p.byte.eq(beat.data[:8]),
                     outward.i.p.last.eq(beat.last & (place == size - 1))]
        with m.If(self.from_machine.valid & ~full):
            m.d.sync += [beat.eq(self.from_machine.p), full.eq(1)]
        with m.If(full & outward.i.ready):
            m.d.sync += [beat.data.eq(beat.data >> 8), place.eq(place + 1), full.eq(place != size - 1)]
        with m.If(outward.open):
            m.d.sync += [full.eq(0), place.eq(0)]
        return full | self.from_machine.valid
