"""Cores that train and wait for each other: their programs run in turns, each up to where it waits."""

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field

from concord.golden.accelerator.driver import CommandEnd
from concord.golden.trainer.trainer import Meeting, Rendezvous
from concord.spec.accelerator.commands import Command
from concord.spec.trainer.instructions import TrainerOp

#: Instructions that wait until what their core has stored is answered: they order accesses to memory.
ORDERING = (TrainerOp.BARRIER, TrainerOp.SUM)


@dataclass(slots=True)
class Running:
    """A RUN under way.

    Attributes:
        index:      Number of the command.
        command:    The command.
        execution:  The program, as `golden.trainer.trainer.Trainer.execution` has it.
        end:        Gives how the program has ended.
        rendezvous: Where it waits.
    """

    index: int
    command: Command
    execution: Generator[Rendezvous, Meeting, None]
    end: Callable[[], CommandEnd]
    rendezvous: Rendezvous = field(init=False)


class Meetings:
    """The RUN commands whose programs wait for others.

    Args:
        ordered: Called with the runs of a rendezvous that orders accesses to memory, before they go on.

    Attributes:
        waiting: By core.
        failed:  Cores whose program has ended with an error since their reset: others do not wait for them.
    """

    def __init__(self, ordered: Callable[[Iterable[Running]], None]):
        self.waiting: dict[int, Running] = {}
        self.failed: set[int] = set()
        self._ordered = ordered

    def run(self, begun: Running, failed: Callable[[int], bool]) -> list[Running]:
        """Let a program run, and others go on, until each has ended or waits for one that does not run.

        Args:
            begun:  The program.
            failed: Whether the program of a core, which has ended, has an error.

        Returns:
            Those that have ended.
        """
        ended, ready = [], [(begun, None)]
        while ready:
            one, met = ready.pop(0)
            core = one.command.core
            try:
                one.rendezvous = one.execution.send(met)
                self.waiting[core] = one
            except StopIteration:
                ended.append(one)
                self.failed |= {core} if failed(core) else set()
            ready = ready or self._ready()
        return ended

    def reset(self, cores: Iterable[int]):
        """Forget what cores do."""
        for core in cores:
            self.waiting.pop(core, None)
            self.failed.discard(core)

    def _ready(self) -> list[tuple[Running, Meeting]]:
        """Runs that go on, with what is sent to them."""
        for one in self.waiting.values():
            members = [self.waiting.get(core) for core in _members(one.rendezvous)]
            met = [each for each in members if each and _alike(each.rendezvous, one.rendezvous)]
            if len(met) == len(members):
                if one.rendezvous.op in ORDERING:
                    self._ordered(met)
                return self._leave(met, [each.rendezvous for each in met])
        named = {core for one in self.waiting.values() for core in _members(one.rendezvous)}
        stuck = all(core in self.waiting or core in self.failed for core in named)
        return self._leave(list(self.waiting.values()), None) if stuck else []

    def _leave(self, runs: list[Running], met: Meeting) -> list[tuple[Running, Meeting]]:
        for each in runs:
            del self.waiting[each.command.core]
        return [(each, met) for each in runs]


def _members(rendezvous: Rendezvous) -> list[int]:
    return [core for core in range(rendezvous.cores.bit_length()) if rendezvous.cores >> core & 1]


def _alike(one: Rendezvous, other: Rendezvous) -> bool:
    return (one.op, one.cores) == (other.op, other.cores)
