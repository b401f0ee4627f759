"""Lines of a script, and what they make of a flow: words, entries of VectorRf, native tiles."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from concord.firmware.firmware import Firmware
from concord.spec.isa.memories import Mem, depth
from concord.spec.machine.config import Config
from concord.spec.numbers.formats import Format
from concord.twin.flow.flow import Refs
from concord.twin.lib.script import Argument, Call, Stored, StoredTensor, quantizer


class Lines:
    """Lines, and the tensors that they name.

    Attributes:
        body:    The calls.
        tensors: The stored tensors by name.
    """

    def __init__(self):
        self.body: list[Call] = []
        self.tensors: dict[str, StoredTensor] = {}
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
            self.tensors[name] = StoredTensor(values=np.ascontiguousarray(values), bits=bits)
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


@dataclass(kw_only=True)
class StoredEntries:
    """Entries of VectorRf as they are stored.

    Attributes:
        lines:     Lines to which calls are added.
        config:    The machine.
        mantissas: Name of the mantissas [batch, entries, N].
        exponents: Name of the exponents E [batch, entries, 1]; they are `e_min` for integers.
    """

    lines: Lines
    config: Config
    mantissas: str
    exponents: str

    @cached_property
    def reals(self) -> str:
        """Name of the values mantissa * 2**(E - (bits - 1)), whatever the entries hold."""
        return self.lines.call("scaled", self.mantissas, self.exponents, more=1 - self.config.activations.bits)


def quantized_entries(lines: Lines, config: Config, vectors: str, count: int, *, integer: bool,
                      unsigned: bool) -> StoredEntries:
    """Entries of native vectors [batch, count, N]."""
    fmt = config.activations
    if integer:
        exponents = lines.call("start", vectors, lines.store("exponents", np.full((count, 1), fmt.e_min, np.float16)))
        mantissas = codes(lines, fmt, vectors, config.native_dim, integer=True, unsigned=unsigned)
    else:
        mantissas, exponents = _blocks(lines, fmt, vectors)
    return StoredEntries(lines=lines, config=config, mantissas=mantissas, exponents=exponents)


def codes(lines: Lines, fmt: Format, vectors: str, size: int, *, integer: bool, unsigned: bool = False) -> str:
    """Codes of numbers [..., size], native vectors or rows of a tile, as a product takes them."""
    made = quantizer(fmt, size, integer=integer, unsigned=unsigned)
    found = lines.call(made.function, vectors, **dict(made.settings))
    return lines.call("shifted", found, distance=-made.zero) if unsigned else found


def _blocks(lines, fmt, vectors) -> tuple[str, str]:
    """Names of the mantissas and exponents of blocks, which are the last axis."""
    precision = {"precision": fmt.precision} if fmt.precision else {}
    exponents = lines.call("exponents_of", vectors, exponents=(fmt.e_min, fmt.e_max), rule=str(fmt.rule), **precision)
    return lines.call("mantissas_of", vectors, exponents, bits=fmt.bits, lowest=fmt.lowest, highest=fmt.highest,
                      **precision), exponents


class MemoryImages:
    """Contents of memories that the firmware brings.

    Args:
        firmware: The firmware.
    """

    def __init__(self, firmware: Firmware):
        self._firmware, self._config = firmware, firmware.config

    def words(self, mem: Mem) -> np.ndarray:
        """float16[words, M], the content of a vector memory."""
        content = np.zeros((depth(self._config, mem), self._config.mfu_lanes), np.uint16)
        if mem in self._firmware.vectors:
            brought = self._firmware.vectors[mem]
            content[:len(brought)] = brought
        return content.view(np.float16)

    def entries(self, view: str) -> np.ndarray:
        """A view of VectorRf, an attribute of `StoredEntries`: float64[entries, N], or [entries, 1] for exponents."""
        size, fmt = self._config.vector_rf, self._config.activations
        mantissas, exponents = np.zeros((size, self._config.native_dim)), np.full((size, 1), float(fmt.e_min))
        for part in self._firmware.entries:
            rows = slice(part.address, part.address + len(part.mantissas))
            mantissas[rows], exponents[rows] = part.mantissas, part.exponents[:, None]
        return {"mantissas": mantissas, "exponents": exponents,
                "reals": np.ldexp(mantissas, exponents.astype(np.int64) - fmt.bits + 1)}[view]

    def biases(self) -> np.ndarray:
        """int32[words, M], the content of BiasRf."""
        content = np.zeros((depth(self._config, Mem.BIAS_RF), self._config.mfu_lanes), np.int32)
        content[:len(self._firmware.biases)] = self._firmware.biases
        return content

    def tiles(self, items: np.ndarray, *, integer: bool) -> np.ndarray:
        """float64[..., N, N], the values of native tiles of a product in integer mode or not."""
        fmt, stored, n = self._config.weights, self._firmware.tiles, self._config.native_dim
        mantissas, exponents = np.zeros((*items.shape, n, n)), np.full((*items.shape, n), fmt.e_min)
        brought = items < len(stored.mantissas)
        mantissas[brought], exponents[brought] = stored.mantissas[items[brought]], stored.exponents[items[brought]]
        return mantissas if integer else np.ldexp(mantissas, exponents[..., None] - fmt.bits + 1)
