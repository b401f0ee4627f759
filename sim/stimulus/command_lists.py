"""Random lists of commands for accelerators: programs on cores, messages that pass from core to core, copies, signals.

No two commands without order touch the same bytes: the maker knows which cores have used a part since the last WAIT
for them, and puts a WAIT before a command that would meet them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from concord.golden.machine import Machine
from concord.sim.stimulus.programs import Case, random_program, written_program
from concord.spec.accelerator.accelerator import ALIGNED, PAGE, Accelerator, dram_bytes
from concord.spec.accelerator.commands import BYTES, Command, CommandError, CommandKind
from concord.spec.host.messages import MessageKind
from concord.spec.host.registers import Control, Register
from concord.spec.machine.config import Config, preset

MEMORY = 1 << 20  #: Bytes of the memory of these accelerators.
BUDGET = 300  #: Largest number of words that the chains of one program move.


def _accelerator(kinds: str, bus: int) -> Accelerator:
    """Cores by letters: a machine with Dram, the same without, and one with other words, beats and native dimension."""
    made = {"d": replace(preset("tiny"), dram_words=1 << 14, dram_bus=bus), "t": preset("tiny"), "s": preset("serial")}
    return Accelerator(cores=tuple(made[kind] for kind in kinds), memory_bytes=MEMORY, bus=bus)


#: Accelerators of one to four cores.
ACCELERATORS = {"one": _accelerator("d", 4), "two": _accelerator("ds", 8), "three": _accelerator("tdd", 16),
                "four": _accelerator("dsds", 16)}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CommandList:
    """Commands, and the memory before them.

    Attributes:
        accelerator: The machine.
        image:       The memory before the first command.
        ring:        Address of the ring.
        ring_size:   Logarithm of its number of commands; a longer list is sent in parts.
        commands:    Commands of 32 bytes.
        error:       Error of the list, and number of the command that has it; NONE for a list that ends.
        index:       Number of that command.
    """

    accelerator: Accelerator
    image: bytes
    ring: int
    ring_size: int
    commands: tuple[bytes, ...]
    error: CommandError = CommandError.NONE
    index: int = 0


@dataclass(slots=True, eq=False)
class MemoryPart:
    """A part of the memory, and the cores that have used it since the last WAIT for them.

    Attributes:
        first:   Address of its first byte.
        size:    Number of bytes.
        read:    Cores that have read it.
        written: Cores that have written it.
        kept:    Whether a later command is to read it.
    """

    first: int
    size: int
    read: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)
    kept: bool = False


class ListMaker:
    """A random list that grows command by command.

    Args:
        accelerator:   The machine.
        rng:           Source of all random choices.
        smallest_ring: Logarithm of the fewest commands of the ring.

    Attributes:
        commands: The commands so far.
        parts:    Parts of the memory that commands have used, besides Dram.
        busy:     Cores in the middle of an episode.
        memory:   The memory before the first command; bytes that nobody writes are random.
    """

    def __init__(self, accelerator: Accelerator, rng: np.random.Generator, smallest_ring: int = 1):
        self.accelerator, self.rng = accelerator, rng
        self.memory = bytearray(rng.bytes(accelerator.memory_bytes))
        self.commands: list[Command] = []
        self.parts: list[MemoryPart] = []
        self.busy: set[int] = set()
        self.ring_size = int(rng.integers(smallest_ring, 7))
        self._next = PAGE * int(rng.integers(4))
        self.ring = self.part(BYTES << self.ring_size).first
        self.parts.clear()
        self.dram: dict[int, MemoryPart] = {}
        for core, config in enumerate(accelerator.cores):
            if config.dram_words:
                self._next += -self._next % PAGE
                self.dram[core] = self.part(dram_bytes(config))
                self.parts.remove(self.dram[core])

    def made(self, **fields) -> CommandList:
        """The list; `fields` say which error it has."""
        return CommandList(accelerator=self.accelerator, image=bytes(self.memory), ring=self.ring,
                           ring_size=self.ring_size, commands=tuple(one.pack() for one in self.commands), **fields)

    def part(self, size: int, data: bytes = b"") -> MemoryPart:
        """A new part of at least `size` bytes, which holds `data` at first."""
        found = MemoryPart(first=self._next, size=max(size + -size % ALIGNED, ALIGNED))
        self._next += found.size + ALIGNED * int(self.rng.integers(3))
        self.memory[found.first:found.first + len(data)] = data
        assert self._next <= self.accelerator.memory_bytes - ALIGNED, "the list is too long for the memory"
        self.parts.append(found)
        return found

    def used(self, size: int) -> MemoryPart:
        """A part of at least `size` bytes that may be written: sometimes one that commands have used before."""
        free = [one for one in self.parts if one.size >= size and not one.kept]
        if free and self.rng.random() < 0.3:
            return free[int(self.rng.integers(len(free)))]
        return self.part(size)

    def add(self, command: Command, read: tuple[MemoryPart, ...] = (), written: tuple[MemoryPart, ...] = ()) -> None:
        """Add a command that uses parts, after a WAIT for all cores that it would meet there."""
        core = {command.core} if command.kind.of_core else set()
        met = set().union(*(one.written for one in (*read, *written)), *(one.read for one in written)) - core
        if met:
            more = {k for k in range(len(self.accelerator.cores)) if self.rng.random() < 0.2}
            self.wait(met | more)
        for one in read:
            one.read |= core
        for one in written:
            one.written |= core
        self.commands.append(command)

    def wait(self, cores: set[int]) -> None:
        """Add a WAIT."""
        self.commands.append(Command(kind=CommandKind.WAIT, value=sum(1 << core for core in cores)))
        for one in (*self.parts, *self.dram.values()):
            one.read -= cores
            one.written -= cores

    def settle(self, core: int) -> None:
        """Add SETs after which a core answers the host, and has its own Dram."""
        self.add(Command(kind=CommandKind.SET, core=core, first=Register.PEER))
        if core in self.dram:
            base = self.dram[core].first
            self.add(Command(kind=CommandKind.SET, core=core, first=Register.DRAM_BASE, value=base))

    def load(self, core: int, messages: list[bytes], room: int = 0) -> MemoryPart:
        """Add a LOAD of messages, whose answers need `room` bytes; returns their part."""
        return self._sent(CommandKind.LOAD, core, b"".join(messages), room)

    def run(self, core: int, messages: list[bytes], room: int) -> MemoryPart:
        """Add a RUN on messages, whose answers need `room` bytes; returns their part."""
        return self._sent(CommandKind.RUN, core, b"".join(messages), room)

    def run_on(self, core: int, source: MemoryPart, count: int, room: int) -> MemoryPart:
        """Add a RUN on the `count` bytes of messages that another core has stored in a part."""
        answers = self.part(ALIGNED + room)
        outside = (self.dram[core],) if core in self.dram else ()
        self.add(Command(kind=CommandKind.RUN, core=core, first=source.first + ALIGNED, count=count,
                         second=answers.first, room=answers.size), (source, *outside), (answers, *outside))
        return answers

    def copy(self, source: MemoryPart, target: MemoryPart) -> None:
        """Add a COPY of the first bytes of a part."""
        self.add(Command(kind=CommandKind.COPY, first=source.first, count=min(source.size, target.size),
                         second=target.first), (source,), (target,))

    def _sent(self, kind, core, data, room):
        """Add a LOAD or RUN whose messages may be copied to their part by a COPY before it."""
        source = self.part(len(data), data)
        source.kept = True
        if data and self.rng.random() < 0.3:
            copied = self.used(source.size)
            self.copy(source, copied)
            source.kept, copied.kept, source = False, True, copied
        answers = self.used(ALIGNED + room) if room or self.rng.random() < 0.5 else None
        outside = (self.dram[core],) if core in self.dram else ()
        second = {"second": answers.first, "room": answers.size} if answers else {}
        self.add(Command(kind=kind, core=core, first=source.first, count=len(data), **second), (source, *outside),
                 (answers, *outside) if answers else outside)
        source.kept = False
        return answers


def random_list(accelerator: Accelerator, rng: np.random.Generator) -> CommandList:
    """A random list that ends without an error."""
    maker = ListMaker(accelerator, rng)
    extend(maker, int(rng.integers(2, 4 + len(accelerator.cores))))
    return maker.made()


def extend(maker: ListMaker, episodes: int) -> None:
    """Add episodes on random cores, whose commands come in turns, and commands of the command processor."""
    rng, cores = maker.rng, maker.accelerator.cores
    running: dict[int, Iterator[None]] = {}
    while episodes or running:
        core = int(rng.integers(len(cores)))
        if core not in running and episodes:
            running[core], episodes = _episode(maker, core), episodes - 1
            maker.busy.add(core)
        if core in running and next(running[core], True):
            del running[core]
            maker.busy.remove(core)
        if rng.random() < 0.15:
            _of_processor(maker)


def _episode(maker: ListMaker, core: int) -> Iterator[None]:
    """Load a random program into a core, run it, perhaps let another core take what it sends, and read memories."""
    rng, config = maker.rng, maker.accelerator.cores[core]
    case = random_program(config, rng, budget=BUDGET)
    taker = int(rng.integers(len(maker.accelerator.cores)))
    peer = maker.accelerator.cores[taker] if rng.random() < 0.4 else None
    if peer and (peer.mfu_lanes, peer.message_bytes) != (config.mfu_lanes, config.message_bytes):
        peer = None
    yield from _settings(maker, core, peer)
    maker.load(core, case.setup)
    yield
    sent = answers_of(case, peer)
    room = ALIGNED * int(rng.integers(4)) + len(b"".join(sent))
    answers = maker.run(core, case.inputs, room)
    if peer and taker not in maker.busy and sent and all(message[0] == MessageKind.INPUT for message in sent):
        answers.kept = True
        yield
        if taker not in maker.busy:
            _pass_on(maker, taker, answers, sent)
        answers.kept = False
    yield
    maker.load(core, case.reads, memory_room(case))
    yield


def _settings(maker: ListMaker, core: int, peer: Config | None) -> Iterator[None]:
    """Clear counters, name the machine that takes the results, and move Dram."""
    rng = maker.rng
    values = {Register.PEER: peer.digest if peer else 0}
    if rng.random() < 0.5:
        values[Register.CONTROL] = Control.CLEAR
    if core in maker.dram:
        values[Register.DRAM_BASE] = maker.dram[core].first
    for register, value in rng.permutation(list(values.items())).tolist():
        maker.add(Command(kind=CommandKind.SET, core=core, first=register, value=value))
        if rng.random() < 0.5:
            yield


def _pass_on(maker: ListMaker, core: int, answers: MemoryPart, sent: list[bytes]) -> None:
    """Let a core read what another one has sent, as its input."""
    config, data = maker.accelerator.cores[core], b"".join(sent)
    words = sum(int.from_bytes(message[8:12], "little") for message in sent)
    text = f"s_wr Rows, {config.mfu_lanes}\nset_iterations {words}\nv_rd NetQ\nv_relu0\nv_wr NetQ\nend_chain\nend\n"
    case = written_program(config, maker.rng, text, integer=False)
    maker.settle(core)
    maker.load(core, case.setup)
    maker.run_on(core, answers, len(data), words * (2 * config.mfu_lanes + 64))


def answers_of(case: Case, peer: Config | None = None) -> list[bytes]:
    """The messages that the program of a case sends, to another machine if there is a `peer`."""
    machine = Machine(case.config)
    machine.write_register(Register.PEER, peer.digest if peer else 0)
    for message in (*case.setup, *case.inputs):
        machine.send(message)
    machine.start()
    machine.run()
    return machine.receive()


def memory_room(case: Case) -> int:
    """Number of bytes of the answers to the READs of a case."""
    machine = Machine(case.config)
    for message in case.reads:
        machine.send(message)
    return len(b"".join(machine.receive()))


def _of_processor(maker: ListMaker) -> None:
    """Add a COPY, SIGNAL or WAIT."""
    rng, kind = maker.rng, maker.rng.random()
    if kind < 0.4 and maker.parts:
        source = maker.parts[int(rng.integers(len(maker.parts)))]
        target = maker.used(min(source.size, ALIGNED * int(rng.integers(1, 130))))
        if target is not source:
            maker.copy(source, target)
    elif kind < 0.7:
        where = maker.used(ALIGNED)
        value = int(rng.integers(1 << 32))
        first = where.first + 4 * int(rng.integers(ALIGNED // 4))
        maker.add(Command(kind=CommandKind.SIGNAL, first=first, value=value), (), (where,))
    else:
        maker.wait({core for core in range(len(maker.accelerator.cores)) if rng.random() < 0.5})
