"""Lists with one race: two commands without order touch the same bytes, one of them writing."""

from dataclasses import replace

import numpy as np
from concord.golden.host.messages import read_message, write_message
from concord.sim.stimulus.command_lists import CommandList, ListMaker, MemoryPart, extend
from concord.spec.accelerator.accelerator import ALIGNED, PAGE, Accelerator, dram_bytes
from concord.spec.accelerator.commands import BYTES, Command, CommandKind
from concord.spec.host.registers import Register
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config

#: Words that the LOADs of this module read or write.
_WORDS = 4
_RING = 3  #: Logarithm of the fewest commands of a ring: those of a race fit.
_NOTHING = Command(kind=CommandKind.WAIT)


def raced_list(accelerator: Accelerator, rng: np.random.Generator, number: int) -> CommandList:
    """A random list with a race of one of the kinds of `RACES`, each in turn by `number`."""
    maker = ListMaker(accelerator, rng, smallest_ring=_RING)
    extend(maker, int(rng.integers(2)))
    while len(maker.commands) % (1 << maker.ring_size):
        maker.commands.append(_NOTHING)  # The host waits for all commands of a ring before it sends more.
    plants = [plant for plant, possible in RACES.items() if possible(accelerator)]
    plants[number % len(plants)](maker, *_two(accelerator, rng))
    extend(maker, int(rng.integers(2)))
    return maker.made()


def _two(accelerator, rng) -> tuple[int, int]:
    """Two cores, the second one with Dram if there is one; the same core twice if there is only one."""
    cores = range(len(accelerator.cores))
    second = int(rng.choice([core for core in cores if accelerator.cores[core].dram_words] or list(cores)))
    return int(rng.choice([core for core in cores if core != second] or [second])), second


def _reading(maker: ListMaker, core: int) -> tuple[Command, MemoryPart, MemoryPart]:
    """A LOAD that reads some words of a core's memory, with the parts of its message and of the answer."""
    config = maker.accelerator.cores[core]
    data = read_message(config, Mem.INITIAL_VRF, _WORDS)
    source, answers = maker.part(len(data), data), maker.part(ALIGNED + _sent(config))
    return Command(kind=CommandKind.LOAD, core=core, first=source.first, count=len(data), second=answers.first,
                   room=answers.size), source, answers


def _sent(config: Config) -> int:
    """Number of bytes of the answer."""
    return len(write_message(config, Mem.INITIAL_VRF, np.zeros((_WORDS, config.mfu_lanes), np.uint16)))


def _touched(maker: ListMaker, source: MemoryPart, answers: MemoryPart, core: int) -> list[range]:
    """What a LOAD of `_reading` reads, and what it writes, of its answer without the padding of the last line."""
    sent = _sent(maker.accelerator.cores[core])
    return [range(source.first, source.first + ALIGNED), range(answers.first, answers.first + ALIGNED + sent)]


def _both(maker: ListMaker, one: Command, other: Command) -> None:
    """Add two commands in any order, with nothing between them that orders them."""
    maker.commands += [one, other] if maker.rng.random() < 0.5 else [other, one]


def _answers_onto(maker, one, other):
    """Two cores store their answers at one address, or one over the messages of the other."""
    command, source, answers = _reading(maker, one)
    racing, _, _ = _reading(maker, other)
    part = answers if maker.rng.random() < 0.5 else source
    _both(maker, command, replace(racing, second=part.first))


def _copied(maker, one, _):
    """A COPY takes, or writes over, what a core stores, or writes over its messages, without a WAIT between them."""
    command, source, answers = _reading(maker, one)
    other = maker.part(answers.size)
    copy = Command(kind=CommandKind.COPY, first=answers.first, count=ALIGNED, second=other.first)
    if maker.rng.random() < 0.7:
        written = answers if maker.rng.random() < 0.5 else source
        copy = replace(copy, first=other.first, second=written.first)
    maker.commands += [command, copy]


def _signalled(maker, one, _):
    """A SIGNAL writes into what a core stores or reads."""
    command, source, answers = _reading(maker, one)
    part = _touched(maker, source, answers, one)[int(maker.rng.integers(2))]
    first = part.start if part.start == source.first else int(maker.rng.integers(part.start, part.stop - 3)) // 4 * 4
    maker.commands += [command, Command(kind=CommandKind.SIGNAL, first=first, value=1)]


def _waited_for_others(maker, one, _):
    """A WAIT names all cores but the one that matters."""
    command, _, answers = _reading(maker, one)
    others = (1 << len(maker.accelerator.cores)) - 1 & ~(1 << one)
    copy = Command(kind=CommandKind.COPY, first=answers.first, count=ALIGNED, second=maker.part(ALIGNED).first)
    maker.commands += [command, Command(kind=CommandKind.WAIT, value=others), copy]


