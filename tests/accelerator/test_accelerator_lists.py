"""Lists of commands on golden: those without races end in any order that hardware may choose, others are refused."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.accelerator_lists import made, unrefused, wrong_end
from concord.golden.accelerator import ranges
from concord.golden.accelerator.races import Race
from concord.sim.machines.accelerator_scoreboard import ListOutcome, compare, difference, play
from concord.sim.machines.accelerators import GoldenAccelerator
from concord.sim.stimulus.command_faults import IN_CORES, failing_list, legal, refusals, refused_list
from concord.sim.stimulus.command_lists import ACCELERATORS, CommandList, random_list
from concord.sim.stimulus.command_races import RACES, raced_list
from concord.spec.accelerator.accelerator import Accelerator
from concord.spec.accelerator.commands import Command, CommandError, CommandKind, refused
from concord.spec.accelerator.registers import AcceleratorRegister, AcceleratorStatus
from concord.spec.machine.config import preset

FOUR = ACCELERATORS["four"]


@pytest.fixture(params=ACCELERATORS)
def name(request):
    return request.param


def test_commands_are_refused_at_each_limit(name):
    found = refusals(ACCELERATORS[name])
    assert {error for _, _, error in found} == set(CommandError) - {CommandError.NONE, *IN_CORES, CommandError.MEMORY}
    for what, data, error in found:
        assert refused(ACCELERATORS[name], data) == error, what
    for kind, command in legal(ACCELERATORS[name]).items():
        assert refused(ACCELERATORS[name], command.pack()) == CommandError.NONE, kind
        assert Command.unpack(command.pack()) == command


def test_lists_end_as_they_are_made(name):
    golden = GoldenAccelerator(ACCELERATORS[name])
    for each in (0, 5, 7, 19, -1, -100):
        one = made(name, 2, each)
        play(one, golden)
        assert not wrong_end(one, golden)


def other_order(one: CommandList, rng: np.random.Generator) -> Iterator[bytes]:
    """The commands in another order that hardware may choose: cores are late, up to a WAIT for them."""
    queues = {core: [] for core in range(len(one.accelerator.cores))}
    for data in one.commands:
        command = Command.unpack(data)
        if command.kind.of_core:
            queues[command.core].append(data)
            late = [] if rng.random() < 0.8 else [int(rng.integers(len(queues)))]
        else:
            late = [core for core in queues if command.value >> core & 1] if command.kind == CommandKind.WAIT else []
        for core in late:
            yield from queues[core]
            queues[core].clear()
        if not command.kind.of_core:
            yield data
    for queue in queues.values():
        yield from queue


@pytest.mark.parametrize("number", range(3))
def test_without_a_race_any_order_gives_the_same_bytes(number):
    rng = np.random.default_rng([7, number])
    one = random_list(FOUR, rng)
    one = replace(one, ring_size=(len(one.commands) - 1).bit_length(), ring=FOUR.memory_bytes - (1 << 12))
    left, right = (play(each, GoldenAccelerator(FOUR)) for each in (
        one, replace(one, commands=tuple(other_order(one, rng)))))
    different = np.flatnonzero(left.memory != right.memory)
    assert not (different < one.ring).any()
    assert left.registers == right.registers


@pytest.mark.parametrize("name", ["one", "three"])
def test_races_are_refused(name):
    assert not unrefused(name, 5, range(len(RACES)))


def test_a_race_is_named():
    texts = []
    for number in range(len(RACES)):
        with pytest.raises(Race) as refusal:
            play(raced_list(FOUR, np.random.default_rng(number), number), GoldenAccelerator(FOUR))
        texts.append(str(refusal.value))
    assert any("of core 0 writes bytes 0x" in text or "of core 2 writes bytes 0x" in text for text in texts)
    assert sum("put a WAIT for core" in text for text in texts) >= 5


@pytest.mark.parametrize("error", IN_CORES)
def test_after_an_error_the_next_list_is_right(error):
    """What differs after another error of another machine is seen, and nothing of it is left after a reset."""
    golden, other = GoldenAccelerator(FOUR), GoldenAccelerator(FOUR)
    failing = failing_list(FOUR, np.random.default_rng(3), error)
    assert not compare(failing, golden, other)
    assert golden.error() == error
    assert other.run() & AcceleratorStatus.FAILED
    assert not compare(made("four", 3, 1), GoldenAccelerator(FOUR), other)


def test_what_differs_is_counted():
    one = refused_list(ACCELERATORS["two"], np.random.default_rng(4), bytes(32), CommandError.KIND)
    left, right = (play(one, GoldenAccelerator(ACCELERATORS["two"])) for _ in range(2))
    assert not difference(one, left, right)
    memory, registers = left.memory.copy(), left.registers | {int(AcceleratorRegister.HEAD): 99}
    memory[[3, 70]] ^= 1
    found = difference(one, left, ListOutcome(memory, registers, [*left.interrupts[:-1], False]))
    assert (found.memory, found.registers, found.interrupts) == (2, 1, 1)
    assert found.text.startswith("byte 0x3 is")


def test_sets_of_addresses():
    rng = np.random.default_rng(1)
    for _ in range(200):
        sets, made_sets = [], []
        for _ in range(2):
            firsts = rng.integers(0, 40, rng.integers(6)).tolist()
            parts = [range(first, first + int(rng.integers(5))) for first in firsts]
            grown = ranges.GrowingSet()
            for part in parts:
                grown.add(ranges.of(part))
            sets.append({address for part in parts for address in part})
            made_sets.append((ranges.of(*parts), grown))
        one, other = sets
        assert {address for part in made_sets[0][0].tolist() for address in range(*part)} == one
        met = ranges.meeting(made_sets[0][0], made_sets[1][0])
        assert set(met) <= one & other
        assert bool(len(met)) == bool(one & other) == bool(len(made_sets[1][1].meeting(made_sets[0][0])))
        assert ranges.runs(np.array(sorted(one), np.int64)).tolist() == made_sets[0][0].tolist()


def test_four_gigabytes_cost_nothing():
    golden = GoldenAccelerator(Accelerator(cores=(preset("tiny"),), memory_bytes=1 << 32))
    golden.set_ring(0xFFFF_F000, 2)
    copy = Command(kind=CommandKind.COPY, first=0xFFFF_FFC0, count=64, second=0x8000_0000)
    golden.write_memory(0xFFFF_FFC0, bytes(range(64)))
    golden.execute([copy.pack()] * 5)
    assert golden.read_memory(0x8000_0000, 64) == bytes(range(64))
    assert golden.read_register(AcceleratorRegister.HEAD) == 5


@pytest.mark.parametrize(("register", "value", "words"), [
    (AcceleratorRegister.RING, 32, "a multiple of 64"), (AcceleratorRegister.RING_SIZE, 17, "1 to 16"),
    (AcceleratorRegister.TAIL, 3, "more than the ring's 2 commands")])
def test_what_a_host_may_not_write(register, value, words):
    with pytest.raises(ValueError, match=words):
        GoldenAccelerator(FOUR).write_register(register, value)
