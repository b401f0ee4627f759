# amaranth: UnusedElaboratable=no
"""The SDRAM of a board: its pins, its clock, and the top of a machine that has it."""

import re
import subprocess
from dataclasses import replace

import pytest
from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from concord.hw.board_top import BoardTop, clock_on, modules
from concord.hw.boards import pll
from concord.hw.boards.board import FOLDER, find_board
from concord.hw.lib.ecp5 import Ecp5
from concord.hw.sdram.core_text import CORE
from concord.hw.verilog import verilog
from concord.sim.machines.build import environment
from concord.spec.machine.config import Config, preset

BOARD = find_board("ulx3s")
SMALL = replace(preset("serial"), dram_words=1 << 20, dram_bus=16)
#: Cells of an ECP5 that the top has, as far as Verilator must know them.
CELLS = """
module BB(input I, input T, output O, inout B); assign B = T ? 1'bz : I; assign O = B; endmodule
module OFS1P3BX(input D, SP, SCLK, PD, output reg Q); always @(posedge SCLK) if (SP) Q <= D; endmodule
module OFS1P3DX(input D, SP, SCLK, CD, output reg Q); always @(posedge SCLK) if (SP) Q <= D; endmodule
module IFS1P3DX(input D, SP, SCLK, CD, output reg Q); always @(posedge SCLK) if (SP) Q <= D; endmodule
module ODDRX1F(input D0, D1, SCLK, RST, output Q); assign Q = SCLK ? D0 : D1; endmodule
"""


def top(config: Config, mhz: float) -> str:
    """Verilog of a machine on the board, without the modules that it has as instances."""
    return verilog(BoardTop(config, BOARD, clock_on(BOARD, mhz, bool(config.dram_words))), "top", Ecp5())


@pytest.fixture(scope="module")
def made() -> str:
    """The top of a small machine with Dram."""
    return top(SMALL, 50)


def header(text: str) -> set[str]:
    """Names of the ports of the top."""
    return set(re.search(r"^module top\((.*?)\);", text, re.MULTILINE)[1].split(", "))


def test_the_ports_have_their_sites(made):
    located = re.findall(r'LOCATE COMP "([\w\[\]]+)" SITE "(\w+)";', BOARD.all_constraints(True))
    assert {name.split("[")[0] for name, _ in located} == header(made)
    assert len({pin for _, pin in located}) == len(located)
    assert dict(located)["sdram_dq[15]"] == "J17"
    assert len(BOARD.sdram.ports) == 6 + 13 + 2 + 2 + 16


def test_each_pin_has_its_register(made):
    """Those of outputs, of inputs, and those that release DQ."""
    kinds = re.findall(r"^  (OFS1P3BX|OFS1P3DX|IFS1P3DX|BB|ODDRX1F) ", made, re.MULTILINE)
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "OFS1P3BX": 4 + 16, "OFS1P3DX": 1 + 13 + 2 + 2 + 16, "IFS1P3DX": 16, "BB": 16, "ODDRX1F": 1}


def test_a_machine_without_dram_has_none_of_it():
    text = top(preset("serial"), 50)
    assert not any(name.startswith("sdram") for name in header(text))
    assert CORE not in text
    assert ".CLKOS_DIV(" not in text
    assert modules(preset("serial"), BOARD, clock_on(BOARD, 50)) == ""


class Loop(wiring.Component):
    """A phase-locked loop."""

    clock: In(1)
    o: Out(2)

    def __init__(self, mhz: float):
        self.mhz = mhz
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        m.submodules.pll = pll.instance(pll.ratio(BOARD.clock, self.mhz), self.clock, self.o[0], Signal(), self.o[1])
        return m


@pytest.mark.parametrize(("mhz", "dividers"), [(25, (24, 29, 0)), (50, (12, 14, 0)), (100, (6, 6, 4))])
def test_the_clock_of_the_chip_is_a_quarter_later(mhz, dividers):
    """After the machine's clock, by a quarter of its divider: whole periods of the oscillator, and eighths."""
    after, whole, eighths = dividers
    text = verilog(Loop(mhz), "loop", Ecp5())
    found = {name: int(value) for name, value in re.findall(r"\.(CLKO\w+)\(32'd(\d+)\)", text)}
    assert found["CLKOP_DIV"] == found["CLKOS_DIV"] == after
    assert (found["CLKOS_CPHASE"], found["CLKOS_FPHASE"]) == (whole, eighths)
    later = 8 * (found["CLKOS_CPHASE"] - found["CLKOP_CPHASE"]) + found["CLKOS_FPHASE"]
    assert 4 * later == 8 * after


def test_verilator_has_no_warning_of_the_memory(made, tmp_path):
    """Of Amaranth's Verilog, those that are waived for all machines stay away."""
    pytest.importorskip("litedram", reason="LiteDRAM is in the extra `board`")
    core = modules(SMALL, BOARD, clock_on(BOARD, 50, True))
    for name, text in {"top.v": made, "core.v": core, "cells.v": CELLS}.items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        ["verilator", "--lint-only", "-Wno-fatal", "--top-module", "top", "top.v", "core.v", "cells.v"], cwd=tmp_path,
        env=environment(), capture_output=True, text=True, check=False)
    lines = [line for line in done.stderr.splitlines() if line.startswith("%")]
    own = [line for line in lines if "EHXPLLL" not in line and "CCU2C" not in line and "WIDTH" not in line]
    assert [line for line in own if "Exiting" not in line] == []


@pytest.mark.parametrize(("old", "new", "sentence"), [
    ('"MT48LC16M16"', '"DDR"', "sdram.chip is 'DDR', and must be one of MT48LC16M16"),
    ('"P19", "N20"', '"P19"', "sdram.ba has 1 pins, and must have 2"), ('"F19"', '"G2"', "pin G2 has several uses"),
    ('cke = "F20"\n', "", "sdram.cke is missing"), ('cke = "F20"', "cke = 20", "cke is 20, and must be of type str")])
def test_an_sdram_is_wrong(tmp_path, old, new, sentence):
    path = tmp_path / "own.toml"
    path.write_text((FOLDER / "ulx3s.toml").read_text().replace(old, new, 1))
    with pytest.raises(ValueError, match=re.escape(sentence)):
        find_board(str(path))


def test_a_board_without_an_sdram(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text((FOLDER / "ulx3s.toml").read_text().partition("[sdram]")[0])
    board = find_board(str(path))
    assert board.sdram is None
    with pytest.raises(ValueError, match="a board has no memory for this machine's 1,048,576 words of Dram"):
        BoardTop(SMALL, board, clock_on(board, 25, True))
    with pytest.raises(ValueError, match="an SDRAM needs a phase-locked loop"):
        BoardTop(SMALL, BOARD, clock_on(BOARD, 25))
