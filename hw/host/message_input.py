"""Divides host messages into items: spec.host.messages.unpack in hardware."""

from amaranth import *
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from concord.hw.host.crc import CRC32
from concord.hw.host.message_header import check_cycles, refused, store
from concord.hw.host.message_items import MessageItems
from concord.hw.lib import message_payloads
from concord.spec.host.messages import HEADER, MessageKind
from concord.spec.machine.config import Config

CRC = 3  #: Cycles that a CRC takes.


class State(enum.Enum):
    """Meaning of the next beat or unit."""

    HEADER = 0  #: A beat.
    CHECK = 1  #: Nothing: the header is checked.
    WAIT = 2  #: Nothing: an illegal header is refused; kinds other than INPUT wait for the machine.
    PAYLOAD = 3  #: A unit, as wide as the kind of items allows.
    PADDING = 4  #: A narrow unit.
    CRC = 5  #: The last beat.
    READ = 6  #: Nothing: a READ is passed on.


class MessageInput(wiring.Component):
    """Checks messages and passes their items on.

    A message that `spec.host.messages.unpack` refuses raises `error` and is discarded up to its TLAST. If its header is
    wrong, none of its items are passed on. If its length, padding or CRC is wrong, the items before the error have
    already been passed on, except for a READ, which is passed on only after its CRC.

    Args:
        config: Configuration; it gives the sizes of the memories and the digest that headers must hold.

    Members:
        i: In(stream {data, last}). Beats from the host.
        idle: In(1). No program runs or is about to start, so that kinds other than INPUT may proceed.
        reset: In(1). Discards the present message up to its TLAST, without an error. The unit must not be reset in
            another way while the host is inside a message.
        net: Out(stream word). Words for NetQ.
        write: Out(stream {memory, address, word}). Words for vector memories.
        entry_write: Out(stream {address, entry}). Entries for VectorRf.
        program: Out(stream {address, data}). Instructions.
        bias: Out(stream {address, data}). Words for BiasRf.
        packed: Out(stream {tile, integer, row, group, record, last}). Lane groups for MatrixRf.
        update: Out(stream {exponents, change, remaining, words}). Parameters for the lazy update.
        outside: Out(stream {first, left, word}). Words for Dram, in a machine that has it. `first` is the address of
            the word, `left` the number of words of its message that are left, this one included. A message that is
            refused later ends before `left` is 1.
        read: Out(stream {memory, address, count}). Requests of READ messages; each is taken when its last word
            has been read, because the next message may overwrite the words.
        error: Out(1). Pulse: a message was refused.
        busy: Out(1). A message of another kind than INPUT has passed `idle` and is not finished; no program may start.

    Timing:
        One unit in each cycle of a payload while items are taken: as much of a word as a beat holds, for words and
        other items that such units fill, else 32 bits. An item leaves 1 cycle after its last unit. A header takes
        a cycle for each of its beats and 3 more for its check, or 4 in a machine with Dram; a CRC takes 3.
    """

    def __init__(self, config: Config):
        config.require_hardware()
        self.config = config
        super().__init__({
            "i": In(stream.Signature(message_payloads.beat(config))),
            "idle": In(1), "reset": In(1),
            **{name: Out(stream.Signature(shape)) for name, shape in message_payloads.items(config).items()},
            "read": Out(stream.Signature(message_payloads.read(config))),
            "error": Out(1), "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        # Payload and padding are checked unit by unit, header and CRC by whole beats. `take` says that the state
        # accepts the present unit, and `wrong` that the unit makes the message illegal. `drop` then discards the
        # message up to its end, outside the state machine.
        self.state, self.take, self.accept = Signal(State), Signal(), Signal()
        self.wrong = Signal()
        self.drop = Signal()
        self.filled = Signal()  # padding holds something else than zeros, which is an error at the CRC
        self.wide = Signal()  # the present unit is wide
        self.beats = max(1, HEADER.size // self.config.message_bytes)
        self.check = check_cycles(self.config)
        self.place = Signal(range(max(self.check, CRC, self.beats)))  # number of a header's beat, or a check's cycle
        self.header = Signal(message_payloads.header(self.config))
        self.illegal = Signal()  # the header is; `check` cycles after it
        m.d.sync += self.illegal.eq(self.header.wrong | refused(m, self.config, self.header))
        self._accept(m)
        self._connect(m)
        with m.If(~self.drop & ~self.reset):
            with m.Switch(self.state):
                with m.Case(State.HEADER):
                    self._take_header(m)
                with m.Case(State.CHECK):
                    m.d.sync += self.place.eq(self.place + 1)
                    with m.If(self.place == self.check - 1):
                        m.d.sync += [self.place.eq(0), self.state.eq(State.WAIT)]
                with m.Case(State.WAIT):
                    self._wait(m)
                with m.Case(State.PAYLOAD):
                    self._take_payload(m)
                with m.Case(State.PADDING):
                    self._take_padding(m)
                with m.Case(State.CRC):
                    self._take_crc(m)
                with m.Case(State.READ):
                    m.d.comb += self.read.valid.eq(1)
                    with m.If(self.read.ready):
                        m.d.sync += self.state.eq(State.HEADER)
        self._report(m)
        return m

    def _accept(self, m):
        """Accept a unit that the state takes, and discard the units of a refused message."""
        whole = (self.state == State.HEADER) | (self.state == State.CRC)
        self.unit, self.unit_valid, unit_ready = self._units(m, self.wide, whole)
        m.d.comb += [
            unit_ready.eq(self.drop | self.take & ~self.wrong),
            self.accept.eq(self.unit_valid & self.take & ~self.wrong),
        ]
        with m.If(self.drop & self.unit_valid & self.unit.last):
            m.d.sync += self.drop.eq(0)

    def _connect(self, m):
        """Connect the CRC and the items to the present unit."""
        m.submodules.crc = self.crc = crc = CRC32(8 * self.config.message_bytes)
        m.d.sync += [
            crc.data.eq(self.i.p.data),
            crc.valid.eq(self.accept & self.unit.end),
            crc.start.eq((self.state == State.HEADER) & (self.place == 0)),
        ]
        m.submodules.items = self.items = items = MessageItems(self.config)
        for name in message_payloads.items(self.config):
            wiring.connect(m, getattr(items, name), wiring.flipped(getattr(self, name)))
        payload = self.state == State.PAYLOAD
        m.d.comb += [
            items.header.eq(self.header), items.i.p.eq(self.unit.data),
            items.i.valid.eq(self.unit_valid & payload & ~self.unit.last & ~self.drop),
            items.restart.eq(self.wrong), items.reset.eq(self.reset), self.wide.eq(items.wide & payload),
        ]

    def _take_header(self, m):
        m.d.comb += [self.take.eq(1), self.wrong.eq(self.unit_valid & self.unit.last)]
        with m.If(self.accept):
            m.d.sync += self.place.eq(self.place + 1)
            store(m, self.config, self.header, self.i.p.data, self.place)
            with m.If(self.place == self.beats - 1):
                m.d.sync += [self.place.eq(0), self.state.eq(State.CHECK)]

    def _wait(self, m):
        """Refuse an illegal header, or wait for the machine and start the items."""
        kind = self.header.kind
        m.d.comb += self.wrong.eq(self.illegal)
        with m.If((self.idle | (kind == MessageKind.INPUT)) & ~self.items.waiting):
            m.d.comb += self.items.start.eq(1)
            m.d.sync += self.state.eq(Mux(kind == MessageKind.READ, State.CRC, State.PAYLOAD))

    def _take_payload(self, m):
        m.d.comb += [self.take.eq(self.items.i.ready), self.wrong.eq(self.take & self.unit_valid & self.unit.last)]
        with m.If(self.accept & self.items.last):
            m.d.sync += self.state.eq(Mux(self.unit.end, State.CRC, State.PADDING))

    def _take_padding(self, m):
        filled = self.unit.data[:message_payloads.UNIT].any()
        m.d.comb += [self.take.eq(1), self.wrong.eq(self.unit_valid & self.unit.last)]
        with m.If(self.accept):
            m.d.sync += self.filled.eq(self.filled | filled)
        with m.If(self.accept & self.unit.end):
            m.d.sync += self.state.eq(State.CRC)

    def _take_crc(self, m):
        """Wait until the CRC of all beats before is there and has been compared with this one."""
        different, compared = Signal(), Signal()
        m.d.comb += compared.eq(self.place == CRC - 1)
        m.d.sync += [self.place.eq(self.place + self.unit_valid),
                     different.eq(self.filled | (self.i.p.data != self.crc.crc))]
        m.d.comb += [self.take.eq(compared), self.wrong.eq(compared & self.unit_valid & (~self.unit.last | different))]
        with m.If(self.accept):
            m.d.sync += [self.place.eq(0), self.filled.eq(0),
                         self.state.eq(Mux(self.header.kind == MessageKind.READ, State.READ, State.HEADER))]

    def _report(self, m):
        """Report errors, READs and whether the machine is in use; return to the header after an error or a reset."""
        header, state = self.header, self.state
        ended = (state == State.READ) | (state == State.HEADER) & (self.place == 0)
        m.d.comb += self.error.eq(self.wrong)
        with m.If(self.wrong | self.reset):
            m.d.sync += [state.eq(State.HEADER), self.place.eq(0), self.filled.eq(0),
                         self.drop.eq(self.drop | ~ended | self.wrong)]
        m.d.comb += [
            self.read.p.memory.eq(header.memory), self.read.p.address.eq(header.address),
            self.read.p.count.eq(header.count),
            self.busy.eq(self.items.busy | (header.kind != MessageKind.INPUT)
                         & (state != State.HEADER) & (state != State.CHECK) & (state != State.WAIT)),
        ]

    def _units(self, m, wide, whole):
        """Divide beats into units.

        Args:
            wide: Whether the present unit is wide.
            whole: Whether the present unit stands for a whole beat.

        Returns:
            The present unit, whether it is valid, and a signal that takes it.
        """
        unit, valid, ready = Signal(message_payloads.unit(self.config)), Signal(), Signal()
        beat, bits = self.i.p.data, message_payloads.wide_unit(self.config)
        count, step = len(beat) // message_payloads.UNIT, bits // message_payloads.UNIT
        index = Signal(range(max(2, count)))  # in narrow units; at least a bit: Verilog has no signals without bits
        narrow = beat.word_select(index, message_payloads.UNIT)  # also the low bits of a wide unit
        high = beat if step == count else beat.word_select(index[exact_log2(step):], bits)
        m.d.comb += [
            unit.data.eq(Cat(narrow, high[message_payloads.UNIT:])),
            unit.last.eq(self.i.p.last),
            unit.end.eq(whole | ((index | Mux(wide, step - 1, 0)) == count - 1)),
            valid.eq(self.i.valid & ~self.reset),
            self.i.ready.eq(ready & unit.end & ~self.reset),
        ]
        with m.If(valid & ready):
            m.d.sync += index.eq(Mux(unit.end, 0, index + Mux(wide, step, 1)))
        return unit, valid, ready
