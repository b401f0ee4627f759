"""Commands of 32 bytes, which lie in a ring in the memory, and the rules that they obey.

    byte 0 kind, 1 core, 2..3 zero, then five fields of 4 bytes: first, count, second, room, value, and 8 zero bytes

Fields that a kind does not use are zero. Everything is little-endian.

LOAD and RUN read messages, one behind the other, from `[first, first + count)`. What the core sends goes to `[second,
second + room)`: a line of `ALIGNED` bytes, which begins with the number of bytes of all messages and the number of
messages, 32 bits each, and is zero behind them; then the messages. The line is written last, also where the command has
an error, and counts what was lost, too. With `room` 0 there is no line, and the core must not answer.

For a core that trains, LOAD reads instructions of 16 bytes from `first` on, and fills the instruction buffer with zeros
behind them; `second` and `room` are zero. RUN reads nothing itself: `first` and `second` become the bases R0 and R1, in
words from DRAM_BASE; `count` and `room` are zero. Such a core sends nothing.

Of several errors of one command the smallest code counts, with one exception: a program that has ended with an error,
or has left words, takes no more messages, and a wrong one among those that are left may not be found.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum, unique

from concord.spec.accelerator.accelerator import ALIGNED, PAGE, Accelerator, dram_bytes
from concord.spec.host.registers import Control, Register
from concord.spec.trainer.config import LANES, TrainerConfig
from concord.spec.trainer.instructions import WORD as INSTRUCTION_BITS
from concord.spec.trainer.registers import TrainerRegister

BYTES = 32  #: Bytes of a command.
INSTRUCTION = INSTRUCTION_BITS // 8  #: Bytes of an instruction of a core that trains.
PACKED = struct.Struct("<BBHIIIIIQ")
PROCESSOR = 0xFF  #: Stands for the command processor where a register names a core.


@unique
class CommandKind(IntEnum):
    """First byte of a command."""

    LOAD = 1  #: Sends messages other than INPUT to a core that runs no program, and stores the answers.
    RUN = 2  #: Starts the program, sends INPUT messages, and stores what comes out, all at the same time.
    SET = 3  #: Writes `value` to register `first` of a core: PEER, DRAM_BASE, or CONTROL with CLEAR alone; of a core
    #: that trains DRAM_BASE, LIMIT, RATE, DECAY, or CONTROL with CLEAR alone.
    COPY = 4  #: Copies `count` bytes from `first` to `second`; the two ranges do not meet. Later commands wait for it.
    WAIT = 5  #: Later commands wait until the cores of the mask `value` have done all of theirs.
    SIGNAL = 6  #: Writes the 32 bits of `value` at `first`, and raises the interrupt.

    @property
    def of_core(self) -> bool:
        """Whether a core executes it. The command processor executes the others, each to its end."""
        return self <= CommandKind.SET


@unique
class CommandError(IntEnum):
    """Register ERROR of the command processor. A command with an error up to REGISTER has moved nothing."""

    NONE = 0
    KIND = 1  #: There is no such kind, or a field that the kind does not use is not zero.
    CORE = 2  #: There is no such core.
    ALIGNMENT = 3  #: An address, a number of bytes or the room is no multiple of what it must be, or `count` is 0.
    RANGE = 4  #: A range ends beyond the memory, or the two ranges of a COPY meet.
    REGISTER = 5  #: A SET names a register, or a value of it, that commands do not write.
    ROOM = 6  #: A core has sent more than `room` holds. What does not fit is lost, from the first such byte on.
    MESSAGE = 7  #: A message is refused, is of a kind that the command does not take, or ends beyond `count`. Later
    #: ones have no effect. Of one whose length, padding or CRC is wrong, items may have been written. A program may run
    #: on until a reset of the core.
    PROGRAM = 8  #: The core's program has ended with an error, which CORE_ERROR and ERROR_ADDRESS tell.
    STARVED = 9  #: The core's program waits for a word of NetQ, and all messages have been sent. It runs until a reset.
    MEMORY = 10  #: The memory has answered a burst of the command itself with an error.
    SURPLUS = 11  #: The core's program has ended, and words of its messages are left, until a reset of the core.


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command. `CommandKind` and the head of this module say what its fields mean.

    Attributes:
        kind:   Kind of the command.
        core:   Number of the core; 0 where the command processor executes the command.
        first:  Address of messages, of bytes to copy, or of the word of a SIGNAL; register of a SET.
        count:  Number of bytes that are read.
        second: Address of what is written.
        room:   Number of bytes that a core may write.
        value:  Value of a register or word; mask of cores.
    """

    kind: CommandKind
    core: int = 0
    first: int = 0
    count: int = 0
    second: int = 0
    room: int = 0
    value: int = 0

    def pack(self) -> bytes:
        """Its 32 bytes."""
        return PACKED.pack(self.kind, self.core, 0, self.first, self.count, self.second, self.room, self.value, 0)

    @classmethod
    def unpack(cls, data: bytes) -> "Command":
        """The command of 32 bytes that `refused` has let pass."""
        kind, core, _, *fields, _ = PACKED.unpack(data)
        return cls(kind=CommandKind(kind), core=core, **dict(zip(_ALL[1:], fields, strict=True)))

    @property
    def read(self) -> range:
        """Addresses of the bytes that it reads itself."""
        return range(self.first, self.first + self.count)

    @property
    def written(self) -> range:
        """Addresses of the bytes that it may write itself."""
        if self.kind == CommandKind.SIGNAL:
            return range(self.first, self.first + 4)
        return range(self.second, self.second + (self.count if self.kind == CommandKind.COPY else self.room))


