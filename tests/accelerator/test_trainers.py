"""Cores that train under golden's command processor: programs, registers, errors, races, and what is refused."""

import numpy as np
import pytest
from concord.golden.accelerator.races import Race
from concord.sim.machines.accelerators import GoldenAccelerator
from concord.spec.accelerator.accelerator import PAGE, Accelerator
from concord.spec.accelerator.commands import Command, CommandError, CommandKind, refused
from concord.spec.accelerator.registers import WINDOW, AcceleratorRegister
from concord.spec.host.registers import Control, Register, Status
from concord.spec.machine.config import preset
from concord.spec.trainer.config import TrainerConfig
from concord.spec.trainer.instructions import TrainerError
from concord.spec.trainer.registers import TrainerCounter, TrainerRegister
from concord.spec.trainer.text import assemble

SMALL = TrainerConfig(words=256, accumulator_rows=64, views=8, bases=4, exponents=16, instructions=64)
BOTH = Accelerator(cores=(SMALL, preset("tiny"), SMALL), memory_bytes=1 << 16)
BASE, LIMIT = 0x4000, 128
#: Copies four words from R0 to R1.
PROGRAM = b"".join(word.to_bytes(16, "little") for word in assemble("""
    tensor v 0, space 1, planes 1, base 0, n0 4, s0 1, n1 1, n2 1, blocks 1
    tensor v 1, space 0, planes 1, base 31, n0 4, s0 1, n1 1, n2 1, blocks 1
    tensor v 2, space 1, planes 1, base 1, n0 4, s0 1, n1 1, n2 1, blocks 1
    copy to 1, source 0
    copy to 2, source 1
    end
"""))


#: Stores a word at R0 and, behind a barrier of both cores, copies that of the other core, at R1, to the word behind it.
EXCHANGE = """
    tensor v 0, space 1, planes 1, base 0, n0 1, n1 1, n2 1, blocks 1
    tensor v 1, space 0, planes 1, base 31, n0 1, n1 1, n2 1, blocks 1
    tensor v 2, space 1, planes 1, base 1, n0 1, n1 1, n2 1, blocks 1
    tensor v 3, space 1, planes 1, base 0, offset 1, n0 1, n1 1, n2 1, blocks 1
    copy to 0, source 1
    barrier cores 5
    copy to 1, source 2
    copy to 3, source 1
    {}
    end
"""


def exchange(*, barrier: bool = True, last: tuple[str, str] = ("barrier cores 5",) * 2) -> GoldenAccelerator:
    """Cores 0 and 2 exchange words; each then has a last instruction."""
    machine = GoldenAccelerator(BOTH)
    play_exchange(machine, barrier=barrier, last=last)
    return machine


def play_exchange(machine, *, barrier: bool = True, last: tuple[str, str] = ("barrier cores 5",) * 2):
    """Play such a list on any machine."""
    machine.set_ring(0, 5)
    for core, text in zip((0, 2), last, strict=True):
        program = EXCHANGE if barrier else EXCHANGE.replace("barrier cores 5", "barrier cores 0")
        words = b"".join(word.to_bytes(16, "little") for word in assemble(program.format(text)))
        machine.write_memory(0x1000 + 0x400 * core, words)
    commands = [Command(kind=CommandKind.LOAD, core=core, first=0x1000 + 0x400 * core, count=16 * 14)
                for core in (0, 2)]
    commands += [Command(kind=CommandKind.SET, core=core, first=TrainerRegister.LIMIT, value=1 << 12)
                 for core in (0, 2)]
    commands += [run(BASE, BASE + 64), run(BASE + 64, BASE, 2)]
    machine.execute([command.pack() for command in commands])


def listed(*runs: Command, core: int = 0) -> list[Command]:
    """A list that loads the program, sets registers and has some more commands."""
    return [
        Command(kind=CommandKind.LOAD, core=core, first=0x1000, count=len(PROGRAM)),
        Command(kind=CommandKind.SET, core=core, first=TrainerRegister.DRAM_BASE, value=BASE),
        Command(kind=CommandKind.SET, core=core, first=TrainerRegister.LIMIT, value=LIMIT),
        *runs,
    ]


