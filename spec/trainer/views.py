"""Views: how an instruction sees a tensor in a memory, and the closed form of the words that it may reach.

A tensor of 8 b bits has b planes of bytes, the low one first; the highest one is signed, the others are not. A word is
16 neighbouring columns of one row of one plane. Rows of a view are (t0, t1, t2), t2 fastest; columns come in blocks of
16. With taps c1 and c2, which `product` and pooling have and which are 0 elsewhere,

    u1 = origin1 + step1 * t1 + c1,  u2 = origin2 + step2 * t2 + c2
    word = R[base] + offset + plane * p + block * k + s0 * t0 + pitch1 * u1 + pitch2 * u2

of plane p and block k. Where limit1 is above 0 and u1 is outside 0..limit1 - 1, or the same of axis 2, the word is
zeros and nothing is read: this is padding. A view that is written has no limits.

In the accumulators, `plane` and `block` do not count: a row is one address.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from concord.spec.trainer.config import NONE
from concord.spec.trainer.instructions import FIELDS, Space, TrainerInstruction, TrainerOp, instruction


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerView:
    """What `tensor` writes: the fields of the instruction but `v`.

    Attributes:
        space:  Memory of the words.
        planes: Number of planes of bytes: 1, 2, 4, 5 (a parameter: w, low and high r, low and high v) or 6.
        base:   Base register that is added, or NONE.
        offset: Words.
        plane:  Words from plane to plane.
        n0, s0: Number of samples, or of whatever axis 0 is, and words from one to the next.
        n1, pitch1, step1, origin1, limit1: Axis 1, rows of an image: its number, words from u1 to u1 + 1, and what the
            head of this module says.
        n2, pitch2, step2, origin2, limit2: Axis 2, columns of an image.
        blocks, block: Number of blocks of 16 columns, and words from one to the next.
    """

    space: Space = Space.CHIP
    planes: int = 1
    base: int = NONE
    offset: int = 0
    plane: int = 0
    n0: int = 1
    s0: int = 0
    n1: int = 1
    pitch1: int = 0
    step1: int = 1
    origin1: int = 0
    limit1: int = 0
    n2: int = 1
    pitch2: int = 0
    step2: int = 1
    origin2: int = 0
    limit2: int = 0
    blocks: int = 1
    block: int = 0

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.n0 * self.n1 * self.n2

    @property
    def limited(self) -> bool:
        """Whether it may have words of zeros that are not read."""
        return bool(self.limit1 or self.limit2)

    def tensor(self, number: int) -> TrainerInstruction:
        """The instruction that writes it as view `number`."""
        return instruction(TrainerOp.TENSOR, v=number, **asdict(self))

    @classmethod
    def of(cls, tensor: TrainerInstruction) -> "TrainerView":
        """The view that a `tensor` writes."""
        found: dict[str, Any] = {name: tensor[name] for name in FIELDS[TrainerOp.TENSOR] if name != "v"}
        found["space"] = Space(found["space"])
        return cls(**found)

    def extent(self, base: int = 0, *, taps: tuple[int, int] = (1, 1), steps: Iterable[tuple[int, int]] = ()) -> range:
        """The closed form of the words from the lowest to the highest that the view may reach, in rising order.

        Each axis takes u at both of its ends, clipped to its limit; an axis that is wholly outside reads nothing, and
        the range is empty. It holds all words that are read, and may hold others where steps jump over the border.

        Args:
            base:  Number in the base register.
            taps:  Number of taps of each axis.
            steps: Count and stride of each further term; of `planes` and `blocks` unless the caller gives his own.
        """
        ends = _axis(self.n1, self.pitch1, self.step1, self.origin1, self.limit1, taps[0])
        others = _axis(self.n2, self.pitch2, self.step2, self.origin2, self.limit2, taps[1])
        if not ends or not others:
            return range(0)
        terms = [ends, others, _ends(self.n0, self.s0), *(_ends(*step) for step in steps)]
        low, high = (sum(term[k] for term in terms) + base + self.offset for k in range(2))
        return range(low, high + 1)

    def whole(self, base: int = 0, *, taps: tuple[int, int] = (1, 1)) -> range:
        """The `extent` of all planes and blocks."""
        if self.space == Space.ACCUMULATORS:
            return self.extent(base, taps=taps)
        return self.extent(base, taps=taps, steps=((self.planes, self.plane), (self.blocks, self.block)))


def _ends(count: int, stride: int) -> tuple[int, int]:
    """Lowest and highest of stride * k for k below `count`."""
    last = stride * (count - 1)
    return min(last, 0), max(last, 0)


def _axis(count: int, pitch: int, step: int, origin: int, limit: int, taps: int) -> tuple[int, int] | None:
    """Lowest and highest of pitch * u, or None where every u is outside the limit."""
    low, high = origin, origin + step * (count - 1) + taps - 1
    if limit:
        if high < 0 or low >= limit:
            return None
        low, high = max(low, 0), min(high, limit - 1)
    return min(pitch * low, pitch * high), max(pitch * low, pitch * high)