def _from_the_past(maker, one, _):
    """A WAIT stands before the command that it should wait for."""
    command, _, answers = _reading(maker, one)
    copy = Command(kind=CommandKind.COPY, first=answers.first, count=ALIGNED, second=maker.part(ALIGNED).first)
    maker.wait({one})
    maker.commands += [command, copy]


def _outside(maker, one, other):
    """A core writes as its Dram what another one stores or reads."""
    command, source, answers = _reading(maker, one)
    part = _touched(maker, source, answers, one)[int(maker.rng.integers(2))]
    maker.commands += [*_base(maker, other, part.start)]
    _both(maker, command, _write(maker, other, part.start))


def _one_dram(maker, _, other):
    """Two cores with Dram at the same address: one writes what the other one reads or writes."""
    one = next(core for core in maker.dram if core != other)
    part, size = maker.part(2 * PAGE), 2 * maker.accelerator.cores[one].mfu_lanes
    at = part.first + -part.first % PAGE
    maker.commands += [*_base(maker, one, at), *_base(maker, other, at)]
    mine, _, _ = _reading(maker, one)
    data = read_message(maker.accelerator.cores[one], Mem.DRAM, 1, (at - _base_of(maker, one, at)) // size)
    message = maker.part(len(data), data)
    _both(maker, replace(mine, first=message.first, count=len(data)), _write(maker, other, at))


def _own_messages(maker, _, other):
    """A command stores its answers over its messages."""
    command, _, _ = _reading(maker, other)
    maker.commands.append(replace(command, second=command.first))


def _own_dram(maker, _, other):
    """A core writes as its Dram what its own command reads or stores."""
    config = maker.accelerator.cores[other]
    part = maker.part(2 * PAGE)
    at = part.first + -part.first % PAGE
    maker.commands += [*_base(maker, other, at)]
    writing = _write(maker, other, at)
    data = bytes(maker.memory[writing.first:writing.first + writing.count])
    if maker.rng.random() < 0.5:  # the message lies where it writes
        maker.memory[at:at + len(data)] = data
        maker.commands.append(replace(writing, first=at))
    else:
        data += read_message(config, Mem.INITIAL_VRF, 1)
        both = maker.part(len(data), data)
        maker.commands.append(replace(writing, first=both.first, count=len(data), second=at, room=16 * ALIGNED))


def _ring(maker, one, _):
    """A command writes where a later one lies."""
    rng, size = maker.rng, 1 << maker.ring_size
    ahead = int(rng.integers(1, size))
    slot = maker.ring + (len(maker.commands) + ahead) % size * BYTES
    if rng.random() < 0.5 or slot % ALIGNED:
        maker.commands.append(Command(kind=CommandKind.SIGNAL, first=slot + 4 * int(rng.integers(8)), value=1))
    else:
        maker.commands.append(replace(_reading(maker, one)[0], second=slot))
    maker.commands += [_NOTHING] * ahead


def _base_of(maker, core, address) -> int:
    """DRAM_BASE with which an address lies in Dram of a core."""
    last = maker.accelerator.memory_bytes - dram_bytes(maker.accelerator.cores[core])
    return min(address - address % PAGE, last - last % PAGE)


def _base(maker, core, address):
    yield Command(kind=CommandKind.SET, core=core, first=Register.DRAM_BASE, value=_base_of(maker, core, address))


def _write(maker, core, address) -> Command:
    """A LOAD that writes the word of Dram at a byte address."""
    config = maker.accelerator.cores[core]
    word = (address - _base_of(maker, core, address)) // (2 * config.mfu_lanes)
    data = write_message(config, Mem.DRAM, np.zeros((1, config.mfu_lanes), np.uint16), word)
    return Command(kind=CommandKind.LOAD, core=core, first=maker.part(len(data), data).first, count=len(data))


def _cores_with_dram(accelerator: Accelerator) -> int:
    return sum(bool(config.dram_words) for config in accelerator.cores)


#: The kinds of races, and whether an accelerator can have them.
RACES = {
    _answers_onto: lambda it: len(it.cores) > 1, _copied: lambda it: True, _signalled: lambda it: True,
    _waited_for_others: lambda it: True, _from_the_past: lambda it: True,
    _outside: lambda it: _cores_with_dram(it) and len(it.cores) > 1, _one_dram: lambda it: _cores_with_dram(it) > 1,
    _own_messages: lambda it: True, _own_dram: _cores_with_dram, _ring: lambda it: True}
