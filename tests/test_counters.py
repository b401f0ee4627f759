"""Counters in hardware."""

from hw.counters import EventCounters
from sim.build import run
from sim.counters import WIDTHS


def test_counters():
    run(EventCounters(WIDTHS), "sim.counters")