def run(first: int, second: int, core: int = 0) -> Command:
    return Command(kind=CommandKind.RUN, core=core, first=first, second=second)


def played(*commands: Command, accelerator: Accelerator = BOTH) -> GoldenAccelerator:
    """Golden after a list, with random numbers in server memory."""
    machine = GoldenAccelerator(accelerator)
    machine.set_ring(0, 5)
    machine.write_memory(0x1000, PROGRAM)
    machine.write_memory(BASE, np.random.default_rng(1).integers(0, 256, 16 * LIMIT, np.uint8).tobytes())
    machine.execute([command.pack() for command in commands])
    return machine


def test_a_program_copies_what_its_command_names():
    machine = played(*listed(run(BASE + 0x40, BASE + 0x200), run(BASE + 0x200, BASE + 0x400)))
    words = machine.read_memory(BASE + 0x40, 64)
    assert words.strip(b"\0")
    assert machine.read_memory(BASE + 0x200, 64) == machine.read_memory(BASE + 0x400, 64) == words
    registers = {register: machine.read_register(WINDOW + register) for register in (
        TrainerRegister.DRAM_BASE, TrainerRegister.LIMIT, TrainerRegister.BASES + 4, Register.STATUS,
        TrainerRegister.COUNTERS + 4 * TrainerCounter.INSTRUCTIONS)}
    assert list(registers.values()) == [BASE, LIMIT, 0x40, Status.DONE, 12]
    machine.write_register(WINDOW + Register.CONTROL, Control.CLEAR)
    assert machine.read_register(WINDOW + TrainerRegister.COUNTERS) == 0


def test_addresses_before_the_base_are_beyond_the_server_memory():
    machine = played(*listed(run(BASE - 0x40, BASE)))
    found = [machine.read_register(register) for register in (
        AcceleratorRegister.ERROR, AcceleratorRegister.ERROR_INDEX, AcceleratorRegister.ERROR_ORIGIN,
        AcceleratorRegister.CORE_ERROR, AcceleratorRegister.ERROR_ADDRESS)]
    assert found == [CommandError.PROGRAM, 3, 0, TrainerError.RANGE, 6]


def test_what_a_trainer_stores_and_another_core_reads_is_a_race():
    commands = [*listed(run(BASE, BASE + 0x200)), *listed(run(BASE + 0x200, BASE + 0x400, 2), core=2)]
    with pytest.raises(Race, match=r"command 7 \(RUN\) of core 2 reads bytes 0x4200 to 0x423f, and command 3 \(RUN\)"):
        played(*commands)
    wait = Command(kind=CommandKind.WAIT, value=0b1)
    machine = played(*commands[:4], wait, *commands[4:])
    assert machine.read_memory(BASE + 0x400, 64) == machine.read_memory(BASE, 64)


def test_server_memory_ends_within_the_memory():
    with pytest.raises(ValueError, match="DRAM_BASE = 0xf000 and LIMIT = 512 let server memory end beyond"):
        played(*listed(Command(kind=CommandKind.SET, first=TrainerRegister.DRAM_BASE, value=0xF000),
                       Command(kind=CommandKind.SET, first=TrainerRegister.LIMIT, value=512), run(0xF000, 0xF040)))


