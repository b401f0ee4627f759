# amaranth: UnusedElaboratable=no
"""Models of an ECP5's cells against definitions in numpy, and modes that they refuse."""

from itertools import product

import numpy as np
import pytest
from amaranth import ClockSignal, Const, Instance, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from concord.hw.verilog import verilog
from concord.sim.machines.build import REFUSED, command
from concord.sim.machines.netlist import gates, models
from concord.tests.pipeline_harness import PipelineHarness

#: Widths of the ports A and B of memories: each width that Yosys makes, and ports of different widths.
WIDTHS = ((1, 1), (2, 2), (4, 4), (9, 9), (18, 18), (36, 36), (18, 2), (1, 9), (36, 18), (36, 4))
#: Memories: widths of their ports, and whether words stand in output registers.
MEMORIES = (*((widths, 0) for widths in WIDTHS), *((widths, 1) for widths in ((9, 9), (36, 36), (36, 18))))
SIGNS = tuple(product((0, 1), repeat=2))  #: Whether A and B of a multiplier are signed.
#: Multipliers: whether factors are signed, and whether factors and product stand in registers.
MULTIPLIERS = (*((signs, (0, 0)) for signs in SIGNS), *(((1, 0), held) for held in ((1, 0), (0, 1), (1, 1))))
TABLES = np.random.default_rng(1).integers(0, 1 << 16, 64)  #: Contents of lookup tables.
FLIP_FLOPS = tuple(product(("1", "CE", "INV"), ("SET", "RESET"), ("LSR", "INV")))
FILL = int.from_bytes(np.random.default_rng(2).bytes(40), "little")  #: What memories hold at first, from address 0.
CYCLES = 1500


def bits(port: str, signal, direction: str = "i") -> dict:
    """Ports of single bits: `DIA3` is the bit 3 of DIA."""
    return {f"{direction}_{port}{k}": signal[k] for k in range(len(signal))}


class Cells(wiring.Component):
    """Cells with common inputs: memories and multipliers of all kinds, lookup tables of both forms, flip-flops."""

    latency = 0

    def __init__(self):
        inputs = {"ada": 14, "adb": 14, "dia": 18, "dib": 18, "cea": 1, "ceb": 1, "wea": 1, "web": 1}
        super().__init__({name: In(width) for name, width in inputs.items()}
                         | {f"memory{k}": Out(36) for k in range(len(MEMORIES))}
                         | {f"product{k}": Out(36) for k in range(len(MULTIPLIERS))}
                         | {"models": Out(len(TABLES)), "expressions": Out(len(TABLES)), "held": Out(len(FLIP_FLOPS))})

    def elaborate(self, platform):
        m, clk = Module(), ClockSignal()
        for k, ((a, b), registers) in enumerate(MEMORIES):
            modes = {f"p_REGMODE_{side}": "OUTREG" for side in "AB" * registers}
            out = getattr(self, f"memory{k}")
            m.submodules += Instance(
                "DP16KD", p_DATA_WIDTH_A=a, p_DATA_WIDTH_B=b, p_INITVAL_00=Const(FILL, 320), i_CLKA=clk, i_CLKB=clk,
                i_CEA=self.cea, i_CEB=self.ceb, i_OCEA=1, i_OCEB=1, i_WEA=self.wea, i_WEB=self.web & (a < 36), i_RSTA=0,
                i_RSTB=0, **modes, **{f"i_CS{port}{n}": 0 for port, n in product("AB", range(3))},
                **bits("ADA", self.ada), **bits("ADB", self.adb), **bits("DIA", self.dia), **bits("DIB", self.dib),
                **bits("DOA", out[:18], "o"), **bits("DOB", out[18:], "o"))
        for k, ((a, b), (factors, outcome)) in enumerate(MULTIPLIERS):
            pins = ("INPUTA", "INPUTB") * factors + ("OUTPUT",) * outcome
            m.submodules += Instance(
                "MULT18X18D", **{f"p_REG_{pin}_CLK": "CLK0" for pin in pins}, i_CLK0=clk, i_CE0=1, i_RST0=0,
                **bits("A", self.dia), **bits("B", self.dib), **bits("C", Const(0, 18)), i_SIGNEDA=a,
                i_SIGNEDB=b, i_SOURCEA=0, i_SOURCEB=0, **bits("P", getattr(self, f"product{k}"), "o"))
        for k, table in enumerate(TABLES.tolist()):
            inputs = {f"i_{name}": self.dia[n] for n, name in enumerate("ABCD")}
            m.submodules += Instance("LUT4", p_INIT=Const(table, 16), **inputs, o_Z=self.models[k])
        m.submodules += Instance("tables", i_a=self.dia[:4], o_z=self.expressions)
        for k, (enable, value, reset) in enumerate(FLIP_FLOPS):
            m.submodules += Instance(
                "TRELLIS_FF", p_CEMUX=enable, p_REGSET=value, p_LSRMUX=reset, p_SRMODE="LSR_OVER_CE", p_CLKMUX="CLK",
                i_CLK=clk, i_CE=self.cea, i_LSR=self.ceb, i_DI=self.dia[0], o_Q=self.held[k])
        return m


