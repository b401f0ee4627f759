"""Run the testbenches of the decoder and its parts in machines with Dram."""

from dataclasses import replace

import pytest
from concord.sim.units import TESTBENCHES
from concord.spec.machine.config import preset

#: Words of two and of four numbers; a machine of the largest addresses; one without VectorRf, with odd sizes.
MACHINES = {
    "tiny": replace(preset("tiny"), dram_words=1 << 20, dram_bus=8),
    "wide": replace(preset("wide"), dram_words=1 << 24, dram_bus=64),
    "serial": replace(preset("serial"), dram_words=1 << 29, dram_bus=4),
    "trainer": replace(preset("trainer"), dram_words=70_001, dram_bus=8)}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", ["decoder", "chain_builder", "instruction_check"])
def test_decodes_chains_of_dram(name, machine):
    """The decoder and its parts make and check chains with Dram as the specification does."""
    TESTBENCHES[name].run(MACHINES[machine])


@pytest.mark.parametrize("name", ["base_registers", "scalar_registers"])
def test_registers_of_32_bits(name):
    """Base registers hold 32 bits; products of scalar registers are exact."""
    TESTBENCHES[name].run(MACHINES["tiny"])
