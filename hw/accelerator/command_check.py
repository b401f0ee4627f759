"""The rules that a command obeys before it moves anything."""

from functools import reduce
from operator import or_

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.accelerator.orders import ADDRESS
from concord.spec.accelerator.accelerator import ALIGNED, PAGE, Accelerator, dram_bytes
from concord.spec.accelerator.commands import FIELDS, CommandError, CommandKind
from concord.spec.host.registers import Control, Register

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
        stray = [command[name].any() & ~Cat(kinds[kind] for kind in kinds if name in FIELDS[kind]).any()
                 for name in ("core", "first", "count", "second", "room", "value")]
        of_core = Cat(kinds[kind] for kind in kinds if kind.of_core).any()
        found = {
            CommandError.KIND: ~Cat(kinds.values()).any() | Cat(*stray, command.zero, command.rest).any(),
            CommandError.CORE: of_core & (command.core >= cores) | (
                kinds[CommandKind.WAIT] & command.value[cores:].any())}
        base, limit, partial = self._of_core(m, kinds)
        found |= {
            CommandError.ALIGNMENT: self._misaligned(kinds, partial) | (base & (command.value % PAGE).any()),
            CommandError.RANGE: base & (command.value > limit),
            CommandError.REGISTER: kinds[CommandKind.SET] & ~base & (command.first != Register.PEER) & (
                (command.first != Register.CONTROL) | (command.value != Control.CLEAR))}
        self._judge(m, found, self._beyond(m, kinds))
        return m

    def _of_core(self, m, kinds):
        """Whether DRAM_BASE of a core is set that has one, its greatest value, and whether `count` is no whole number
        of the core's beats.
        """
        base, limit, partial = Signal(), Signal(ADDRESS), Signal()
        with m.Switch(self.command.core):
            for number, config in enumerate(self.accelerator.cores):
                with m.Case(number):
                    m.d.comb += partial.eq((self.command.count % config.message_bytes).any())
                    if config.dram_words:
                        m.d.comb += [
                            limit.eq(self.accelerator.memory_bytes - dram_bytes(config)),
                            base.eq(kinds[CommandKind.SET] & (self.command.first == Register.DRAM_BASE))]
        return base, limit, partial

    def _misaligned(self, kinds, partial):
        """Whether an address or a number of bytes is no multiple of what it must be, or nothing is read."""
        command = self.command
        places, count = (((command.first | command.second | command.room) % ALIGNED).any(), command.count)
        messages = kinds[CommandKind.LOAD] | kinds[CommandKind.RUN]
        return reduce(or_, (
            messages & (places | partial), kinds[CommandKind.COPY] & (places | (count % ALIGNED).any()),
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
