"""Cores that train under the command processor, in gates beside golden: programs, rendezvous, errors, resets."""

from collections.abc import Iterator
from ctypes import CDLL, Structure, byref, c_size_t, c_uint8, c_uint32, string_at
from dataclasses import astuple

import numpy as np
import pytest
from concord.compiler.training.comparison import ComparedSession
from concord.compiler.training.session import TrainingSession
from concord.golden.lazy.lazy_update import initial_parameters
from concord.golden.lazy.tensor import to_training_tensor
from concord.golden.lazy.tensor_network import Dense, Relu, named
from concord.golden.lazy.tensor_training import Rates
from concord.handover.accelerator_driver import driver_files
from concord.lib.files import write_all
from concord.sim.machines.accelerator_library import AcceleratorLibrary
from concord.sim.machines.accelerator_trainer import AcceleratorTrainer
from concord.sim.machines.accelerators import AcceleratorMachine, GoldenAccelerator
from concord.sim.machines.library import Memory
from concord.sim.stimulus.trainer_parts import SMALL
from concord.spec.accelerator.accelerator import Accelerator
from concord.spec.accelerator.commands import PROCESSOR, Command, CommandError, CommandKind
from concord.spec.accelerator.registers import AcceleratorRegister, window
from concord.spec.host.registers import Control
from concord.spec.machine.config import preset
from concord.spec.numbers.lazy import LazyFormat, Width
from concord.spec.trainer.instructions import TrainerError
from concord.spec.trainer.registers import TrainerRegister
from concord.spec.trainer.text import assemble
from concord.tests.accelerator.test_trainers import BASE, LIMIT, PROGRAM, listed, play_exchange, run
from concord.tests.c_cores import Commander, Port
from concord.tests.c_driver import compile_c

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
        machine.write_register(window(core) + TrainerRegister.CONTROL, Control.CLEAR)
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


@pytest.mark.parametrize("other", [run(0, 32, 2), run(0, 0, 1)], ids=["refused", "fails"])
def test_a_core_whose_partner_does_not_begin_is_stopped(both, other):
    """Behind an error no command begins: the core that waits ends with PEER, and its RUN is the first with an error."""
    gates = both[1]
    begin(gates)
    words = b"".join(word.to_bytes(16, "little") for word in assemble("barrier cores 5\nend"))
    gates.write_memory(0x1000, words)
    gates.write_memory(0x1100, b"\x3f".ljust(32, b"\0"))
    loads = [Command(kind=CommandKind.LOAD, core=core, first=first, count=32)
             for core, first in ((0, 0x1000), (1, 0x1100), (2, 0x1000))]
    gates.set_ring(0, 5)
    gates.execute([command.pack() for command in (*loads, run(0, 0), other)], 20_000)
    assert [gates.read_register(each) for each in (
        AcceleratorRegister.ERROR, AcceleratorRegister.ERROR_INDEX, AcceleratorRegister.CORE_ERROR)] == [
        CommandError.PROGRAM, 3, TrainerError.PEER]
    assert not gates.read_register(AcceleratorRegister.BUSY_CORES)


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


class CCommand(Structure):
    """`struct nnp_command`."""

    _fields_ = [("kind", c_uint8), ("core", c_uint8),
                *((name, c_uint32) for name in ("first", "count", "second", "room", "value"))]


def test_the_c_driver_runs_lists_and_tells_their_errors(both, tmp_path):
    """The ring has 4 commands, so that the driver waits for room; golden takes the same list."""
    golden, gates = both
    good = listed(run(BASE + 0x40, BASE + 0x200), run(BASE + 0x200, BASE + 0x400))
    write_all(tmp_path, driver_files(BOTH))
    c = CDLL(str(compile_c(tmp_path, "commands.so", "nnp_commands.c", options=("-shared", "-fPIC"))))

    def read(_, address):
        gates.step(4)
        return gates.read_register(address)

    fields = dict(Port._fields_)
    port = Port(None, fields["read"](read), fields["write"](lambda _, *given: gates.write_register(*given)),
                fields["write_memory"](lambda _, to, data, count: gates.write_memory(to, string_at(data, count))),
                fields["read_memory"]())
    one, polls = Commander(), c_uint32(10_000)
    assert c.nnp_accelerator_open(byref(one), byref(port), c_uint32(32), c_uint32(2), polls) == 4
    for commands, result in (good, 0), ([*good, run(BASE, BASE + 0x44)], 1):
        for machine in both:
            begin(machine)
        golden.set_ring(0, 2)
        golden.execute([command.pack() for command in commands])
        assert c.nnp_accelerator_open(byref(one), byref(port), c_uint32(0), c_uint32(2), polls) == 0
        made = [CCommand(*astuple(command)) for command in commands]
        assert c.nnp_list_run(byref(one), (CCommand * len(made))(*made), c_size_t(len(made))) == result
        assert found(gates) == found(golden)
        assert one.error == golden.error()
    assert (one.error, one.error_index, one.error_origin) == (CommandError.ALIGNMENT, len(good), PROCESSOR)
