"""Products in shared hardware multipliers are products of integers: every pair of weights times every operand."""

from collections import Counter
from dataclasses import replace

import pytest
from amaranth import Cat, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out
from concord.benchmarks.synth import YosysScript, costs, synthesise
from concord.hw.lib.ecp5 import Ecp5
from concord.hw.lib.pipeline import delay
from concord.hw.mvm.dot_products import PAIR, SINGLE, TRIPLE, SharedProducts, groups, shared_lanes
from concord.hw.mvm.tile_engine import TileEngine
from concord.hw.verilog import verilog
from concord.sim.machines.build import run
from concord.spec.machine.config import preset
from concord.spec.numbers.formats import Format

COPIES = 16  #: Cases that are tried in one cycle.


class Exhaustive(wiring.Component):
    """Multiplies every pair of weights by every operand, in a group whose other rows have weights that follow from it.

    Args:
        fmt:   Format of weights and operands.
        group: The group of rows.
        first: Row of the first weight of the pair.
        fault: Whether one bit of a weight is inverted before it is multiplied.

    Members:
        wrong: Out(1). A product differed.
        done:  Out(1). All cases have been tried.
    """

    def __init__(self, fmt: Format, group, first: int, *, fault: bool = False):
        self.fmt, self.group, self.first, self.fault = fmt, group, first, fault
        self.cases = (1 << 3 * fmt.bits) // COPIES
        super().__init__({"wrong": Out(1), "done": Out(1)})

    def elaborate(self, platform):
        m = Module()
        bits, count, waited = self.fmt.bits, Signal(range(self.cases)), Signal(3)
        m.d.sync += count.eq(count + 1)
        with m.If(count == self.cases - 1):
            m.d.sync += self.done.eq(1)
        with m.If(waited != 7):  # the first results have not come
            m.d.sync += waited.eq(waited + 1)
        for copy in range(COPIES):
            case = Cat(count, Const(copy, 4))
            one, other, x = (case[k * bits:(k + 1) * bits].as_signed() for k in range(3))
            pair, rest = {self.first: one, self.first + 1: other}, (one + other + x)[:bits].as_signed()
            rows = [pair.get(k, rest) for k in range(self.group.rows)]
            taken = [(row ^ self.fault)[:bits].as_signed() for row in rows]
            shared = SharedProducts((self.fmt, self.fmt), 1)
            products = shared.dots(m, self.group, [[row] for row in taken], [x], x)
            for row, product in zip(rows, products, strict=True):
                right = delay(m, (row * x)[:2 * bits].as_signed(), self.group.cycles)
                with m.If((product != right) & (waited == 7)):
                    m.d.sync += self.wrong.eq(1)
        return m


@pytest.mark.parametrize(("bits", "group", "first"), [(4, PAIR, 0), (8, TRIPLE, 0), (8, TRIPLE, 1)])
def test_every_pair_of_weights_times_every_operand(bits, group, first):
    dut = Exhaustive(Format(bits=bits), group, first)
    run(dut, "concord.tests.mvm.exhaustive", CASES=str(dut.cases))


def test_a_wrong_product_is_noticed():
    dut = Exhaustive(Format(bits=4), PAIR, 0, fault=True)
    with pytest.raises(AssertionError, match="a product differs"):
        run(dut, "concord.tests.mvm.exhaustive", CASES=str(dut.cases))


def test_groups_use_the_multipliers_that_there_are():
    eight = replace(preset("speech"), tile_engines=1)
    chosen = {count: list(groups(replace(eight, multipliers=count), 5)) for count in (0, 15, 16, 32, 112, 10_000)}
    assert chosen == {0: [], 15: [], 16: [SINGLE], 32: [TRIPLE], 112: [TRIPLE] * 3 + [SINGLE],
                      10_000: [TRIPLE] * 5 + [SINGLE]}
    assert list(groups(replace(eight, multipliers=32), 4)) == [SINGLE] * 2  # no time to take three sums apart


def test_all_pairs_have_multipliers_for_as_many_lanes_as_suffice():
    config = preset("ulx3s")  # 16 pairs of rows of 32 lanes
    chosen = {count: (shared_lanes(changed, 4), len(list(groups(changed, 4))))
              for count in (15, 16, 31, 128, 256, 511, 512) for changed in [replace(config, multipliers=count)]}
    assert chosen == {15: (0, 0), 16: (1, 16), 31: (1, 16), 128: (8, 16), 256: (16, 16), 511: (0, 15), 512: (0, 16)}
    assert shared_lanes(config, 2) == 0  # no time to add up what multipliers and tables give


@pytest.mark.parametrize(("weights", "operand", "lanes", "group"), [
    (10, 8, 16, TRIPLE), (8, 9, 32, TRIPLE), (8, 8, 1, PAIR), (4, 4, 128, PAIR), (16, 4, 1, PAIR)])
def test_sums_that_are_too_large_share_nothing(weights, operand, lanes, group):
    assert not SharedProducts((Format(bits=weights), Format(bits=operand)), lanes).fits(group)


def test_products_are_mapped_where_they_are_meant_to_be():
    """Each product that the configuration has a multiplier for takes one, and no other does."""
    tiny, wide = preset("tiny"), replace(preset("wide"), tile_engines=1)
    for config, used in ((replace(tiny, multipliers=0), 0), (replace(tiny, multipliers=27), 24),
                         (replace(wide, multipliers=16), 16), (replace(wide, multipliers=39), 32)):
        modules = synthesise(verilog(TileEngine(config), "top", Ecp5()), YosysScript(flatten=True))
        assert costs(sum(modules.values(), Counter()))["DSP"] == used
