"""Counters in hardware."""

from concord.hw.host.counters import EventCounters
from concord.sim.host.counters import WIDTHS
from concord.sim.machines.build import run


def test_counters():
    run(EventCounters(WIDTHS), "concord.sim.host.counters")
