"""Divides host messages into items: spec.messages.unpack in hardware."""

from amaranth import *
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from concord.hw.host.crc import CRC32
from concord.hw.host.message_items import MessageItems
from concord.hw.lib import message_payloads
from concord.hw.lib.payloads import word
from concord.spec.config import Config
from concord.spec.isa import ADDRESS_BITS, END_BITS
from concord.spec.memories import ADDRESSED, depth
from concord.spec.messages import HEADER, MessageKind
from concord.spec.training import LazyFormat

__all__ = ["MessageInput"]


class State(enum.Enum):
    """Meaning of the next beat or unit."""

    HEADER = 0  #: A beat.
    CHECK = 1  #: Nothing: the header is checked, and kinds other than INPUT wait for the machine.
    PAYLOAD = 2  #: A unit, as wide as the kind of items allows.
    PADDING = 3  #: A narrow unit.
    CRC = 4  #: The last beat.
    READ = 5  #: Nothing: a READ is passed on.


class MessageInput(wiring.Component):
    """Checks messages and passes their items on.

    A message that `spec.messages.unpack` refuses raises `error` and is discarded up to its TLAST. If its header is
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
        read: Out(stream {memory, address, count}). Requests of READ messages; each is taken when its last word
            has been read, because the next message may overwrite the words.
        error: Out(1). Pulse: a message was refused.
        busy: Out(1). A message of another kind than INPUT has passed `idle` and is not finished; no program may start.

    Timing:
        One unit in each cycle of a payload while items are taken: as much of a word as a beat holds, for words and
        other items that such units fill, else 32 bits. An item leaves 1 cycle after its last unit. Header and CRC take
        a cycle for each of their beats, and the check of the header 1 more.
    """

    def __init__(self, config: Config):
        config.require_hardware()
        self.config = config
        super().__init__({
            "i": In(stream.Signature(message_payloads.beat(config))),
            "idle": In(1), "reset": In(1),
            "net": Out(stream.Signature(word(config))),
            "write": Out(stream.Signature(message_payloads.write(config))),
            "entry_write": Out(stream.Signature(message_payloads.entry_write(config))),
            "program": Out(stream.Signature(message_payloads.Program)),
            "bias": Out(stream.Signature(message_payloads.bias(config))),
            "packed": Out(stream.Signature(message_payloads.packed(config))),
            "update": Out(stream.Signature(message_payloads.update(config))),
            "read": Out(stream.Signature(message_payloads.Read)),
            "error": Out(1), "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()

        # Payload and padding are checked unit by unit, header and CRC by whole beats. `take` says that the state
        # accepts the present unit, and `wrong` that the unit makes the message illegal. `drop` then discards the
        # message up to its end, outside the state machine.
        state, drop = Signal(State), Signal()
        beats = max(1, HEADER.size // self.config.message_bytes)
        place = Signal(range(max(2, beats)))  # number of the beat in the header
        take, wrong = Signal(), Signal()
        accept, wide = Signal(), Signal()
        whole = (state == State.HEADER) | (state == State.CRC)
        unit, unit_valid, unit_ready = self._units(m, wide, whole)
        m.d.comb += [
            unit_ready.eq(drop | take & ~wrong),
            accept.eq(unit_valid & take & ~wrong),
        ]
        with m.If(drop & unit_valid & unit.last):
            m.d.sync += drop.eq(0)

        m.submodules.crc = crc = CRC32(8 * self.config.message_bytes)
        m.d.comb += [
            crc.data.eq(self.i.p.data),
            crc.valid.eq(accept & unit.end),
            crc.start.eq((state == State.HEADER) & (place == 0)),
        ]

        header = Signal(message_payloads.Header)
        m.submodules.items = items = MessageItems(self.config)
        for name in ("net", "write", "entry_write", "program", "bias", "packed", "update"):
            wiring.connect(m, getattr(items, name), wiring.flipped(getattr(self, name)))
        m.d.comb += [
            items.header.eq(header), items.i.p.eq(unit.data), items.i.valid.eq(accept & (state == State.PAYLOAD)),
            items.restart.eq(wrong), items.reset.eq(self.reset), wide.eq(items.wide & (state == State.PAYLOAD)),
        ]

        with m.If(~drop & ~self.reset):
            with m.Switch(state):
                with m.Case(State.HEADER):
                    m.d.comb += [take.eq(1), wrong.eq(unit_valid & unit.last)]
                    with m.If(accept):
                        m.d.sync += place.eq(place + 1)
                        self._header(m, header, place)
                        with m.If(place == beats - 1):
                            m.d.sync += [place.eq(0), state.eq(State.CHECK)]
                with m.Case(State.CHECK):
                    m.d.comb += wrong.eq(header.wrong | self._refused(m, header))
                    with m.If((self.idle | (header.kind == MessageKind.INPUT)) & ~items.waiting):
                        m.d.comb += items.start.eq(1)
                        m.d.sync += state.eq(Mux(header.kind == MessageKind.READ, State.CRC, State.PAYLOAD))
                with m.Case(State.PAYLOAD):
                    m.d.comb += [take.eq(items.i.ready), wrong.eq(take & unit_valid & unit.last)]
                    with m.If(accept & items.last):
                        m.d.sync += state.eq(Mux(unit.end, State.CRC, State.PADDING))
                with m.Case(State.PADDING):
                    filled = unit.data[:message_payloads.UNIT].any()
                    m.d.comb += [take.eq(1), wrong.eq(unit_valid & (unit.last | filled))]
                    with m.If(accept & unit.end):
                        m.d.sync += state.eq(State.CRC)
                with m.Case(State.CRC):
                    m.d.comb += [take.eq(1), wrong.eq(unit_valid & (~unit.last | (self.i.p.data != crc.crc)))]
                    with m.If(accept):
                        m.d.sync += state.eq(Mux(header.kind == MessageKind.READ, State.READ, State.HEADER))
                with m.Case(State.READ):
                    m.d.comb += self.read.valid.eq(1)
                    with m.If(self.read.ready):
                        m.d.sync += state.eq(State.HEADER)

        ended = (state == State.READ) | (state == State.HEADER) & (place == 0)
        m.d.comb += self.error.eq(wrong)
        with m.If(wrong | self.reset):
            m.d.sync += [state.eq(State.HEADER), place.eq(0), drop.eq(drop | ~ended | wrong)]
        m.d.comb += [
            self.read.p.memory.eq(header.memory), self.read.p.address.eq(header.address),
            self.read.p.count.eq(header.count),
            self.busy.eq(items.busy | (header.kind != MessageKind.INPUT)
                         & (state != State.HEADER) & (state != State.CHECK)),
        ]
        return m

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

    def _header(self, m, header, place):
        """Store the fields of one beat of the header, and whether they alone make the message illegal."""
        beat, fields = self.i.p.data, HEADER.size // 4
        share = min(fields, len(beat) // 32)  # number of 32-bit fields in a beat
        parts = [beat.word_select(k % share, 32) for k in range(fields)]
        kind, memory, flags, zero = (parts[0].word_select(k, 8) for k in range(4))
        stores = ([header.kind.eq(kind), header.memory.eq(memory), header.integer.eq(flags)],
                  [header.address.eq(parts[1])], [header.count.eq(parts[2])], [])
        faults = (kind[4:].any() | memory[4:].any() | flags[1:].any() | zero.any(), parts[1][ADDRESS_BITS:].any(),
                  Const(0), parts[3] != self.config.digest)
        with m.Switch(place):
            for first in range(0, fields, share):
                with m.Case(first // share):
                    m.d.sync += header.wrong.eq(
                        (header.wrong if first else 0) | Cat(faults[first:first + share]).any())
                    m.d.sync += stores[first:first + share]

    def _refused(self, m, header):
        """Whether the fields contradict each other by the rules of `spec.messages.check`."""
        config = self.config
        sizes = {mem: depth(config, mem) for mem in ADDRESSED}
        others = {MessageKind.PACKED: config.matrix_tiles, MessageKind.BIAS: config.bias_words,
                  MessageKind.PROGRAM: config.instructions}
        limit = Signal(range(max(*sizes.values(), *others.values()) + 1))
        known = Signal()
        with m.Switch(header.kind):
            with m.Case(MessageKind.WRITE, MessageKind.READ):
                with m.Switch(header.memory):
                    for mem, size in sizes.items():
                        with m.Case(mem):
                            m.d.comb += [known.eq(1), limit.eq(size)]
            for kind, size in others.items():
                with m.Case(kind):
                    m.d.comb += [known.eq(header.memory == 0), limit.eq(size)]
            if config.lazy_update:
                with m.Case(MessageKind.UPDATE):
                    m.d.comb += known.eq((header.memory < LazyFormat().changes[-1] + 2) & ~header.address[:8].all()
                                         & ~header.address[8:].all())
            with m.Case(MessageKind.INPUT):
                m.d.comb += known.eq((header.memory == 0) & (header.address == 0))
        beyond = header.count[END_BITS:].any() | (header.address + header.count[:END_BITS] > limit)
        return (~known | (header.count == 0)
                | header.integer & (header.kind != MessageKind.PACKED)
                | beyond & (header.kind != MessageKind.INPUT) & (header.kind != MessageKind.UPDATE))
