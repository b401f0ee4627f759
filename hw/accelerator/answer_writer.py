"""Writes what a core sends to memory, with a line in front that counts it."""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from concord.hw.accelerator.orders import ADDRESS
from concord.hw.dram.axi import Answer, BusWords, burst, write_beat
from concord.hw.dram.burst_writer import ROOM, BurstWriter
from concord.hw.lib import message_payloads
from concord.spec.accelerator.accelerator import ALIGNED
from concord.spec.machine.config import Config

CHUNK = 64  #: Beats that make a range before the command ends.


class State(enum.Enum):
    """What is done with the beats of the core."""

    FREE = 0  #: There is no command.
    STORE = 1  #: They are counted, and stored where there is room.
    FLUSH = 2  #: There are no more: the last range is given.
    LINE = 3  #: The line is given.
    ANSWER = 4  #: The answer to the line is awaited.


class AnswerWriter(wiring.Component):
    """Counts and stores messages: `spec.accelerator.commands` says how they lie.

    Args:
        config: Machine of the core.
        bus:    Bytes of the data bus.

    Members:
        begin: In({valid, first, room}). Pulse: what comes from now on goes to the `room` bytes at `first`.
        i: In(stream {data, last}). Beats of the core.
        finish: In(1). Pulse: the core sends nothing more for the command. `done`: Out(1). All is written and answered,
            the line, too; held until the next `begin`.
        drop: In(1). Beats are taken and lost while there is no command.
        over: Out(1). A beat had no room; held until the next `begin`.
        messages: Out(32). Messages that the core has sent whole since `begin`.
        aw: Out(stream {addr, len}). w: Out(stream {data, strb, last}). b: In(stream {resp}). The port.
        failed: Out(1). Pulse: a response was wrong, at the latest in the first cycle of `done`.
        reset: In(1). Forgets the command. idle: Out(1). No burst is under way.

    Timing:
        One beat a cycle.
    """

    def __init__(self, config: Config, bus: int):
        self.config, self.bus = config, bus
        super().__init__({
            "begin": In(data.StructLayout({"valid": 1, "first": ADDRESS, "room": ADDRESS})),
            "i": In(stream.Signature(message_payloads.beat(config))), "finish": In(1), "done": Out(1), "drop": In(1),
            "over": Out(1), "messages": Out(32), "aw": Out(stream.Signature(burst())),
            "w": Out(stream.Signature(write_beat(bus))), "b": In(stream.Signature(Answer)), "failed": Out(1),
            "reset": In(1), "idle": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.writer = self.writer = BurstWriter(
            BusWords(dram_bus=self.bus, mfu_lanes=self.config.message_bytes // 2))
        for name in ("aw", "w"):
            wiring.connect(m, getattr(self.writer, name), wiring.flipped(getattr(self, name)))
        wiring.connect(m, wiring.flipped(self.b), self.writer.b)
        self.state = Signal(State)
        self.line, self.at = Signal(ADDRESS), Signal(ADDRESS)  # addresses in beats: of the line, of the next range
        self.left, self.sent = Signal(ADDRESS), Signal(ADDRESS)  # beats that have room; beats of the core
        self.there = Signal()  # a beat has room
        self.whole = Signal(ADDRESS)  # beats of its whole messages
        self.pending = Signal(range(ROOM + 2))  # beats that no range has yet
        self.mute = Signal()  # the command has no room at all, not even for a line
        self.placed = Signal()  # the range of the line is given
        m.d.comb += [self.done.eq(self.state == State.FREE), self.writer.reset.eq(self.reset),
                     self.idle.eq(self.writer.idle), self.failed.eq(self.writer.error.valid)]
        stored = Signal()
        with m.Switch(self.state):
            with m.Case(State.FREE):
                self._begin(m)
            with m.Case(State.STORE):
                self._store(m, stored)
            with m.Case(State.FLUSH):
                with m.If(self.mute):
                    m.d.sync += self.state.eq(State.FREE)
                with m.Elif(self.pending == 0):
                    m.d.sync += self.state.eq(State.LINE)
            with m.Case(State.LINE):
                self._write_line(m)
            with m.Case(State.ANSWER):
                with m.If(self.writer.done):
                    m.d.sync += self.state.eq(State.FREE)
        self._give(m, stored)
        with m.If(self.reset):
            m.d.sync += self.state.eq(State.FREE)
        return m

    @property
    def lines(self) -> int:
        """Beats of the line."""
        return ALIGNED // self.config.message_bytes

    def _begin(self, m):
        """Begin with a command."""
        begin, shift = self.begin, exact_log2(self.config.message_bytes)
        first, room = begin.first >> shift, begin.room >> shift
        m.d.comb += self.i.ready.eq(self.drop)
        with m.If(begin.valid):
            m.d.sync += [
                self.line.eq(first), self.at.eq(first + self.lines), self.mute.eq(room == 0),
                self.left.eq(room - self.lines), self.there.eq(room > self.lines), self.sent.eq(0), self.whole.eq(0),
                self.messages.eq(0), self.over.eq(0), self.pending.eq(0), self.state.eq(State.STORE)]

    def _store(self, m, stored):
        """Take beats. Those that have room go to the writer, which `stored` says."""
        writer, i, there, taken = self.writer, self.i, self.there, Signal()
        m.d.comb += [
            i.ready.eq(writer.i.ready | ~there), taken.eq(i.valid & i.ready), stored.eq(taken & there),
            writer.i.valid.eq(i.valid & there), Value.cast(writer.i.p).eq(i.p.data)]
        with m.If(taken):
            with m.If(i.p.last):
                m.d.sync += [self.whole.eq(self.sent + 1), self.messages.eq(self.messages + 1)]
            m.d.sync += [self.sent.eq(self.sent + 1), self.left.eq(self.left - 1),
                         self.there.eq(there & (self.left != 1)), self.over.eq(self.over | ~there)]
        with m.If(self.finish):
            m.d.sync += self.state.eq(State.FLUSH)

    def _give(self, m, stored):
        """Give the range of beats that have none, as many as make a long burst, or the last ones; and the line's."""
        o, given, line = self.writer.range, Signal(), self.state == State.LINE
        enough = (self.state == State.STORE) & (self.pending >= CHUNK)
        m.d.comb += [
            o.valid.eq(enough | (self.state == State.FLUSH) & self.pending.any() | line & ~self.placed),
            o.p.first.eq(Mux(line, self.line, self.at)), o.p.count.eq(Mux(line, self.lines, self.pending)),
            o.p.last.eq(line), given.eq(o.valid & o.ready)]
        with m.If((self.state == State.STORE) | (self.state == State.FLUSH)):
            m.d.sync += [self.pending.eq(Mux(given, 0, self.pending) + stored),
                         self.at.eq(self.at + Mux(given, self.pending, 0))]
        with m.Else():
            m.d.sync += self.placed.eq(line & (self.placed | given))

    def _write_line(self, m):
        """Write the line: the number of bytes, that of messages, and zeros."""
        writer, beat = self.writer, Signal(range(self.lines))
        bits, shift = 8 * self.config.message_bytes, exact_log2(self.config.message_bytes)
        line = Cat(Const(0, shift), self.whole[:32 - shift], self.messages, Const(0, 8 * ALIGNED - 64))
        m.d.comb += [writer.i.valid.eq(self.placed), Value.cast(writer.i.p).eq(line.word_select(beat, bits))]
        with m.If(self.placed & writer.i.ready):
            m.d.sync += beat.eq(beat + 1)
            with m.If(beat == self.lines - 1):
                m.d.sync += [beat.eq(0), self.state.eq(State.ANSWER)]
        with m.If(self.reset):
            m.d.sync += beat.eq(0)
