"""Measured clocks of machines: each row belongs to a preset as it is."""

from concord.spec.machine import clocks
from concord.spec.machine.clocks import measured_clock, recorded
from concord.spec.machine.config import PRESETS, preset


def test_rows_belong_to_presets():
    for name, row in recorded().items():
        assert measured_clock(preset(name)) == row
        assert list(row.mhz) == sorted(row.mhz)
        assert row.mhz[0] <= row.median <= row.mhz[-1]


def test_a_machine_without_a_row(monkeypatch):
    monkeypatch.setattr(clocks, "recorded", dict)
    assert all(measured_clock(config) is None for config in PRESETS.values())
