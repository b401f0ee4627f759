"""Measured clocks of machines: each row belongs to a preset, or a shipped machine, as it is."""

from pathlib import Path

from concord.spec.machine import clocks
from concord.spec.machine.clocks import measured_clock, recorded
from concord.spec.machine.config import PRESETS
from concord.spec.machine.machine_file import find_config

MACHINES = Path(__file__).resolve().parents[2] / "machines"


def test_rows_belong_to_machines():
    for name, row in recorded().items():
        machine = name if name in PRESETS else str(MACHINES / f"{name}.toml")
        assert measured_clock(find_config(machine)) == row
        assert list(row.mhz) == sorted(row.mhz)
        assert row.mhz[0] <= row.median <= row.mhz[-1]


def test_a_machine_without_a_row(monkeypatch):
    monkeypatch.setattr(clocks, "recorded", dict)
    assert all(measured_clock(config) is None for config in PRESETS.values())
