"""Words that a unit prepares ahead, so that only registers decide whether the present one goes.

A unit holds the *coming* word and the *present* one, and a queue of words before them. What the coming word waits for
is looked up while the present one goes. A wait only ever ends: a word that waits for nothing stays so, and progress
that is known late costs time alone.
"""

from collections.abc import Callable, Mapping

from amaranth import *
from amaranth.lib import data
from concord.hw.lib.jobs import ENTRY_WRITERS, TICKET, Wait
from concord.hw.lib.queue import Queue
from concord.spec.isa.instructions import REGISTER_BITS


class Turns:
    """The turns of a loop: the number of the present one from 0 on, and whether it is the last one.

    A register holds `last`: it is found one turn ahead, when the turn before is made.
    """

    def __init__(self, name: str):
        self.number, self.last = Signal(REGISTER_BITS, name=name), Signal(name=f"last_{name}")
        self._single, self._limit = Signal(name=f"single_{name}"), Signal(REGISTER_BITS, name=f"limit_{name}")

    def begin(self, count) -> list:
        """Statements that start a loop of `count` turns."""
        single = count == 1
        return [self.number.eq(0), self.last.eq(single), self._single.eq(single), self._limit.eq(count - 2)]

    def step(self) -> list:
        """Statements that make a turn; the first one follows the last one."""
        return [self.number.eq(Mux(self.last, 0, self.number + 1)),
                self.last.eq(Mux(self.last, self._single, self.number == self._limit))]


class Ahead:
    """The words of a unit: the one that is walked to, the coming one and the present one.

    A queue lies between the first two, so that what walks does not depend on whether the present word goes.

    Args:
        m:       Module of the unit.
        walked:  There is a word that is walked to.
        advance: That word changes, and enters the queue if it is there.
        begins:  What it changes to is the first word of a job, or nothing.
        coming:  There is a coming word.
        move:    The coming word becomes the present one; if there is none, there is no present word either.
    """

    DEPTH = 3  #: Words in the queue.

    def __init__(self, m: Module, *, coming, move, walked=1, advance=0, begins=1):
        self.m, self.walked, self.advance, self.begins = m, walked, advance, begins
        self.coming, self.move, self._carried = coming, move, []

    def of_job(self, name: str, value):
        """`value` of a job, for the word that is walked to."""
        kept = Signal.like(value, name=f"walked_{name}")
        with self.m.If(self.advance & self.begins):
            self.m.d.sync += kept.eq(value)
        return kept

    def present(self, name: str, value):
        """`value`, which is that of the coming word, for the present one."""
        kept = Signal.like(value, name=f"present_{name}")
        with self.m.If(self.move):
            self.m.d.sync += kept.eq(value)
        return kept

    def carry(self, name: str, value) -> tuple:
        """`value` of the word that is walked to, for the coming word and the present one."""
        coming = Signal.like(value, name=f"coming_{name}")
        self._carried.append((value, coming))
        return coming, self.present(name, coming)

    def carry_all(self, values: Mapping) -> tuple[dict, dict]:
        """`carry` of several values."""
        found = {name: self.carry(name, value) for name, value in values.items()}
        return tuple({name: pair[k] for name, pair in found.items()} for k in range(2))

    def of_jobs(self, values: Mapping) -> tuple[dict, dict]:
        """Values of a job, for the coming word and the present one."""
        return self.carry_all({name: self.of_job(name, value) for name, value in values.items()})

    def queue(self) -> Queue:
        """The queue, once all values are known that it carries."""
        walked, coming = (Cat(Value.cast(pair[k]) for pair in self._carried) for k in range(2))
        self.m.submodules.words = queue = Queue(len(walked), self.DEPTH)
        self.m.d.comb += [queue.i.payload.eq(walked), queue.i.valid.eq(self.walked & self.advance),
                          coming.eq(queue.o.payload), queue.o.ready.eq(self.move)]
        return queue

    def certain(self, name: str, condition: Callable):
        """Whether a condition that only becomes true holds for the present word; high where there is none.

        It is looked up for the coming word. If it does not hold then, the present word does not go, and it is looked up
        for this one until it does.

        Args:
            condition: Gives the condition from a function, which chooses among values of the coming and the present
                word.
        """
        known = Signal(name=f"certain_{name}", init=1)

        def choose(coming, present):
            chosen = Mux(known, Value.cast(coming), Value.cast(present))
            return data.View(coming.shape(), chosen) if isinstance(coming, data.View) else chosen

        found = condition(choose)  # what it keeps of progress is followed while the present word waits, too
        with self.m.If(~known | self.move):
            self.m.d.sync += known.eq(found | (known & ~self.coming))
        return known