def tables() -> dict:
    """A netlist of lookup tables with common inputs, as Yosys's JSON has it."""
    cells = {str(k): {"type": "LUT4", "parameters": {"INIT": f"{table:016b}"},
                      "port_directions": {**dict.fromkeys("ABCD", "input"), "Z": "output"},
                      "connections": {"A": [2], "B": [3], "C": [4], "D": [5], "Z": [6 + k]}}
             for k, table in enumerate(TABLES.tolist())}
    ports = {"a": {"direction": "input", "bits": [2, 3, 4, 5]},
             "z": {"direction": "output", "bits": list(range(6, 6 + len(TABLES)))}}
    return {"modules": {"tables": {"ports": ports, "cells": cells}}}


@pytest.fixture(scope="module")
def run():
    """Inputs and outputs of the cells in some cycles; both ports never write to one word."""
    rng, dut = np.random.default_rng(3), Cells()
    given = {"ada": rng.integers(0, 96, CYCLES), "adb": rng.integers(0, 96, CYCLES)}
    given |= {name: values + (rng.integers(0, 2, CYCLES) << 13) for name, values in given.items()}
    given |= {name: rng.integers(0, 1 << 18, CYCLES) for name in ("dia", "dib")}
    given |= {name: rng.integers(0, 3, CYCLES) > 0 for name in ("cea", "ceb", "wea", "web")}
    given["web"] &= ~(given["wea"] & (given["ada"] >> 5 == given["adb"] >> 5))
    harness = PipelineHarness(dut, "cells", verilog(dut, "cells") + "\n" + gates(tables(), "tables", instances=True))
    return given, harness(**given)


def later(shown, cycles: int):
    """What registers show that follow each other."""
    return np.concatenate([np.zeros(cycles, shown.dtype), shown[:len(shown) - cycles]])


