"""AXI4-Stream ports for a unit that moves message beats: wire names for bus models, pauses and a protocol monitor."""

import random

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Component, In, Out
from cocotb.triggers import RisingEdge


class AxiStream(Component):
    """`unit` with its stream `name` of {data, last} renamed to `prefix`_tdata, _tvalid, _tready and _tlast.

    Args:
        unit:   Component with the stream; its other ports stay as they are.
        name:   Name of the stream.
        prefix: Prefix of the names of the bus wires.
    """

    def __init__(self, unit: Component, name: str, prefix: str):
        self.unit, self.name, self.prefix = unit, name, prefix
        self.incoming = unit.signature.members[name].flow == In
        there, back = (In, Out) if self.incoming else (Out, In)
        self.kept = {key: member for key, member in unit.signature.members.items() if key != name}
        super().__init__(self.kept | {
            f"{prefix}_tdata": there(len(getattr(unit, name).p.data)), f"{prefix}_tlast": there(1),
            f"{prefix}_tvalid": there(1), f"{prefix}_tready": back(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.unit = self.unit
        for key, member in self.kept.items():
            inner, outer = getattr(self.unit, key), getattr(self, key)
            if member.is_signature:
                wiring.connect(m, inner, wiring.flipped(outer))
            else:
                m.d.comb += inner.eq(outer) if member.flow == In else outer.eq(inner)
        stream = getattr(self.unit, self.name)
        data, last, valid, ready = (
            getattr(self, f"{self.prefix}_{wire}") for wire in ("tdata", "tlast", "tvalid", "tready"))
        there = [(stream.p.data, data), (stream.p.last, last), (stream.valid, valid), (ready, stream.ready)]
        m.d.comb += [left.eq(right) if self.incoming else right.eq(left) for left, right in there]
        return m


def pauses(seed: int, stall: float):
    """An endless pause generator for cocotbext-axi: True in a share `stall` of the cycles."""
    choice = random.Random(seed)
    while True:
        yield choice.random() < stall


async def monitor(dut, prefix: str):
    """Fail the test when `prefix`_tvalid drops or a beat changes before it is taken."""
    data, last, valid, ready = (getattr(dut, f"{prefix}_{wire}") for wire in ("tdata", "tlast", "tvalid", "tready"))
    edge, held = RisingEdge(dut.clk), None
    while True:
        await edge
        beat = (int(data.value), int(last.value)) if valid.value and not dut.rst.value else None
        assert held is None or dut.rst.value or beat == held, f"{prefix}: {held} became {beat} before it was taken"
        held = None if ready.value else beat
