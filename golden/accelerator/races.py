"""Races: two commands without order touch the same bytes, and one of them writes.

Commands of one core come one after the other. What the command processor executes comes after all that WAIT has waited
for, and before all later commands. So an access of a core's command has no order to accesses of other cores, until a
WAIT names the core. Slots of the ring may be read at any time before their command is dispatched, and while a core
executes a command its driver reads and writes memory beside the program.
"""

from collections.abc import Iterable
from itertools import permutations

import numpy as np
from concord.golden.accelerator import ranges
from concord.golden.accelerator.memory import Accesses
from concord.spec.accelerator.commands import Command

#: What may not meet: a write of one command, and either of another one.
_PAIRS = ((1, 1), (1, 0), (0, 1))
_VERBS = ("reads", "writes")


class Race(ValueError):
    """Two commands without order touch the same bytes, one of them writing."""


class Races:
    """What cores have touched since the last WAIT for them.

    Args:
        cores: Number of cores.
    """

    def __init__(self, cores: int):
        self._touched = [(ranges.GrowingSet(), ranges.GrowingSet()) for _ in range(cores)]
        self._commands: list[list[tuple[str, tuple]]] = [[] for _ in range(cores)]
        self._since: dict[tuple[int, int], int] = {}  # accesses of a core that come before all of another one's

    def joined(self, cores: Iterable[int]):
        """Take note that cores have done all of their commands, before whatever comes later."""
        for core in cores:
            self._touched[core] = ranges.GrowingSet(), ranges.GrowingSet()
            self._commands[core].clear()
            self._since = {pair: count for pair, count in self._since.items() if pair[0] != core}

    def met(self, cores: Iterable[int]):
        """Take note that what cores have done so far comes before all that the others of them do later."""
        self._since |= {(one, other): len(self._commands[one]) for one, other in permutations(cores, 2)}

    def check(self, index: int, command: Command, touched: tuple[np.ndarray, np.ndarray], slots: np.ndarray):
        """Take note of what a command has touched.

        Args:
            index:   Number of the command.
            command: The command.
            touched: The sets that it has read and written.
            slots:   Those of the ring whose commands come later.

        Raises:
            Race: a sentence that names both commands and the bytes.
        """
        name = named(index, command)
        met = ranges.meeting(touched[1], slots)
        if met:
            raise Race(f"{name} writes {_bytes(met)} of the ring, where a later command lies that may have been read: "
                       "put these commands into another list, or what is written elsewhere")
        for core in range(len(self._touched)):
            if not command.kind.of_core:
                self._check_beside(core, name, touched)
            elif core != command.core:
                self._check_beside(core, name, touched, self._since.get((core, command.core)))
        if command.kind.of_core:
            for growing, one in zip(self._touched[command.core], touched, strict=True):
                growing.add(one)
            self._commands[command.core].append((name, touched))

    def _check_beside(self, core, name, touched, since: int | None = None):
        """Refuse a command that meets those of a core, of which the first `since` come before it."""
        commands = self._commands[core][since:]
        for mine, theirs in _PAIRS:
            if since is None:
                met = self._touched[core][theirs].meeting(touched[mine])
            else:
                met = next((met for _, sets in commands if (met := ranges.meeting(sets[theirs], touched[mine]))), ())
            if met:
                other = next(other for other, sets in commands if ranges.meeting(sets[theirs], touched[mine]))
                raise Race(f"{name} {_VERBS[mine]} {_bytes(met)}, and {other} {_VERBS[theirs]} them: put a WAIT for "
                           f"core {core} between them")


def check_within(index: int, command: Command, driver: tuple, program: tuple):
    """Refuse a command whose driver and core touch the same bytes, or that writes over its own messages.

    Args:
        index:   Number of the command.
        command: The command.
        driver:  The sets that the driver has read and written.
        program: The sets that the core has read and written in Dram.

    Raises:
        Race: a sentence that names the command and the bytes.
    """
    met = ranges.meeting(*driver)
    if met:
        raise Race(f"{named(index, command)} stores what the core sends at {_bytes(met)}, where its messages lie: give "
                   "them another address")
    for mine, theirs in _PAIRS:
        met = ranges.meeting(driver[mine], program[theirs])
        if met:
            what = "stores what the core sends at" if mine else "has messages at"
            raise Race(f"{named(index, command)} {what} {_bytes(met)}, which the core {_VERBS[theirs]} as its Dram: "
                       "give one of them another address")


def named(index: int, command: Command) -> str:
    """A command in a sentence."""
    where = f" of core {command.core}" if command.kind.of_core else ""
    return f"command {index} ({command.kind.name}){where}"


def together(*accesses: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The sets that several have read and written."""
    read, written = zip(*accesses, strict=True)
    return ranges.union(read), ranges.union(written)


def own(command: Command) -> tuple[np.ndarray, np.ndarray]:
    """The sets that a command of the command processor reads and writes."""
    found = Accesses([ranges.of(command.read)], [ranges.of(command.written)])
    return found.taken()


def _bytes(met: range) -> str:
    return f"bytes {met.start:#x} to {met.stop - 1:#x}"