def positions(width: int, address: int, *, write: bool) -> list[int]:
    """Where the bits of a word lie, nine bits to a byte; -1 for one that its byte enable does not let be written."""
    if width < 9:
        first = address & -width
        return [k // 8 * 9 + k % 8 for k in range(first, first + width)]
    count = width // 9
    return [-1 if write and count > 1 and not address >> k & 1 else 9 * (address // 8 // count * count + k) + bit
            for k in range(count) for bit in range(9)]


def expected(widths: tuple[int, int], given: dict) -> list[int]:
    """What a memory shows before each edge: port A in 18 bits, then port B; 36 bits of port B use both."""
    held = [FILL >> 20 * (k // 18) + k % 18 & 1 if k < 288 else 0 for k in range(1 << 15)]
    shown, low, high = [], 0, 0
    for ada, adb, dia, dib, cea, ceb, wea, web in zip(
            *(given[name].tolist() for name in ("ada", "adb", "dia", "dib", "cea", "ceb", "wea", "web")), strict=True):
        shown.append(low | high << 18)
        ports = ((widths[0], ada, dia | dib << 18, cea, wea), (widths[1], adb, dib, ceb, web and widths[0] < 36))
        written = [{at: data >> k & 1 for k, at in enumerate(positions(width, address, write=True)) if at >= 0}
                   if enable and write else {} for width, address, data, enable, write in ports]
        read = [None if write or not enable else
                sum((held[at] ^ (at in other)) << k for k, at in enumerate(positions(width, address, write=False)))
                for (width, address, _, enable, write), other in zip(ports, reversed(written), strict=True)]
        if widths[1] == 36:
            low, high = (low, high) if read[1] is None else (read[1] & 0x3FFFF, read[1] >> 18)
        else:
            low, high = low if read[0] is None else read[0] & 0x3FFFF, high if read[1] is None else read[1]
        for port in written:
            for position, bit in port.items():
                held[position] = bit
    return shown


@pytest.mark.parametrize("number", range(len(MEMORIES)), ids=[f"{a}-{b}{'-held' * held}" for (a, b), held in MEMORIES])
def test_block_ram(run, number):
    given, found = run
    (a, b), held = MEMORIES[number]
    without = 18 if a == 36 > b else 0  # port A writes words of 36 bits, and reads nothing
    wanted = later(np.array(expected((a, b), given), np.uint64), held) >> without
    np.testing.assert_array_equal(found[f"memory{number}"] >> without, wanted)


@pytest.mark.parametrize("number", range(len(MULTIPLIERS)), ids=[f"{'us'[a]}{'us'[b]}{sum(held)}{held[0]}"
                                                                 for (a, b), held in MULTIPLIERS])
def test_multiplier(run, number):
    given, found = run
    signs, held = MULTIPLIERS[number]
    a, b = (given[name] - ((given[name] >> 17 & signed) << 18)
            for name, signed in zip(("dia", "dib"), signs, strict=True))
    wanted = later((a * b & (1 << 36) - 1).astype(np.uint64), sum(held))
    np.testing.assert_array_equal(found[f"product{number}"], wanted)


@pytest.mark.parametrize("form", ["models", "expressions"])
def test_lookup_tables(run, form):
    given, found = run
    wanted = TABLES[None, :] >> (given["dia"] & 15)[:, None] & 1
    np.testing.assert_array_equal(found[form][:, None] >> np.arange(64, dtype=np.uint64) & np.uint64(1), wanted)


def test_flip_flops(run):
    """They begin with the value that a reset gives them."""
    given, found = run
    for k, (enable, value, reset) in enumerate(FLIP_FLOPS):
        held, shown = value == "SET", []
        for data, ce, lsr in zip((given["dia"] & 1).tolist(), given["cea"], given["ceb"], strict=True):
            shown.append(held)
            if lsr == (reset == "LSR"):
                held = value == "SET"
            elif enable == "1" or ce == (enable == "CE"):
                held = bool(data)
        np.testing.assert_array_equal(found["held"] >> k & 1, shown)


@pytest.mark.parametrize(("cell", "sentence"), [
    ('DP16KD #(.DATA_WIDTH_A(36), .DATA_WIDTH_B(36), .REGMODE_B("OUTREG"))', "at both ports or at none"),
    ('DP16KD #(.WRITEMODE_A("WRITETHROUGH"))', "keep their output while they write"),
    ("DP16KD #(.DATA_WIDTH_A(3))", "words of 3 and 18 bits are none"),
    ("DP16KD #(.DATA_WIDTH_B(36))", "36 bits only where port A"),
    ('DP16KD #(.CSDECODE_A("0b001"))', "no chip select"),
    ('DP16KD #(.CLKBMUX("INV"))', "no inverted clocks"),
    ('MULT18X18D #(.REG_OUTPUT_CLK("CLK1"))', "registers at CLK0 only"),
    ('MULT18X18D #(.REG_INPUTA_CLK("CLK0"))', "both factors or at none"),
    ('MULT18X18D #(.REG_PIPELINE_CLK("CLK0"))', "registers at A, B and P only"),
    ('MULT18X18D #(.MULT_BYPASS("ENABLED"))', "multiplies always"),
    ('MULT18X18D #(.CAS_MATCH_REG("TRUE"))', "no cascades"),
])
def test_other_modes_are_refused_in_a_sentence(tmp_path, cell, sentence):
    (tmp_path / "top.v").write_text(f"module top; {cell} cell_(); endmodule\n{models()}")
    with pytest.raises(RuntimeError, match=sentence):
        command(["verilator", "--lint-only", "-Wno-fatal", "-Wno-lint", "-Wno-SPECIFYIGN", REFUSED, "--top-module",
                 "top", "top.v"], tmp_path)
