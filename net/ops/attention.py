"""Attention: the product of two tensors that are both computed, and of its softmax with a third one."""

from dataclasses import dataclass

import numpy as np
from concord.golden.mfu.softmax import real_softmax
from concord.net.ops import checks
from concord.net.ops.operator import Operator

#: What a mask adds where a query must not see a key: the softmax of such a score is 0 in binary16, too.
MASKED = -32768.0


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Attention(Operator):
    """Each head adds up the values of all positions, weighted by how well their keys fit its query.

        scores[h, t, s] = sum over c of queries[h, c, t] * keys[h, c, s] + mask[h, t, s]
        y[h, c, t] = sum over s of softmax(scores)[h, t, s] * values[h, c, s]

    It takes three images, queries, keys and values. Their pixels are the positions, in C order; the channels of a head
    follow each other. A scale of the scores is part of the layer that makes the queries.

    Attributes:
        heads: Number of heads.
        mask:  float32[heads, queries, keys], or [1, queries, keys] for all heads; None for zeros.
    """

    heads: int = 1
    mask: np.ndarray | None = None

    kind = "attention"
    several = True

    def __post_init__(self):
        if not isinstance(self.heads, int) or self.heads < 1:
            raise ValueError(f"heads: a whole number of 1 or more is needed, not {self.heads!r}")
        if self.mask is not None:
            checks.numbers(mask=self.mask)
            checks.dimensions("mask", self.mask, 3)
            if len(self.mask) not in (1, self.heads):
                raise ValueError(f"mask: it is one for {len(self.mask)} heads, and there are {self.heads}; give one "
                                 "for each head, or one for all")
            if self.mask.min() < MASKED or self.mask.max() > -MASKED:
                raise ValueError(f"mask: its numbers lie in {MASKED:g}..{-MASKED:g}; use {MASKED:g} for keys that a "
                                 "query must not see")

    @property
    def label(self) -> str:
        return "causal attention" if self.causal else "attention"

    @property
    def causal(self) -> bool:
        """Whether each position sees itself and those before it, and the mask does nothing else."""
        if self.mask is None or self.mask.shape[1] != self.mask.shape[2]:
            return False
        seen = np.tril(np.ones(self.mask.shape[1:], bool))
        return bool((np.where(seen, self.mask == 0, self.mask == MASKED)).all())

    def shape(self, *inputs):
        if len(inputs) != 3:
            raise ValueError(f"it takes queries, keys and values, not {len(inputs)} tensors")
        queries, keys, values = map(checks.image, inputs)
        count, others = queries[1] * queries[2], keys[1] * keys[2]
        if queries[0] != keys[0] or keys[1:] != values[1:]:
            raise ValueError(f"queries {list(queries)}, keys {list(keys)} and values {list(values)} do not fit: "
                             "queries and keys need as many channels, keys and values as many positions")
        if queries[0] % self.heads or values[0] % self.heads:
            raise ValueError(f"{self.heads} heads do not divide {queries[0]} channels of queries and keys and "
                             f"{values[0]} of values")
        if self.mask is not None and self.mask.shape[1:] != (count, others):
            raise ValueError(f"its mask is one of {self.mask.shape[1]} queries and {self.mask.shape[2]} keys, and "
                             f"there are {count} and {others}; make the two equal")
        return values[0], *queries[1:]

    def real(self, *inputs, lengths):
        queries, keys, values = (heads_of(x.reshape(*x.shape[:2], -1), self.heads) for x in inputs)
        powers = self.seen(queries @ keys.swapaxes(-1, -2))
        made = powers @ values
        return made.swapaxes(-1, -2).reshape(len(made), -1, *inputs[0].shape[2:])

    def seen(self, scores: np.ndarray) -> np.ndarray:
        """The weights of the keys [samples, heads, queries, keys] from the products of queries and keys."""
        return real_softmax(scores if self.mask is None else scores + self.mask)


def heads_of(x: np.ndarray, heads: int) -> np.ndarray:
    """The vectors [samples, heads, positions, channels of a head] of a tensor [samples, channels, positions]."""
    samples, channels, positions = x.shape
    return x.reshape(samples, heads, channels // heads, positions).swapaxes(-1, -2)
