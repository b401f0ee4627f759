"""Run testbenches of units that change in machines with Dram, in such machines."""

from dataclasses import replace

import pytest
from concord.sim.units import TESTBENCHES
from concord.spec.machine.config import preset

#: Words as large as a beat, two words in a beat, two beats to a word; the largest Dram of its words, and an odd size.
MACHINES = {
    "tiny": replace(preset("tiny"), dram_words=1 << 20, dram_bus=8),
    "wide": replace(preset("wide"), dram_words=1 << 29, dram_bus=64),
    "trainer": replace(preset("trainer"), dram_words=70_001, dram_bus=8)}


@pytest.mark.parametrize("machine", MACHINES)
def test_tiles_of_vectors_beside_those_of_dram(machine):
    """The matrix quantiser writes tiles of vectors, and packed tiles from Dram at the same time."""
    TESTBENCHES["matrix_loader"].run(MACHINES[machine])


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", ["message_items", "message_input", "message_output", "host_read"])
def test_messages_of_dram(name, machine):
    """Messages reach Dram, and others are what they are without it."""
    TESTBENCHES[name].run(MACHINES[machine])
