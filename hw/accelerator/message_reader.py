"""Reads the messages of a command from memory, and gives them to its core."""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from concord.hw.accelerator.orders import ADDRESS
from concord.hw.dram.axi import BusWords, burst, read_beat
from concord.hw.dram.burst_reader import BurstReader
from concord.hw.lib import message_payloads
from concord.spec.host.messages import HEADER, MessageKind, item_bytes
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config

#: Beats that are read ahead: enough for a latency of 256 cycles, and few enough that drivers which begin do not keep
#: the memory from others for long.
AHEAD = 256
UNIT = 4  #: Every item is a multiple of so many bytes.


class State(enum.Enum):
    """What the next beat is."""

    FREE = 0  #: There is none: no command reads.
    GATHER = 1  #: A beat of a header, which is kept until all of it is there.
    SIZE = 2  #: Nothing: the length of the message is computed.
    JUDGE = 3  #: Nothing: the message is given, or not.
    HEADER = 4  #: A beat of that header.
    PAYLOAD = 5  #: A beat behind the header, which goes on as it comes.
    CLOSE = 6  #: The end of a message whose core was reset while it came.


class MessageReader(wiring.Component):
    """Reads a range of memory, and cuts it into the messages that their headers announce.

    A message is given only when its kind is one of the command's and its end lies in the range; the core checks the
    rest. Nothing is given behind a message that is wrong.

    Args:
        config: Machine of the core.
        bus:    Bytes of the data bus.

    Members:
        begin: In({valid, first, count, inputs}). Pulse while `ended`: messages lie in `count` bytes at `first`; INPUT
            messages with `inputs`, others without.
        o: Out(stream {data, last}). Beats to the core.
        refused: In(1). The core has refused a message; held until its reset.
        stop: In(1). Nothing more is given, as long as it is high.
        ended: Out(1). All messages have been given, one was wrong, or `stop` came.
        wrong: Out(1). A message was wrong; held until the next `begin`.
        owed: Out(1). Pulse: a message was given which the core answers.
        ar: Out(stream {addr, len}). r: In(stream {data, resp, last}). The port.
        failed: Out(1). Pulse: a response was wrong.
        reset: In(1). Forgets the command. If the core has a part of a message, `close` must follow.
        close: In(1). Ends a message of which the core has a part, after its reset. closed: Out(1). The core has none.
        idle: Out(1). No burst is under way.

    Timing:
        One beat a cycle; a message waits for its header, and 3 cycles or more for its length.
    """

    def __init__(self, config: Config, bus: int):
        self.config, self.bus = config, bus
        super().__init__({
            "begin": In(data.StructLayout({"valid": 1, "first": ADDRESS, "count": ADDRESS, "inputs": 1})),
            "o": Out(stream.Signature(message_payloads.beat(config))), "refused": In(1), "stop": In(1),
            "ended": Out(1), "wrong": Out(1), "owed": Out(1), "ar": Out(stream.Signature(burst())),
            "r": In(stream.Signature(read_beat(bus))), "failed": Out(1), "reset": In(1), "close": In(1),
            "closed": Out(1), "idle": Out(1)})

    def elaborate(self, platform):
        m = Module()
        size = self.config.message_bytes
        m.submodules.reader = reader = BurstReader(
            BusWords(dram_bus=self.bus, mfu_lanes=size // 2), beats=AHEAD)
        wiring.connect(m, reader.ar, wiring.flipped(self.ar))
        wiring.connect(m, wiring.flipped(self.r), reader.r)
        self.beats = max(1, HEADER.size // size)  # of a header
        self.state, self.place = Signal(State), Signal(range(self.beats))
        self.left = Signal(ADDRESS)  # beats of the range that were not given
        self.header, self.inputs = Signal(8 * size * self.beats), Signal()
        self.rest = Signal(ADDRESS + 1)  # beats of the message behind its header
        self.beat, self.taken, self.inside = reader.o, Signal(), Signal()
        self.abandon = Signal()
        shift, begin = exact_log2(size), self.begin
        m.d.comb += [
            self.taken.eq(self.o.valid & self.o.ready), reader.reset.eq(self.reset | self.abandon),
            reader.range.valid.eq(begin.valid & begin.count.any()), reader.range.p.first.eq(begin.first >> shift),
            reader.range.p.count.eq(begin.count >> shift), self.failed.eq(reader.error.valid),
            self.ended.eq(self.state == State.FREE), self.idle.eq(reader.idle), self.closed.eq(~self.inside)]
        with m.If(self.taken):
            m.d.sync += self.inside.eq(~self.o.p.last)
        with m.Switch(self.state):
            with m.Case(State.FREE):
                with m.If(begin.valid):
                    m.d.sync += [self.left.eq(begin.count >> shift), self.inputs.eq(begin.inputs), self.wrong.eq(0),
                                 self.place.eq(0)]
                    with m.If(begin.count.any()):
                        m.d.sync += self.state.eq(State.GATHER)
                with m.Elif(self.close & self.inside):
                    m.d.sync += self.state.eq(State.CLOSE)
            with m.Case(State.GATHER):
                self._gather(m)
            with m.Case(State.HEADER):
                self._give_header(m)
            with m.Case(State.PAYLOAD):
                self._give_payload(m)
            with m.Case(State.CLOSE):
                m.d.comb += [self.o.valid.eq(1), self.o.p.last.eq(1)]
                with m.If(self.taken):
                    m.d.sync += self.state.eq(State.FREE)
        self._judge(m)
        # Nothing is given from the first cycle on; what was read is forgotten a cycle later, from a register.
        leaves, under_way = Signal(), (self.state != State.FREE) & (self.state != State.CLOSE)
        m.d.sync += leaves.eq((self.refused | self.stop) & under_way)
        with m.If(leaves & under_way):
            self._leave(m)
            m.d.sync += self.wrong.eq(self.wrong | self.refused)
        with m.If(self.reset):
            m.d.sync += self.state.eq(State.FREE)
        return m

    def _leave(self, m):
        """Give nothing more."""
        m.d.comb += self.abandon.eq(1)
        m.d.sync += self.state.eq(State.FREE)

    def _gather(self, m):
        """Keep a header; the range may end in it."""
        m.d.comb += self.beat.ready.eq(1)
        with m.If(self.beat.valid):
            m.d.sync += [self.header.eq(Cat(self.header, Value.cast(self.beat.p.word))[-len(self.header):]),
                         self.place.eq(self.place + 1), self.left.eq(self.left - 1)]
            with m.If(self.place == self.beats - 1):
                m.d.sync += [self.place.eq(0), self.state.eq(State.SIZE)]
            with m.Elif(self.left == 1):
                m.d.sync += self.wrong.eq(1)
                self._leave(m)

    def _judge(self, m):
        """Multiply the number of items by their size, bit by bit, and see whether the message ends in the range."""
        kind, memory, count = (self.header[at:at + bits] for at, bits in ((0, 8), (8, 8), (64, 32)))
        sizes = self._units()
        size, weight = Signal(range(max(sizes.values()) + 1)), Signal(ADDRESS + 1)
        total, beyond, answered = Signal(ADDRESS), Signal(), Signal()  # units of the payload
        known, begun = Signal(), Signal()
        per_beat = exact_log2(self.config.message_bytes // UNIT)
        sum_ = total + weight
        with m.Switch(self.state):
            with m.Case(State.SIZE):
                with m.If(~begun):
                    m.d.sync += [begun.eq(1), weight.eq(count), total.eq(0), beyond.eq(0), size.eq(0), known.eq(0),
                                 answered.eq((kind == MessageKind.READ) | (kind == MessageKind.UPDATE))]
                    with m.Switch(Cat(kind, memory == Mem.VECTOR_RF)):
                        for (which, of_entries), units in sizes.items():
                            with m.Case(f"{of_entries}{which:08b}"):
                                m.d.sync += [known.eq(self.inputs == (which == MessageKind.INPUT)), size.eq(units)]
                with m.Elif(size.any()):
                    m.d.sync += [size.eq(size >> 1), weight.eq(weight << 1), beyond.eq(beyond | weight[-1])]
                    with m.If(size[0]):
                        m.d.sync += [total.eq(sum_), beyond.eq(beyond | sum_[ADDRESS:].any() | weight[-1])]
                with m.Else():
                    m.d.sync += [begun.eq(0), self.state.eq(State.JUDGE),
                                 self.rest.eq(((total + (1 << per_beat) - 1) >> per_beat) + 1)]
            with m.Case(State.JUDGE):
                with m.If(~known | beyond | (self.rest > self.left)):
                    m.d.sync += self.wrong.eq(1)
                    self._leave(m)
                with m.Else():
                    m.d.sync += self.state.eq(State.HEADER)
        with m.If(self.reset | self.abandon):
            m.d.sync += begun.eq(0)
        m.d.comb += self.owed.eq(answered & self.taken & self.o.p.last & (self.state == State.PAYLOAD) & ~self.refused)

    def _units(self) -> dict[tuple[int, int], int]:
        """Units of an item, by its kind and by whether the message names VectorRf; a READ brings none."""
        sizes = {}
        for kind in MessageKind:
            for of_entries in range(2):
                memory = Mem.VECTOR_RF if of_entries and self.config.vector_rf else 0
                if kind not in (MessageKind.OUTPUT, MessageKind.UPDATED):
                    reads = kind == MessageKind.READ
                    sizes[kind, of_entries] = 0 if reads else item_bytes(self.config, kind, memory) // UNIT
        return sizes

    def _give_header(self, m):
        """Give the header that was kept."""
        bits = 8 * self.config.message_bytes
        m.d.comb += [self.o.valid.eq(~self.refused & ~self.stop), self.o.p.data.eq(self.header[:bits])]
        with m.If(self.taken):
            m.d.sync += [self.header.eq(self.header >> bits), self.place.eq(self.place + 1)]
            with m.If(self.place == self.beats - 1):
                m.d.sync += [self.place.eq(0), self.state.eq(State.PAYLOAD)]

    def _give_payload(self, m):
        """Give what follows a header as it comes."""
        last = self.rest == 1
        m.d.comb += [
            self.o.valid.eq(self.beat.valid & ~self.refused & ~self.stop), self.o.p.last.eq(last),
            self.o.p.data.eq(self.beat.p.word), self.beat.ready.eq(self.taken)]
        with m.If(self.taken):
            m.d.sync += [self.rest.eq(self.rest - 1), self.left.eq(self.left - 1)]
            with m.If(last):
                m.d.sync += self.state.eq(Mux(self.left == 1, State.FREE, State.GATHER))
