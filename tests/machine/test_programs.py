"""Random programs are legal or illegal as intended, hit every bin, and have one meaning in all ways to compute them."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.shrink import shrink
from concord.golden.machine import Machine
from concord.golden.schedule import chain as golden_chain
from concord.golden.schedule.vectorisation import WordPlan, plan
from concord.sim.stimulus.entry_faults import entry_faults
from concord.sim.stimulus.faults import errors, fault
from concord.sim.stimulus.functional_coverage import all_bins, bins
from concord.sim.stimulus.limits import limits
from concord.sim.stimulus.program_generator import ProgramGenerator
from concord.sim.stimulus.programs import random_illegal, random_program
from concord.spec.host.registers import Register, Status
from concord.spec.isa.assembler import assemble
from concord.spec.isa.check import check
from concord.spec.isa.instructions import Error, Op, decode
from concord.spec.machine.config import preset

CONFIGS = ("tiny", "serial", "wide")
SEEDS = range(150)


def case(name, seed):
    rng = np.random.default_rng(seed)
    return random_illegal(preset(name), rng) if seed % 3 == 0 else random_program(preset(name), rng)


def finished(case, *, pieces=False):
    """The machine after a case; with `pieces`, its input comes message by message."""
    machine = Machine(case.config)
    for message in case.setup:
        machine.send(message)
    if not pieces:
        for message in case.inputs:
            machine.send(message)
    machine.start()
    status = machine.run()
    for message in case.inputs if pieces else ():
        assert status & Status.WAIT_INPUT
        machine.send(message)
        status = machine.run()
    assert status & (Status.DONE | Status.RUNNING) == Status.DONE
    return machine


def state(machine):
    """The state of a machine that a host can read."""
    entries = machine.memory.entries
    memory = [words.tobytes() for words in (*machine.memory.vectors.values(), entries.mantissas, entries.exponents)]
    return machine.receive(), memory, machine.counters.values, machine.status, machine.memory.matrix.modes


@pytest.mark.parametrize("name", [*CONFIGS, "tiny_softmax"])
def test_all_bins_are_hit_and_no_others(name):
    found = set().union(*(bins(case(name, seed)) for seed in SEEDS))
    assert found == all_bins(preset(name))


@pytest.mark.parametrize("name", CONFIGS)
def test_programs_run_to_their_end(name):
    for seed in SEEDS[:60]:
        each = case(name, seed)
        machine = finished(each)
        assert len(machine.memory.net_in) == 0, seed
        assert machine.read_register(Register.ERROR) == each.error, seed
        assert (each.error == Error.NONE) == (seed % 3 != 0)
        if each.violation:
            assert machine.read_register(Register.ERROR_ADDRESS) == each.violation.address, seed


@pytest.mark.parametrize("name", [*CONFIGS, "tiny_softmax"])
def test_any_error_may_be_asked_for(name):
    for error in errors(preset(name)):
        assert random_illegal(preset(name), np.random.default_rng(1), error).error == error
    with pytest.raises(ValueError, match="no program of this machine stops with MESSAGE"):
        random_illegal(preset(name), np.random.default_rng(1), Error.MESSAGE)


SMALLEST = [{name: 1} for name in (
    "mvmq_words", "matrix_tiles", "operand_columns", "accumulator_rows", "bias_words", "initial_vrf", "net_in",
    "vector_rf")] + [{"vector_rf": 0}]


@pytest.mark.parametrize("changes", SMALLEST, ids=str)
@pytest.mark.parametrize("name", ["tiny", "serial"])
def test_programs_of_the_smallest_memories(name, changes):
    config = replace(preset(name), **changes)
    for seed in range(15):
        assert random_program(config, np.random.default_rng(seed)).error == Error.NONE
        assert random_illegal(config, np.random.default_rng(seed)).error != Error.NONE


@pytest.mark.parametrize("changes", [{}, {"vector_rf": 0}], ids=str)
@pytest.mark.parametrize("name", CONFIGS)
def test_every_fault_of_entries_causes_its_error(name, changes):
    config = replace(preset(name), **changes)
    for seed in range(6):
        generator = ProgramGenerator(config, np.random.default_rng(seed), [bool(seed & 1)] * config.matrix_tiles, 100)
        texts = {error: entry_faults(generator, error, "0, integer" if seed & 1 else "0") for error in Error}
        assert sum(map(bool, texts.values())) == (1 if changes else 6)
        for error, text in ((error, text) for error, each in texts.items() for text in each):
            violation = check(assemble("s_wr Rows, 1\n" + text + "\n"), config, generator.modes)
            assert violation, text
            assert violation.error == error, text


@pytest.mark.parametrize("beyond", [0, 1])
@pytest.mark.parametrize("name", CONFIGS)
def test_limits(name, beyond):
    for text in limits(preset(name), beyond):
        assert bool(check(assemble(text), preset(name))) == beyond, text


def test_a_fault_that_does_not_fit_is_told():
    generator = ProgramGenerator(replace(preset("tiny"), instructions=4), np.random.default_rng(1), [False] * 32, 100)
    with pytest.raises(ValueError, match="no fault that stops with QUEUE was found .* has 4, give it more"):
        fault(generator, Error.QUEUE)
    with pytest.raises(ValueError, match="no fault that stops with .*QUEUE.* was found"):
        fault(generator)


def test_a_seed_gives_one_case():
    one, other = case("tiny", 5), case("tiny", 5)
    assert one.setup + one.inputs == other.setup + other.inputs
    assert one.setup != case("tiny", 7).setup


def word_by_word(config, chain):
    total = chain.result_words * chain.registers.iterations
    return WordPlan(addresses=plan(config, chain).addresses, spans=tuple((k, k + 1) for k in range(total)))


@pytest.mark.parametrize("name", CONFIGS)
def test_whole_chains_mean_what_their_words_mean(name, monkeypatch):
    cases = [case(name, seed) for seed in SEEDS[:45]]
    together = [state(finished(each)) for each in cases]
    monkeypatch.setattr(golden_chain, "plan", word_by_word)
    for each, expected in zip(cases, together, strict=True):
        assert state(finished(each)) == expected, each.text


@pytest.mark.parametrize("name", CONFIGS)
def test_long_products_are_computed_in_pieces(name, monkeypatch):
    cases = [case(name, seed) for seed in SEEDS[:20]]
    together = [state(finished(each)) for each in cases]
    monkeypatch.setattr(golden_chain, "_ELEMENTS", 1)
    for each, expected in zip(cases, together, strict=True):
        assert state(finished(each)) == expected, each.text


@pytest.mark.parametrize("name", CONFIGS)
def test_waiting_changes_nothing(name):
    for seed in SEEDS[:30]:
        each = case(name, seed)
        assert state(finished(each, pieces=True)) == state(finished(each)), each.text


def test_shrink_keeps_what_fails():
    def fails(candidate):
        return any(i is not None and i.op == Op.VV_MUL1 for i in map(decode, candidate.program))

    first = next(c for c in (case("tiny", seed) for seed in (1, 2, 4, 5)) if fails(c))
    small = shrink(first, fails)
    operations = [decode(word).op for word in small.program]
    assert [op for op in operations if op != Op.S_WR] == [Op.V_RD, Op.VV_MUL1, Op.V_WR, Op.END_CHAIN, Op.END]
    assert finished(small)


def test_shrink_keeps_the_error():
    first = random_illegal(preset("tiny"), np.random.default_rng(3), Error.QUEUE)
    small = shrink(first, lambda candidate: True)
    assert small.error == Error.QUEUE
    assert len(small.program) <= 8  # two chains with a product


def test_a_case_brings_the_words_that_its_program_takes():
    each = next(c for c in (case("tiny", seed) for seed in (1, 2, 4, 5)) if c.taken)
    with pytest.raises(ValueError, match="words of NetQ, the pool has"):
        each.having(assemble("loop 60000\nv_rd NetQ\nv_wr NetQ\nend_chain\nend_loop\nend"))
