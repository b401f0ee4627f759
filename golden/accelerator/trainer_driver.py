"""The driver of a core that trains: LOAD fills its instruction buffer, RUN gives R0 and R1 and starts it."""

from collections.abc import Generator

import numpy as np
from concord.golden.accelerator import ranges
from concord.golden.accelerator.driver import CommandEnd
from concord.golden.accelerator.memory import Accesses, OutsideWords, SharedMemory, server_words
from concord.golden.trainer.trainer import Meeting, Rendezvous, Trainer
from concord.spec.accelerator.accelerator import PAGE
from concord.spec.accelerator.commands import INSTRUCTION, Command, CommandError, CommandKind
from concord.spec.host.registers import Control, Register, Status
from concord.spec.trainer.config import LANES, TrainerConfig
from concord.spec.trainer.instructions import TrainerError
from concord.spec.trainer.registers import TrainerRegister


class TrainerDriver:
    """A core that trains, and its driver.

    Args:
        config: The core.
        memory: The memory that it shares.
        number: Number of the core.

    Attributes:
        trainer:  The core.
        base:     Register DRAM_BASE.
        accesses: Bytes that the driver itself has read.
    """

    def __init__(self, config: TrainerConfig, memory: SharedMemory, number: int):
        self._memory, self.base, self._limit = memory, 0, 0
        self.accesses, self._done = Accesses(), False
        self._server = server_words(memory, 0, 0)
        self.trainer = Trainer(config, self._server, number)

    def read_register(self, address: int) -> int:
        """Read a register of the core."""
        state: dict[int, int] = {Register.STATUS: Status.DONE if self._done else 0,
                                 TrainerRegister.DRAM_BASE: self.base, TrainerRegister.LIMIT: self._limit}
        return int(state[address]) if address in state else self.trainer.read_register(address)

    def write_register(self, address: int, value: int):
        """Write a register of the core as the host may: DRAM_BASE, LIMIT, RATE, DECAY, or CLEAR of CONTROL."""
        if address == TrainerRegister.DRAM_BASE:
            self.base = value
        elif address == TrainerRegister.LIMIT:
            self._limit = value
        elif address == TrainerRegister.CONTROL and value & Control.CLEAR:
            self.trainer.clear_counters()
        elif address in (TrainerRegister.RATE, TrainerRegister.DECAY):
            self.trainer.write_register(TrainerRegister(address), value)

    def reset(self):
        """Reset the core."""
        self.trainer.reset()
        self._done = False

    def execute(self, command: Command) -> CommandEnd:
        """Execute a LOAD or SET that `commands.refused` has let pass."""
        if command.kind == CommandKind.SET:
            self.write_register(command.first, command.value)
        else:
            self.accesses.read.append(ranges.of(command.read))
            data = self._memory.read(command.first, command.count)
            self.trainer.load([int.from_bytes(data[k:k + INSTRUCTION], "little")
                               for k in range(0, len(data), INSTRUCTION)])
        return CommandEnd()

    def begin(self, command: Command) -> Generator[Rendezvous, Meeting, None]:
        """The program of a RUN, on server memory from DRAM_BASE on.

        Raises:
            ValueError: DRAM_BASE and LIMIT reach beyond the memory.
        """
        base = self.base - self.base % PAGE
        self.trainer.core.server = self._server = self._words(base)
        self._done = False
        return self.trainer.execution(*((address - base) // LANES for address in (command.first, command.second)))

    def end(self) -> CommandEnd:
        """How the program has ended."""
        self._done = True
        if self.trainer.error == TrainerError.NONE:
            return CommandEnd()
        return CommandEnd(error=CommandError.PROGRAM, core_error=self.trainer.error, address=self.trainer.address)

    def outside(self) -> tuple[np.ndarray, np.ndarray]:
        """The bytes of server memory that the core has read, and those that it has written, since the last call."""
        return self._server.accesses.taken()

    def _words(self, base: int) -> OutsideWords:
        try:
            return server_words(self._memory, base, self._limit)
        except ValueError as error:
            raise ValueError(f"DRAM_BASE = {base:#x} and LIMIT = {self._limit:,} let server memory end beyond the "
                             f"memory of {len(self._memory.bytes):,} bytes") from error
