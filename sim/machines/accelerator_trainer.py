"""A core that trains, of an accelerator, driven by lists of commands in the shape of golden's `Trainer`."""

from collections.abc import Sequence

import numpy as np
from concord.sim.machines.accelerators import AcceleratorMachine
from concord.spec.accelerator.accelerator import PAGE
from concord.spec.accelerator.commands import BYTES, INSTRUCTION, Command, CommandError, CommandKind
from concord.spec.accelerator.registers import AcceleratorRegister, AcceleratorStatus, window
from concord.spec.host.registers import Control
from concord.spec.trainer.config import LANES, TrainerConfig
from concord.spec.trainer.instructions import TrainerError
from concord.spec.trainer.registers import TrainerRegister

RING_SIZE = 4  #: Logarithm of the number of commands of the ring.


class AcceleratorTrainer:
    """A core of an accelerator that trains, with the server memory that it was made with.

    Server memory lies at address 0, then the ring and the program. Each program is a list of commands: what registers
    were written since the last one, LOAD and RUN.

    Args:
        machine: The accelerator, which is reset; the counters of the core begin at 0.
        server:  Server memory, uint8[words, 16].
        core:    Number of the core.

    Attributes:
        end: First byte of the memory behind all that the core uses.

    Raises:
        ValueError: the core does not train, or the memory has no room for server memory and programs.
    """

    def __init__(self, machine: AcceleratorMachine, server: np.ndarray, core: int = 0):
        self.machine, self.server, self._core = machine, server, core
        config = machine.accelerator.cores[core]
        if not isinstance(config, TrainerConfig):
            raise ValueError(f"core {core} of the accelerator does not train: name one that does")
        ring = server.nbytes + -server.nbytes % PAGE
        self._place = ring + (BYTES << RING_SIZE)
        self._most, self._count = config.instructions, 0
        self.end = self._place + INSTRUCTION * self._most
        self.end += -self.end % PAGE
        if self.end > machine.accelerator.memory_bytes:
            raise ValueError(
                f"server memory and a program take {self.end:,} bytes, and the accelerator has "
                f"{machine.accelerator.memory_bytes:,}: make memory_bytes larger"
            )
        machine.reset()
        machine.set_ring(ring, RING_SIZE)
        machine.write_register(window(core) + TrainerRegister.CONTROL, Control.CLEAR)
        self._given: dict[TrainerRegister, int] = {TrainerRegister.DRAM_BASE: 0, TrainerRegister.LIMIT: len(server)}

    @property
    def address(self) -> int:
        """Address of the instruction at which the last program stopped."""
        return self.read_register(TrainerRegister.ERROR_ADDRESS)

    def load(self, program: Sequence[int]):
        """Take a program.

        Raises:
            ValueError: it has no instruction, or more than the core takes.
        """
        if not 0 < len(program) <= self._most:
            raise ValueError(f"the program has {len(program)} words, and the instruction buffer holds {self._most}")
        self.machine.write_memory(self._place, b"".join(word.to_bytes(INSTRUCTION, "little") for word in program))
        self._count = INSTRUCTION * len(program)

    def run(self, first: int = 0, second: int = 0) -> TrainerError:
        """Execute the program; the arguments are those of `Trainer.run`, and multiples of 4.

        Raises:
            RuntimeError: a command failed by another error than that of the program.
        """
        commands = [
            Command(kind=CommandKind.SET, core=self._core, first=register, value=value)
            for register, value in self._given.items()
        ]
        commands += [
            Command(kind=CommandKind.LOAD, core=self._core, first=self._place, count=self._count),
            Command(kind=CommandKind.RUN, core=self._core, first=LANES * first, second=LANES * second),
        ]
        self._given.clear()
        self.machine.write_memory(0, self.server.tobytes())
        status = self.machine.execute([command.pack() for command in commands])
        self.server[:] = np.frombuffer(self.machine.read_memory(0, self.server.nbytes), np.uint8).reshape(-1, LANES)
        if not status & AcceleratorStatus.FAILED:
            return TrainerError.NONE
        if self.machine.error() != CommandError.PROGRAM:
            raise RuntimeError(
                f"core {self._core}: a command failed with {self.machine.error().name}; "
                "docs/accelerator.md says what it means"
            )
        return TrainerError(self.machine.read_register(AcceleratorRegister.CORE_ERROR))

    def write_register(self, register: TrainerRegister, value: int):
        """Write a register ahead of the next program."""
        self._given[register] = value

    def read_register(self, address: int) -> int:
        """Read a register of the core."""
        return self.machine.core_register(self._core, address)
