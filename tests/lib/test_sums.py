"""Sums in the carry cells of an ECP5 equal those in operators, which the solver proves."""

import subprocess

import pytest
from amaranth import Module, Signal
from amaranth.hdl import signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator
from concord.hw.lib import ecp5
from concord.hw.lib.arithmetic import chosen_sum, gated_sum, loaded_sum, sum_or_difference
from concord.hw.lib.ecp5 import Ecp5
from concord.hw.verilog import YOSYS, verilog

PROOF = ("read_verilog -D NO_INCLUDES +/ecp5/cells_sim.v; read_verilog cells.v; hierarchy -top cells; proc; flatten; "
         "read_verilog plain.v; proc; miter -equiv -flatten -make_outputs plain cells miter; "
         "sat -verify -prove trigger 0 -show-inputs miter")


class GatedSum(wiring.Component):
    """A gated sum of integers of two widths."""

    def __init__(self, x: int, y: int):
        super().__init__({"a": In(1), "b": In(1), "x": In(signed(x)), "y": In(signed(y)),
                          "o": Out(signed(max(x, y) + 1))})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(gated_sum(m, platform, self.a, self.x, self.b, self.y))
        return m


class SumOrDifference(wiring.Component):
    """A sum or difference of integers of one width, and one whose carry is an input."""

    def __init__(self, width: int):
        super().__init__({"a": In(width), "b": In(width), "minus": In(1), "carry": In(1), "o": Out(width),
                          "carried": Out(width)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [self.o.eq(sum_or_difference(m, platform, self.a, self.b, self.minus)),
                     self.carried.eq(sum_or_difference(m, platform, self.a, self.b, self.minus, self.carry))]
        return m


class ChosenSum(wiring.Component):
    """A sum with one of two integers."""

    def __init__(self, width: int):
        super().__init__({"a": In(width), "second": In(1), "x": In(width), "y": In(width), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(chosen_sum(m, platform, self.a, self.second, self.x, self.y))
        return m


class LoadedSum(wiring.Component):
    """A sum, or an integer instead."""

    def __init__(self, width: int, value, b):
        super().__init__({"load": In(1), "value": In(value), "a": In(width), "b": In(b), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(loaded_sum(m, platform, self.load, self.value, self.a, self.b))
        return m


def proved(folder, make) -> bool:
    """Whether the solver proves that both forms of the component that `make` makes are equal."""
    for name, platform in (("plain", None), ("cells", Ecp5())):
        (folder / f"{name}.v").write_text(verilog(make(), name, platform))
    done = subprocess.run([YOSYS, "-p", PROOF], cwd=folder, check=False, capture_output=True, text=True)
    assert "proof" in done.stdout, done.stdout[-2000:] + done.stderr
    return done.returncode == 0


@pytest.mark.parametrize(("x", "y"), [(1, 1), (9, 5), (16, 16)])
def test_gated_sums(tmp_path, x, y):
    assert proved(tmp_path, lambda: GatedSum(x, y))


@pytest.mark.parametrize("width", [1, 48])
def test_sums_or_differences(tmp_path, width):
    assert proved(tmp_path, lambda: SumOrDifference(width))


@pytest.mark.parametrize("width", [1, 48])
def test_chosen_sums(tmp_path, width):
    assert proved(tmp_path, lambda: ChosenSum(width))


@pytest.mark.parametrize(("width", "value", "b"), [(1, 1, 1), (28, 28, 28), (16, signed(8), 4), (12, 16, signed(9))])
def test_loaded_sums(tmp_path, width, value, b):
    assert proved(tmp_path, lambda: LoadedSum(width, value, b))


def test_a_loaded_sum_keeps_the_signs_of_shorter_numbers():
    m, load, a = Module(), Signal(), Signal(8)
    value, b, o = Signal(signed(4), init=-3), Signal(signed(3), init=-2), Signal(8)
    m.d.comb += o.eq(loaded_sum(m, None, load, value, a, b))
    seen = []

    async def bench(sim):
        for now in (0, 1):
            sim.set(load, now)
            sim.set(a, 5)
            await sim.delay(1e-9)
            seen.append(sim.get(o))

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
    assert seen == [3, 256 - 3]


@pytest.mark.parametrize(("table", "make"), [("_GATED", lambda: GatedSum(4, 4)),
                                             ("_PLUS_XOR", lambda: SumOrDifference(4)),
                                             ("_PLUS_CHOSEN", lambda: ChosenSum(4)),
                                             ("_LOADED", lambda: LoadedSum(4, 4, 4)),
                                             ("_GENERATED", lambda: SumOrDifference(5))])
def test_a_wrong_table_is_noticed(tmp_path, monkeypatch, table, make):
    monkeypatch.setattr(ecp5, table, getattr(ecp5, table) ^ 2)
    assert not proved(tmp_path, make)
