"""Run testbenches of the units that schedule chains in machines with Dram."""

from dataclasses import replace

import pytest
from concord.sim.units import TESTBENCHES
from concord.spec.machine.config import preset

#: Words as large as a beat, two words in a beat, and two beats to a word; tiles of 4, of 13 and of 17 words.
MACHINES = {name: replace(preset(name), dram_words=1 << 20, dram_bus=8) for name in ("tiny", "serial", "wide")}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", ["interlock", "copy"])
def test_chains_that_name_dram(name, machine):
    """Chains from and to Dram keep the order of the program, beside all others."""
    TESTBENCHES[name].run(MACHINES[machine])
