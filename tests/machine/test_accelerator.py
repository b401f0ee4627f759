"""The Verilated accelerator beside golden: random lists of commands, errors of cores, resets at any moment."""

from collections.abc import Iterator

import numpy as np
import pytest
from concord.golden.host.messages import program_message
from concord.sim.machines.accelerator_library import AcceleratorLibrary
from concord.sim.machines.accelerator_scoreboard import begin, compare
from concord.sim.machines.accelerators import GoldenAccelerator
from concord.sim.machines.library import Access, Fault, Memory
from concord.sim.stimulus.command_faults import IN_CORES, failing_list
from concord.sim.stimulus.command_lists import ACCELERATORS, CommandList, ListMaker, random_list
from concord.sim.stimulus.message_cases import message
from concord.spec.accelerator.accelerator import ALIGNED
from concord.spec.accelerator.commands import CommandError
from concord.spec.accelerator.registers import AcceleratorRegister, AcceleratorStatus
from concord.spec.host.messages import Message, MessageKind, pack
from concord.spec.isa.assembler import assemble

ONE = ACCELERATORS["one"]


@pytest.fixture(scope="module")
def gates() -> Iterator[AcceleratorLibrary]:
    """An accelerator of one core with Dram, whose memory stalls."""
    with AcceleratorLibrary(ONE, seed=3, memory=Memory(stall=0.2, mixed=True)) as made:
        yield made


def assert_equal(one: CommandList, gates: AcceleratorLibrary):
    wrong = compare(one, GoldenAccelerator(ONE), gates)
    assert not wrong, wrong.text


def test_lists_have_the_bytes_of_golden(gates):
    for seed in range(3):
        assert_equal(random_list(ONE, np.random.default_rng([7, seed])), gates)


@pytest.mark.parametrize("error", IN_CORES, ids=lambda error: error.name)
def test_errors_of_cores_are_those_of_golden(gates, error):
    """A list that ends well follows: nothing is left behind."""
    rng = np.random.default_rng(error)
    one = failing_list(ONE, rng, error)
    assert_equal(one, gates)
    assert (gates.error(), gates.read_register(AcceleratorRegister.ERROR_INDEX)) == (error, one.index)
    assert_equal(random_list(ONE, rng), gates)


@pytest.mark.parametrize("count", [2**32 - 2, 2**32 - 1])
def test_an_input_that_announces_more_than_there_is(gates, count):
    config, maker = ONE.cores[0], ListMaker(ONE, np.random.default_rng(0))
    maker.load(0, [program_message(config, assemble("v_rd NetQ\nv_wr InitialVrf, 0\nend_chain\nend"))])
    short = Message(kind=MessageKind.INPUT, address=0, count=count, payload=bytes(2 * config.mfu_lanes))
    maker.run(0, [pack(config, short)], 64 * ALIGNED)
    assert_equal(maker.made(error=CommandError.MESSAGE, index=1), gates)


@pytest.mark.parametrize(("command", "kind"), [
    (ListMaker.load, MessageKind.INPUT), (ListMaker.run, MessageKind.READ), (ListMaker.run, MessageKind.PROGRAM)])
def test_commands_take_messages_of_their_kinds_alone(gates, command, kind):
    rng = np.random.default_rng(kind)
    maker = ListMaker(ONE, rng)
    maker.load(0, [program_message(ONE.cores[0], assemble("end"))])
    command(maker, 0, [pack(ONE.cores[0], message(ONE.cores[0], rng, kind))], 64 * ALIGNED)
    one = maker.made(error=CommandError.MESSAGE, index=1)
    assert_equal(one, gates)
    assert gates.error() == one.error


@pytest.mark.parametrize("whole", [True, False])
def test_a_reset_at_any_moment_leaves_nothing_behind(gates, whole):
    """A reset of the accelerator, or of its core alone."""
    rng = np.random.default_rng(whole)
    for _ in range(4):
        one = random_list(ONE, rng)
        begin(one, gates)
        gates.submit(one.commands[:1 << one.ring_size])
        gates.step(int(rng.integers(4000)))
        if whole:
            gates.reset()
        else:
            gates.write_register(AcceleratorRegister.RESET_CORES, 1)
        assert not gates.run() & (AcceleratorStatus.BUSY | AcceleratorStatus.MEMORY_BUSY)
        assert not gates.owed
        assert_equal(random_list(ONE, rng), gates)


@pytest.mark.parametrize("access", [Access.WORDS, Access.WRITE])
@pytest.mark.parametrize("fault", [Fault.SLVERR, Fault.DECERR])
def test_a_wrong_answer_of_the_memory_ends_a_list(gates, access, fault):
    """The command with the error is one of those that had begun; after a reset all is as ever."""
    rng = np.random.default_rng(access)
    one = random_list(ONE, rng)
    begin(one, gates)
    gates.fail(gates.bursts(access) + int(rng.integers(20)), fault, access)
    gates.submit(one.commands[:1 << one.ring_size])
    assert gates.run() & AcceleratorStatus.FAILED
    assert gates.error() in (CommandError.MEMORY, CommandError.MESSAGE, CommandError.PROGRAM)
    assert_equal(random_list(ONE, rng), gates)


def test_the_host_stays_within_the_memory(gates):
    """As on golden."""
    size = ONE.memory_bytes
    for machine in (gates, GoldenAccelerator(ONE)):
        with pytest.raises(ValueError, match="end beyond the memory"):
            machine.write_memory(size - 3, bytes(4))
        with pytest.raises(ValueError, match="end beyond the memory"):
            machine.read_memory(size - 3, 4)
        machine.write_memory(size - 4, b"last")
        assert machine.read_memory(size - 4, 4) == b"last"
