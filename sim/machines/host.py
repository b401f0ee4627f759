"""The host's side of the machine, the same for golden, cocotb, the Verilated library and a board."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

from concord.golden.machine import Machine as Golden
from concord.lib.extras import require
from concord.sim.machines.kinds import KINDS, SERIAL, MachineKind
from concord.spec.host.messages import MessageKind
from concord.spec.host.registers import EVENTS, Control, Counter, Register, Status
from concord.spec.isa.instructions import Error
from concord.spec.machine.config import Config

TAKEN = 32  #: Cycles within which words whose beats were taken are written to their memory.
QUIET = 256  #: Cycles without a beat after which nothing can be under way inside the machine.
FOREVER = 1_000_000_000  #: Bound of cycles for waits that have no bound of their own.
BUSY = (Counter.FETCH_BUSY, Counter.GATHER_BUSY, Counter.MVM_BUSY, Counter.MFU_BUSY, Counter.COPY_BUSY)


class MachineTimeout(Exception):
    """A program has not ended within its number of cycles."""


class Machine(ABC):
    """A machine that runs programs. The host sends and receives messages, and reads and writes registers.

    Attributes:
        config: Configuration of the machine.
    """

    config: Config

    @abstractmethod
    def send(self, *messages: bytes) -> None:
        """Queue complete messages; the machine takes them when it can."""

    @abstractmethod
    def receive(self) -> list[bytes]:
        """The messages that have come out since the last call, answers to READ and UPDATE included."""

    @abstractmethod
    def read_register(self, address: int) -> int:
        """Read a register of the control port."""

    @abstractmethod
    def write_register(self, address: int, value: int) -> None:
        """Write a register of the control port."""

    @abstractmethod
    def run(self, timeout: int = 100_000_000) -> Status:
        """Run until the program is done, or waits for words of NetQ that have not been sent.

        Args:
            timeout: Most clock cycles; golden ignores it, for it has no clock.

        Raises:
            MachineTimeout: the program has not ended within `timeout` cycles.
        """

    @property
    def cycles(self) -> int:
        """Clock cycles since power-up; 0 on golden, which has no clock."""
        return 0

    def close(self) -> None:
        """Release what the machine holds, such as its process."""
        return None

    def command(self, control: Control) -> None:
        """Write the register CONTROL."""
        self.write_register(Register.CONTROL, control)

    def settle(self, quiet: int = TAKEN) -> None:
        """Wait until no beat has moved for `quiet` cycles, or for longer while messages still wait to be taken."""
        return None

    def pause(self, cycles: int) -> None:
        """Let clock cycles pass."""
        return None

    def start(self) -> None:
        """Start the program at instruction 0, after the machine has taken every message that it can take."""
        self.settle()
        self.command(Control.START)

    def reset(self) -> None:
        """Reset everything but memories; the message under way is lost."""
        self.command(Control.RESET)

    def clear(self) -> None:
        """Clear the counters."""
        self.command(Control.CLEAR)

    def status(self) -> Status:
        """State of the machine."""
        return Status(self.read_register(Register.STATUS))

    def error(self) -> tuple[Error, int]:
        """The error with which the program stopped, and the address of the instruction."""
        return Error(self.read_register(Register.ERROR)), self.read_register(Register.ERROR_ADDRESS)

    def counter(self, counter: Counter) -> int:
        """The value of one counter."""
        return self.read_register(Register.COUNTERS + 4 * counter)

    def counters(self) -> dict[Counter, int]:
        """The values of all counters. On golden, counters of cycles are 0."""
        return {counter: self.counter(counter) for counter in Counter}

    def events(self) -> dict[Counter, int]:
        """The counters that are equal on all machines."""
        return {counter: self.counter(counter) for counter in EVENTS}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()


class GoldenMachine(Machine):
    """The numpy model."""

    def __init__(self, config: Config):
        self.config = config
        self.golden = Golden(config)

    def send(self, *messages: bytes) -> None:
        for message in messages:
            self.golden.send(message)

    def receive(self) -> list[bytes]:
        return self.golden.receive()

    def read_register(self, address: int) -> int:
        return self.golden.read_register(address)

    def write_register(self, address: int, value: int) -> None:
        self.golden.write_register(address, value)

    def run(self, timeout: int = 100_000_000) -> Status:
        return self.golden.run()


class HardwareMachine(Machine):
    """A simulated NNP at a link, such as `sim.machines.library.Library`.

    Args:
        link: Object that moves beats, reads and writes registers and lets cycles pass.
    """

    def __init__(self, link):
        self.config, self.link = link.config, link
        self._reads = False  # A READ or UPDATE has been sent, and its answer may still be under way.

    def send(self, *messages: bytes) -> None:
        for message in messages:
            self.link.send(message)
            self._reads |= message[0] in (MessageKind.READ, MessageKind.UPDATE)

    def receive(self) -> list[bytes]:
        if self._reads:
            self.settle(QUIET)
            self._reads = bool(self.link.queued)
        return self.link.receive()

    def read_register(self, address: int) -> int:
        return self.link.read(address)

    def write_register(self, address: int, value: int) -> None:
        self.link.write(address, value)

    def pause(self, cycles: int) -> None:
        self.link.step(cycles)

    def settle(self, quiet: int = TAKEN) -> None:
        if not self.link.settle(quiet, QUIET, FOREVER):
            raise MachineTimeout(f"messages still move after {FOREVER:,} cycles")

    def run(self, timeout: int = 100_000_000) -> Status:
        end, busy = self.link.cycles + timeout, None
        while True:
            status = Status(self.link.run(max(end - self.link.cycles, 0)))
            if not status & Status.RUNNING:
                return status
            # Waiting for input is final once every pipeline stands still.
            before, busy = busy, [self.counter(counter) for counter in BUSY]
            if status & Status.WAIT_INPUT and busy == before:
                return status
            if self.link.cycles >= end:
                raise MachineTimeout(f"the program has not ended after {timeout:,} cycles: STATUS is {status!r}; "
                                     f"give it more time, or look for a queue that nobody fills or empties")

    @property
    def cycles(self) -> int:
        return self.link.cycles

    def close(self) -> None:
        self.link.close()


def build(kind: str, config: Config) -> Path | None:
    """Build what a machine of `kind` runs on, and return its folder or file; None for golden and boards."""
    if kind in KINDS and kind != "golden":
        require("sim")
    match kind:
        case "library":
            from concord.sim.machines.library import library_of
            return library_of(config)
        case "cocotb":
            from concord.sim.machines.cocotb_client import build_simulation
            return build_simulation(config)
        case "netlist":
            from concord.sim.machines.library import build_library
            from concord.sim.machines.netlist import netlist_verilog
            return build_library(netlist_verilog(config), config)
    return None


def machine(kind: str, config: Config, **options) -> Machine:
    """Make a machine of one `kind` of KINDS.

    Args:
        kind:    "golden", "library" (Verilated, run to completion), "cocotb" (Verilated, bus models in Python),
                 "netlist" (its cells after synthesis, Verilated) or "serial:PORT" (on a board at a serial port).
        config:  Configuration of the machine.
        options: Options of simulated machines, which golden ignores: `seed`, `gap` and `stall` of the streams, and
                 `trace`, a file for a waveform. The library also takes `trace_from`, the clock cycle at which the
                 waveform begins, and so does the netlist, whose waveform has only ports. A board takes none.

    Raises:
        ValueError: there is no such kind, the packages of its extra are not installed, or the machine at the port is
            another one.
        MachineTimeout: nobody answers at the port.
    """
    if kind.startswith(SERIAL):
        return _at_port(MachineKind(kind).port, config)
    if kind != "golden":
        require("sim")
    match kind:
        case "golden":
            return GoldenMachine(config)
        case "library":
            from concord.sim.machines.library import Library
            return HardwareMachine(Library(config, **options))
        case "cocotb":
            from concord.sim.machines.cocotb_client import CocotbClient
            return HardwareMachine(CocotbClient(config, **options))
        case "netlist":
            from concord.sim.machines.library import Library
            from concord.sim.machines.netlist import netlist_verilog
            return HardwareMachine(Library(config, text=netlist_verilog(config), **options))
    return machine(MachineKind(kind), config)


def _at_port(port: str, config: Config) -> Machine:
    require("serial")
    from concord.sim.machines.serial_link import HostLink
    from concord.sim.machines.serial_port import SerialPort
    return HardwareMachine(HostLink(config, SerialPort(port), name=port))
