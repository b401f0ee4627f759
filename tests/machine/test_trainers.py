"""Cores that train under the command processor, in gates beside golden: programs, rendezvous, errors, resets."""

from collections.abc import Iterator

import numpy as np
import pytest
from concord.compiler.training.comparison import ComparedSession
from concord.compiler.training.session import TrainingSession
from concord.golden.lazy.lazy_update import initial_parameters
from concord.golden.lazy.tensor import to_training_tensor
from concord.golden.lazy.tensor_network import Dense, Relu, named
from concord.golden.lazy.tensor_training import Rates
from concord.sim.machines.accelerator_library import AcceleratorLibrary
from concord.sim.machines.accelerator_trainer import AcceleratorTrainer
from concord.sim.machines.accelerators import AcceleratorMachine, GoldenAccelerator
from concord.sim.machines.library import Memory
from concord.sim.stimulus.trainer_parts import SMALL
from concord.spec.accelerator.accelerator import Accelerator
from concord.spec.accelerator.registers import AcceleratorRegister, window
from concord.spec.machine.config import preset
from concord.spec.numbers.lazy import LazyFormat, Width
from concord.spec.trainer.registers import TrainerRegister
from concord.tests.accelerator.test_trainers import BASE, LIMIT, PROGRAM, listed, play_exchange, run

BOTH = Accelerator(cores=(SMALL, SMALL, SMALL, preset("tiny")), memory_bytes=1 << 18)
LAYERS, SHAPE = (Dense(20, 12), Relu(), Dense(12, 5)), (20,)
REGISTERS = (TrainerRegister.STATUS, TrainerRegister.ERROR, TrainerRegister.ERROR_ADDRESS, TrainerRegister.DRAM_BASE,
             TrainerRegister.LIMIT, *range(TrainerRegister.COUNTERS, TrainerRegister.COUNTERS + 24, 4),
             *range(TrainerRegister.BASES, TrainerRegister.BASES + 16, 4),
             *range(TrainerRegister.EXPONENTS, TrainerRegister.EXPONENTS + 4 * SMALL.exponents, 4))


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[AcceleratorMachine, AcceleratorMachine]]:
    """Golden and gates of cores that train and one that does not, whose memory stalls; chips keep their words."""
    with AcceleratorLibrary(BOTH, seed=3, memory=Memory(stall=0.2, mixed=True)) as gates:
        yield GoldenAccelerator(BOTH), gates


def begin(machine: AcceleratorMachine):
    """Bring a machine to a reset, with a program and random numbers in memory."""
    machine.reset()
    for core in (0, 2):
        machine.write_register(window(core) + TrainerRegister.DRAM_BASE, 0)
    machine.write_memory(0, bytes(BOTH.memory_bytes))
    machine.write_memory(0x1000, PROGRAM)
    machine.write_memory(BASE, np.random.default_rng(1).integers(0, 256, 16 * LIMIT, np.uint8).tobytes())


def found(machine: AcceleratorMachine) -> tuple[bytes, dict[str, int]]:
    """The memory, and registers by their names. HEAD behind an error depends on time."""
    named = {each.name: machine.read_register(each) for each in AcceleratorRegister if each != AcceleratorRegister.HEAD}
    cores = {f"core {core}: {each:#x}": machine.core_register(core, each) for core in (0, 2) for each in REGISTERS}
    return machine.read_memory(0, BOTH.memory_bytes), named | cores


def test_programs_and_registers(both):
    commands = [*listed(run(BASE + 0x40, BASE + 0x200), run(BASE + 0x200, BASE + 0x400)), run(BASE - 0x40, BASE),
                run(BASE, BASE + 0x40)]
    for machine in both:
        begin(machine)
        machine.set_ring(0, 5)
        machine.execute([command.pack() for command in commands], 100_000)
    assert found(both[1]) == found(both[0])


@pytest.mark.parametrize("last", [
    ("barrier cores 5", "barrier cores 5"), ("measure cores 5", "measure cores 5"), ("barrier cores 5", "loop count 0"),
    ("barrier cores 5", "measure cores 5"), ("barrier cores 5", "barrier cores 3")], ids=" and ".join)
def test_cores_wait_for_each_other(both, last):
    for machine in both:
        begin(machine)
        play_exchange(machine, last=last)
    assert found(both[1]) == found(both[0])


def test_cores_share_steps_of_training(both):
    """`ComparedSession` compares all tensors with golden's; golden has the parameters of a core that trains alone."""
    rng = np.random.default_rng(0)
    begun = {f"{name}.{part}": initial_parameters(rng.normal(size=size), LazyFormat())
             for name, layer in named(LAYERS) for part, size in layer.shapes.items()}
    rates = Rates(learning_rate=0.1, momentum=0.5)
    alone = TrainingSession(LAYERS, SHAPE, SMALL, rates, begun, batches=[6])
    shared = ComparedSession(LAYERS, SHAPE, SMALL, rates, begun, batches=[6], cores=2,
                             machine=lambda _, server, cores: AcceleratorTrainer(both[1], server, range(cores)))
    for _ in range(2):
        x, labels = to_training_tensor(rng.normal(size=(6, *SHAPE)), Width.ACTIVATION), rng.integers(0, 5, 6)
        assert shared.step(x, labels) == alone.step(x, labels)
    assert shared.counts == alone.counts
    assert shared.trainer.running
