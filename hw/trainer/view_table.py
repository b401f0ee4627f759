"""The views that a program has written."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from concord.hw.lib.reserved_queue import BLOCK
from concord.spec.trainer.instructions import FIELDS, WORD, TrainerOp

_FIELDS = {name: field for name, field in FIELDS[TrainerOp.TENSOR].items() if name != "v"}
#: A view as `tensor` has written it.
Tensor = data.StructLayout({
    name: signed(field.width) if field.kind == "signed" else field.width for name, field in _FIELDS.items()})


def tensor_bits(word):
    """The bits of `Tensor` in both words of a `tensor`."""
    return Cat(word[field.lo:field.lo + field.width] for field in _FIELDS.values())


class ViewTable(wiring.Component):
    """Holds the views that a program has written.

    Args:
        views: Number of views.

    Members:
        clear: In(1). No view is written any more.
        write: In(1). write_number: In(5). word: In(256). A `tensor` writes a view.
        number: In(5). view: Out(Tensor). The view of this number, one cycle later; undefined if it was being written.
        there: Out(1). Whether that view is written.
    """

    def __init__(self, views: int):
        self.views = views
        super().__init__({
            "clear": In(1), "write": In(1), "write_number": In(5), "word": In(2 * WORD), "number": In(5),
            "view": Out(Tensor), "there": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=Tensor.size, depth=self.views, init=[], attrs=BLOCK)
        write, read, written = memory.write_port(), memory.read_port(), Signal(self.views)
        m.d.comb += [write.en.eq(self.write), write.addr.eq(self.write_number), write.data.eq(tensor_bits(self.word)),
                     read.addr.eq(self.number)]
        m.d.comb += self.view.as_value().eq(read.data)
        m.d.sync += self.there.eq(written.bit_select(self.number, 1))
        with m.If(self.clear):
            m.d.sync += written.eq(0)
        with m.Elif(self.write):
            m.d.sync += written.bit_select(self.write_number, 1).eq(1)
        return m
