"""Sends frames to the host: messages, again if they were lost, and answers to requests."""

from amaranth import *
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.host.frame_input import SLOTS
from concord.hw.host.frame_writer import FrameWriter
from concord.spec.host.serial import ANSWER, WINDOW, FrameKind

#: Body of an ANSWER.
Answer = data.StructLayout({"flags": 8, "taken": 8, "passed": 8, "made": 8, "value": 32})


class FrameOutput(wiring.Component):
    """Keeps parts of messages until the host has taken them, and sends them in order; answers go in between.

    Members:
        i: In(stream {byte, last}). Bytes of messages.
        answer: In(Answer). What an answer says, without `made`; `answer_number`: In(8). Its number.
        ask: In(1). An answer is to be sent. hint: In(1). One is to be sent when there is nothing else to send.
        sending: Out(1). An answer is made now of what `answer` says.
        host: In(8). Number of parts that the host has taken, with `told`: In(1). again: In(1). With `told`: all others
            are sent once more.
        open: In(1). Forgets all messages; the next part has number 0.
        made: Out(8). Number of parts that are complete, modulo 256.
        o: Out(stream 8). Bytes for the line.

    Timing:
        A byte of `i` is taken every cycle, until the host is as far behind as the link allows.
    """

    def __init__(self):
        message = stream.Signature(data.StructLayout({"byte": 8, "last": 1}))
        super().__init__({
            "i": In(message), "answer": In(Answer), "answer_number": In(8), "ask": In(1), "hint": In(1),
            "sending": Out(1), "host": In(8), "told": In(1), "again": In(1), "open": In(1), "made": Out(8),
            "o": Out(stream.Signature(8))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.parts = parts = memory.Memory(shape=8, depth=256 * SLOTS, init=[])
        m.submodules.writer = writer = FrameWriter(FrameKind.DATA)
        bits = len(Const(SLOTS - 1))
        taken, sent, lengths = Signal(8), Signal(8), Signal(data.ArrayLayout(8, SLOTS))  # numbers; bytes
        write = parts.write_port()
        wiring.connect(m, wiring.flipped(self.i), writer.i)
        m.d.comb += [
            writer.number.eq(self.made), writer.clear.eq(self.open),
            writer.start.eq(self.i.valid & ((self.made - taken)[:8] < WINDOW)),
            write.en.eq(writer.enable), write.addr.eq(Cat(writer.address, self.made[:bits])),
            write.data.eq(writer.byte)]
        with m.If(writer.done):
            m.d.sync += [self.made.eq(self.made + 1), lengths[self.made[:bits]].eq(writer.length)]

        leaving = Signal()  # an answer is on the line
        ready, length, answers = self._answer(m, sent == self.made, leaving)
        began, answered = self._send(m, (parts, sent, lengths), (answers, length, ready), leaving)
        known = (self.host - taken)[:8] <= (self.made - taken)[:8]
        behind = (sent - taken)[:8] < (self.host - taken)[:8]
        with m.If(began):
            m.d.sync += sent.eq(sent + 1)
        with m.If(self.told & known):
            m.d.sync += taken.eq(self.host)
            with m.If(self.again | behind):
                m.d.sync += sent.eq(self.host)
        with m.If(answered):
            m.d.sync += ready.eq(0)
        with m.If(self.open):
            m.d.sync += [taken.eq(0), sent.eq(0), self.made.eq(0)]
        return m

    def _answer(self, m, nothing, leaving):
        """Make answers, one at a time. Returns whether one is complete, its length, and its memory.

        Args:
            nothing: There is nothing else to send.
            leaving: The memory is read: an answer is on the line.
        """
        m.submodules.answers = answers = memory.Memory(shape=8, depth=16, init=[])
        m.submodules.answerer = answerer = FrameWriter(FrameKind.ANSWER)
        wanted, hinted, ready, length = Signal(), Signal(), Signal(), Signal(8)
        body, left = Signal(Answer), Signal(range(ANSWER.size))
        write = answers.write_port()
        m.d.comb += [
            self.sending.eq(wanted & ~ready & ~leaving & ~answerer.busy), answerer.start.eq(self.sending),
            answerer.i.valid.eq(1), answerer.i.p.byte.eq(body.as_value()[:8]), answerer.i.p.last.eq(left == 0),
            write.en.eq(answerer.enable), write.addr.eq(answerer.address), write.data.eq(answerer.byte)]
        with m.If(self.sending):
            m.d.sync += [wanted.eq(0), hinted.eq(0), body.eq(self.answer), body.made.eq(self.made),
                         left.eq(ANSWER.size - 1), answerer.number.eq(self.answer_number)]
        with m.If(answerer.i.ready):
            m.d.sync += [body.eq(body.as_value() >> 8), left.eq(left - 1)]
        with m.If(answerer.done):
            m.d.sync += [ready.eq(1), length.eq(answerer.length)]
        with m.If(self.hint):
            m.d.sync += hinted.eq(1)
        with m.If(self.ask | (hinted & nothing)):
            m.d.sync += [wanted.eq(1), hinted.eq(0)]
        return ready, length, answers

    def _send(self, m, part, answer, leaving):
        """Send the next frame byte by byte, an answer before a part. Returns whether a part, or an answer, begins."""
        (parts, sent, lengths), (answers, answer_length, ready) = part, answer
        bits = len(Const(SLOTS - 1))
        index, slot, size, chosen = Signal(8), Signal(bits), Signal(8), Signal()
        reads = parts.read_port(), answers.read_port()
        began, answered = Signal(), Signal()
        for read in reads:
            m.d.comb += read.en.eq(1)
        m.d.comb += [reads[0].addr.eq(Cat(index, slot)), reads[1].addr.eq(index)]
        with m.FSM(name="send"):
            with m.State("IDLE"):
                m.d.comb += [answered.eq(ready), began.eq(~ready & (sent != self.made) & ~self.open)]
                m.d.sync += [index.eq(0), slot.eq(sent[:bits]), chosen.eq(ready),
                             size.eq(Mux(ready, answer_length, lengths[sent[:bits]]))]
                with m.If(answered | began):
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += leaving.eq(chosen)
                m.next = "BYTE"
            with m.State("BYTE"):
                m.d.comb += [leaving.eq(chosen), self.o.valid.eq(1),
                             self.o.p.eq(Mux(index == size, 0, Mux(chosen, reads[1].data, reads[0].data)))]
                with m.If(self.o.ready):
                    m.d.sync += index.eq(index + 1)
                    m.next = "READ"
                    with m.If(index == size):
                        m.next = "IDLE"
        return began, answered