def moving(m: Module, ahead: Ahead, name: str, *, access, walked, ends, moved, still=0):
    """Address of the word that is walked to in a range that each iteration reads or writes.

    Args:
        access: The range in the next job. walked: The same in that of the word.
        ends:   The word is the last one of its iteration.
        moved:  Offset of the next iteration.
        still:  All words of an iteration have the same address.
    """
    address = Signal.like(access.lo, name=f"{name}_address")
    following = Signal.like(access.lo, name=f"{name}_following")
    m.d.comb += following.eq(Mux(ends, walked.lo, address) + Mux(ends, Mux(walked.inc, moved, 0), ~still & 1))
    with m.If(ahead.advance):
        m.d.sync += address.eq(Mux(ahead.begins, access.lo, following))
    return address


def pending(m: Module, name: str, dependency, address, reads=1):
    """The `Wait` for an older chain that may write the word at `address`.

    Args:
        dependency: Writes of one pipeline that the reader waits for.
        reads:      The word is read.
    """
    found = Signal(Wait, name=name)
    m.d.comb += [found.ticket.eq(dependency.ticket), found.valid.eq(
        dependency.valid & reads & (address >= dependency.lo) & (address < dependency.hi))]
    return found


def unfinished(wait, following, passed=0):
    """Whether the chain of a `Wait` may still write a word.

    Args:
        following: Ticket of the first unfinished chain; late, or as old as `passed`.
        passed:    That chain has passed the word.
    """
    later = (following - wait.ticket)[TICKET - 1]  # tickets in use span less than half of them
    return wait.valid & (later | ((wait.ticket == following) & ~passed))


def following(m: Module, name: str, done):
    """Ticket of the first unfinished chain, one cycle late."""
    ticket = Signal(TICKET, name=name, init=1)
    m.d.sync += ticket.eq(done + 1)
    return ticket


#: Chains that may write the entry of a word, one bit for each slot of `entry_writers`, and a bit of each one's ticket,
#: by which it is told from the chain that replaces it.
EntryWaits = data.StructLayout({"writes": ENTRY_WRITERS, "turns": ENTRY_WRITERS})
_TURN = (ENTRY_WRITERS - 1).bit_length()  # bit of a ticket that differs from that of the chain in the same slot before


class EntryWriters:
    """The chains that write VectorRf, as a reader sees them: unfinished or not, one cycle late.

    A reader's job follows the last chain that it waits for by more cycles than that.

    Args:
        writers:  Value of the layout `entry_writers`.
        progress: Value of the layout `entry_progress`.
    """

    def __init__(self, m: Module, writers, progress):
        self.m, self.writers, self.low = m, writers, progress.low
        self._later, self._first, self._turns = (
            Signal(ENTRY_WRITERS, name=f"writers_{name}") for name in ("later", "first", "turns"))
        for k, writer in enumerate(writers):
            left = Signal(TICKET, name=f"left{k}")  # -1 for the first unfinished chain
            m.d.comb += left.eq(progress.done - writer.ticket)
            m.d.sync += [self._first[k].eq(left.all()), self._later[k].eq(left[-1] & ~left.all()),
                         self._turns[k].eq(writer.ticket[_TURN])]

    def waits(self, name: str, older, address, reads=1):
        """The `EntryWaits` of the entry at `address`, which waits for chains up to ticket `older`."""
        found = Signal(EntryWaits, name=name)
        self.m.d.comb += [
            found.turns.eq(Cat(writer.ticket[_TURN] for writer in self.writers)),
            found.writes.eq(Cat(reads & ~(older - writer.ticket)[TICKET - 1] & (address >= writer.lo)
                                & (address < writer.hi) for writer in self.writers))]
        return found

    def unfinished(self, waits, address):
        """Whether one of these chains may still write the entry at `address`."""
        here = waits.writes & ~(waits.turns ^ self._turns)
        return (here & self._later).any() | ((here & self._first).any() & (address >= self.low))
