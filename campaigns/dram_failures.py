"""Random programs whose memory outside the chip gives one wrong response, and resets with bursts under way.

After each of them the next random program must give golden's bits.
`nox -s dram_failures` runs 500 of both; `-- --responses 50 --resets 0` runs less, `--seed 2` others.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Annotated

import numpy as np
import typer
from concord.campaigns.dram_programs import MACHINES, MEMORIES, chains_of
from concord.lib.processes import side_by_side
from concord.sim.machines.dram_accesses import blamed, dram_accesses
from concord.sim.machines.host import QUIET, HardwareMachine, MachineTimeout, build
from concord.sim.machines.library import Access, Fault, Library
from concord.sim.machines.scoreboard import compare
from concord.sim.stimulus.programs import Case, random_illegal, random_program
from concord.spec.host.registers import Status
from concord.spec.isa.instructions import Error
from rich.console import Console
from rich.table import Table

READ, WRITTEN = (Access.WORDS, Access.TILES), (Access.WRITE,)
#: Every kind of wrong response, by what the burst does; an answer to a write has no beats.
KINDS = tuple((access, fault) for fault in list(Fault)[1:] for access in (
    READ if fault in (Fault.EARLY, Fault.LATE) else READ + WRITTEN))
CHUNK = 14  #: Wrong responses, or resets, of one process.
PATIENCE = 20_000  #: Cycles, beside twice those of the right run, within which a program ends.
TRIES = 4  #: Bursts of a program that are tried for one with two beats, or moments for one with bursts under way.
ENDS = 20  #: Cycles within which a message under way ends after a reset.
NEXT = 3  #: One in NEXT programs after a wrong response or a reset stops with an error of its own.


@dataclass(slots=True)
class Tally:
    """What was seen.

    Attributes:
        seen:  For each kind of wrong response, or or "resets" and "bursts under way", how many.
        wrong: Sentences on what was wrong, by "response", "hang", "violation" and "next".
    """

    seen: Counter = field(default_factory=Counter)
    wrong: list[tuple[str, str]] = field(default_factory=list)


class WatchedMachine(HardwareMachine):
    """A machine that counts the bursts and cycles of its programs, without those of messages.

    Attributes:
        bursts: Number of bursts of the last program by access.
        taken:  Number of its cycles.
        fault:  The fault of a burst of the next program: number among those of its access, fault and access; or None.
    """

    def __init__(self, link: Library):
        super().__init__(link)
        self.bursts, self.taken, self.fault = {}, 0, None

    def start(self) -> None:
        self.settle(QUIET)
        self._before = {access: self.link.bursts(access) for access in (*READ, *WRITTEN)}
        if self.fault:
            number, fault, access = self.fault
            self.link.fail(self._before[access] + number, fault, access)
            self.fault = None
        self._begun = self.cycles
        super().start()

    def run(self, timeout: int = 100_000_000) -> Status:
        status = super().run(timeout)
        self.bursts = {access: self.link.bursts(access) - before for access, before in self._before.items()}
        self.taken = self.cycles - self._begun
        return status


def begin(case: Case, nnp: WatchedMachine) -> None:
    """Reset a machine and start a case on it."""
    nnp.reset()
    nnp.clear()
    nnp.receive()
    nnp.send(*case.setup, *case.inputs)
    nnp.start()


def following(case: Case, rng: np.random.Generator, number: int) -> Case:
    """The program that runs after a wrong response or a reset."""
    return (random_illegal if number % NEXT == NEXT - 1 else random_program)(case.config, rng)


def respond_wrongly(case: Case, nnp: WatchedMachine, rng: np.random.Generator, tally: Tally) -> bool:
    """Run a case with one wrong response. Returns whether one of its bursts had it."""
    possible = [(access, fault) for access, fault in KINDS if nnp.bursts[access]]
    if not possible:
        return False
    access, fault = possible[rng.integers(len(possible))]
    right = nnp.taken
    for _ in range(TRIES):
        nnp.fault = int(rng.integers(nnp.bursts[access])), fault, access
        begin(case, nnp)
        try:
            running = bool(nnp.run(2 * right + PATIENCE) & Status.RUNNING)
        except MachineTimeout:
            running = True
        first, beats, _ = nnp.link.failed()
        if fault != Fault.EARLY or beats > 1:  # a response has one beat at least
            break
    else:
        return False
    tally.seen[access, fault] += 1
    if fault == Fault.SILENT:
        _end_silence(nnp, tally, running)
        return True
    if running:
        tally.wrong.append(("hang", f"{fault.name} of {access.name}: the program does not end"))
        return True
    size, (error, address) = 2 * case.config.mfu_lanes, nnp.error()
    words = range(first // size, -(-(first + beats * case.config.dram_bus) // size))
    allowed = blamed(dram_accesses(chains_of(case)), access, words)
    if error != Error.MEMORY or address not in allowed:
        text = f"{fault.name} of {access.name}, {beats} beats for the instructions at {sorted(allowed)}"
        tally.wrong.append(("response", f"{text}: error {error.name} at {address}"))
    return True


def _end_silence(nnp: WatchedMachine, tally: Tally, running: bool) -> None:
    """Reset a machine whose memory does not answer, see that it waits, and answer."""
    if not running:
        tally.wrong.append(("response", "the program ends although a response has not come"))
    nnp.reset()
    busy = nnp.status() & (Status.RUNNING | Status.DRAM_BUSY)
    if busy != Status.DRAM_BUSY:
        tally.wrong.append(("hang", f"STATUS is {busy!r} after a reset without a response"))
    nnp.link.answer()


def reset_under_way(case: Case, nnp: WatchedMachine, rng: np.random.Generator, tally: Tally) -> bool:
    """Reset a machine at a random cycle of a case in which bursts are under way.

    Returns:
        Whether there was such a cycle.
    """
    for _ in range(TRIES * any(nnp.bursts.values())):
        right = nnp.taken
        begin(case, nnp)
        nnp.pause(int(rng.integers(1, right + 1)))
        for _ in range(right):
            if nnp.link.owed:
                tally.seen["resets"] += 1
                tally.seen["bursts under way"] += nnp.link.owed
                nnp.reset()
                nnp.pause(ENDS)  # no longer: the next program begins while the bursts end
                return True
            nnp.pause(1)
    return False


def many(disturb: Callable, name: str, memory: int, seed: int, wanted: int) -> Tally:
    """Disturb random programs of a machine with one of MEMORIES until `wanted` are disturbed, and see the next ones."""
    tally, rng = Tally(), np.random.default_rng([seed, memory, *name.encode()])
    numbers, done = count(), 0
    while done < wanted:
        with WatchedMachine(Library(MACHINES[name], seed=seed, memory=MEMORIES[memory])) as nnp:
            try:
                for number in numbers:
                    done += _one(disturb, nnp, rng, number, tally)
                    if done == wanted:
                        break
            except AssertionError as error:  # of the monitor: this machine is broken
                tally.wrong.append(("violation", str(error)))
                done += 1
    tally.wrong = [(kind, f"{name}, latency {MEMORIES[memory].latency}, seed {seed}: {text}")
                   for kind, text in tally.wrong]
    return tally


def _one(disturb: Callable, nnp: WatchedMachine, rng: np.random.Generator, number: int, tally: Tally) -> bool:
    case = random_program(nnp.config, rng)
    found = compare(case, nnp)
    if found:
        tally.wrong.append(("next", f"an undisturbed program {number}: {found}"))
    if not disturb(case, nnp, rng, tally):
        return False
    while nnp.link.queued:  # input that the program has not taken: the next one must not get it
        nnp.reset()
        nnp.pause(ENDS)
    found = compare(following(case, rng, number), nnp, late=number % 2 == 1)
    if found:
        tally.wrong.append(("next", f"the program after number {number}: {found}"))
    return True


def jobs(disturb: Callable, wanted: int, seed: int) -> Iterator[tuple]:
    machines = [(name, memory) for memory in range(len(MEMORIES)) for name in MACHINES]
    for number in range(-(-wanted // CHUNK)):
        name, memory = machines[number % len(machines)]
        yield disturb, name, memory, seed + number, min(CHUNK, wanted - number * CHUNK)


def main(
    responses: Annotated[int, typer.Option(help="Number of programs with a wrong response.")] = 500,
    resets: Annotated[int, typer.Option(help="Number of resets with bursts under way.")] = 500,
    seed: Annotated[int, typer.Option(help="Seed of the programs.")] = 1,
    processes: Annotated[int, typer.Option("-n", help="Number of simulations that run at the same time.")] = 2,
) -> None:
    """Run both; the exit code is 1 if anything is wrong."""
    console = Console(width=120)
    for config in MACHINES.values():
        build("library", config)
    failed = False
    for disturb, wanted in ((respond_wrongly, responses), (reset_under_way, resets)):
        if wanted:
            parts = side_by_side(disturb.__name__, many, list(jobs(disturb, wanted, seed)), console, processes)
            tally = Tally(sum((part.seen for part in parts), Counter()), [one for part in parts for one in part.wrong])
            _print(console, disturb, tally)
            failed |= bool(tally.wrong)
    raise typer.Exit(failed)


def _print(console: Console, disturb: Callable, tally: Tally) -> None:
    """Print what was seen, and each thing that was wrong."""
    seen, kinds = tally.seen, Counter(kind for kind, _ in tally.wrong)
    what = f"{seen['resets']} resets with {seen['bursts under way']} bursts under way"
    if disturb is respond_wrongly:
        what = f"{seen.total()} wrong responses"
        table = Table("access", "response", "programs", title="Wrong responses", box=None)
        for access, fault in KINDS:
            table.add_row(access.name, fault.name, str(seen[access, fault]))
        console.print(table)
    for kind, text in tally.wrong:
        console.print(f"{kind}: {text}", soft_wrap=True)
    console.print(f"{what}: {kinds['response']} with another error or address, {kinds['hang']} hangs, "
                  f"{kinds['violation']} violations of the port's rules, {kinds['next']} differing programs")


if __name__ == "__main__":
    typer.run(main)
