"""Products of two tensors that a network computes, on their way from queries and keys to an attention."""

from dataclasses import dataclass, replace

import numpy as np
from concord.frontends.onnx.lib.problems import Refused
from concord.frontends.onnx.lib.views import View, check_size

#: Why two tensors are multiplied, and nothing else of them is imported.
ONLY_ATTENTION = "write softmax(queries @ keys * scale + mask) @ values, with a constant scale and mask"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scores:
    """Products of queries and keys, which are a part of an attention until the values are multiplied.

    Attributes:
        queries: Tensor [..., queries, channels].
        keys:    Tensor [..., channels, keys].
        scale:   Factor of the products.
        mask:    float64 of the shape of the scores, what is added to the scaled products; None for nothing.
        weights: Whether a softmax over the keys has made weights of them.
        shape:   Shape of the tensor in the file, [..., queries, keys].
    """

    queries: View
    keys: View
    scale: float = 1.0
    mask: np.ndarray | None = None
    weights: bool = False
    shape: tuple[int, ...]

    @classmethod
    def of(cls, queries: View, keys: View) -> "Scores":
        """The products of two tensors.

        Raises:
            Refused: their shapes do not fit each other.
        """
        (*first, count, channels), (*second, same, others) = queries.shape, keys.shape
        try:
            before = np.broadcast_shapes(first, second)
        except ValueError:
            before = None
        if channels != same or before is None:
            raise Refused(f"it multiplies tensors {list(queries.shape)} and {list(keys.shape)}, which do not fit",
                          "export the network again")
        check_size((*before, count, others))
        return cls(queries=queries.at(np.broadcast_to(queries.numbers, (*before, count, channels))),
                   keys=keys.at(np.broadcast_to(keys.numbers, (*before, channels, others))),
                   shape=(*before, count, others))

    def scaled(self, factor: np.ndarray) -> "Scores":
        """The scores times a number."""
        self._open()
        if factor.size > 1 and (factor != factor.reshape(-1)[0]).any():
            raise Refused("it multiplies the products of two computed tensors by more than one number", ONLY_ATTENTION)
        number = float(factor.reshape(-1)[0])
        return replace(self, scale=self.scale * number, mask=None if self.mask is None else self.mask * number)

    def plus(self, mask: np.ndarray) -> "Scores":
        """The scores with a mask."""
        self._open()
        if np.isnan(mask).any() or np.broadcast_shapes(mask.shape, self.shape) != self.shape:
            raise Refused(f"its mask {list(mask.shape)} does not fit scores {list(self.shape)}", ONLY_ATTENTION)
        before = np.zeros(self.shape) if self.mask is None else self.mask
        return replace(self, mask=before + mask)

    def softmaxed(self) -> "Scores":
        """The weights of the values."""
        self._open()
        return replace(self, weights=True)

    def reshaped(self, numbers: np.ndarray) -> "Scores":
        """The same scores in another shape, which leaves queries and keys as they are.

        Args:
            numbers: Where each element was, in C order.
        """
        if numbers.shape[-2:] != self.shape[-2:] or not np.array_equal(numbers.reshape(-1), np.arange(numbers.size)):
            raise Refused("it puts the products of two computed tensors into another order", ONLY_ATTENTION)
        before = numbers.shape[:-2]
        queries, keys = (one.at(one.numbers.reshape(*before, *one.shape[-2:])) for one in (self.queries, self.keys))
        mask = None if self.mask is None else self.mask.reshape(numbers.shape)
        return replace(self, queries=queries, keys=keys, mask=mask, shape=numbers.shape)

    def _open(self):
        if self.weights:
            raise Refused("it computes with the softmax of the products of two computed tensors", ONLY_ATTENTION)
