# amaranth: UnusedElaboratable=no
"""Netlists under Verilator: a unit gives golden's bits on gates, as instances and as tables; a changed bit is found."""

import copy
from types import MappingProxyType

import numpy as np
import pytest
from amaranth import Module
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import UNCHECKED
from concord.hw.lib.ecp5 import Ecp5
from concord.hw.lib.pipeline import delay
from concord.hw.mfu.activation import Activation
from concord.hw.verilog import verilog
from concord.sim.machines.cascade import cascade
from concord.sim.machines.kinds import MachineKind
from concord.sim.machines.netlist import count, gates, mutated, netlist
from concord.sim.reference.multifunction import stage
from concord.spec.isa.operations import Stage, codes
from concord.spec.machine.config import preset
from concord.tests.pipeline_harness import PipelineHarness

#: Words of memories, by the name of their output.
DEPTHS = MappingProxyType({"deep": 512, "shallow": 16, "apart": 512})
#: Cycles after which outputs follow; registers of `apart` and `product` are inside their cells.
LATE = MappingProxyType({"deep": 1, "shallow": 1, "apart": 2, "product": 2})


class Unit(wiring.Component):
    """The activation stage, a multiplier, and memories of which one word is written and one is read in each cycle.

    The two words of `apart` are never the same.
    """

    def __init__(self):
        self.activation = Activation()
        self.latency = self.activation.latency
        super().__init__({**self.activation.signature.members, "address": In(9), "other": In(9), "word": In(36),
                          "write": In(1)} | {name: Out(36) for name in LATE})

    def elaborate(self, platform):
        m = Module()
        m.submodules.activation = inner = self.activation
        m.d.comb += [inner.a.eq(self.a), inner.op.eq(self.op), self.o.eq(inner.o)]
        for name, depth in DEPTHS.items():
            apart = name == "apart"
            m.submodules[name] = held = memory.Memory(shape=36, depth=depth, init=[], attrs=UNCHECKED if apart else {})
            write, read = held.write_port(), held.read_port()
            allowed = self.address != self.other if apart else 1
            m.d.comb += [write.addr.eq(self.address), write.data.eq(self.word), write.en.eq(self.write & allowed),
                         read.addr.eq(self.other), getattr(self, name).eq(delay(m, read.data, LATE[name] - 1))]
        low, high = delay(m, self.word[:18], 1), delay(m, self.word[18:], 1)
        m.d.comb += self.product.eq(delay(m, low * high, 1))
        return m


@pytest.fixture(scope="module")
def made() -> dict:
    """The netlist of the unit."""
    return netlist(verilog(Unit(), "unit", Ecp5()), "unit")


@pytest.fixture(scope="module")
def given() -> dict[str, np.ndarray]:
    """Every number, with each operation; addresses of memories are often equal."""
    rng = np.random.default_rng(1)
    operations = np.repeat(codes(Stage.ACT), 1 << 16)
    a = np.tile(np.arange(1 << 16, dtype=np.uint16), len(codes(Stage.ACT)))
    return {"a": a, "op": operations, "address": rng.integers(0, 20, a.size), "other": rng.integers(0, 20, a.size),
            "word": rng.integers(0, 1 << 36, a.size), "write": rng.integers(0, 2, a.size)}


def differing(text: str, given: dict[str, np.ndarray]) -> dict[str, int]:
    """For each output, the number of cycles in which it differs from golden's, or from a memory's definition."""
    found = PipelineHarness(Unit(), "unit", text)(**given)
    differing = {"o": int((found["o"] != stage(Stage.ACT, given["op"], given["a"])).sum())}
    for name, depth in DEPTHS.items():
        held, read = [0] * depth, []
        for address, other, word, write in zip(
                *(given[key].tolist() for key in ("address", "other", "word", "write")), strict=True):
            read.append(held[other % depth])
            if write and (name != "apart" or address != other):
                held[address % depth] = word
        differing[name] = wrong(name, found, read)
    return differing | {"product": wrong("product", found, (given["word"] & 0x3FFFF) * (given["word"] >> 18))}


def wrong(name: str, found: dict[str, np.ndarray], wanted) -> int:
    """Number of cycles in which an output differs; the first one that is found is of the unit's latency."""
    skipped = Unit().latency - LATE[name]
    return int((found[name][:len(wanted) - skipped] != wanted[skipped:]).sum())


def test_the_netlist_has_cells_of_each_type(made):
    assert count(made, "unit").keys() == {
        "LUT4", "TRELLIS_FF", "CCU2C", "TRELLIS_DPR16X4", "MULT18X18D", "DP16KD"}


@pytest.mark.parametrize("instances", [False, True], ids=["tables", "instances"])
def test_a_unit_on_gates_gives_golden_s_bits(made, given, instances):
    """Yosys's own models of the cells, and tables, which machines run."""
    assert differing(gates(made, "unit", instances=instances), given) == {"o": 0, "deep": 0, "shallow": 0, "apart": 0,
                                                                                "product": 0}


def test_names_of_cells_differ_behind_their_last_dot(made):
    """nextpnr takes that part for a name, and would try number after number for the carry cells."""
    names = made["modules"]["unit"]["cells"]
    assert len({name.rpartition(".")[2] for name in names}) == len(names)
    assert any("ccu2c_i$" in name for name in names)


def test_registers_are_inside_block_ram_and_multipliers(made):
    cells = made["modules"]["unit"]["cells"].values()
    held = [cell["parameters"] for cell in cells if cell["type"] in ("DP16KD", "MULT18X18D")]
    assert any(cell.get("REGMODE_B") == "OUTREG" for cell in held)
    assert any((cell.get("REG_INPUTA_CLK"), cell.get("REG_OUTPUT_CLK")) == ("CLK0", "CLK0") for cell in held)


def test_one_changed_bit_of_a_lookup_table_is_found(made, given):
    rng = np.random.default_rng(2)
    changed, said = mutated(made, "unit", rng)
    assert said.startswith("bit ")
    assert sum(differing(gates(changed, "unit"), given).values())


@pytest.mark.parametrize(("kind", "key", "value", "sentence"), [
    ("CCU2C", "INJECT1_1", "YES", "INJECT1_1 YES, and only NO has a table"),
    ("TRELLIS_DPR16X4", "WREMUX", "INV", "WREMUX INV, and only WRE"),
    ("TRELLIS_FF", "SRMODE", "ASYNC", "SRMODE ASYNC"),
    ("TRELLIS_FF", "CLKMUX", "INV", "CLKMUX INV"),
])
def test_a_cell_without_a_table_is_refused_in_a_sentence(made, kind, key, value, sentence):
    changed = copy.deepcopy(made)
    cell = next(cell for cell in changed["modules"]["unit"]["cells"].values() if cell["type"] == kind)
    cell["parameters"][key] = value
    with pytest.raises(ValueError, match=sentence):
        gates(changed, "unit")


def test_an_unknown_cell_is_refused_in_a_sentence(made):
    changed = copy.deepcopy(made)
    next(iter(changed["modules"]["unit"]["cells"].values()))["type"] = "PFUMX"
    with pytest.raises(ValueError, match="cells of type PFUMX, which have no tables"):
        gates(changed, "unit")


def test_a_netlist_is_one_machine():
    with pytest.raises(ValueError, match="netlist is one machine, and the firmware is for 2"):
        cascade(MachineKind.NETLIST, [preset("tiny")] * 2)
