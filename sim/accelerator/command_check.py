# amaranth: UnusedElaboratable=no
"""Testbench of hw.accelerator.command_check against spec.accelerator.commands.refused."""

import random
from collections import Counter
from dataclasses import replace

import cocotb
from concord.hw.accelerator.command_check import LATENCY, CommandCheck
from concord.sim.drivers.bench import CONFIG
from concord.sim.drivers.stream import drive_pipeline
from concord.spec.accelerator.accelerator import ALIGNED, LARGEST, PAGE, Accelerator, dram_bytes
from concord.spec.accelerator.commands import (
    FIELDS,
    INSTRUCTION,
    PACKED,
    PROCESSOR,
    TRAINER_FIELDS,
    TRAINER_REACH,
    CommandError,
    CommandKind,
    refused,
)
from concord.spec.host.registers import Control, Register
from concord.spec.machine.config import Config, preset
from concord.spec.trainer.config import TrainerConfig
from concord.spec.trainer.registers import TrainerRegister

CONFIGURATIONS = TESTED = ("tiny", "wide")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "command[name].any() & ~Mux", "new": "C(0) & ~Mux"},
    {"old": "Mux(trains, _takes(kinds, FIELDS | TRAINER_FIELDS, name),", "new": "Mux(0, 0,"},
    {"old": "Cat(*stray, command.zero, command.rest)", "new": "Cat(*stray, command.rest)"},
    {"old": "of_core & (command.core >= cores)", "new": "of_core & (command.core > cores)"},
    {"old": "command.value[cores:].any()", "new": "command.value[cores]"},
    {"old": "base & (command.value % PAGE).any()", "new": "base & (command.value % (PAGE // 2)).any()"},
    {"old": "self.command.value > most", "new": "self.command.value >= most"},
    {"old": "kinds[CommandKind.SET] & ~known &", "new": "kinds[CommandKind.SET] &"},
    {"old": "beyond.eq(self.command.count > INSTRUCTION", "new": "beyond.eq(self.command.count >= INSTRUCTION"},
    {"old": "with m.If(loads):", "new": "with m.If(1):"},
    {"old": "(command.value != Control.CLEAR)", "new": "0"},
    {"old": "self.command.count % _unit(core)", "new": "self.command.count % 4", "config": "wide"},
    {"old": "return INSTRUCTION if", "new": "return INSTRUCTION // 2 if"},
    {"old": "command.first | command.second | command.room", "new": "command.first | command.second"},
    {"old": "unaligned | (count % ALIGNED).any()", "new": "unaligned"},
    {"old": "(kinds[CommandKind.LOAD] | kinds[CommandKind.COPY]) & ~", "new": "kinds[CommandKind.COPY] & ~"},
    {"old": "(command.first % 4).any()", "new": "(command.first % 2).any()"},
    {"old": "Mux(kinds[CommandKind.SIGNAL], 4, command.count)", "new": "command.count"},
    {"old": "Mux(kinds[CommandKind.COPY], command.count, command.room)", "new": "command.room"},
    {"old": "(read > memory) | (written > memory)", "new": "(read >= memory) | (written > memory)"},
    {"old": "(read > memory) | (written > memory)", "new": "(read > memory) | (written >= memory)"},
    {"old": "(first < written) & (second < read)", "new": "(first <= written) & (second < read)"},
    {"old": "(first < written) & (second < read)", "new": "(first < written) & (second <= read)"},
    {"old": "sorted(kept, reverse=True)", "new": "sorted(kept)"},
)


def machine(config: Config) -> Accelerator:
    """Cores of several kinds before a memory of an odd size, or as many cores and as much memory as there can be."""
    if config.message_bytes == 4:
        outside = [replace(each, dram_words=1024, dram_bus=16) for each in (config, preset("wide"))]
        trainers = TrainerConfig(instructions=64), TrainerConfig(instructions=96)
        return Accelerator(cores=(config, trainers[0], *outside, trainers[1]), memory_bytes=PAGE * 37, bus=16)
    return Accelerator(cores=(replace(config, dram_words=1 << 20, dram_bus=64),) * 15, memory_bytes=LARGEST, bus=64)


def component(config: Config) -> CommandCheck:
    """The check of an accelerator with cores of several kinds, or of a large one."""
    return CommandCheck(machine(config))


MACHINE = machine(CONFIG)
CORES, MEMORY = MACHINE.cores, MACHINE.memory_bytes
NAMES = ("core", "first", "count", "second", "room", "value")  #: Fields of a command, in their order.
#: Errors of the commands of each kind besides KIND.
ERRORS = {
    CommandKind.LOAD: (CommandError.CORE, CommandError.ALIGNMENT, CommandError.RANGE),
    CommandKind.RUN: (CommandError.CORE, CommandError.ALIGNMENT, CommandError.RANGE),
    CommandKind.SET: (CommandError.CORE, CommandError.ALIGNMENT, CommandError.RANGE, CommandError.REGISTER),
    CommandKind.COPY: (CommandError.ALIGNMENT, CommandError.RANGE),
    CommandKind.WAIT: (CommandError.CORE,),
    CommandKind.SIGNAL: (CommandError.ALIGNMENT, CommandError.RANGE),
}


def trains(kind: int, core: int) -> bool:
    """Whether a command is one for a core that trains."""
    return kind in TRAINER_FIELDS and core < len(CORES) and isinstance(CORES[core], TrainerConfig)


