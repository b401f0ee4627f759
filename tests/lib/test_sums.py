"""Sums in the carry cells of an ECP5 equal those in operators, which the solver proves."""

import subprocess

import pytest
from amaranth import Module
from amaranth.hdl import signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
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
    """A sum, or an integer in its place."""

    def __init__(self, width: int):
        super().__init__({"load": In(1), "value": In(width), "a": In(width), "b": In(width), "o": Out(width)})

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


@pytest.mark.parametrize("width", [1, 28])
def test_loaded_sums(tmp_path, width):
    assert proved(tmp_path, lambda: LoadedSum(width))


@pytest.mark.parametrize(("table", "make"), [("_GATED", lambda: GatedSum(4, 4)),
                                             ("_PLUS_XOR", lambda: SumOrDifference(4)),
                                             ("_PLUS_CHOSEN", lambda: ChosenSum(4)),
                                             ("_LOADED", lambda: LoadedSum(4)),
                                             ("_GENERATED", lambda: SumOrDifference(5))])
def test_a_wrong_table_is_noticed(tmp_path, monkeypatch, table, make):
    monkeypatch.setattr(ecp5, table, getattr(ecp5, table) ^ 2)
    assert not proved(tmp_path, make)
