"""Locations of the values of a time step, and the times at which they may be written.

A value that another chain reads lies in the memory of the stage that reads it. A state has one location in each memory
from which it is read, and its new value replaces the old one there. If the old value is still read later, the new one
is first written to another location, and copied afterwards.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from concord.compiler.cells.formula_chains import MEMORIES, FormulaChain
from concord.compiler.cells.formula_trace import GateProduct, ProductPart, StoredVector, Tracer, Value
from concord.spec.isa.instructions import WRITES
from concord.spec.isa.memories import STAGE_MEMORIES, Mem

#: Home of values that one chain passes to the next one; they share one location.
PASSED_ON = "value between two chains"
#: Memories in which a new value waits for its location, in order of preference.
WAITING = STAGE_MEMORIES


@dataclass(frozen=True, slots=True)
class Location:
    """A vector in a memory.

    Attributes:
        home: Name of the state that lies there, or the value itself.
        mem:  Memory of the vector.
    """

    home: object
    mem: Mem


@dataclass(kw_only=True, slots=True)
class CellLayout:
    """The writes of each chain, and the copies between chains.

    Attributes:
        reads:  For each value, the locations that hold it.
        writes: For each chain, pairs of a value that it writes and the location.
        before: For each chain, the copies before it, as pairs (from, to).
        after:  Copies at the end of the time step, as pairs (from, to).
        kept:   States that a time step reads before it writes them.
        shared: Location that the hidden vector shares with other operands of sums with x; None if it shares none.
    """

    reads: dict[Value, list[Location]] = field(default_factory=lambda: defaultdict(list))
    writes: list[list[tuple[Value, Location]]] = field(default_factory=list)
    before: dict[int, list[tuple[Location, Location]]] = field(default_factory=lambda: defaultdict(list))
    after: list[tuple[Location, Location]] = field(default_factory=list)
    kept: list[StoredVector] = field(default_factory=list)
    shared: Location | None = None

    def location(self, value: Value, mem: Mem | None = None) -> Location:
        """The location of a value in a memory; without a memory, its first location."""
        locations = [one for one in self.reads[value] if mem is one.mem or mem is None and one != self.shared]
        return (locations or self.reads[value])[0]

    def memories(self, name: str) -> list[Mem]:
        """The memories from which parameters with this name are read."""
        found = [one.mem for value, locations in self.reads.items()
                 if isinstance(value, StoredVector) and value.name == name for one in locations]
        return list(dict.fromkeys(found))


def layout(trace: Tracer, chains: list[FormulaChain], read_at: Callable[[int], float], result: Mem) -> CellLayout:
    """Lay out a time step.

    Args:
        trace:   The formula of the cell.
        chains:  The chains of the formula, in order.
        read_at: Tells for a chain that begins with a product when the product reads its operand for the last time, as
            the index of a chain; a half is added if that chain is cut into pieces, each with its own product.
        result:  Memory of the hidden vector, if no chain reads it.

    Raises:
        ValueError: a chain would need more writes than the machine allows.
    """
    made, uses = CellLayout(), _uses(chains, read_at)
    made.kept += [value for value in uses if isinstance(value, StoredVector) and value.state]
    for value, found in uses.items():
        for mem in dict.fromkeys(mem for _, mem in found if mem is not None):
            _add(made, trace, value, mem)
    for state, new in trace.results.items():
        old = trace.stored(state, state=True)
        # A state lies in every memory from which its old or its new value is read.
        made.reads[old] = made.reads[new] = list(dict.fromkeys((*made.reads[old], *made.reads[new])))
    hidden = trace.results[trace.cell.states[0]]
    for value in uses:
        if not made.reads[value]:  # only chains begin with it
            _add(made, trace, value, Mem.INITIAL_VRF, _passed_on(value, uses, chains))
    if not made.reads[hidden]:
        _add(made, trace, hidden, result)
    _share(made, uses, trace)
    made.reads[trace.stored(trace.cell.states[0], state=True)] = made.reads[hidden]
    for index in range(len(chains)):
        made.writes.append(list(_writes(made, uses, chains, index)))
    _check(made, uses, trace)
    return made


def _uses(chains: list[FormulaChain], read_at: Callable[[int], float]) -> dict[Value, list[tuple[float, Mem | None]]]:
    """For each value, the times at which it is read and the memory; None if any memory will do."""
    uses = defaultdict(list)
    for index, chain in enumerate(chains):
        if not isinstance(chain.source, GateProduct):
            uses[chain.source].append((index, None))
        elif chain.source.operand is not None:
            uses[chain.source.operand].append((read_at(index), Mem.INITIAL_VRF))
        for step in chain.steps:
            if step.operand is not None:
                uses[step.operand].append((index, MEMORIES[step.stage]))
    return uses


def _share(made: CellLayout, uses, trace: Tracer):
    """Give the first value of a chain its own location, if another operand may lie in the hidden vector's."""
    operands = {one.operand for one in trace.computed if isinstance(one, GateProduct) and one.part is ProductPart.BOTH}
    if len(operands) < 2:
        return
    made.shared = Location(trace.cell.states[0], Mem.INITIAL_VRF)
    for value, found in uses.items():
        if (None in (mem for _, mem in found)) and made.reads[value] == [made.shared]:
            made.reads[value].append(Location(trace.cell.states[0] if value in made.kept else value, WAITING[0]))