def outcomes() -> list[tuple[bool, CommandKind, CommandError]]:
    """Whether the core trains, the kind and the error of all commands of a known kind that there can be."""
    every = [(False, kind, error) for kind, errors in ERRORS.items()
             for error in (CommandError.NONE, CommandError.KIND, *errors)
             if MEMORY < LARGEST or (kind, error) != (CommandKind.SIGNAL, CommandError.RANGE)]
    if any(isinstance(core, TrainerConfig) for core in CORES):
        every += [(True, kind, error) for _, kind, error in every
                  if kind in TRAINER_FIELDS and error != CommandError.CORE]
    return every


class LimitedCommands:
    """Draws commands near the limits of their fields."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def near(self, *limits: int) -> int:
        """One of some numbers, or a number beside it, in 32 bits."""
        away = self.random.choice((0, 0, 0, 1, 4, 16, 64, PAGE // 2, PAGE))
        return (self.random.choice(limits) + self.random.choice((-1, 1)) * away) % LARGEST

    def number(self) -> int:
        """A number of 32 bits, most often of no more than the memory has bytes."""
        choice = self.random
        numbers = self.near(0, PAGE, MEMORY), choice.randrange(MEMORY), choice.getrandbits(32)
        return choice.choices(numbers, (3, 6, 1))[0]

    def command(self) -> bytes:
        """A command."""
        choice, count = self.random, len(CORES)
        kind = choice.choice((*[*CommandKind] * 4, 0, 7, 255, choice.randrange(256)))
        core = choice.choice((*[*range(count)] * 3, count, PROCESSOR, choice.randrange(256)))
        taken = (TRAINER_FIELDS if trains(kind, core) else FIELDS).get(kind, ())
        drawn = {name: self.number() for name in NAMES} | {"core": core}
        if kind == CommandKind.SET:
            drawn |= self.setting(core)
        elif kind == CommandKind.WAIT:
            drawn["value"] = choice.choice((choice.getrandbits(count), 1 << choice.randrange(32)))
        else:
            drawn |= self.ranges(kind, core)
        stray = choice.choice(NAMES) if choice.random() < 0.1 else ""
        fields = [drawn[name] if name in taken or name == stray else 0 for name in NAMES]
        zeros = [choice.choice((0, 1 << choice.randrange(bits))) if choice.random() < 0.05 else 0 for bits in (16, 64)]
        return PACKED.pack(int(kind), fields[0], zeros[0], *fields[1:], zeros[1])

    def setting(self, core: int) -> dict[str, int]:
        """Register and value of a SET; most values of DRAM_BASE and LIMIT lie near the greatest one."""
        choice, base, limit = self.random, TrainerRegister.DRAM_BASE, TrainerRegister.LIMIT
        many = [base] * 32 + [limit] * 16 + [Register.CONTROL] * 4
        register = choice.choice((*Register, *TrainerRegister, *many, self.number()))
        value = choice.choice((*range(9), *[Control.CLEAR] * 5, self.number(), self.number()))
        if register in (base, limit) and choice.random() < 0.8:
            own = CORES[core if core < len(CORES) else 0]
            most = MEMORY // TRAINER_REACH[register] if isinstance(own, TrainerConfig) else MEMORY - dram_bytes(own)
            value = choice.choice((self.near(most), most, most + PAGE, choice.randrange(PAGE // 2, MEMORY, PAGE)))
        return {"first": register, "value": value % LARGEST}

    def ranges(self, kind: int, core: int) -> dict[str, int]:
        """Ranges, which often end near the end of the memory; most numbers are multiples of what they must be."""
        choice = self.random
        first, second = (self.number() // ALIGNED * ALIGNED for _ in range(2))
        count, room = self.length(first, choice.choice((INSTRUCTION, ALIGNED))), self.length(second, ALIGNED)
        own = CORES[core] if trains(kind, core) else None
        if isinstance(own, TrainerConfig) and choice.random() < 0.6:
            count = INSTRUCTION // 2 * (2 * own.instructions + choice.choice((-2, -1, 0, 2)))
        elif kind == CommandKind.SIGNAL and choice.random() < 0.5:
            first = MEMORY - 2 * choice.randrange(5)
        elif kind == CommandKind.COPY:
            count -= count % ALIGNED
            second = choice.choice((second, MEMORY - count, first + count, first - count))
            second += choice.choice((-ALIGNED, 0, 0, ALIGNED))
        found = {"first": first, "count": count, "second": second, "room": room}
        if choice.random() < 0.25:
            found[choice.choice(list(found))] ^= 1 << choice.randrange(6)
        return {name: value % LARGEST for name, value in found.items()}

    def length(self, start: int, unit: int) -> int:
        """Bytes of a range of whole units, which often ends where the memory does, or a unit beside."""
        rest = MEMORY - start
        within = self.random.randrange(0, max(rest, PAGE) // 2, unit)
        return self.random.choice((0, within, within, rest - unit, rest, rest, rest + unit))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def every_command_has_its_error(dut):
    """Commands near the limits of all fields."""
    make = LimitedCommands(cocotb.RANDOM_SEED)
    commands = [make.command() for _ in range(6000)]
    inputs = {"command": [int.from_bytes(one, "little") for one in commands]}
    found = await drive_pipeline(dut, inputs, ["error"], LATENCY)
    expected = [refused(MACHINE, one) for one in commands]
    for command, error, right in zip(commands, found["error"], expected, strict=True):
        assert error == right, f"{PACKED.unpack(command)} has the error {CommandError(error).name}, not {right.name}"
    counts = Counter((trains(*one[:2]), one[0], error) for one, error in zip(commands, expected, strict=True))
    rare = [outcome for outcome in outcomes() if counts[outcome] < 5]
    assert not rare, f"fewer than 5 commands of {rare}"
