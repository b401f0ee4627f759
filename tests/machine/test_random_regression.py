"""Two thousand random programs on the Verilated machine."""

from concord.sim.campaigns.random_regression import volume
from concord.sim.units import CONFIGURATIONS


def test_random_programs():
    """Results, final memories, events and errors are golden's, and every bin is hit."""
    found = volume(CONFIGURATIONS, 2000, processes=2)
    print(*(f"{config} {name}: {count}" for config, counts in found.bins.items()
            for name, count in sorted(counts.items())), sep="\n")
    assert not found.failures, "\n".join(map(str, found.failures))
    assert found.programs >= 2000
    assert not any(found.missed.values()), found.missed