def _check(made: CellLayout, uses, trace: Tracer):
    """Track the value in each location through a time step; refuse a layout in which a chain reads a wrong value."""
    holds = {location: value for value in made.kept for location in made.reads[value]}

    def copy(copies):
        holds.update({target: holds.get(source) for source, target in copies})

    def expect(value, location):
        if holds.get(location) is not value:
            raise ValueError(f"a value of {trace.cell.title} is replaced in {location.mem.name} before it is read; "
                             "write the cell's formula in another order")

    for index, writes in enumerate(made.writes):
        copy(made.before.get(index, []))
        for late in (0, 0.5):
            for value, found in uses.items():
                for mem in (mem for at, mem in found if at == index + late):
                    if not isinstance(value, StoredVector) or value.state:
                        expect(value, made.location(value, mem))
            holds.update({location: value for value, location in writes})
    copy(made.after)
    for name, value in trace.results.items():
        for location in made.reads[value] if trace.stored(name, state=True) in made.kept else ():
            expect(value, location)


def _passed_on(value: Value, uses, chains: list[FormulaChain]) -> bool:
    """Whether only the chain right after the one that computes a value reads it."""
    made = next((index for index, chain in enumerate(chains) if value in chain.values), None)
    return made is not None and [at for at, _ in uses[value]] == [made + 1]


def _add(made: CellLayout, trace: Tracer, value: Value, mem: Mem, passed_on: bool = False):
    """Add a location of a value; values that are only passed to the next chain share one."""
    state = next((name for name, new in trace.results.items() if value in (new, trace.stored(name, state=True))), None)
    products = [one for one in trace.computed if isinstance(one, GateProduct) and one.operand is value]
    # An operand that is summed with x in one product lies after x, which is the location of the hidden vector.
    if mem is Mem.INITIAL_VRF and any(one.part is ProductPart.BOTH for one in products):
        state = trace.cell.states[0]
    home = PASSED_ON if passed_on and state is None else state or value
    if (location := Location(home, mem)) not in made.reads[value]:
        made.reads[value].append(location)


def _writes(made: CellLayout, uses, chains: list[FormulaChain], index: int) -> Iterator[tuple[Value, Location]]:
    """Pairs of a value that a chain writes, and its location."""
    before = [value for chain in chains[: index + 1] for value in chain.values]
    taken = set()

    def read(value: Value, location: Location) -> list[float]:
        """The times at which a value is read from a location."""
        return [at for at, mem in uses[value] if made.location(value, mem) == location]

    left = [value for value in chains[index].values if made.reads[value]]
    for value in list(left):
        left.remove(value)
        room = WRITES - len(left)  # each value after this one must be written once, too
        written, later = [], []
        for location in made.reads[value]:
            older = [other for other, locations in made.reads.items() if location in locations and (
                isinstance(other, StoredVector) or other in before[: before.index(value)])]
            waits = any(at > index for other in older for at in read(other, location))
            waits = waits or location.mem in taken or len(taken) >= room
            (later if waits else written).append(location)
            if not waits:
                taken.add(location.mem)
                yield value, location
        if later and not written:
            wanted = {one.mem for made_here in chains[index].values for one in made.reads[made_here]}
            free = [mem for mem in WAITING if mem not in taken]
            if not free or len(taken) >= room:
                raise ValueError(f"a chain would write more than {WRITES} vectors; write the cell's formula in another "
                                 "order")
            written.append(Location(value, min(free, key=lambda mem: mem in wanted)))
            taken.add(written[0].mem)
            yield value, written[0]
        for location in later:
            first = min(read(value, location), default=None)
            (made.after if first is None else made.before[int(first)]).append((written[0], location))
