"""What the instructions of a trainer work on, and how they refuse."""

from dataclasses import dataclass, field

import numpy as np
from concord.golden.lazy.lazy_update import Counts
from concord.golden.lazy.tensor import TrainingTensor
from concord.golden.lazy.tensor_layers import whole
from concord.golden.lib.memory_words import MemoryWords
from concord.golden.trainer.exponents import Exponent, ExponentWords
from concord.golden.trainer.memory import Seen, joined, read_parts
from concord.golden.trainer.summary import Summary
from concord.spec.numbers.lazy import ACCUMULATOR_BITS, E_MIN
from concord.spec.trainer.config import LANES, NONE, TrainerConfig
from concord.spec.trainer.instructions import Space, TrainerError
from concord.spec.trainer.views import TrainerView


class RefusedInstruction(Exception):
    """An instruction is refused, before it has moved anything.

    Attributes:
        error: Why.
    """

    def __init__(self, error: TrainerError, why: str):
        super().__init__(why)
        self.error = error


def refuse(wrong: object, error: TrainerError, why: str):
    """Stop with an error where something is wrong."""
    if wrong:
        raise RefusedInstruction(error, why)


@dataclass(slots=True, kw_only=True)
class TrainerCore:
    """State of a trainer.

    Attributes:
        config:       Sizes.
        server:       Server memory, uint8[words, 16], or what takes indices and has a length as such an array.
        chip:         On-chip memory, uint8[words, 16].
        accumulators: int64[rows, 17], of 48 bits.
        views:        By number.
        bases:        Base registers.
        exponents:    Exponents.
        rate, decay:  Learning rate and momentum, one mantissa of 16 bits each.
        summary:      What the updates since the last `measure` of kind update have met.
        counts:       What parameters have met in updates that stand.
    """

    config: TrainerConfig
    server: MemoryWords
    chip: np.ndarray = field(init=False)
    accumulators: np.ndarray = field(init=False)
    views: dict[int, TrainerView] = field(default_factory=dict)
    bases: list[int] = field(init=False)
    exponents: list[Exponent] = field(init=False)
    rate: TrainingTensor = field(default_factory=lambda: whole(np.zeros(1, np.int64), E_MIN, 16))
    decay: TrainingTensor = field(default_factory=lambda: whole(np.zeros(1, np.int64), E_MIN, 16))
    summary: Summary = field(default_factory=Summary)
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self):
        self.chip = np.zeros((self.config.words, LANES), np.uint8)
        self.accumulators = np.zeros((self.config.accumulator_rows, LANES + 1), np.int64)
        self.clear()

    def clear(self):
        """Forget bases, exponents and views, as a reset does."""
        self.bases = [0] * self.config.bases
        self.exponents = [Exponent() for _ in range(self.config.exponents)]
        self.views.clear()
        self.summary = Summary()

    def seen(self, number: int, planes: tuple[int, ...], name: str) -> Seen:
        """A view as an instruction finds it.

        Raises:
            RefusedInstruction: SIZE, where the view is not written in this run, has a count of 0, or planes that are
                none of `planes`.
        """
        view = self.views.get(number)
        refuse(view is None, TrainerError.SIZE, f"V{number}, which is {name}, is not written in this run")
        assert view is not None
        refuse(
            view.planes not in planes,
            TrainerError.SIZE,
            f"{name} has {view.planes} planes, and the instruction takes {' or '.join(map(str, planes))}",
        )
        refuse(not view.rows or not view.blocks, TrainerError.SIZE, f"{name} has a count of 0")
        return Seen(view, 0 if view.base == NONE else self.bases[view.base])

    def optional(self, number: int, planes: tuple[int, ...], name: str) -> Seen | None:
        """As `seen`, or None for no view."""
        return None if number == NONE else self.seen(number, planes, name)

    def words(self, space: Space):
        """The words of a memory; the accumulators have none."""
        return {Space.CHIP: self.chip, Space.SERVER: self.server, Space.EXPONENTS: ExponentWords(self.exponents)}[space]

    def check(
        self,
        seen: Seen,
        name: str,
        extent: range | None = None,
        *,
        written: bool = False,
        spaces: tuple[Space, ...] = (Space.CHIP,),
    ) -> range:
        """The extent of a view, all of it unless another one is given.

        Raises:
            RefusedInstruction: RANGE, where it leaves its memory, lies in a memory that is none of `spaces`, or is
                written and has limits.
        """
        view = seen.view
        found = view.whole(seen.base) if extent is None else extent
        refuse(view.space not in spaces, TrainerError.RANGE, f"{name} lies in {view.space.name}")
        refuse(written and view.limited, TrainerError.RANGE, f"{name} is written and has limits")
        size = self.config.accumulator_rows if view.space == Space.ACCUMULATORS else len(self.words(view.space))
        refuse(
            len(found) and not 0 <= found[0] <= found[-1] < size,
            TrainerError.RANGE,
            f"{name} may reach the words {found.start}..{found.stop - 1}, and there are {size}",
        )
        return found

    def check_rows(self, first: int, count: int):
        """Refuse rows of the accumulators that are not there."""
        refuse(
            first + count > len(self.accumulators),
            TrainerError.RANGE,
            f"rows {first} to {first + count - 1} of {len(self.accumulators)} of the accumulators",
        )

    def check_unit(self, number: int, lsb: int):
        """Refuse sums whose unit is not that of the sums before."""
        refuse(
            self.exponents[number].differs(lsb),
            TrainerError.MISMATCH,
            f"sums of X{number} have the unit 2^{lsb}, and those before 2^{self.exponents[number].lsb}",
        )

    def values(self, seen: Seen, taps: tuple[int, int] = (0, 0)) -> np.ndarray:
        """The numbers of an on-chip view, int64[blocks, rows, 16]."""
        return joined(read_parts(self.chip, seen, taps))


def check_apart(written: range, read: range, name: str):
    """Refuse words that one instruction writes and reads: hardware does both at once."""
    refuse(
        max(written.start, read.start) < min(written.stop, read.stop),
        TrainerError.RANGE,
        f"{name} meets the words that the instruction writes",
    )


def check_equal(one: Seen, other: Seen | None, name: str):
    """Refuse views whose rows or blocks do not pair up."""
    if other is not None:
        refuse(
            (one.view.rows, one.view.blocks) != (other.view.rows, other.view.blocks),
            TrainerError.SIZE,
            f"{name} has {other.view.rows} rows and {other.view.blocks} blocks instead of {one.view.rows} and "
            f"{one.view.blocks}",
        )


def masked(values: np.ndarray, mask: np.ndarray | None, relu: int) -> np.ndarray:
    """What is written of mantissas: not below 0 with `relu`, and 0 where a mask is not above 0."""
    values = np.maximum(values, 0) if relu else values
    return values if mask is None else np.where(mask > 0, values, 0)


def wrapped(sums: np.ndarray) -> np.ndarray:
    """Sums modulo 2^48, with their sign."""
    half = 1 << ACCUMULATOR_BITS - 1
    return (sums + half & 2 * half - 1) - half