@pytest.mark.parametrize(("values", "error"), [
    ({"kind": CommandKind.LOAD, "first": 0, "count": 16 * 64}, CommandError.NONE),
    ({"kind": CommandKind.LOAD, "first": 0, "count": 16 * 65}, CommandError.RANGE),
    ({"kind": CommandKind.LOAD, "first": 0, "count": 24}, CommandError.ALIGNMENT),
    ({"kind": CommandKind.LOAD, "first": 0, "count": 0}, CommandError.ALIGNMENT),
    ({"kind": CommandKind.LOAD, "first": 0, "count": 16, "second": 64}, CommandError.KIND),
    ({"kind": CommandKind.LOAD, "first": 0, "count": 16, "room": 64}, CommandError.KIND),
    ({"kind": CommandKind.RUN, "first": 0, "second": 1 << 16}, CommandError.NONE),
    ({"kind": CommandKind.RUN, "first": 0, "second": (1 << 16) + 64}, CommandError.RANGE),
    ({"kind": CommandKind.RUN, "first": 0, "second": 32}, CommandError.ALIGNMENT),
    ({"kind": CommandKind.RUN, "first": 0, "count": 16}, CommandError.KIND),
    ({"kind": CommandKind.RUN, "first": 0, "value": 1}, CommandError.KIND),
    ({"kind": CommandKind.SET, "first": TrainerRegister.RATE, "value": 0xFFFFFFFF}, CommandError.NONE),
    ({"kind": CommandKind.SET, "first": TrainerRegister.LIMIT, "value": 1 << 12}, CommandError.NONE),
    ({"kind": CommandKind.SET, "first": TrainerRegister.LIMIT, "value": (1 << 12) + 1}, CommandError.RANGE),
    ({"kind": CommandKind.SET, "first": TrainerRegister.DRAM_BASE, "value": 1 << 16}, CommandError.NONE),
    ({"kind": CommandKind.SET, "first": TrainerRegister.DRAM_BASE, "value": (1 << 16) + PAGE}, CommandError.RANGE),
    ({"kind": CommandKind.SET, "first": TrainerRegister.DRAM_BASE, "value": 64}, CommandError.ALIGNMENT),
    ({"kind": CommandKind.SET, "first": Register.PEER, "value": 64}, CommandError.REGISTER),
    ({"kind": CommandKind.SET, "first": Register.CONTROL, "value": Control.CLEAR}, CommandError.NONE),
    ({"kind": CommandKind.SET, "first": Register.CONTROL, "value": Control.START}, CommandError.REGISTER),
])
def test_commands_of_a_trainer_at_their_limits(values, error):
    assert refused(BOTH, Command(**values).pack()) == error


def test_an_accelerator_with_a_trainer_has_a_bus_of_a_word():
    with pytest.raises(ValueError, match="core 1 trains on words of 16 bytes, and the memory has bus = 8"):
        Accelerator(cores=(preset("tiny"), SMALL), memory_bytes=1 << 16, bus=8)


def test_a_barrier_orders_what_its_cores_store():
    machine = exchange()
    assert machine.error() == CommandError.NONE
    assert [machine.core_register(core, TrainerRegister.COUNTERS) for core in (0, 2)] == [10, 10]
    with pytest.raises(Race, match=r"core 2 writes bytes 0x4040 to 0x404f, and command 4 \(RUN\) of core 0 reads"):
        exchange(barrier=False, last=("s_wr r 2", "s_wr r 2"))


@pytest.mark.parametrize("last", [("barrier cores 5", "loop count 0"), ("barrier cores 5", "measure cores 5"),
                                  ("barrier cores 5", "barrier cores 3")])
def test_a_member_that_never_comes_is_an_error(last):
    machine = exchange(last=last)
    found = [machine.read_register(register) for register in (
        AcceleratorRegister.ERROR, AcceleratorRegister.ERROR_INDEX, AcceleratorRegister.CORE_ERROR,
        AcceleratorRegister.ERROR_ADDRESS)]
    assert found == [CommandError.PROGRAM, 4, TrainerError.PEER, 12]


def test_a_list_without_a_partner_is_refused():
    words = b"".join(word.to_bytes(16, "little") for word in assemble("barrier cores 5\nend"))
    machine = GoldenAccelerator(BOTH)
    machine.set_ring(0, 5)
    machine.write_memory(0x1000, words)
    commands = [Command(kind=CommandKind.LOAD, first=0x1000, count=32), run(0, 0)]
    with pytest.raises(ValueError, match=r"command 1 \(RUN\) of core 0 waits for cores of the mask 0x5, and the list"):
        machine.execute([command.pack() for command in commands])
    machine.reset()
    with pytest.raises(ValueError, match=r"command 1 \(RUN\) of core 0 waits .*, and command 2 has the error ALIGN"):
        machine.execute([command.pack() for command in (*commands, run(0, 32, 2))])
    machine.reset()
    wait = Command(kind=CommandKind.WAIT, value=1)
    with pytest.raises(ValueError, match=r"and command 2 \(WAIT\) comes first: give each of them its RUN before"):
        machine.execute([command.pack() for command in (*commands, wait)])
