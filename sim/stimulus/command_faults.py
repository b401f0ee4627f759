"""Lists with an error: commands that are refused, at each limit of each field, and commands that fail in the core."""

from dataclasses import replace
from itertools import chain

import numpy as np
from concord.golden.host.messages import input_message, write_message
from concord.sim.stimulus.command_lists import CommandList, ListMaker, answers_of, extend, memory_room
from concord.sim.stimulus.message_cases import malformed, message, to_machine
from concord.sim.stimulus.programs import Case, random_illegal, random_program
from concord.spec.accelerator.accelerator import ALIGNED, PAGE, Accelerator, dram_bytes
from concord.spec.accelerator.commands import FIELDS, PACKED, Command, CommandError, CommandKind
from concord.spec.host.messages import MessageKind, pack
from concord.spec.host.registers import Control, Register
from concord.spec.isa.memories import Mem

_TOP = 1 << 32
#: Errors of commands that have moved something.
IN_CORES = (CommandError.ROOM, CommandError.MESSAGE, CommandError.PROGRAM, CommandError.STARVED, CommandError.SURPLUS)


def refusals(accelerator: Accelerator) -> list[tuple[str, bytes, CommandError]]:
    """Commands that are refused before they move anything: what is wrong, the 32 bytes, and the error."""
    return list(chain(_kinds(accelerator), _cores(accelerator), _alignments(accelerator), _ranges(accelerator),
                      _settings(accelerator)))


def legal(accelerator: Accelerator) -> dict[CommandKind, Command]:
    """One command of each kind that is not refused. It reaches the end of the memory where it has an address."""
    end, last = accelerator.memory_bytes, len(accelerator.cores) - 1
    sizes = {"first": end - 2 * ALIGNED, "count": ALIGNED, "second": end - ALIGNED}
    return {
        CommandKind.LOAD: Command(kind=CommandKind.LOAD, core=last, room=ALIGNED, **sizes),
        CommandKind.RUN: Command(kind=CommandKind.RUN, core=last, room=ALIGNED, **sizes),
        CommandKind.SET: Command(kind=CommandKind.SET, core=last, first=Register.PEER, value=_TOP - 1),
        CommandKind.COPY: Command(kind=CommandKind.COPY, **sizes),
        CommandKind.WAIT: Command(kind=CommandKind.WAIT, value=(2 << last) - 1),
        CommandKind.SIGNAL: Command(kind=CommandKind.SIGNAL, first=end - 4, value=_TOP - 1)}


def _kinds(accelerator):
    """Unknown kinds, and fields that a kind does not use."""
    good = legal(accelerator)
    for number in (0, max(CommandKind) + 1, 255):
        yield f"kind {number}", bytes([number]) + bytes(31), CommandError.KIND
    fields = ("kind", "core", "rest 2", "first", "count", "second", "room", "value", "rest 24")
    for kind, command in good.items():
        for index, name in enumerate(fields):
            if name not in ("kind", *FIELDS[kind]):
                for value in (1, {"core": 255, "rest 2": 0xFFFF, "rest 24": 1 << 63}.get(name, _TOP - 1)):
                    numbers = list(PACKED.unpack(command.pack()))
                    numbers[index] = value
                    yield f"{name} = {value:#x} of {kind.name}", PACKED.pack(*numbers), CommandError.KIND


def _cores(accelerator):
    """Cores that there are not."""
    count = len(accelerator.cores)
    for kind, command in legal(accelerator).items():
        for core in (count, 255) if kind.of_core else ():
            yield f"core {core} of {kind.name}", replace(command, core=core).pack(), CommandError.CORE
    for value in (1 << count, 1 << 31):
        yield f"WAIT for {value:#x}", Command(kind=CommandKind.WAIT, value=value).pack(), CommandError.CORE


