"""Random programs with Dram give golden's bits at any latency."""

from concord.campaigns.dram_programs import MACHINES, differences, hazards
from concord.sim.stimulus.tile_hazards import HAZARDS


def test_random_programs():
    assert not differences("tiny", 1, list(range(40)))


def test_a_copy_that_waits_while_the_chain_before_its_writer_ends():
    """Addresses that the chain before has passed say nothing of the words of its writer."""
    assert not differences("wide", 1, [548])


def test_random_programs_have_all_hazards_of_tiles_from_vectors():
    """Each kind of pairs is seen in 100 programs of each machine; those with NetQ in the programs of one of them."""
    found = {name: hazards(name, 1, range(100)) for name in MACHINES}
    for kind in HAZARDS:
        counts = [count[kind] for count in found.values()]
        assert max(counts) if "NetQ" in kind else min(counts), kind
