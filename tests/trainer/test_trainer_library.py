"""The Verilated trainer beside golden: random programs, resets, wrong answers of the memory, steps of training."""

from functools import partial

import numpy as np
import pytest
from concord.campaigns.trainer_programs import differences, made
from concord.compiler.training.comparison import ComparedSession
from concord.golden.lazy.lazy_update import initial_parameters
from concord.golden.lazy.tensor import to_training_tensor
from concord.golden.lazy.tensor_network import Conv, Dense, MaxPool, Relu, named
from concord.golden.lazy.tensor_training import Rates
from concord.golden.trainer.trainer import Trainer
from concord.sim.machines.library import Fault, Memory
from concord.sim.machines.trainer_library import TrainerLibrary
from concord.sim.machines.trainer_scoreboard import compared, empty_trainers
from concord.sim.machines.trainers import trainer_machine
from concord.sim.stimulus.trainer_parts import SMALL
from concord.sim.stimulus.trainer_programs import SERVER_WORDS, TrainerProgram
from concord.spec.host.registers import Control
from concord.spec.numbers.lazy import LazyFormat, Width
from concord.spec.trainer.config import LANES
from concord.spec.trainer.instructions import Space, TrainerError, TrainerOp, instruction
from concord.spec.trainer.registers import TrainerRegister
from concord.spec.trainer.views import TrainerView
from concord.tests.trainer.refused import REFUSED, refused_program

NEVER = (1 << 64) - 1


@pytest.mark.parametrize("first", [0, 25, 50])
def test_random_programs(first):
    """Each chunk has another memory; one program in three is damaged."""
    found, ended = differences(7, list(range(first, first + 9)))
    assert not found, "\n".join(found)
    assert ended.total() == 9


def test_what_is_refused():
    """As golden refuses it; no memory, register or exponent differs afterwards."""
    golden, other = empty_trainers()
    for case, (views, *_, error) in enumerate(REFUSED):
        golden.reset()
        other.reset()
        server = np.random.default_rng(case).integers(0, 256, (SERVER_WORDS, LANES), np.uint8)
        one = TrainerProgram(words=refused_program(case), server=server, rates={}, error=error, address=2 * len(views))
        assert compared(one, golden, other) == ("", error), f"{case}: {REFUSED[case]}"
    other.close()


def again(golden, other):
    """Bring the library, and a new golden trainer, to their first state."""
    other.reset()
    other.write_register(TrainerRegister.CONTROL, Control.CLEAR)
    return Trainer(golden.config, golden.server)


def test_a_reset_at_any_time_leaves_a_core_that_works():
    golden, other = empty_trainers(seed=3, memory=Memory(latency=20, stall=0.1))
    rng = np.random.default_rng(5)
    for number in range(4):
        one = made(8, 3 * number)
        other.server[:] = one.server
        other.load(one.words)
        other.start()
        other.step(int(rng.integers(1, 6000)))
        golden = again(golden, other)
        assert compared(one, golden, other)[0] == "", number
    other.close()


def test_an_instruction_that_waits_for_a_slot_waits_for_the_last_one_in_flight():
    """Seven stores and a load are in flight when a copy of what is loaded comes: there is no slot for it."""
    stores, program = range(7), []
    offsets = [*((Space.SERVER, k) for k in stores), (Space.CHIP, 0), (Space.SERVER, 100), (Space.CHIP, 16)]
    for number, (space, offset) in enumerate([*offsets, (Space.CHIP, 32), (Space.SERVER, 200)]):
        program += TrainerView(space=space, offset=offset, n0=1, n1=1, n2=1, blocks=1).tensor(number).words
    for to, source in [*((k, 7) for k in stores), (9, 8), (10, 9), (11, 10)]:
        program += instruction(TrainerOp.COPY, to=to, source=source).words
    server = np.random.default_rng(1).integers(0, 256, (256, LANES), np.uint8)
    machine = TrainerLibrary(SMALL, server, memory=Memory(latency=2000))  # longer than the dispatch of all of them
    machine.load([*program, *instruction(TrainerOp.END).words])
    assert machine.run() == TrainerError.NONE
    assert (server[200] == server[100]).all()
    machine.close()


@pytest.mark.parametrize("fault", [Fault.SLVERR, Fault.DECERR])
def test_wrong_answers_of_the_memory(fault):
    """They are reported, and do no harm to the next program."""
    golden, other = empty_trainers(seed=3, memory=Memory(latency=20, stall=0.1))
    for number in range(2):
        one = made(9, 3 * number)
        other.server[:] = one.server
        other.load(one.words)
        other.fail(other.bursts + number, fault)
        assert other.run() == TrainerError.MEMORY
        other.fail(NEVER, Fault.NONE)
        golden = again(golden, other)
        assert compared(one, golden, other)[0] == "", number
    other.close()


def test_steps_of_training():
    """`ComparedSession` compares all tensors with golden's."""
    layers, shape = (Conv(1, 4, 3, 1, 1), Relu(), MaxPool(2, 2), Dense(36, 20), Relu(), Dense(20, 5)), (1, 6, 6)
    rng = np.random.default_rng(0)
    begun = {f"{name}.{part}": initial_parameters(rng.normal(size=size), LazyFormat())
             for name, layer in named(layers) for part, size in layer.shapes.items()}
    session = ComparedSession(layers, shape, SMALL, Rates(learning_rate=0.1, momentum=0.5), begun, batches=[3],
                              machine=partial(trainer_machine, "library"))
    losses = []
    for _ in range(2):
        x = to_training_tensor(rng.normal(size=(3, *shape)), Width.ACTIVATION)
        losses.append(session.step(x, rng.integers(0, 5, 3)))
    assert len(set(losses)) == 2
    assert session.counts.steps
