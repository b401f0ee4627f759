"""Sites of block RAM and multipliers outside of the matrix."""

import re

import pytest
from concord.handover import springs
from concord.handover.floorplan import STRIPS
from concord.handover.springs import fix_others


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    monkeypatch.setattr(springs, "STEPS", 20_000)


def block(kind: str, nets: list[int], site: str = "") -> dict:
    """A block RAM or multiplier on some nets."""
    return {"type": kind, "attributes": {"BEL": site} if site else {}, "connections": {"A": nets}}


def module(chain: int, site: str) -> dict:
    """A fixed block RAM, and others that hang on it in a chain, with a flip-flop between each two."""
    cells = {"fixed": block("DP16KD", [2], site)}
    for k in range(chain):
        cells[f"r{k}"] = {"type": "TRELLIS_FF", "connections": {"DI": [2 + 2 * k], "Q": [3 + 2 * k]}}
        cells[f"m{k}"] = block("DP16KD", [3 + 2 * k, 4 + 2 * k])
    return {"cells": cells}


def place(cell: dict) -> tuple[int, int]:
    found = re.match(r"X(\d+)/Y(\d+)/", cell["attributes"]["BEL"])
    return int(found[1]), int(found[2])


@pytest.mark.parametrize("site", ["X4/Y82/EBR0", "X69/Y22/EBR1"])
def test_blocks_stand_near_those_to_which_they_have_wires(site):
    made = module(6, site)
    assert fix_others(made, "85k") == 6
    cells = made["cells"]
    assert len({cells[name]["attributes"]["BEL"] for name in cells if cells[name]["type"] == "DP16KD"}) == 7
    (x, y), at = place(cells["fixed"]), [place(cells[f"m{k}"]) for k in range(6)]
    assert all(abs(a - x) + abs(b - y) < 30 for a, b in at)
    assert "attributes" not in cells["r0"]


def test_multipliers_take_sites_of_multipliers():
    made = module(1, "X4/Y82/EBR0")
    made["cells"] |= {"product": block("MULT18X18D", [4])}
    assert fix_others(made, "85k") == 2
    assert made["cells"]["product"]["attributes"]["BEL"] in STRIPS["85k"].multiplier_sites
    assert made["cells"]["m0"]["attributes"]["BEL"] in STRIPS["85k"].memory_sites


def test_the_same_netlist_gets_the_same_sites():
    one, other = module(9, "X4/Y82/EBR0"), module(9, "X4/Y82/EBR0")
    assert fix_others(one, "85k") == fix_others(other, "85k")
    assert one == other


def test_nets_to_large_parts_of_the_chip_do_not_count(monkeypatch):
    monkeypatch.setattr(springs, "PINS", 3)
    made = {"cells": {f"m{k}": block("DP16KD", [2, 3 if k < 2 else 4]) for k in range(4)}}
    assert springs._nets(made) == [["m0", "m1"], ["m2", "m3"]]


def test_machines_without_a_floorplan_and_ones_that_do_not_fit_are_left_alone():
    free, many = {"cells": {"m0": block("DP16KD", [2])}}, module(56, "X4/Y25/EBR0")
    before = str(free), str(many)
    assert fix_others(free, "85k") == fix_others(many, "25k") == 0
    assert (str(free), str(many)) == before
