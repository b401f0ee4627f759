"""The base registers of a trainer, which views add to their words."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from concord.spec.trainer.config import NONE

BASE = 32  #: Bits of a base register.


class Bases(wiring.Component):
    """Holds the base registers; number NONE reads as 0. A reset makes all of them 0, one a cycle.

    Members:
        number: In(5). value: Out(signed(32)). The register of this number, one cycle later.
        host_number: In(5). host_value: Out(32). The same for the host.
        write, write_number, write_value: In. Writes a register; not while busy.
        busy: Out(1). Registers become 0.
    """

    def __init__(self):
        super().__init__({"number": In(5), "value": Out(signed(BASE)), "host_number": In(5), "host_value": Out(BASE),
            "write": In(1), "write_number": In(5), "write_value": In(BASE), "busy": Out(1, init=1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=BASE, depth=NONE + 1, init=[])
        write, place = memory.write_port(), Signal(range(NONE + 1))
        m.d.sync += place.eq(place + 1)
        with m.If(place == NONE):
            m.d.sync += self.busy.eq(0)
        m.d.comb += [write.en.eq(self.busy | self.write), write.addr.eq(Mux(self.busy, place, self.write_number)),
                     write.data.eq(Mux(self.busy, 0, self.write_value))]
        for number, value in ((self.number, self.value), (self.host_number, self.host_value)):
            read = memory.read_port(domain="comb")
            m.d.comb += read.addr.eq(number)
            m.d.sync += value.eq(read.data)
        return m
