"""Makes host messages of words and entries: spec.host.messages.pack in hardware."""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from concord.hw.host.crc import CRC32
from concord.hw.lib import message_payloads
from concord.spec.host.messages import MessageKind, entry_bytes
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config

ENTRIES = 2  #: Number of the stream of entries, on machines that have them.


class State(enum.Enum):
    """Meaning of the next unit."""

    IDLE = 0  #: No unit: no message has begun.
    HEADER = 1
    PAYLOAD = 2
    PADDING = 3
    CRC = 4  #: Units of the last beat.


class MessageOutput(wiring.Component):
    """Makes messages: OUTPUT for words from NetQ, READ for what the host requested, UPDATED for parameters.

    Another machine takes the words from NetQ as INPUT messages, if `peer` is its digest.

    Args:
        config: Configuration of the machine.

    Members:
        peer: In(32). Digest of the machine that takes the words from NetQ; 0 for the host. It changes only while the
            unit is not busy.
        net: In(stream {word, remaining}). Words of OUTPUT messages; `remaining` counts the words left in the message,
            this one included, so the first word gives the length.
        reply: In(stream {word, memory, address, remaining}). Words of READ messages; memory and address stay the same
            through one message.
        entry_reply: In(stream {entry, address, remaining}). Entries of READ messages for VectorRf.
        updated: In(stream {word, exponents, remaining}). Words of UPDATED messages.
        reset: In(1). Ends an incomplete message with a wrong CRC, so that the host discards it and is ready for the
            next one. The inputs are cleared in the same cycle.
        o: Out(stream {data, last}). Beats to the host.
        busy: Out(1). A message has begun that `o` has not sent completely.

    Timing:
        One unit in each cycle while `o` is taken, and 1 more cycle before a message and before its CRC. A unit of words
        is as much of a word as a beat holds; so is a unit of entries if such units fill them, else it has 32 bits. A
        unit of header, padding and CRC has 32 bits.
    """

    def __init__(self, config: Config):
        config.require_hardware()
        self.config = config
        super().__init__({
            "peer": In(32),
            "net": In(stream.Signature(message_payloads.output(config))),
            "reply": In(stream.Signature(message_payloads.reply(config))),
            "entry_reply": In(stream.Signature(message_payloads.entry_reply(config))),
            "updated": In(stream.Signature(message_payloads.updated(config))),
            "reset": In(1),
            "o": Out(stream.Signature(message_payloads.beat(config))),
            "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()

        # Like MessageInput, this is a state machine over the meaning of the next unit.
        unit, unit_valid, unit_ready = Signal(message_payloads.unit(self.config)), Signal(), Signal()
        wide = Signal()
        partial = self._beats(m, unit, unit_valid, unit_ready, wide)
        word_units = self.config.mfu_lanes // 2
        entry_units = entry_bytes(self.config) * 8 // message_payloads.UNIT if self.config.vector_rf else 0
        step = message_payloads.wide_unit(self.config) // message_payloads.UNIT
        beat_units = 8 * self.config.message_bytes // message_payloads.UNIT
        state, place, damaged = Signal(State), Signal(range(max(4, word_units, entry_units))), Signal()
        accept, final = Signal(), Signal()  # `final`: the present item is the last
        m.d.comb += accept.eq(unit_valid & unit_ready)

        m.submodules.crc = crc = CRC32(8 * self.config.message_bytes)
        # The register of `o` in front of this wide sum delays each beat of the CRC by one cycle.
        m.d.comb += crc.data.eq(self.o.p.data)
        m.d.sync += [crc.valid.eq(accept & unit.end),
                     crc.start.eq((state == State.HEADER) & (place == beat_units - 1))]

        source = Signal(range(len(self._streams())))
        entries, item, taken, header = self._source(m, source)
        wide_entries = message_payloads.unit_bits(self.config, entry_units * 4) != message_payloads.UNIT
        m.d.comb += wide.eq((state == State.PAYLOAD) & (~entries | wide_entries))
        last_unit = Mux(entries, entry_units - 1, word_units - 1) if entry_units else word_units - 1
        last_part = (place | Mux(wide, step - 1, 0)) == last_unit
        with m.If(~self.reset | (state == State.PADDING) | (state == State.CRC)):
            with m.Switch(state):
                with m.Case(State.IDLE):
                    with m.If(Cat(items.valid for items in self._streams()).any()):
                        m.d.sync += [damaged.eq(0), state.eq(State.HEADER)]
                        for k, items in reversed(list(enumerate(self._streams()))):
                            with m.If(items.valid):
                                m.d.sync += source.eq(k)
                with m.Case(State.HEADER):
                    m.d.comb += [unit_valid.eq(1), unit.data.eq(header.word_select(place[:2], message_payloads.UNIT))]
                    m.d.sync += final.eq(item.remaining == 1)
                    with m.If(accept):
                        m.d.sync += place.eq(place + 1)
                        with m.If(place == 3):
                            m.d.sync += [place.eq(0), state.eq(State.PAYLOAD)]
                with m.Case(State.PAYLOAD):
                    m.d.comb += [unit_valid.eq(item.valid), unit.data.eq(self._unit(item.bits, place))]
                    with m.If(accept):
                        m.d.sync += place.eq(place + Mux(wide, step, 1))
                    with m.If(accept & last_part):
                        m.d.comb += taken.eq(1)
                        m.d.sync += [place.eq(0), final.eq(item.remaining == 2)]
                        with m.If(final):
                            m.d.sync += state.eq(Mux(unit.end, State.CRC, State.PADDING))
                with m.Case(State.PADDING):
                    m.d.comb += unit_valid.eq(1)
                    with m.If(accept & unit.end):
                        m.d.sync += state.eq(State.CRC)
                with m.Case(State.CRC):
                    m.d.comb += [unit_valid.eq(~crc.valid | partial), unit.last.eq(1)]
                    with m.If(~partial):
                        m.d.comb += unit.data.eq(crc.crc ^ damaged)
                    with m.If(accept & unit.end):
                        m.d.sync += state.eq(State.IDLE)
        with m.Elif(state != State.IDLE):
            m.d.sync += [place.eq(0), damaged.eq(1), state.eq(Mux(partial, State.PADDING, State.CRC))]

        m.d.comb += self.busy.eq((state != State.IDLE) | self.o.valid)
        return m

    def _streams(self) -> list:
        """The streams of items; the first that has one comes first."""
        return [self.net, self.reply, *[self.entry_reply] * bool(self.config.vector_rf), self.updated]

    def _source(self, m, source):
        """Choose the present stream by its number in `_streams`.

        Returns:
            Whether its items are entries, its item, a signal that takes the item, and the bits of a header.
        """
        net, reply, updated = self.net.p, self.reply.p, self.updated.p
        kinds = [(MessageKind.OUTPUT, net.word, 0, 0), (MessageKind.READ, reply.word, reply.memory, reply.address)]
        if self.config.vector_rf:
            entry = self.entry_reply.p
            kinds += [(MessageKind.READ, entry.entry, Mem.VECTOR_RF, entry.address)]
        kinds += [(MessageKind.UPDATED, updated.word, 0, updated.exponents)]
        width = max(len(Value.cast(bits)) for _, bits, _, _ in kinds)
        item = Signal(data.StructLayout({"bits": width, "remaining": 32, "valid": 1}))
        taken = Signal()  # apart from `item`, of which it follows: tools see no loop then
        kind, memory, address = Signal(8), Signal(8), Signal(32)
        entries = source == ENTRIES if self.config.vector_rf else Const(0)
        with m.Switch(source):
            for k, (items, (which, bits, its_memory, its_address)) in enumerate(
                    zip(self._streams(), kinds, strict=True)):
                with m.Case(k):
                    m.d.comb += [
                        kind.eq(which), memory.eq(its_memory), address.eq(its_address), item.bits.eq(bits),
                        item.remaining.eq(items.p.remaining), item.valid.eq(items.valid), items.ready.eq(taken)]
        to_peer = (kind == MessageKind.OUTPUT) & self.peer.any()
        header = Cat(Mux(to_peer, Const(MessageKind.INPUT, 8), kind), memory, Const(0, 16), address, item.remaining,
                     Mux(to_peer, self.peer, self.config.digest))
        return entries, item, taken, header

    def _unit(self, bits, place):
        """The unit of an item that begins `place` narrow units after its start; a narrow unit lies in the low bits."""
        wide = message_payloads.wide_unit(self.config)
        step = wide // message_payloads.UNIT
        whole = bits[:wide] if len(bits) <= wide else bits.word_select(place[exact_log2(step):], wide)
        return Cat(bits.word_select(place, message_payloads.UNIT), whole[message_payloads.UNIT:])

    def _beats(self, m, unit, valid, ready, wide):
        """Collect units, of which some are wide, into the beats of `o`. Returns whether a beat is incomplete."""
        count, step = (bits // message_payloads.UNIT for bits in (len(self.o.p.data), len(unit.data)))
        index = Signal(range(max(2, count)))  # in narrow units; at least a bit: Verilog has no signals without bits
        beats = [Cat(self.o.p.data, unit.data[:bits])[bits:] for bits in (message_payloads.UNIT, len(unit.data))]
        m.d.comb += [ready.eq(~self.o.valid | self.o.ready),
                     unit.end.eq((index | Mux(wide, step - 1, 0)) == count - 1)]
        with m.If(ready):
            m.d.sync += self.o.valid.eq(valid & unit.end)
        with m.If(valid & ready):
            m.d.sync += [
                index.eq(Mux(unit.end, 0, index + Mux(wide, step, 1))), self.o.p.last.eq(unit.last),
                self.o.p.data.eq(Mux(wide, beats[1], beats[0])),
            ]
        return index != 0
