"""The driver of a core: commands to messages and registers of a neural network processor, and answers to memory."""

import struct
from dataclasses import dataclass

import numpy as np
from concord.golden.accelerator import ranges
from concord.golden.accelerator.memory import Accesses, OutsideWords, SharedMemory, dram_words
from concord.golden.machine import Machine
from concord.spec.accelerator.accelerator import ALIGNED, PAGE
from concord.spec.accelerator.commands import Command, CommandError, CommandKind
from concord.spec.host.messages import HEADER, MessageKind, item_bytes, unpack
from concord.spec.host.registers import Control, Register, Status
from concord.spec.isa.instructions import Error
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config
from concord.spec.trainer.instructions import TrainerError

#: Kinds of messages that each command takes.
TAKEN = {CommandKind.LOAD: frozenset(MessageKind) - {MessageKind.INPUT, MessageKind.OUTPUT, MessageKind.UPDATED},
         CommandKind.RUN: frozenset({MessageKind.INPUT})}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnd:
    """How a command has ended.

    Attributes:
        error:      Its error, or NONE.
        core_error: Error of the program, with PROGRAM.
        address:    Address of the instruction, with PROGRAM.
    """

    error: CommandError = CommandError.NONE
    core_error: Error | TrainerError = Error.NONE
    address: int = 0


def messages(config: Config, data: bytes, kinds: frozenset[MessageKind]) -> tuple[list[bytes], bool]:
    """The messages that lie one behind the other in `data`, up to the first wrong one.

    Returns:
        The messages, and whether these are all: otherwise the core refuses the next one, its kind is none of `kinds`,
        or it is cut off.
    """
    found = []
    while data:
        message = data[:message_bytes(config, data)]
        if not message or message[0] not in kinds:
            return found, False
        try:
            unpack(config, message, to_machine=True)
        except ValueError:
            return found, False
        found.append(message)
        data = data[len(message):]
    return found, True


def message_bytes(config: Config, data: bytes, *, to_machine: bool = True) -> int:
    """Number of bytes of the message that `data` begins with, after its header; 0 for one of no kind, or cut off."""
    if len(data) < HEADER.size or data[0] not in list(MessageKind):
        return 0
    kind, memory, _, _, _, count, _ = HEADER.unpack_from(data)
    asks = kind == MessageKind.READ and to_machine
    beat, payload = config.message_bytes, 0 if asks else count * item_bytes(config, MessageKind(kind), memory)
    size = HEADER.size + payload + -payload % beat + beat
    return size if size <= len(data) else 0


class Driver:
    """A core and its driver.

    Args:
        config: The core.
        memory: The memory that it shares.

    Attributes:
        machine:  The core.
        base:     Register DRAM_BASE.
        accesses: Bytes that the driver itself has read and written.
    """

    def __init__(self, config: Config, memory: SharedMemory):
        self.config, self.machine, self._memory = config, Machine(config), memory
        self.base, self.accesses = 0, Accesses()
        self._outside: OutsideWords | None = None
        self.write_register(Register.DRAM_BASE, 0)

    def read_register(self, address: int) -> int:
        """Read a register of the core."""
        return self.base if address == Register.DRAM_BASE else self.machine.read_register(address)

    def write_register(self, address: int, value: int):
        """Write a register of the core as the host may: PEER, DRAM_BASE, or CLEAR of CONTROL.

        Raises:
            ValueError: Dram would end beyond the memory.
        """
        if address == Register.DRAM_BASE and self.config.dram_words:
            try:
                self._outside = dram_words(self.config, self._memory, value - value % PAGE)
            except ValueError as error:
                raise ValueError(f"DRAM_BASE = {value:#x} lets {self.config.dram_words:,} words of Dram end beyond the "
                                 f"memory of {len(self._memory.bytes):,} bytes") from error
            self.base, self.machine.memory.vectors[Mem.DRAM] = value, self._outside
        elif address == Register.CONTROL:
            self.machine.write_register(address, value & Control.CLEAR)
        else:
            self.machine.write_register(address, value)

    def reset(self):
        """Reset the core."""
        self.machine.reset()

    def execute(self, command: Command) -> CommandEnd:
        """Execute a LOAD, RUN or SET that `commands.refused` has let pass."""
        if command.kind == CommandKind.SET:
            self.write_register(command.first, command.value)
            return CommandEnd()
        self.accesses.read.append(ranges.of(command.read))
        data = self._memory.read(command.first, command.count)
        errors = [self._run(data) if command.kind == CommandKind.RUN else self._load(data), self._store(command)]
        error = min(filter(None, errors), default=CommandError.NONE)
        if error != CommandError.PROGRAM:
            return CommandEnd(error=error)
        return CommandEnd(error=error, core_error=Error(self.machine.read_register(Register.ERROR)),
                     address=self.machine.read_register(Register.ERROR_ADDRESS))

    def outside(self) -> tuple[np.ndarray, np.ndarray]:
        """The bytes of Dram that the core has read, and those that it has written, since the last call."""
        return self._outside.accesses.taken() if self._outside else (ranges.EMPTY, ranges.EMPTY)

    def _load(self, data) -> CommandError:
        """Send messages other than INPUT; READ and UPDATE are answered."""
        good, whole = messages(self.config, data, TAKEN[CommandKind.LOAD])
        for message in good:
            self.machine.send(message)
        return CommandError.NONE if whole else CommandError.MESSAGE

    def _run(self, data) -> CommandError:
        """Run the program on INPUT messages."""
        machine = self.machine
        good, whole = messages(self.config, data, TAKEN[CommandKind.RUN])
        machine.start()
        for message in good:
            machine.send(message)
        running = bool(machine.run() & Status.RUNNING)
        left = len(machine.memory.net_in)
        for wrong, error in ((not whole, CommandError.MESSAGE), (machine.read_register(Register.ERROR),
                             CommandError.PROGRAM), (running, CommandError.STARVED), (left, CommandError.SURPLUS)):
            if wrong:
                return error
        return CommandError.NONE

    def _store(self, command) -> CommandError:
        """Store what the core has sent, and the line with the number of bytes and of messages."""
        sent = self.machine.receive()
        data, room = b"".join(sent), max(command.room - ALIGNED, 0)
        if command.room:
            line = struct.pack("<II", len(data), len(sent)).ljust(ALIGNED, b"\0") + data[:room]
            self._memory.write(command.second, line)
            self.accesses.written.append(ranges.of(range(command.second, command.second + len(line))))
        return CommandError.ROOM if len(data) > room else CommandError.NONE
