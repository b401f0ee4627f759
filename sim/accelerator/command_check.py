# amaranth: UnusedElaboratable=no
"""Testbench of hw.accelerator.command_check against spec.accelerator.commands.refused."""

import random
from collections import Counter
from dataclasses import replace

import cocotb
from concord.hw.accelerator.command_check import LATENCY, CommandCheck
from concord.sim.drivers.bench import CONFIG
from concord.sim.drivers.stream import drive_pipeline
from concord.spec.accelerator.accelerator import LARGEST, PAGE, Accelerator, dram_bytes
from concord.spec.accelerator.commands import (
    FIELDS,
    INSTRUCTION,
    PACKED,
    PROCESSOR,
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
    {"old": "command.first | command.second | command.room", "new": "command.first | command.second"},
    {"old": "places | (count % ALIGNED).any()", "new": "places"},
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
        outside = replace(config, dram_words=2048, dram_bus=16)
        trainers = TrainerConfig(instructions=64), TrainerConfig(instructions=96)
        return Accelerator(cores=(config, trainers[0], outside, preset("wide"), trainers[1]), memory_bytes=PAGE * 37,
                           bus=16)
    return Accelerator(cores=(replace(config, dram_words=1 << 20, dram_bus=64),) * 15, memory_bytes=LARGEST, bus=64)


def component(config: Config) -> CommandCheck:
    """The check of an accelerator with cores of several kinds, or of a large one."""
    return CommandCheck(machine(config))


MACHINE = machine(CONFIG)


class LimitedCommands:
    """Draws commands near the limits of their fields."""

    def __init__(self, seed: int):
        self.random, memory = random.Random(seed), MACHINE.memory_bytes
        trainers = [core for core in MACHINE.cores if isinstance(core, TrainerConfig)]
        limits = (0, *(dram_bytes(core) for core in MACHINE.cores if core not in trainers))
        ends = [memory - limit for limit in limits] + [memory // 16] * bool(trainers)
        ends += [INSTRUCTION * core.instructions for core in trainers]
        near = [end + away for end in ends for away in (-2 * PAGE, -PAGE, -64, -16, -4, -1, 0, 4, 64, PAGE)]
        small = [0, 0, 1, 2, 4, 8, 12, 16, 32, 60, 64, 68, 128, 192, PAGE // 2, PAGE, PAGE + 64, 2 * PAGE, 64 * PAGE]
        self.numbers = [number for number in (*near, *small, LARGEST - 64, LARGEST - 1) if 0 <= number < LARGEST]

    def number(self) -> int:
        """A number of 32 bits."""
        chance = self.random.random()
        if chance < 0.6:
            return self.random.choice(self.numbers)
        if chance < 0.9:
            return self.random.randrange(0, min(LARGEST, 2 * MACHINE.memory_bytes), 64)
        return self.random.getrandbits(32)

    def command(self) -> bytes:
        """A command."""
        choice = self.random
        kind = choice.choice((*CommandKind, *CommandKind, 0, 7, 255, choice.randrange(256)))
        fields = dict.fromkeys(("core", "first", "count", "second", "room", "value"), 0)
        used = set(FIELDS.get(kind, ()))
        used |= {choice.choice(list(fields))} if choice.random() < 0.1 else set()
        fields |= {name: self.number() for name in fields if name in used}
        if "core" in used:
            fields["core"] = choice.choice((*range(len(MACHINE.cores) + 1), 0, 1, PROCESSOR, choice.randrange(256)))
        if kind == CommandKind.COPY and choice.random() < 0.5:  # the ranges lie side by side
            fields["second"] = (fields["first"] + choice.choice((-1, 1)) * fields["count"]) % LARGEST
        if kind == CommandKind.SET:
            named = (*Register, *TrainerRegister, *[Register.DRAM_BASE] * 8, *[TrainerRegister.LIMIT] * 2)
            fields["first"] = choice.choice((*named, self.number()))
            fields["value"] = choice.choice((*range(9), Control.CLEAR, Control.CLEAR, self.number(), self.number()))
        if kind == CommandKind.WAIT:
            fields["value"] = choice.choice((choice.getrandbits(len(MACHINE.cores)), 1 << choice.randrange(32)))
        zeros = [choice.choice((0, 1 << choice.randrange(bits))) if choice.random() < 0.05 else 0 for bits in (16, 64)]
        return PACKED.pack(int(kind), fields["core"], zeros[0], *(fields[name] for name in list(fields)[1:]), zeros[1])


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
    counts = Counter(expected)
    assert min(counts[error] for error in CommandError if error <= CommandError.REGISTER) > 25
