"""Random programs with wrong responses of the memory outside the chip, and resets with bursts under way."""

from collections import Counter

import pytest
from concord.campaigns.dram_failures import KINDS, many, reset_under_way, respond_wrongly
from concord.campaigns.dram_programs import MACHINES, MEMORIES
from concord.sim.machines.dram_accesses import blamed, dram_accesses
from concord.sim.machines.library import Access, Fault
from concord.sim.machines.scoreboard import play
from concord.spec.isa.assembler import assemble
from concord.spec.isa.check import Sequencer


@pytest.mark.parametrize("memory", range(len(MEMORIES)), ids=lambda memory: str(MEMORIES[memory].latency))
def test_wrong_responses(memory):
    tally = many(respond_wrongly, "tiny", memory, 1, 8)
    assert not tally.wrong
    assert tally.seen.total() == 8
    assert set(tally.seen) <= set(KINDS)


def test_resets():
    tally = many(reset_under_way, "tiny", 2, 1, 8)
    assert not tally.wrong
    assert tally.seen["resets"] == 8
    assert tally.seen["bursts under way"] >= 8


def test_an_address_of_another_instruction_is_found(monkeypatch):
    monkeypatch.setattr("concord.campaigns.dram_failures.blamed", lambda *_: set())
    tally = many(respond_wrongly, "tiny", 1, 1, 8)
    assert {kind for kind, _ in tally.wrong} == {"response"}
    assert len(tally.wrong) == sum(count for (_, fault), count in tally.seen.items() if fault != Fault.SILENT)


def test_bits_that_differ_are_found(monkeypatch):
    monkeypatch.setattr("concord.campaigns.dram_failures.compare", lambda case, nnp, **_: play(case, nnp) and "differ")
    for disturb in (respond_wrongly, reset_under_way):
        assert {kind for kind, _ in many(disturb, "tiny", 1, 1, 2).wrong} == {"next"}


def test_kinds_are_all_that_a_memory_may_do():
    assert Counter(access for access, _ in KINDS) == {Access.WORDS: 5, Access.TILES: 5, Access.WRITE: 3}
    assert {fault for _, fault in KINDS} == set(Fault) - {Fault.NONE}


def test_instructions_by_the_words_of_their_accesses():
    """A chain that reads and writes Dram, one that loads a tile, and one that moves entries."""
    config = MACHINES["tiny"]
    text = """
        set_iterations 2
        s_wr StrideX, 10
        v_rd_inc Dram, 100
        v_relu0
        v_wr Dram, 200
        v_wr NetQ
        end_chain
        m_rd Dram, 300
        m_wr MatrixRf, 1
        end_chain
        end"""
    program = [int(word) for word in assemble(text)]
    found = list(dram_accesses(Sequencer(config, program, [False] * config.matrix_tiles).walk()))
    source = next(one.address for one in found if one.access == Access.WORDS)
    words = config.vector_words
    assert [one.words for one in found if one.access == Access.WORDS] == [
        range(100, 100 + words), range(110, 110 + words)]
    assert blamed(found, Access.WORDS, range(110, 111)) == {source}
    assert blamed(found, Access.WORDS, range(100 + words, 110)) == set()
    assert blamed(found, Access.WRITE, range(199, 201)) == {source + 2}
    assert blamed(found, Access.WRITE, range(200 + words, 300)) == set()
    assert blamed(found, Access.TILES, range(300, 301)) == {source + 5}
