"""The host's side of an accelerator, the same for golden and the Verilated library."""

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Self

from concord.golden.accelerator.accelerator import AcceleratorModel
from concord.golden.accelerator.driver import message_bytes
from concord.lib.extras import require
from concord.spec.accelerator.accelerator import ALIGNED, Accelerator
from concord.spec.accelerator.commands import BYTES, Command, CommandError
from concord.spec.accelerator.registers import AcceleratorControl, AcceleratorRegister, AcceleratorStatus, window


class AcceleratorMachine(ABC):
    """An accelerator with its memory. The host reads and writes memory and registers.

    Attributes:
        accelerator: The cores and the memory.
    """

    accelerator: Accelerator

    @abstractmethod
    def read_register(self, address: int) -> int:
        """Read a register at an address of 16 bits."""

    @abstractmethod
    def write_register(self, address: int, value: int) -> None:
        """Write a register at an address of 16 bits."""

    @abstractmethod
    def read_memory(self, address: int, count: int) -> bytes:
        """`count` bytes of the memory from an address up.

        Raises:
            ValueError: they end beyond the memory.
        """

    @abstractmethod
    def write_memory(self, address: int, data: bytes) -> None:
        """Write bytes of the memory from an address up, with the errors of `read_memory`."""

    @abstractmethod
    def run(self, timeout: int = 100_000_000) -> AcceleratorStatus:
        """Let time pass until no command waits or is under way, or one has failed, and the memory has answered all.

        Args:
            timeout: Most clock cycles; golden ignores it, for it has no clock.

        Raises:
            MachineTimeout: that takes more than `timeout` cycles.
            Race:           on golden, two commands without order touch the same bytes.
        """

    @property
    @abstractmethod
    def interrupt(self) -> bool:
        """Whether the interrupt is up."""

    @property
    def cycles(self) -> int:
        """Clock cycles since power-up; 0 on golden, which has no clock."""
        return 0

    def moved(self, *, written: bool) -> int:
        """Number of bytes that the memory has given, or taken, since power-up; 0 on golden, which does not count."""
        return 0

    def close(self) -> None:
        """Release what the machine holds."""
        return None

    def reset(self) -> None:
        """Reset command processor and cores; memories stay."""
        self.write_register(AcceleratorRegister.CONTROL, AcceleratorControl.RESET)

    def set_ring(self, address: int, size: int) -> None:
        """Let the ring be 2^`size` commands at an address."""
        self.write_register(AcceleratorRegister.RING, address)
        self.write_register(AcceleratorRegister.RING_SIZE, size)

    def submit(self, commands: Iterable[bytes]) -> None:
        """Write commands of 32 bytes behind TAIL, for which the ring has room, and tell the command processor."""
        ring, size, tail = (self.read_register(register) for register in (
            AcceleratorRegister.RING, AcceleratorRegister.RING_SIZE, AcceleratorRegister.TAIL))
        for data in commands:
            self.write_memory(ring + tail % (1 << size) * BYTES, data)
            tail = (tail + 1) % (1 << 32)
        self.write_register(AcceleratorRegister.TAIL, tail)

    def execute(self, commands: Sequence[bytes], timeout: int = 100_000_000) -> AcceleratorStatus:
        """Run commands, as many at a time as the ring holds, up to one that fails."""
        status, size = AcceleratorStatus(0), 1 << self.read_register(AcceleratorRegister.RING_SIZE)
        for first in range(0, len(commands), size):
            self.submit(commands[first:first + size])
            status = self.run(timeout)
            if status & AcceleratorStatus.FAILED:
                break
        return status

    def core_register(self, core: int, register: int) -> int:
        """Read a register of a core."""
        return self.read_register(window(core) + register)

    @property
    def status(self) -> AcceleratorStatus:
        """State of the accelerator."""
        return AcceleratorStatus(self.read_register(AcceleratorRegister.STATUS))

    def error(self) -> CommandError:
        """The error of the command that has failed."""
        return CommandError(self.read_register(AcceleratorRegister.ERROR))

    def answers(self, command: Command) -> list[bytes]:
        """The messages that a core has sent at a LOAD or RUN."""
        size, count = struct.unpack("<II", self.read_memory(command.second, 8))
        data, found = self.read_memory(command.second + ALIGNED, min(size, command.room - ALIGNED)), []
        for _ in range(count):
            size = message_bytes(self.accelerator.cores[command.core], data, to_machine=False)
            found.append(data[:size])
            data = data[size:]
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()


class GoldenAccelerator(AcceleratorMachine):
    """The numpy model."""

    def __init__(self, accelerator: Accelerator):
        self.accelerator = accelerator
        self.golden = AcceleratorModel(accelerator)

    def read_register(self, address: int) -> int:
        return self.golden.read_register(address)

    def write_register(self, address: int, value: int) -> None:
        self.golden.write_register(address, value)

    def read_memory(self, address: int, count: int) -> bytes:
        return self.golden.memory.read(address, count)

    def write_memory(self, address: int, data: bytes) -> None:
        self.golden.memory.write(address, data)

    def run(self, timeout: int = 100_000_000) -> AcceleratorStatus:
        return self.golden.run()

    @property
    def interrupt(self) -> bool:
        return self.golden.interrupt


#: Kinds of accelerators that there are.
ACCELERATOR_KINDS = ("golden", "library")


def check_kind(kind: str) -> None:
    """Refuse a kind of machine of which there are no accelerators.

    Raises:
        ValueError: a sentence that names those that there are.
    """
    if kind not in ACCELERATOR_KINDS:
        raise ValueError(f"cores that share a memory run on machine {' or '.join(ACCELERATOR_KINDS)}, not on {kind}: "
                         "choose one of these, or leave out --cores")


def accelerator_machine(kind: str, accelerator: Accelerator, **options) -> AcceleratorMachine:
    """Make an accelerator of a kind.

    Args:
        kind:        "golden" or "library" (Verilated).
        accelerator: The cores and the memory.
        options:     Options of the library, which golden ignores.

    Raises:
        ValueError: there is no such kind, or the packages of its extra are not installed.
    """
    check_kind(kind)
    if kind == "golden":
        return GoldenAccelerator(accelerator)
    require("sim")
    from concord.sim.machines.accelerator_library import AcceleratorLibrary
    return AcceleratorLibrary(accelerator, **options)
