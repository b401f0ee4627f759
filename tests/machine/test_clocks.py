"""Clocks of units: a slower one is found, and what has ended is kept."""

import json

import pytest
from concord.benchmarks import clocks
from concord.handover.place import Placed
from concord.hw.units import in_machines

MADE = Placed(clock=81.25, logic=4.0, wire=8.0, begins="a", ends="b", cells={"TRELLIS_COMB": 12},
              there={"TRELLIS_COMB": 83_640})


def test_a_slower_unit_is_named():
    before = {"adder": 100.0, "crc": 150.0}
    assert clocks.slower({"adder": 90.0, "crc": 150.2, "copy": 1.0}, before) == []
    assert clocks.slower({"adder": 89.9, "crc": 10}, before) == [
        "adder reaches 89.9 MHz, and reached 100.0", "crc reaches 10.0 MHz, and reached 150.0"]


def test_what_was_routed_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(clocks, "nextpnr_version", lambda: "nextpnr-1.0")
    monkeypatch.setattr(clocks, "route", lambda *_: MADE)
    assert clocks.measured("tiny", "crc", 1) == MADE
    monkeypatch.setattr(clocks, "route", None)
    assert clocks.measured("tiny", "crc", 1) == MADE
    with pytest.raises(TypeError):
        clocks.measured("tiny", "crc", 2)
    (kept,) = (tmp_path / "build/clocks").iterdir()
    assert json.loads(kept.read_text())["clock"] == MADE.clock


def test_the_record_names_units():
    assert set(clocks.recorded()) <= {"ulx3s", "vision", "speech"}
    for units in clocks.recorded().values():
        assert set(units) <= set(in_machines())
