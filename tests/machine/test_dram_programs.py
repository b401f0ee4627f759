"""Random programs with Dram give golden's bits at any latency, meet in all ways, and hit every bin."""

from collections import Counter
from dataclasses import replace

import pytest
from concord.campaigns.dram_programs import MACHINES, case, differences, hazards
from concord.sim.stimulus.functional_coverage import all_bins, bins
from concord.sim.stimulus.memory_hazards import BESIDE, PAIRS, memory_hazards
from concord.spec.isa.assembler import assemble
from concord.spec.isa.check import Sequencer
from concord.spec.machine.config import preset


def test_random_programs():
    assert not differences("tiny", 1, list(range(40)))


def test_a_copy_that_waits_while_the_chain_before_its_writer_ends():
    """Addresses that the chain before has passed say nothing of the words of its writer."""
    assert not differences("wide", 1, [548])


#: Uses of memories by which few programs meet: `nox -s dram_programs` wants to see these pairs, too.
RARE = {"raw read", "raw written", "tiles from NetQ"}


def test_random_programs_meet_in_most_ways():
    """Pairs without rare uses are seen in 40 programs of each machine."""
    found = Counter()
    for name in MACHINES:
        found.update(hazards(name, 1, range(40)))
    assert [pair for pair in (*PAIRS, BESIDE) if not found[pair] and RARE.isdisjoint(pair)] == []
    assert sum(map(bool, found.values())) > 0.8 * len(PAIRS)


def test_all_bins_are_hit_and_no_others():
    found = set().union(*(bins(case("wide", 1, number)) for number in range(150)))
    assert found == all_bins(MACHINES["wide"])


WORDS = "v_rd Dram, {}\nv_wr NetQ\nend_chain\n"
LOAD = "m_rd Dram, {}\nm_wr MatrixRf, {}\nend_chain\n"
BUILD = "m_rd InitialVrf, 0\nm_wr MatrixRf, {}\nend_chain\n"
STORE = "v_rd NetQ\nv_wr Dram, {}\nend_chain\n"


@pytest.mark.parametrize(("text", "pairs"), [
    (STORE.format(8) + WORDS.format(11), [("Dram", "words written", "words read")]),
    (STORE.format(8) + WORDS.format(12), []), (WORDS.format(5) + WORDS.format(5), []),
    (STORE.format(8) + LOAD.format(11, 0), [("Dram", "words written", "tiles read")]),
    (STORE.format(8) + 4 * WORDS.format(0) + WORDS.format(8), []),  # too far from each other
    ("set_iterations 2\ns_wr StrideX, 10\nv_rd_inc Dram, 0\nv_wr NetQ\nend_chain\nset_iterations 1\n"
     + STORE.format(5), []),  # between two iterations
    (BUILD.format(1) + LOAD.format(100, 1), [("MatrixRf", "tiles from vectors", "tiles from Dram")]),
    (BUILD.format(1) + LOAD.format(100, 2), [BESIDE]),
    ("v_rd NetQ\nv_relu0\nv_wr InitialVrf, 3\nend_chain\n" + BUILD.format(0), [
        ("vector memories", "words written", "vectors of tiles")]),
    ("v_rd NetQ\nmv_mul 0, integer, bias 2\nv_wr NetQ\nend_chain\nv_rd Dram, 0, raw\nv_wr BiasRf, 5\nend_chain\n",
     [("BiasRf", "biases of a product", "raw written")])])
def test_pairs_are_counted(text, pairs):
    config = replace(preset("tiny"), dram_words=1000, dram_bus=8)  # a native vector has 4 words
    words, modes = assemble(f"{text}end"), [False] * config.matrix_tiles
    modes[0] = "integer" in text
    found = memory_hazards(Sequencer(config, words, modes).walk())
    assert [pair for pair in (*PAIRS, BESIDE) if found[pair] and "host" not in "".join(pair)] == pairs
