"""Writes the lines of a script, one call after the other."""

from collections.abc import Iterable

import numpy as np
from concord.twin.flow.flow import Refs
from concord.twin.lib.script import Argument, Call, Stored, Tensor


class Lines:
    """Lines, and the tensors that they name.

    Attributes:
        body:    The calls.
        tensors: The stored tensors by name.
    """

    def __init__(self):
        self.body: list[Call] = []
        self.tensors: dict[str, Tensor] = {}
        self._stored: dict[tuple, Stored] = {}
        self._shaped: dict[str, tuple[Argument, ...]] = {}  # arguments of `reshape` by its result

    def call(self, function: str, *arguments: Argument, note: str = "", **settings) -> str:
        """Add a call; returns the name of its result. A shape of a shape is made of what the first one is made of."""
        while function == "reshape" and arguments[0] in self._shaped:
            arguments = self._shaped[arguments[0]]
        result = f"v{len(self.body)}"
        self.body.append(Call(results=(result,), function=function, arguments=arguments, settings=settings, note=note))
        if function == "reshape":
            self._shaped[result] = arguments
        return result

    def used(self, results: Iterable[str]) -> tuple[Call, ...]:
        """The calls that some results need."""
        needed, calls = set(results), []
        for call in reversed(self.body):
            if call.results[0] in needed:
                needed |= {argument for argument in call.arguments if isinstance(argument, str)}
                calls.append(call)
        return tuple(calls[::-1])

    def store(self, kind: str, values: np.ndarray, bits: int = 0) -> Stored:
        """Store a tensor; equal tensors are stored once.

        Args:
            kind: What it is, the first part of its name.
            bits: Width of mantissas of weights; 0 for all others.
        """
        key = kind, bits, values.dtype.str, values.shape, values.tobytes()
        if key not in self._stored:
            name = f"{kind}{len(self._stored)}"
            self._stored[key] = Stored(name=name)
            self.tensors[name] = Tensor(values=np.ascontiguousarray(values), bits=bits)
        return self._stored[key]

    def take(self, index: np.ndarray, *values: Argument) -> str:
        """Take elements of values: index[...] to [batch, ...]."""
        return self.call("take", self.store("index", index.astype(np.int32)), *values)

    def gather(self, refs: Refs, names: dict[int, str], counts: dict[int, int], size: int) -> str:
        """Take items.

        Args:
            refs:   References to items.
            names:  Name of each value that they refer to, [batch, items, ...] in the script.
            counts: Number of items of each value.
            size:   Number of elements of an item.

        Returns:
            Name of [batch, *refs, size].
        """
        used = np.unique(refs.value).tolist()
        items = refs.item
        if len(used) == 1 and items.size == counts[used[0]] and np.array_equal(items.ravel(), np.arange(items.size)):
            return self.call("reshape", names[used[0]], shape=(*items.shape, size))
        firsts = np.cumsum([0, *(counts[value] for value in used)])
        index = (firsts[np.searchsorted(used, refs.value)] + items)[..., None] * size + np.arange(size)
        return self.take(index, *(names[value] for value in used))
