"""One run of a program in waves: signals by their names, and tickets as chains."""

import numpy as np
from concord.sim.machines.waves import Waves
from concord.traces.program import PIPES, ProgramChains
from concord.traces.spans import ALL_STATES, TRACKS

TICKET = 7  #: Bits of a ticket, see `hw.lib.jobs`.
_TURNS = 1 << TICKET
WRITERS = 4  #: Chains that write VectorRf, of which the interlock knows the addresses.


class RunView:
    """The cycles from the first instruction of a program to its end.

    Args:
        waves:   The waves.
        program: The program.
        begin:   First cycle.
        stop:    Cycle after the last one.
    """

    def __init__(self, waves: Waves, program: ProgramChains, begin: int, stop: int):
        self.program, self._waves, self.begin, self._stop = program, waves, begin, stop
        self.cycles = stop - begin
        self._base, self._sent = {}, {}
        for pipe in PIPES:
            tickets = self(f"core.interlock.ticket_{pipe}")
            self._base[pipe] = int(tickets[0]) if pipe != "entries" else 0
            self._sent[pipe] = np.cumsum(np.diff(tickets, prepend=tickets[0]) % _TURNS)

    def __call__(self, name: str, absent: int = 0) -> np.ndarray:
        """int64[cycles], the values of a signal; all are `absent` if the machine does not have it."""
        if name not in self._waves:
            return np.full(self.cycles, absent, np.int64)
        return self._waves.between(name, self.begin, self._stop)

    def chains(self, unit: str, number: np.ndarray) -> np.ndarray:
        """The chains with these numbers, from 0 on, among those of a unit; -1 where there is none."""
        of = self.program.of[unit]
        inside = (number >= 0) & (number < len(of))
        return np.where(inside, np.append(of, -1)[np.where(inside, number, -1)], -1)

    def by_ends(self, unit: str, ended: np.ndarray) -> np.ndarray:
        """The chain of a unit in each cycle, from the cycles that follow the end of a chain.

        Raises:
            ValueError: another number of chains ends.
        """
        if int(ended.sum()) != len(self.program.of[unit]):
            raise ValueError(self._other(f"{int(ended.sum()):,} chains end at", unit, len(self.program.of[unit])))
        return self.chains(unit, np.cumsum(ended))

    def by_words(self, unit: str, busy: np.ndarray) -> np.ndarray:
        """The chain of a unit in each cycle, from the cycles in which it takes a word: those before have passed.

        Raises:
            ValueError: the unit takes another number of words than its chains have.
        """
        ends = np.cumsum(self.program.words[unit])
        total = int(ends[-1]) if len(ends) else 0
        if int(busy.sum()) != total:
            raise ValueError(self._other(f"{int(busy.sum()):,} words are taken by", unit, total))
        return self.chains(unit, np.searchsorted(ends, np.cumsum(busy) - busy, side="right"))

    def _other(self, seen: str, unit: str, count: int) -> str:
        """A sentence about waves of another program."""
        return (
            f"{self.program.firmware.name}: {seen} the unit {unit} in the waves, and {count:,} in its program: the "
            "waves are not those of this firmware and this number of time steps"
        )

    def wait(self, name: str, pipe: str) -> np.ndarray:
        """The chain of a signal that is a `Wait` of a pipe; -1 while it waits for none."""
        value, sent = self(name), self._sent[pipe]
        number = sent - ((sent - ((value >> 1) - self._base[pipe])) % _TURNS)
        return np.where(value & 1, self.chains(pipe, number - 1), -1)

    def entry_wait(self, unit: str, name: str) -> np.ndarray:
        """The youngest unfinished writer of VectorRf in a signal that is an `EntryWaits` of a unit; -1 for none."""
        value, sent = self(f"{unit}.{name}"), self._sent["entries"]
        kinds = self(f"{unit}.writers_first") | self(f"{unit}.writers_later")
        here = value & kinds & ~((value >> WRITERS) ^ self(f"{unit}.writers_turns")) & (1 << WRITERS) - 1
        found = np.full(self.cycles, -1, np.int64)
        for bit in range(WRITERS):
            number = sent - (sent - bit) % WRITERS
            found = np.maximum(found, np.where(here >> bit & 1, self.chains("entries", number - 1), -1))
        return found


class UnitCycles:
    """What a unit does in each cycle: its chain, its state and why. The first reason that holds in a cycle counts.

    Args:
        view:   The run.
        causes: Reasons of all units, by their index; new ones are added.
        track:  The unit.
        chain:  The chain of each cycle.
        states: For each state, the cycles in which the unit is in it.
    """

    def __init__(
        self, view: RunView, causes: dict[str, int], track: str, chain: np.ndarray, states: dict[str, np.ndarray]
    ):
        self.view, self._causes, self.track, self.chain = view, causes, track, chain
        self.state = np.full(view.cycles, -1, np.int64)
        for state, cycles in states.items():
            self.state[cycles.astype(bool)] = ALL_STATES.index(state)
        self.cause, self.older, self.via = (
            np.zeros(view.cycles, np.int64),
            *(np.full(view.cycles, -1, np.int64) for _ in range(2)),
        )

    def waits(self, *states: str) -> np.ndarray:
        """The cycles in one of these states for which no reason is known yet."""
        return np.isin(self.state, [ALL_STATES.index(state) for state in states]) & (self.cause == 0)

    def because(self, cycles: np.ndarray, cause: str, older: np.ndarray | None = None, via: str = "") -> None:
        """Name a reason, and the chain `older` at the unit `via` for which it waits."""
        self.cause[cycles] = self._causes.setdefault(cause, len(self._causes))
        if older is not None:
            self.older[cycles] = older[cycles]
            self.via[cycles] = np.where(older[cycles] >= 0, TRACKS.index(via), -1)

    def because_of(self, cycles: np.ndarray, cause: str, waits: dict[str, np.ndarray]) -> None:
        """The same for the youngest of chains, by their units, whose name is filled into `cause`."""
        youngest = np.max(list(waits.values()), axis=0)
        for unit, older in waits.items():
            here = cycles & (older == youngest) & (older >= 0) & (self.cause == 0)
            self.because(here, cause.format(unit), older, unit)
        self.because(cycles & (self.cause == 0), cause.format("another chain"))

    def follow(self, other: "UnitCycles") -> None:
        """Where the unit waits for another one that works on the same chain and itself waits for an older chain, take
        that one.
        """
        here = (
            (self.via == TRACKS.index(other.track))
            & (self.older == other.chain)
            & (other.older >= 0)
            & (other.state > 0)
        )
        self.older[here], self.via[here] = other.older[here], other.via[here]

    def columns(self) -> dict[str, np.ndarray]:
        """The columns of spans."""
        there = self.state >= 0
        return {
            "state": self.state,
            "cause": self.cause,
            "chain": np.where(there, self.chain, -1),
            "older": self.older,
            "via": self.via,
        }