def _alignments(accelerator):
    """Addresses and numbers of bytes that are no multiple of what they must be, or no bytes."""
    for kind, command in legal(accelerator).items():
        if kind in (CommandKind.SET, CommandKind.WAIT):
            continue
        beat = accelerator.cores[command.core].message_bytes
        units = {name: ALIGNED for name in ("first", "second", "room") if name in FIELDS[kind]}
        units |= {"count": beat if kind.of_core else ALIGNED} if kind != CommandKind.SIGNAL else {}
        units |= {"first": 4} if kind == CommandKind.SIGNAL else {}
        for name, unit in units.items():
            for off in (1, unit // 2, unit - 1):
                # Smaller than the legal one, so that no range leaves the memory.
                changed = replace(command, **{name: getattr(command, name) - off})
                yield f"{name} of {kind.name} {off} bytes less", changed.pack(), CommandError.ALIGNMENT
        if kind in (CommandKind.LOAD, CommandKind.COPY):
            yield f"count = 0 of {kind.name}", replace(command, count=0).pack(), CommandError.ALIGNMENT


def _ranges(accelerator):
    """Ranges that end beyond the memory or wrap, and a COPY whose ranges meet."""
    end, beyond, good = accelerator.memory_bytes, CommandError.RANGE, legal(accelerator)
    for kind in (CommandKind.LOAD, CommandKind.RUN, CommandKind.COPY):
        command = good[kind]
        beat = accelerator.cores[command.core].message_bytes if kind.of_core else ALIGNED
        for fields in ({"first": end}, {"first": end - ALIGNED, "count": ALIGNED + beat}, {"first": _TOP - ALIGNED},
                       {"first": 0, "count": end + beat}, {"first": _TOP - ALIGNED, "count": 2 * ALIGNED},
                       {"first": 0, "count": _TOP - ALIGNED}, {"second": end}, {"second": _TOP - ALIGNED}):
            yield f"{fields} of {kind.name}", replace(command, **fields).pack(), beyond
        for room in (2 * ALIGNED, _TOP - ALIGNED) if kind.of_core else ():
            yield f"room = {room:#x} of {kind.name}", replace(command, room=room).pack(), beyond
    for first, second, count in ((0, 0, ALIGNED), (0, ALIGNED, 2 * ALIGNED), (ALIGNED, 0, 2 * ALIGNED),
                                 (end // 2 - ALIGNED, 0, end // 2)):
        copy = Command(kind=CommandKind.COPY, first=first, second=second, count=count)
        yield f"COPY of {count} from {first:#x} to {second:#x}", copy.pack(), beyond
    for first in {end, _TOP - 4}:
        yield f"SIGNAL at {first:#x}", Command(kind=CommandKind.SIGNAL, first=first).pack(), beyond


def _settings(accelerator):
    """Registers, and values of registers, that a SET does not write."""
    for core, config in enumerate(accelerator.cores):
        command = Command(kind=CommandKind.SET, core=core)
        written = {Register.PEER, Register.DRAM_BASE} if config.dram_words else {Register.PEER}
        for register in (*sorted(set(Register) - written), Register.PEER + 1, 0xFC, 0x1000, _TOP - 4):
            yield f"SET {register:#x} of core {core}", replace(command, first=register).pack(), CommandError.REGISTER
        for value in (1, 2, 3, 5, 6, 7, 8, Control.CLEAR | 1 << 31):
            yield f"SET CONTROL to {value:#x}", replace(command, value=value).pack(), CommandError.REGISTER
        if config.dram_words:
            last = accelerator.memory_bytes - dram_bytes(config)
            last -= last % PAGE
            base = replace(command, first=Register.DRAM_BASE)
            for value in (1, PAGE // 2, PAGE - 1, last + 64):
                yield f"DRAM_BASE = {value:#x}", replace(base, value=value).pack(), CommandError.ALIGNMENT
            for value in (last + PAGE, _TOP - PAGE):
                yield f"DRAM_BASE = {value:#x}", replace(base, value=value).pack(), CommandError.RANGE


def refused_list(accelerator: Accelerator, rng: np.random.Generator, data: bytes, error: CommandError) -> CommandList:
    """A random list with a command that is refused at a random index."""
    maker = ListMaker(accelerator, rng)
    extend(maker, int(rng.integers(2)))
    index = int(rng.integers(len(maker.commands) + 1))
    made = maker.made(error=error, index=index)
    return replace(made, commands=(*made.commands[:index], data, *made.commands[index:]))


def failing_list(accelerator: Accelerator, rng: np.random.Generator, error: CommandError) -> CommandList:
    """A random list with a command that fails in a core: some commands, that one, and others behind it."""
    maker = ListMaker(accelerator, rng)
    extend(maker, int(rng.integers(3)))
    core = int(rng.integers(len(accelerator.cores)))
    config = accelerator.cores[core]
    maker.settle(core)
    case = _case(config, rng, error)
    maker.load(core, case.setup)
    _FAILURES[error](maker, core, case)
    index = len(maker.commands) - 1
    extend(maker, int(rng.integers(1, 3)))
    return maker.made(error=error, index=index)


def _case(config, rng, error) -> Case:
    """A random program that a command can fail with in this way."""
    while True:
        case = random_illegal(config, rng) if error == CommandError.PROGRAM else random_program(config, rng, budget=300)
        sent = answers_of(case)
        if error not in (CommandError.STARVED, CommandError.ROOM) or case.taken and sent:
            return case


def _starved(maker, core, case):
    """The last words of the input do not come."""
    last = int(maker.rng.integers(len(case.inputs)))
    maker.run(core, case.inputs[:last], len(b"".join(answers_of(case))))


def _surplus(maker, core, case):
    """There are more words than the program takes."""
    config, rng = case.config, maker.rng
    count = int(rng.choice((1, 2, config.net_in - 1, config.net_in, 2 * config.net_in)))
    words = np.zeros((count, config.mfu_lanes), np.uint16)
    more = [input_message(config, words[first:first + 50]) for first in range(0, count, 50)]
    maker.run(core, [*case.inputs, *more], len(b"".join(answers_of(case))))


def _room(maker, core, case):
    """What comes out is too long by some bytes: `room` is too small, or there is none."""
    rng, least = maker.rng, len(b"".join(answers_of(case)))
    answers = maker.run(core, case.inputs, least)
    lines = int(rng.choice((1, answers.size // ALIGNED - 1, answers.size // ALIGNED)))
    lines = max(lines, (answers.size - ALIGNED - least) // ALIGNED + 1)
    room = max(answers.size - lines * ALIGNED, 0)
    maker.commands[-1] = replace(maker.commands[-1], room=room)


def _message(maker, core, case):
    """A message is malformed, of a kind that the command does not take, or cut off."""
    config, rng = case.config, maker.rng
    if rng.random() < 0.5:
        wrong = [data for name, data in malformed(config, rng).items() if not name.startswith("INPUT")]
        wrong.append(pack(config, message(config, rng, MessageKind.INPUT)))
        good = [write_message(config, Mem.INITIAL_VRF, np.zeros((1, config.mfu_lanes), np.uint16)), *case.reads]
        send, room = maker.load, memory_room(case)
    else:
        kinds = [kind for kind in to_machine(config) if kind != MessageKind.INPUT]
        wrong = [data for name, data in malformed(config, rng).items() if name.startswith("INPUT")]
        wrong += [pack(config, message(config, rng, kind)) for kind in kinds]
        good, send, room = case.inputs, maker.run, len(b"".join(answers_of(case)))
    index = int(rng.integers(len(good) + 1))
    send(core, [*good[:index], wrong[int(rng.integers(len(wrong)))], *good[index:]], room)


def _program(maker, core, case):
    """The program stops."""
    maker.run(core, case.inputs, len(b"".join(answers_of(case))))


_FAILURES = {CommandError.ROOM: _room, CommandError.MESSAGE: _message, CommandError.PROGRAM: _program,
             CommandError.STARVED: _starved, CommandError.SURPLUS: _surplus}
