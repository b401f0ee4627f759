"""Values of a flow as values of a script: words, entries of VectorRf, native tiles."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from concord.firmware.firmware import Firmware
from concord.spec.isa.memories import Mem, depth
from concord.spec.machine.config import Config
from concord.spec.numbers.formats import Format
from concord.twin.generic.lines import Lines
from concord.twin.lib.quantizer import quantizer


@dataclass(kw_only=True)
class Entries:
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
                      unsigned: bool) -> Entries:
    """Entries of native vectors [batch, count, N]."""
    fmt = config.activations
    if integer:
        exponents = lines.call("start", vectors, lines.store("exponents", np.full((count, 1), fmt.e_min, np.float16)))
        mantissas = codes(lines, fmt, vectors, config.native_dim, integer=True, unsigned=unsigned)
    else:
        mantissas, exponents = _blocks(lines, fmt, vectors)
    return Entries(lines=lines, config=config, mantissas=mantissas, exponents=exponents)


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


class Images:
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
        """A view of VectorRf, an attribute of `Entries`: float64[entries, N], or [entries, 1] for exponents."""
        size, fmt = self._config.vector_rf, self._config.activations
        mantissas, exponents = np.zeros((size, self._config.native_dim)), np.full((size, 1), float(fmt.e_min))
        for part in self._firmware.entries:
            place = slice(part.address, part.address + len(part.mantissas))
            mantissas[place], exponents[place] = part.mantissas, part.exponents[:, None]
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

