"""The rules that a command obeys before it moves anything."""

from functools import reduce
from operator import or_

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.accelerator.orders import ADDRESS
from concord.spec.accelerator.accelerator import ALIGNED, PAGE, Accelerator, Core, dram_bytes
from concord.spec.accelerator.commands import (
    FIELDS,
    INSTRUCTION,
    TRAINER_FIELDS,
    TRAINER_REACH,
    TRAINER_SET,
    CommandError,
    CommandKind,
)
from concord.spec.host.registers import Control, Register
from concord.spec.trainer.config import TrainerConfig

LATENCY = 2  #: Cycles from a command to its error.

#: The bytes of a command, as `spec.accelerator.commands` has them.
Fields = data.StructLayout({
    "kind": 8, "core": 8, "zero": 16, "first": ADDRESS, "count": ADDRESS, "second": ADDRESS, "room": ADDRESS,
    "value": 32, "rest": 64})


class CommandCheck(wiring.Component):
    """Finds the error of a command, as `spec.accelerator.commands.refused` does.

    Args:
        accelerator: Cores and memory.

    Members:
        command: In(Fields). The command.
        error: Out. Its `CommandError`.

    Timing:
        `LATENCY` cycles; one command a cycle.
    """

    def __init__(self, accelerator: Accelerator):
        self.accelerator = accelerator
        super().__init__({"command": In(Fields), "error": Out(max(CommandError).bit_length())})

    def elaborate(self, platform):
        m = Module()
        command, cores = self.command, len(self.accelerator.cores)
        kinds = {kind: Signal(name=kind.name.lower()) for kind in CommandKind}
        m.d.comb += [signal.eq(command.kind == kind) for kind, signal in kinds.items()]
        trains = self._trains(m)
        stray = [command[name].any() & ~Mux(trains, _takes(kinds, FIELDS | TRAINER_FIELDS, name),
                                            _takes(kinds, FIELDS, name))
                 for name in ("core", "first", "count", "second", "room", "value")]
        of_core = Cat(kinds[kind] for kind in kinds if kind.of_core).any()
        found = {
            CommandError.KIND: ~Cat(kinds.values()).any() | Cat(*stray, command.zero, command.rest).any(),
            CommandError.CORE: of_core & (command.core >= cores) | (
                kinds[CommandKind.WAIT] & command.value[cores:].any())}
        base, beyond, known, partial = self._of_core(m, kinds)
        found |= {
            CommandError.ALIGNMENT: self._misaligned(kinds, partial) | (base & (command.value % PAGE).any()),
            CommandError.RANGE: beyond,
            CommandError.REGISTER: kinds[CommandKind.SET] & ~known & (
                (command.first != Register.CONTROL) | (command.value != Control.CLEAR))}
        self._judge(m, found, self._beyond(m, kinds))
        return m

    def _trains(self, m):
        """Whether the command is one for a core that trains."""
        trains, of_core = Signal(), Cat(self.command.kind == kind for kind in CommandKind if kind.of_core).any()
        numbers = [k for k, core in enumerate(self.accelerator.cores) if isinstance(core, TrainerConfig)]
        m.d.comb += trains.eq(of_core & Cat(self.command.core == k for k in numbers).any())
        return trains

    def _of_core(self, m, kinds):
        """Whether DRAM_BASE of a core is set that has one, whether a value or a program is too large, whether the core
        has the register of a SET, but for CONTROL, and whether `count` is no whole number of what the core reads.
        """
        base, beyond, known, partial = Signal(), Signal(), Signal(), Signal()
        sets, loads, register = kinds[CommandKind.SET], kinds[CommandKind.LOAD], self.command.first
        with m.Switch(self.command.core):
            for number, core in enumerate(self.accelerator.cores):
                with m.Case(number):
                    m.d.comb += partial.eq((self.command.count % _unit(core)).any())
                    for each, most in _registers(core, self.accelerator.memory_bytes).items():
                        with m.If(sets & (register == each)):
                            m.d.comb += [known.eq(1), base.eq(each == Register.DRAM_BASE),
                                         beyond.eq(0 if most is None else self.command.value > most)]
                    if isinstance(core, TrainerConfig):
                        with m.If(loads):
                            m.d.comb += beyond.eq(self.command.count > INSTRUCTION * core.instructions)
        return base, beyond, known, partial

    def _misaligned(self, kinds, partial):
        """Whether an address or a number of bytes is no multiple of what it must be, or nothing is read."""
        command = self.command
        unaligned, count = (((command.first | command.second | command.room) % ALIGNED).any(), command.count)
        messages = kinds[CommandKind.LOAD] | kinds[CommandKind.RUN]
        return reduce(or_, (
            messages & (unaligned | partial), kinds[CommandKind.COPY] & (unaligned | (count % ALIGNED).any()),
            (kinds[CommandKind.LOAD] | kinds[CommandKind.COPY]) & ~count.any(),
            kinds[CommandKind.SIGNAL] & (command.first % 4).any()))

    def _beyond(self, m, kinds):
        """Whether a range of the command of a cycle before ends beyond the memory, or meets the other one."""
        command, memory = self.command, self.accelerator.memory_bytes
        first, second, copies = Signal(ADDRESS), Signal(ADDRESS), Signal()
        read, written = Signal(ADDRESS + 1), Signal(ADDRESS + 1)  # ends
        m.d.sync += [
            first.eq(command.first), second.eq(command.second), copies.eq(kinds[CommandKind.COPY]),
            read.eq(Mux(kinds[CommandKind.SET], 0, command.first) + Mux(kinds[CommandKind.SIGNAL], 4, command.count)),
            written.eq(command.second + Mux(kinds[CommandKind.COPY], command.count, command.room))]
        return (read > memory) | (written > memory) | (copies & (first < written) & (second < read))

    def _judge(self, m, found: dict, beyond):
        """The smallest code of the errors that are found."""
        kept = {code: Signal(name=code.name.lower()) for code in found}
        m.d.sync += [kept[code].eq(value) for code, value in found.items()]
        error = C(CommandError.NONE, len(self.error))
        for code in sorted(kept, reverse=True):
            late = beyond if code == CommandError.RANGE else 0
            error = Mux(kept[code] | late, code, error)
        m.d.sync += self.error.eq(error)


def _takes(kinds: dict, fields: dict, name: str):
    """Whether the kind of the command uses a field."""
    return Cat(signal for kind, signal in kinds.items() if name in fields[kind]).any()


def _unit(core: Core) -> int:
    """Bytes of what a core reads at a time."""
    return INSTRUCTION if isinstance(core, TrainerConfig) else core.message_bytes


def _registers(core: Core, memory_bytes: int) -> dict[int, int | None]:
    """The registers that a SET of a core writes with any value, or with values up to a greatest one."""
    if isinstance(core, TrainerConfig):
        return {each: memory_bytes // TRAINER_REACH[each] if each in TRAINER_REACH else None for each in TRAINER_SET}
    reach = {Register.DRAM_BASE: memory_bytes - dram_bytes(core)} if core.dram_words else {}
    return {Register.PEER: None, **reach}
