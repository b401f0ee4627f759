"""Drafts of lines: calls on values of known shapes, before they have names, in the order in which they are needed."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

SCORES, RESULTS = 1, 2  #: Products of queries and keys, and what is made of them; products of those and values.


@dataclass(kw_only=True, slots=True, eq=False)
class DraftValue:
    """A tensor that the script computes.

    Attributes:
        shape: Shape without the batch.
        codes: Quantiser whose codes it holds, `integers` or `blocks`; empty for numbers.
        zero:  What is subtracted from codes before they are multiplied; weights' start values hold it.
        limit: Largest magnitude of codes, less `zero`.
        draft: What makes it; None for values from outside.
        heads: What its axes are: those of `SCORES` and `RESULTS` of an attention are heads, positions and elements.
    """

    shape: tuple[int, ...]
    codes: str = ""
    zero: int = 0
    limit: float = 0
    draft: "Draft | None" = None
    heads: int = 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(kw_only=True, slots=True, eq=False)
class Constant:
    """A tensor that is stored beside the source; its attributes are those of `twin.lib.script.StoredTensor`.

    Attributes:
        role: What it is to its layer, such as `weights`.
    """

    values: np.ndarray
    role: str
    memory: str = ""
    places: np.ndarray | None = None
    bits: int = 0

    def same(self, other: "Constant") -> bool:
        """Whether both hold the same values from the same places."""
        alike = [(each.memory, each.values.shape, each.values.dtype) for each in (self, other)]
        return (alike[0] == alike[1] and np.array_equal(self.values, other.values, equal_nan=True)
                and (self.places is None or np.array_equal(self.places, other.places)))


@dataclass(kw_only=True, slots=True, eq=False)
class Draft:
    """A call: `result = function(arguments, settings)`.

    Attributes:
        function:  Function of the vocabulary.
        arguments: Values and constants.
        settings:  Settings by name.
        result:    What it makes.
        address:   Address of its instruction.
    """

    function: str
    arguments: list[DraftValue | Constant | None]
    settings: dict = field(default_factory=dict)
    result: DraftValue
    address: int

    @property
    def reads(self) -> list[DraftValue]:
        """The values among the arguments."""
        return [argument for argument in self.arguments if isinstance(argument, DraftValue)]


@dataclass(kw_only=True, slots=True, eq=False)
class LoopDraft:
    """A loop over time steps.

    Attributes:
        items:     Value in the body, sequence outside, and whether it is taken from the end.
        carried:   Value in the body, initial value or constant, and the value that the next pass gets; None where no
            pass reads it.
        collected: Sequence outside, and value of the body.
        finals:    Value outside, and value of the body whose last one it is.
        body:      Drafts of the body.
        before:    Drafts in front of the loop that make initial values.
        timed:     Whether the sequence may have any length.
    """

    items: list[tuple[DraftValue, DraftValue, bool]] = field(default_factory=list)
    carried: list[tuple[DraftValue, DraftValue | Constant, DraftValue]] = field(default_factory=list)
    collected: list[tuple[DraftValue, DraftValue]] = field(default_factory=list)
    finals: list[tuple[DraftValue, DraftValue]] = field(default_factory=list)
    body: list[Draft] = field(default_factory=list)
    before: list[Draft] = field(default_factory=list)
    timed: bool = False

    @property
    def turned(self) -> bool:
        """Whether the loop begins at the end of a sequence of fixed length, so that its results come in reverse."""
        return not self.timed and any(back for _, _, back in self.items)


def reads(draft: Draft | LoopDraft) -> list[DraftValue]:
    """Values from outside that a draft or a loop reads."""
    if isinstance(draft, Draft):
        return draft.reads
    made = {each.result for each in draft.body} | {value for value, _, _ in draft.items} | {
        value for value, _, _ in draft.carried}
    inner = [value for each in draft.body for value in each.reads]
    outside = [sequence for _, sequence, _ in draft.items]
    outside += [initial for _, initial, _ in draft.carried if isinstance(initial, DraftValue)]
    return outside + [value for value in inner if value not in made]


def makes(draft: Draft | LoopDraft) -> list[DraftValue]:
    """Values that a draft or a loop makes for what follows."""
    if isinstance(draft, Draft):
        return [draft.result]
    return [outer for outer, _ in [*draft.finals, *draft.collected]]


def needed(drafts: Iterable[Draft | LoopDraft], wanted: Iterable[DraftValue]) -> list[Draft | LoopDraft]:
    """The drafts that the wanted values depend on; loops lose what nobody needs of them.

    Args:
        drafts: Drafts, each after those that it reads.
    """
    used, kept = set(wanted), []
    for draft in reversed(list(drafts)):
        if used.isdisjoint(makes(draft)):
            continue
        if isinstance(draft, LoopDraft):
            draft.finals = [pair for pair in draft.finals if pair[0] in used]
            draft.collected = [pair for pair in draft.collected if pair[0] in used]
            _trim(draft)
        used.update(reads(draft))
        kept.insert(0, draft)
    return kept


def _trim(loop: LoopDraft):
    """Leave out what neither results nor the next pass need."""
    wanted = {inner for _, inner in [*loop.finals, *loop.collected]}
    carried = loop.carried
    while True:
        body = needed(loop.body, wanted)
        read = {value for draft in body for value in draft.reads} | wanted
        more = {after for value, _, after in carried if value in read} - wanted
        if not more:
            break
        wanted |= more
    loop.body = body
    loop.carried = [each for each in carried if each[0] in read]
    loop.items = [each for each in loop.items if each[0] in read]
