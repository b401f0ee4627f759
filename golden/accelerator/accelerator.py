"""The whole accelerator: the command processor before cores and the memory that they share."""

import numpy as np
from concord.golden.accelerator import ranges
from concord.golden.accelerator.driver import CommandEnd, Driver
from concord.golden.accelerator.meetings import Meetings, Running
from concord.golden.accelerator.memory import SharedMemory
from concord.golden.accelerator.races import Races, check_within, named, own, together
from concord.golden.accelerator.trainer_driver import TrainerDriver
from concord.spec.accelerator.accelerator import ALIGNED, Accelerator, Core
from concord.spec.accelerator.commands import BYTES, PROCESSOR, Command, CommandError, CommandKind, refused
from concord.spec.accelerator.registers import LARGEST_RING, WINDOW, AcceleratorControl, AcceleratorStatus
from concord.spec.accelerator.registers import AcceleratorRegister as _R
from concord.spec.trainer.config import TrainerConfig
from concord.spec.trainer.instructions import TrainerError

_COUNTED = 1 << 32  #: HEAD and TAIL count modulo this.


class AcceleratorModel:
    """An accelerator in numpy, with the registers, the memory and the interrupt of hardware.

    Commands are executed when `run` is called, in the order of the list, each to its end: any other order that hardware
    may choose gives the same bytes, or the list is refused as a race.

    Args:
        accelerator: The cores and the memory.

    Attributes:
        memory:    The memory.
        drivers:   The cores with their drivers.
        interrupt: Whether the interrupt is up.
    """

    def __init__(self, accelerator: Accelerator):
        self.accelerator = accelerator
        self.memory = SharedMemory(accelerator.memory_bytes)
        self.drivers = [driver(core, self.memory, number) for number, core in enumerate(accelerator.cores)]
        self._meetings = Meetings(self._ordered)
        self._races = Races(len(self.drivers))
        self._ring = {_R.RING: 0, _R.RING_SIZE: 1}
        self.interrupt = False
        self._forget()

    def read_register(self, address: int) -> int:
        """Read a register at an address of 16 bits: of the command processor, or of a core."""
        number, offset = divmod(address, WINDOW)
        if number:
            return self.drivers[number - 1].read_register(offset) if number <= len(self.drivers) else 0
        fixed = {_R.CORE_COUNT: len(self.drivers), _R.DIGEST: self.accelerator.digest,
                 _R.MEMORY: self.accelerator.memory_bytes - 1}
        ending = {_R.ERROR: int(self._ending.error), _R.ERROR_INDEX: self._index, _R.ERROR_ORIGIN: self._origin,
                  _R.CORE_ERROR: int(self._ending.core_error), _R.ERROR_ADDRESS: self._ending.address}
        state = {_R.STATUS: int(self.status), _R.HEAD: self._head, _R.TAIL: self._tail, **ending}
        return (fixed | state | self._ring).get(offset, 0)

    def write_register(self, address: int, value: int):
        """Write a register at an address of 16 bits.

        Raises:
            ValueError: the value is none that a host may write there, or not at this time.
        """
        number, offset = divmod(address, WINDOW)
        if number:
            if number <= len(self.drivers):
                self.drivers[number - 1].write_register(offset, value)
        elif offset in self._ring:
            self._set_ring(_R(offset), value)
        elif offset == _R.TAIL:
            if (value - self._head) % _COUNTED > 1 << self._ring[_R.RING_SIZE]:
                raise ValueError(f"TAIL = {value} is more than the ring's {1 << self._ring[_R.RING_SIZE]} commands "
                                 f"beyond HEAD = {self._head}")
            self._tail = value
        elif offset == _R.RESET_CORES:
            self._reset_cores(value)
        elif offset == _R.CONTROL:
            self._control(AcceleratorControl(value))

    @property
    def status(self) -> AcceleratorStatus:
        """State of the accelerator."""
        failed = self._ending.error != CommandError.NONE
        flags = {AcceleratorStatus.BUSY: self._head != self._tail and not failed, AcceleratorStatus.FAILED: failed,
                 AcceleratorStatus.INTERRUPT: self.interrupt}
        return AcceleratorStatus(sum(flag for flag, here in flags.items() if here))

    def run(self) -> AcceleratorStatus:
        """Execute commands until there are none, or one has an error.

        Raises:
            Race:       two commands without order touch the same bytes. Nothing later has been executed.
            ValueError: the ring ends beyond the memory, or a program waits for a core that no command lets run, also
                because of an error: hardware stops it with PEER, and what is executed until then depends on time.
        """
        self._races = Races(len(self.drivers))
        if self._head != self._tail:
            self._check_ring()
        while self.status & AcceleratorStatus.BUSY:
            self._take(self.memory.read(self._slots(self._head, 1)[0, 0], BYTES))
        if self._meetings.waiting:
            error = self._ending.error
            raise ValueError(self._waiting(self._meetings.waiting, "the list ends" if error == CommandError.NONE else
                                           f"command {self._index} has the error {error.name}"))
        return self.status

    def _take(self, data):
        """Execute the command at HEAD."""
        index, error = self._head, refused(self.accelerator, data)
        if error != CommandError.NONE:
            self._fail(index, PROCESSOR, CommandEnd(error=error))
            return
        command = Command.unpack(data)
        self._check_waiting(index, command)
        self._head = (index + 1) % _COUNTED
        if not command.kind.of_core:
            self._races.check(index, command, own(command), self._later(index))
            self._execute(command)
            return
        core = self.drivers[command.core]
        if isinstance(core, TrainerDriver) and command.kind == CommandKind.RUN:
            for one in self._meetings.run(Running(index, command, core.begin(command), core.end), self._broken):
                self._ended(one.index, one.command, one.end())
        else:
            self._ended(index, command, core.execute(command))

    def _ended(self, index, command, ending):
        """Take note of what a command of a core has touched, and of its error."""
        core = self.drivers[command.core]
        touched = core.accesses.taken(), core.outside()
        check_within(index, command, *touched)
        self._races.check(index, command, together(*touched), self._later(index))
        if ending.error != CommandError.NONE and (self._ending.error == CommandError.NONE or index < self._index):
            self._fail(index, command.core, ending)

    def _ordered(self, runs):
        """Take note of what programs have touched before a rendezvous, which comes before all that they do later."""
        for one in runs:
            self._races.check(one.index, one.command, self.drivers[one.command.core].outside(), self._later(one.index))
        self._races.met([one.command.core for one in runs])

    def _broken(self, core):
        """Whether the program of a core has ended with an error."""
        return self.drivers[core].trainer.error != TrainerError.NONE

    def _check_waiting(self, index, command):
        """Refuse a command that may only come when the program of a core has ended, which waits for others.

        Raises:
            ValueError: it is one.
        """
        kind, waiting = command.kind, self._meetings.waiting
        behind = [core for core in waiting if (command.core == core if kind.of_core else
                                               kind != CommandKind.WAIT or command.value >> core & 1)]
        if behind:
            raise ValueError(self._waiting(behind, f"{named(index, command)} comes first"))

    def _waiting(self, cores, what) -> str:
        one = self._meetings.waiting[min(cores)]
        return (f"{named(one.index, one.command)} waits for cores of the mask {one.rendezvous.cores:#x}, and {what}: "
                "give each of them its RUN before")

    def _later(self, index) -> np.ndarray:
        """The set of the addresses of the commands behind one."""
        return self._slots(index + 1, (self._tail - index - 1) % _COUNTED)

    def _execute(self, command):
        """Execute a command of the command processor."""
        if command.kind == CommandKind.COPY:
            self.memory.write(command.second, self.memory.read(command.first, command.count))
        elif command.kind == CommandKind.SIGNAL:
            self.memory.write(command.first, command.value.to_bytes(4, "little"))
            self.interrupt = True
        else:
            self._races.joined(core for core in range(len(self.drivers)) if command.value >> core & 1)

    def _fail(self, index, origin, ending):
        self._index, self._origin, self._ending, self.interrupt = index, origin, ending, True

    def _slots(self, first, count) -> np.ndarray:
        """The set of the addresses of `count` commands from number `first` up."""
        size, ring = 1 << self._ring[_R.RING_SIZE], self._ring[_R.RING]
        begin = first % size
        parts = range(begin, min(begin + count, size)), range(max(begin + count - size, 0))
        return ranges.of(*(range(ring + part.start * BYTES, ring + part.stop * BYTES) for part in parts))

    def _check_ring(self):
        size, ring = 1 << self._ring[_R.RING_SIZE], self._ring[_R.RING]
        if ring + size * BYTES > self.accelerator.memory_bytes:
            raise ValueError(f"a ring of {size} commands at {ring:#x} ends beyond the memory: write RING or RING_SIZE")

    def _set_ring(self, register, value):
        if self._head != self._tail:
            raise ValueError(f"{register.name} is written while commands wait: wait until HEAD is TAIL, or reset")
        if register == _R.RING and value % ALIGNED or register == _R.RING_SIZE and not 1 <= value <= LARGEST_RING:
            raise ValueError(f"{register.name} = {value} must be " + (
                f"a multiple of {ALIGNED}" if register == _R.RING else f"1 to {LARGEST_RING}"))
        self._ring[register] = value

    def _control(self, control):
        if control & AcceleratorControl.RESET:
            self._reset_cores(-1)
            self._forget()
        if control & AcceleratorControl.ACKNOWLEDGE:
            self.interrupt = False

    def _reset_cores(self, mask):
        for number, driver in enumerate(self.drivers):
            if mask >> number & 1:
                driver.reset()
                self._meetings.reset([number])

    def _forget(self):
        """Bring the command processor to its first state."""
        self._head = self._tail = self._index = self._origin = 0
        self._ending, self.interrupt = CommandEnd(), False


def driver(core: Core, memory: SharedMemory, number: int) -> Driver | TrainerDriver:
    """A core with its driver."""
    return TrainerDriver(core, memory, number) if isinstance(core, TrainerConfig) else Driver(core, memory)
