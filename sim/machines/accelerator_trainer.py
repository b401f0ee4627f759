"""Cores that train, of an accelerator, driven by lists of commands in the shape of golden's `TrainerCores`."""

from collections.abc import Sequence

import numpy as np
from concord.golden.trainer.cores import ADDED
from concord.sim.machines.accelerators import AcceleratorMachine
from concord.sim.machines.host import MachineTimeout
from concord.spec.accelerator.accelerator import PAGE
from concord.spec.accelerator.commands import BYTES, INSTRUCTION, Command, CommandError, CommandKind
from concord.spec.accelerator.registers import AcceleratorStatus, window
from concord.spec.host.registers import Control
from concord.spec.trainer.config import LANES, TrainerConfig
from concord.spec.trainer.instructions import TrainerError
from concord.spec.trainer.registers import TrainerCounter, TrainerRegister

RING_SIZE = 4  #: Logarithm of the number of commands of the ring: the RUNs of all cores fit in one list.
MOST = 1_000_000_000  #: Most clock cycles of a program.


class AcceleratorTrainer:
    """Cores of an accelerator that train, with the server memory that they share.

    Server memory lies at address 0, then the ring and a program for each core. Each program is two lists of commands:
    what registers were written since the last one, and LOAD; then one RUN for each core, which may wait for each other.

    Args:
        machine: The accelerator, which is reset; the counters of the cores begin at 0.
        server:  Server memory, uint8[words, 16].
        cores:   Numbers of the cores. Programs that wait for others name cores 0 up.

    Attributes:
        end:     First byte of the memory behind all that the cores use.
        running: Clock cycles in which programs were running; 0 on golden, which has no clock.

    Raises:
        ValueError: a core does not train, or the memory has no room for server memory and programs.
    """

    def __init__(self, machine: AcceleratorMachine, server: np.ndarray, cores: Sequence[int] = (0,)):
        self.machine, self.server, self._cores = machine, server, tuple(cores)
        self.running = 0
        ring = server.nbytes + -server.nbytes % PAGE
        self.end = ring + (BYTES << RING_SIZE)
        self._addresses, self._most, self._loads = {}, {}, list[Command]()
        for core in self._cores:
            config = machine.accelerator.cores[core]
            if not isinstance(config, TrainerConfig):
                raise ValueError(f"core {core} of the accelerator does not train: name one that does")
            self._addresses[core], self._most[core] = self.end, config.instructions
            self.end += INSTRUCTION * config.instructions
            self.end += -self.end % PAGE
        if self.end > machine.accelerator.memory_bytes:
            raise ValueError(
                f"server memory and programs take {self.end:,} bytes, and the accelerator has "
                f"{machine.accelerator.memory_bytes:,}: make memory_bytes larger"
            )
        machine.reset()
        machine.set_ring(ring, RING_SIZE)
        for core in self._cores:
            machine.write_register(window(core) + TrainerRegister.CONTROL, Control.CLEAR)
        self._given: dict[TrainerRegister, int] = {TrainerRegister.DRAM_BASE: 0, TrainerRegister.LIMIT: len(server)}

    @property
    def stopped(self) -> int:
        """The first core with an error that is not PEER; without one, the first with PEER, or the first of all."""
        errors = {core: self.machine.core_register(core, TrainerRegister.ERROR) for core in self._cores}
        wrong = [core for core in self._cores if errors[core]]
        own = [core for core in wrong if errors[core] != TrainerError.PEER]
        return (own or wrong or self._cores)[0]

    @property
    def address(self) -> int:
        """Address of the instruction at which the last program stopped."""
        return self.machine.core_register(self.stopped, TrainerRegister.ERROR_ADDRESS)

    @property
    def repeats(self) -> int:
        """How often `repeat` went back on the first core, in all programs."""
        return self.read_register(TrainerRegister.COUNTERS + 4 * TrainerCounter.REPEATS)

    @property
    def cycles(self) -> int:
        """Clock cycles since power-up."""
        return self.machine.cycles

    def load(self, *programs: Sequence[int]):
        """Take a program for each core.

        Raises:
            ValueError: one has no instruction, or more than its core takes.
        """
        self._loads = []
        for core, program in zip(self._cores, programs, strict=True):
            if not 0 < len(program) <= self._most[core]:
                raise ValueError(
                    f"the program has {len(program)} words, and the instruction buffer holds {self._most[core]}"
                )
            data = b"".join(word.to_bytes(INSTRUCTION, "little") for word in program)
            self.machine.write_memory(self._addresses[core], data)
            self._loads.append(Command(kind=CommandKind.LOAD, core=core, first=self._addresses[core], count=len(data)))

    def run(self, first: int = 0, second: int = 0) -> TrainerError:
        """Execute the programs; the arguments are those of `Trainer.run`, and multiples of 4.

        Returns:
            The first error of a core that is not PEER.

        Raises:
            MachineTimeout: they have not ended within `MOST` cycles.
            RuntimeError:   a command failed by another error than that of the program.
        """
        self.start(first, second)
        if not self.go_on(MOST):
            raise MachineTimeout(f"programs of trainers have not ended within {MOST:,} cycles")
        return self.error

    def start(self, first: int = 0, second: int = 0):
        """Write server memory and registers, and start the programs; see `run`."""
        self.machine.write_memory(0, self.server.tobytes())
        given, runs = [], []
        for core in self._cores:
            given += [
                Command(kind=CommandKind.SET, core=core, first=register, value=value)
                for register, value in self._given.items()
            ]
            runs.append(Command(kind=CommandKind.RUN, core=core, first=LANES * first, second=LANES * second))
        self._given.clear()
        self.machine.execute([command.pack() for command in [*given, *self._loads]])
        self.machine.submit([command.pack() for command in runs])

    def go_on(self, most: int) -> bool:
        """Let at most about `most` cycles pass, until all programs have ended, and read server memory.

        Returns:
            Whether they have ended.
        """
        before, ended = self.machine.cycles, True
        try:
            self.machine.run(most)
        except MachineTimeout:
            ended = False
        self.running += self.machine.cycles - before
        self.server[:] = np.frombuffer(self.machine.read_memory(0, self.server.nbytes), np.uint8).reshape(-1, LANES)
        return ended

    @property
    def error(self) -> TrainerError:
        """The first error of the last programs that is not PEER.

        Raises:
            RuntimeError: a command failed by another error than that of the program.
        """
        if not self.machine.status & AcceleratorStatus.FAILED:
            return TrainerError.NONE
        if self.machine.error() != CommandError.PROGRAM:
            raise RuntimeError(
                f"a command of cores that train failed with {self.machine.error().name}; docs/accelerator.md says "
                "what it means"
            )
        return TrainerError(self.machine.core_register(self.stopped, TrainerRegister.ERROR))

    def write_register(self, register: TrainerRegister, value: int):
        """Write a register of all cores ahead of the next programs."""
        self._given[register] = value

    def read_register(self, address: int) -> int:
        """Read a register of the first core, or the sum of a counter that each core has for its own parameters."""
        cores = self._cores if address in ADDED else self._cores[:1]
        return sum(self.machine.core_register(core, address) for core in cores)

    def moved(self, *, written: bool) -> int:
        """Number of bytes that the memory has given, or taken, since power-up."""
        return self.machine.moved(written=written)

    def close(self):
        """End the simulation; a waveform is complete after this."""
        self.machine.close()
