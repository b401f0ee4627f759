"""Divides the payload of a host message into items."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib import message_payloads
from concord.spec.host.messages import MessageKind, item_bytes
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config

#: Numbers that stand for the kind WRITE where the items are entries of VectorRf, or words for Dram: kinds have 4 bits.
_ENTRIES, _OUTSIDE = 1 << 4 | MessageKind.WRITE, 1 << 5 | MessageKind.WRITE


class MessageItems(wiring.Component):
    """Collects units into items and passes each to the memory of its kind.

    Args:
        config: Configuration of the machine.

    Members:
        start: In(1). A payload begins; it must be low while `waiting` is high.
        header: In({kind, memory, integer, address, count, wrong}). Header of that payload, valid with `start`.
        i: In(stream of wide units). Units of the payload; a narrow one lies in the low bits.
        wide: Out(1). The units of that payload are wide, because wide units fill its items.
        last: Out(1). The unit that `i` takes next is the payload's last.
        restart: In(1). Drops an incomplete item. reset: In(1). Also drops a complete item that waits.
        waiting: Out(1). A complete item waits to be taken.
        busy: Out(1). That item is not for NetQ.
        net, write, entry_write, program, bias, packed, update, outside: Out(stream). Items for each memory, as
            `MessageInput` passes them on; `outside` in a machine with Dram.

    Timing:
        One unit in each cycle while items are taken. An item leaves 1 cycle after its last unit.
    """

    def __init__(self, config: Config):
        config.require_hardware()
        self.config = config
        super().__init__({
            "start": In(1), "header": In(message_payloads.header(config)),
            "i": In(stream.Signature(message_payloads.wide_unit(config))), "wide": Out(1), "last": Out(1),
            "restart": In(1), "reset": In(1), "waiting": Out(1), "busy": Out(1),
            **{name: Out(stream.Signature(shape)) for name, shape in message_payloads.items(config).items()}})

    def _outs(self):
        """Output stream of each kind that has items, of `_ENTRIES` and of `_OUTSIDE`."""
        updates = {MessageKind.UPDATE: self.update} if self.config.lazy_update else {}
        entries = {_ENTRIES: self.entry_write} if self.config.vector_rf else {}
        outside = {_OUTSIDE: self.outside} if self.config.dram_words else {}
        return updates | entries | outside | {
            MessageKind.WRITE: self.write, MessageKind.PACKED: self.packed, MessageKind.BIAS: self.bias,
            MessageKind.PROGRAM: self.program, MessageKind.INPUT: self.net}

    def _bytes(self, kind: int) -> int:
        """Number of bytes of one item as it is passed on; a packed tile is passed on record by record."""
        if kind == _ENTRIES:
            return item_bytes(self.config, MessageKind.WRITE, Mem.VECTOR_RF)
        size = item_bytes(self.config, MessageKind.WRITE if kind == _OUTSIDE else kind)
        return size // self.records if kind == MessageKind.PACKED else size

    @property
    def records(self) -> int:
        """Number of records of a packed tile."""
        return self.config.native_dim * self.config.groups

    def elaborate(self, platform):
        m = Module()

        # Units are shifted in from above, so an item of n units lies in the top n units whatever its kind. Wide and
        # narrow units have a register each, which costs no gates: a common one would need a multiplexer for each bit.
        # The next item may begin in the cycle in which this one is taken.
        sizes = {kind: 8 * self._bytes(kind) for kind in self._outs()}
        widths = {kind: message_payloads.unit_bits(self.config, self._bytes(kind)) for kind in sizes}
        gathered = {width: Signal(max(size for kind, size in sizes.items() if widths[kind] == width),
                                  name=f"gathered_{width}") for width in sorted(set(widths.values()))}
        most = max(size // widths[kind] for kind, size in sizes.items())
        part, final = Signal(range(most)), Signal(range(most))
        header, record = Signal(message_payloads.header(self.config)), Signal(range(self.records))
        item = Signal(data.StructLayout({
            "address": message_payloads.number_bits(self.config), "record": range(self.records), "left": 32}))
        leaving = Signal()

        marks = [(self.header.kind == MessageKind.WRITE) & (self.header.memory == mem)
                 for mem in (Mem.VECTOR_RF, *[Mem.DRAM] * bool(self.config.dram_words))]
        kinds = {kind: Signal(name=f"kind_{kind}") for kind in self._outs()}  # which of them the payload has
        with m.If(self.start):
            m.d.sync += [final.eq(0), self.wide.eq(0), *(kind.eq(0) for kind in kinds.values())]
            with m.Switch(Cat(self.header.kind, *marks)):
                for kind in kinds:
                    with m.Case(kind):
                        m.d.sync += [
                            kinds[kind].eq(1), final.eq(sizes[kind] // widths[kind] - 1),
                            self.wide.eq(widths[kind] == message_payloads.wide_unit(self.config))]
        for kind, out in self._outs().items():
            m.d.comb += out.valid.eq(self.waiting & kinds[kind])
        m.d.comb += leaving.eq(self.waiting & Cat(kinds[kind] & out.ready for kind, out in self._outs().items()).any())
        packed = kinds[MessageKind.PACKED]
        whole = ~packed | (record == self.records - 1)  # this record completes one of `count`
        m.d.comb += [
            self.i.ready.eq(~self.waiting | leaving),
            self.last.eq((part == final) & whole & (header.count == 1)),
            self.busy.eq(self.waiting & ~kinds[MessageKind.INPUT]),
        ]
        with m.If(leaving):
            m.d.sync += self.waiting.eq(0)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [part.eq(part + 1), *(
                register.eq(Cat(register, self.i.p[:width])[width:]) for width, register in gathered.items())]
            with m.If(part == final):
                m.d.sync += [
                    self.waiting.eq(1), item.address.eq(header.address), item.record.eq(record),
                    item.left.eq(header.count), part.eq(0), record.eq(record + packed)]
                with m.If(whole):
                    m.d.sync += [header.address.eq(header.address + ~kinds.get(MessageKind.UPDATE, Const(0))),
                                 header.count.eq(header.count - 1)]
        with m.If(self.start):
            m.d.sync += header.eq(self.header)
        with m.If(self.restart | self.reset):
            m.d.sync += [part.eq(0), record.eq(0)]
        with m.If(self.reset):
            m.d.sync += self.waiting.eq(0)

        self._fields(m, {kind: gathered[widths[kind]][-size:] for kind, size in sizes.items()}, header, item)
        return m

    def _fields(self, m, bits, header, item):
        """Payloads of the output streams, from the bits of an item of each kind."""
        if self.config.lazy_update:
            m.d.comb += [
                self.update.p.exponents.eq(header.address), self.update.p.change.eq(header.memory),
                self.update.p.remaining.eq(item.left), Value.cast(self.update.p.words).eq(bits[MessageKind.UPDATE])]
        if self.config.vector_rf:
            m.d.comb += [self.entry_write.p.address.eq(item.address),
                         Value.cast(self.entry_write.p.entry).eq(bits[_ENTRIES])]
        if self.config.dram_words:
            m.d.comb += [self.outside.p.first.eq(item.address), self.outside.p.left.eq(item.left),
                         Value.cast(self.outside.p.word).eq(bits[_OUTSIDE])]
        m.d.comb += [
            Value.cast(self.net.p).eq(bits[MessageKind.INPUT]),
            self.write.p.memory.eq(header.memory),
            self.write.p.address.eq(item.address),
            Value.cast(self.write.p.word).eq(bits[MessageKind.WRITE]),
            self.program.p.address.eq(item.address),
            self.program.p.data.eq(bits[MessageKind.PROGRAM]),
            self.bias.p.address.eq(item.address),
            *(lane.eq(bits[MessageKind.BIAS].word_select(k, 32)) for k, lane in enumerate(self.bias.p.data)),
            self.packed.p.tile.eq(item.address),
            self.packed.p.integer.eq(header.integer),
            Cat(self.packed.p.group, self.packed.p.row).eq(item.record),
            self.packed.p.record.eq(bits[MessageKind.PACKED]),
            self.packed.p.last.eq(item.record == self.records - 1),
        ]
