"""Run a list of commands on two accelerators, and count the bytes that differ."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from concord.sim.machines.accelerators import AcceleratorMachine
from concord.sim.machines.scoreboard import SHOWN
from concord.sim.stimulus.command_lists import CommandList
from concord.spec.accelerator.accelerator import dram_bytes
from concord.spec.accelerator.commands import PROCESSOR, Command, CommandError, CommandKind, refused
from concord.spec.accelerator.registers import (
    WINDOW,
    AcceleratorControl,
    AcceleratorRegister,
    AcceleratorStatus,
    window,
)
from concord.spec.host.registers import EVENTS, Control, Register, counters
from concord.spec.machine.config import Config


@dataclass(frozen=True, slots=True, eq=False)
class ListOutcome:
    """An accelerator after a list.

    Attributes:
        memory:     The memory, uint8[bytes].
        registers:  Values of registers by address; those of STATUS without bits that depend on time.
        interrupts: Whether the interrupt was up after each part of the list that the ring took.
    """

    memory: np.ndarray
    registers: dict[int, int]
    interrupts: list[bool]


@dataclass(frozen=True, slots=True)
class Differing:
    """What differs after a list.

    Attributes:
        memory:     Number of bytes.
        registers:  Number of registers.
        interrupts: Number of times at which one has the interrupt and the other one has not.
        text:       A sentence on the first difference; empty if there is none.
    """

    memory: int
    registers: int
    interrupts: int
    text: str

    def __bool__(self):
        return bool(self.memory or self.registers or self.interrupts)


def play(one: CommandList, machine: AcceleratorMachine) -> ListOutcome:
    """Run a list on a machine, which is reset first, and whose memory is written."""
    begin(one, machine)
    interrupts, size = [], 1 << one.ring_size
    for first in range(0, len(one.commands), size):
        machine.submit(one.commands[first:first + size])
        status = machine.run()
        interrupts.append(machine.interrupt)
        if len(interrupts) % 2:
            machine.write_register(AcceleratorRegister.CONTROL, AcceleratorControl.ACKNOWLEDGE)
        if status & AcceleratorStatus.FAILED:
            break
    return seen(one, machine, interrupts)


def begin(one: CommandList, machine: AcceleratorMachine) -> None:
    """Reset a machine, and bring all that lists depend on to its first state."""
    machine.reset()
    machine.write_memory(0, one.image)
    machine.set_ring(one.ring, one.ring_size)
    for core, config in enumerate(one.accelerator.cores):
        for register, value in ((Register.CONTROL, Control.CLEAR), (Register.PEER, 0), (Register.DRAM_BASE, 0)):
            if register != Register.DRAM_BASE or config.dram_words:
                machine.write_register(window(core) + register, value)


def seen(one: CommandList, machine: AcceleratorMachine, interrupts: list[bool]) -> ListOutcome:
    """What a machine shows after a list."""
    addresses = [int(register) for register in AcceleratorRegister]
    for core, config in enumerate(one.accelerator.cores):
        addresses += [window(core) + register for register in registers(config)]
    values = {address: machine.read_register(address) for address in addresses}
    for core in range(len(one.accelerator.cores)):
        values[window(core) + Register.STATUS] &= SHOWN
    memory = np.frombuffer(machine.read_memory(0, one.accelerator.memory_bytes), np.uint8)
    return ListOutcome(memory, values, interrupts)


def registers(config: Config) -> list[int]:
    """Addresses of the registers of a core that do not depend on time."""
    named = [register for register in Register if register not in (Register.COUNTERS, Register.DRAM_BASE)]
    events = [Register.COUNTERS + 4 * counter for counter in counters(config) if counter in EVENTS]
    return [*map(int, named), *[int(Register.DRAM_BASE)] * bool(config.dram_words), *events]


def compare(one: CommandList, golden: AcceleratorMachine, other: AcceleratorMachine) -> Differing:
    """Run a list on two machines.

    After an error, bytes and registers that depend on time are left out: commands behind it, which may have been
    executed or not, and a program that a refused or missing message has left in the middle.
    """
    return difference(one, play(one, golden), play(one, other))


def difference(one: CommandList, golden: ListOutcome, other: ListOutcome) -> Differing:
    """What differs between two outcomes of a list."""
    parts, cores, head = unspecified(one, golden)
    wrong = golden.memory != other.memory
    for part in parts:
        wrong[part.start:part.stop] = False
    at = np.flatnonzero(wrong)
    left_out = {AcceleratorRegister.HEAD} if head else set()
    others = [address for address, value in golden.registers.items() if other.registers[address] != value
              and address not in left_out and address // WINDOW - 1 not in cores]
    ups = list(zip(golden.interrupts, other.interrupts, strict=False))
    interrupts = sum(left != right for left, right in ups) + abs(len(golden.interrupts) - len(other.interrupts))
    text = ""
    if len(at):
        text = (f"byte {at[0]:#x} is {golden.memory[at[0]]:#04x} on golden and {other.memory[at[0]]:#04x} "
                f"on the other machine, and {len(at) - 1} more differ")
    elif others:
        text = (f"register {others[0]:#06x} is {golden.registers[others[0]]:#x} on golden and "
                f"{other.registers[others[0]]:#x} on the other machine")
    elif interrupts:
        text = f"the interrupt is {golden.interrupts} on golden and {other.interrupts} on the other machine"
    return Differing(len(at), len(others), interrupts, text)


def unspecified(one: CommandList, golden: ListOutcome) -> tuple[list[range], set[int], bool]:
    """What depends on time after an error: ranges of the memory, cores whose registers do, and whether HEAD does.

    Commands up to the one with the error are executed. Later ones of other cores and of the command processor may be,
    up to one that is refused or that waits for the core with the error.
    """
    error, index, origin = (golden.registers[register] for register in (
        AcceleratorRegister.ERROR, AcceleratorRegister.ERROR_INDEX, AcceleratorRegister.ERROR_ORIGIN))
    if error == CommandError.NONE or origin == PROCESSOR:
        return [], set(), False
    failed = Command.unpack(one.commands[index])
    parts, cores = [], set()
    for command in _behind(one, index, origin):
        parts.append(command.written)
        cores |= {command.core} if command.kind.of_core else set()
    if error in (CommandError.MESSAGE, CommandError.STARVED):
        parts.append(failed.written)
        cores.add(origin)
    for core in cores:
        parts += _drams(one, core)
    return parts, cores, True


def _behind(one: CommandList, index: int, core: int) -> Iterator[Command]:
    """Commands behind that of number `index`, which has an error, that may have been executed."""
    part = index >> one.ring_size
    for data in one.commands[index + 1:part + 1 << one.ring_size]:
        if refused(one.accelerator, data) != CommandError.NONE:
            return
        command = Command.unpack(data)
        if command.kind == CommandKind.WAIT and command.value >> core & 1:
            return
        if not command.kind.of_core or command.core != core:
            yield command


def _drams(one: CommandList, core: int) -> list[range]:
    """Where Dram of a core lies at some time of a list."""
    size, bases = dram_bytes(one.accelerator.cores[core]), {0}
    for data in one.commands:
        if refused(one.accelerator, data) == CommandError.NONE:
            command = Command.unpack(data)
            if command.kind == CommandKind.SET and (command.core, command.first) == (core, Register.DRAM_BASE):
                bases.add(command.value)
    return [range(base, base + size) for base in bases]