#: Fields that each kind uses besides its kind.
FIELDS = {
    CommandKind.LOAD: ("core", "first", "count", "second", "room"),
    CommandKind.RUN: ("core", "first", "count", "second", "room"),
    CommandKind.SET: ("core", "first", "value"),
    CommandKind.COPY: ("first", "count", "second"),
    CommandKind.WAIT: ("value",),
    CommandKind.SIGNAL: ("first", "value"),
}
#: The same of commands for a core that trains.
TRAINER_FIELDS = {
    CommandKind.LOAD: ("core", "first", "count"),
    CommandKind.RUN: ("core", "first", "second"),
    CommandKind.SET: ("core", "first", "value"),
}
#: Registers of a core that trains which a SET writes with any value, and the bytes that a unit of their value reaches.
TRAINER_SET = (TrainerRegister.DRAM_BASE, TrainerRegister.LIMIT, TrainerRegister.RATE, TrainerRegister.DECAY)
TRAINER_REACH: dict[int, int] = {TrainerRegister.DRAM_BASE: 1, TrainerRegister.LIMIT: LANES}
_ALL = ("core", "first", "count", "second", "room", "value")


def refused(accelerator: Accelerator, data: bytes) -> CommandError:
    """The error of a command before it moves anything; NONE for one that is executed.

    `count` of a RUN may be 0, for a program without input, and
    `room` may be 0. Sums of an address and a number of bytes do not wrap.
    """
    number, core, zero, first, count, second, room, value, rest = PACKED.unpack(data)
    fields = dict(zip(_ALL, (core, first, count, second, room, value), strict=True))
    if number not in list(CommandKind) or zero or rest:
        return CommandError.KIND
    kind = CommandKind(number)
    trains = kind.of_core and core < len(accelerator.cores) and isinstance(accelerator.cores[core], TrainerConfig)
    taken = (TRAINER_FIELDS if trains else FIELDS)[kind]
    if any(field for name, field in fields.items() if name not in taken):
        return CommandError.KIND
    if kind.of_core and core >= len(accelerator.cores) or kind == CommandKind.WAIT and value >> len(accelerator.cores):
        return CommandError.CORE
    if kind == CommandKind.WAIT:
        return CommandError.NONE
    if kind == CommandKind.SET:
        return _refused_set(accelerator, core, first, value)
    command = Command(kind=kind, **fields)
    if not _aligned(accelerator, command):
        return CommandError.ALIGNMENT
    meet = kind == CommandKind.COPY and _meet(command.read, command.written)
    beyond = max(command.read.stop, command.written.stop) > accelerator.memory_bytes
    large = kind == CommandKind.LOAD and trains and count > INSTRUCTION * accelerator.cores[core].instructions
    return CommandError.RANGE if meet or beyond or large else CommandError.NONE


def _aligned(accelerator: Accelerator, command: Command) -> bool:
    if command.kind == CommandKind.SIGNAL:
        return command.first % 4 == 0
    some = command.count > 0 or command.kind == CommandKind.RUN
    if command.kind == CommandKind.COPY:
        return some and (command.first | command.second | command.count) % ALIGNED == 0
    core = accelerator.cores[command.core]
    beat = INSTRUCTION if isinstance(core, TrainerConfig) else core.message_bytes
    return some and (command.first | command.second | command.room) % ALIGNED == 0 and command.count % beat == 0


def _meet(one: range, other: range) -> bool:
    return max(one.start, other.start) < min(one.stop, other.stop)


def _refused_set(accelerator: Accelerator, number: int, register: int, value: int) -> CommandError:
    core = accelerator.cores[number]
    if isinstance(core, TrainerConfig):
        if register == TrainerRegister.DRAM_BASE and value % PAGE:
            return CommandError.ALIGNMENT
        if register in TRAINER_REACH and TRAINER_REACH[register] * value > accelerator.memory_bytes:
            return CommandError.RANGE
        written = register in TRAINER_SET
    elif register == Register.DRAM_BASE and core.dram_words:
        if value % PAGE:
            return CommandError.ALIGNMENT
        return CommandError.RANGE if value + dram_bytes(core) > accelerator.memory_bytes else CommandError.NONE
    else:
        written = register == Register.PEER
    written |= register == Register.CONTROL and value == Control.CLEAR
    return CommandError.NONE if written else CommandError.REGISTER
