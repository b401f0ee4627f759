"""The machine without its numbers: nothing is left of them, and every cycle and counter is that of the machine."""

import re

import pytest
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from concord.campaigns.timing_programs import differences
from concord.hw.cone import keep_cone
from concord.hw.nnp import NNP
from concord.hw.timing import netlists, without_numbers
from concord.hw.verilog import verilog
from concord.sim.machines.timing_library import timing_text
from concord.spec.machine.config import preset

SMALLEST = preset("serial")


@pytest.fixture(scope="module")
def small() -> str:
    return timing_text(SMALLEST)


def test_cycles_and_counters_are_those_of_the_machine():
    assert not differences("serial", 1, range(60, 90))


def test_no_number_is_left(small):
    memories = set(re.findall(r"^  reg (?:\[\d+:0\] )?\\?(\S+) *\[\d+:0\];", small, re.MULTILINE))
    assert memories == {"buffer", "marks0", "storage", "table", "totals"}  # zero marks say when products end
    units = {name.rpartition(".")[2] for name in re.findall(r"^module \\?(\S+)", small, re.MULTILINE)}
    assert {"sequencer", "interlock"} <= units
    assert not {"engine0", "bias_rf", "adder0", "multiplier0", "activation0"} & units


def test_units_that_stay_empty_have_no_part_in_it(small):
    """The cone of the whole machine, arithmetic and all rows included, is the same text but for numbers of names."""
    whole, left = (re.sub(r"\$\d+", "$", text) for text in (without_numbers(NNP(SMALLEST), "nnp"), small))
    assert whole == left


class Kept(wiring.Component):
    """Two numbers in a register and in a memory, of which one leaves, and a sum that nobody reads."""

    def __init__(self):
        super().__init__({"i": In(8), "at": In(2), "o": Out(4), "known": Out(1)})

    def elaborate(self, platform):
        m = Module()
        register, total = Signal(8), Signal(16)
        m.submodules.memory = memory = Memory(shape=8, depth=4, init=[0x21, 0x43])
        write, read = memory.write_port(granularity=4), memory.read_port()
        m.d.sync += [register.eq(Cat(self.i[4:], self.i[:4])), total.eq(total + self.i)]
        m.d.comb += [
            write.addr.eq(self.at),
            write.data.eq(register),
            write.en.eq(self.i[:2]),
            read.addr.eq(self.at),
            self.o.eq(read.data[4:]),
            self.known.eq(total == 3),
        ]
        return m


def test_registers_and_memories_lose_bits():
    unit = Kept()
    with netlists(lambda netlist: keep_cone(netlist, list(netlist.signals[unit.known]))):
        text = verilog(unit, "kept")
    assert re.search(r"reg \[3:0\] memory *\[3:0\]", text)  # the upper halves of its words, 2 and 4
    assert "if (i[1])" in text  # their enable, not that of the lower halves
    assert re.findall(r"memory\[\d\] = (.*);", text)[:2] == ["4'h2", "4'h4"]
    assert "total" not in text
    assert re.search(r"assign known = 1'h0", text)
    assert "total" in verilog(Kept(), "kept")
