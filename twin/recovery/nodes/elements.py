"""References to single elements, and the pool of constants that they may name.

A reference is an int64: the index of a node in the upper 32 bits, the index of an element of that node in the lower 32.
Two nodes hold constants: numbers (`NUMBERS`), and codes (`CODES`).

In full precision, constants are real numbers: what a firmware holds twice with equal binary16 numbers stays apart where
the real numbers differ.
"""

from collections.abc import Mapping

import numpy as np
from concord.firmware.firmware import Firmware
from concord.golden.mfu.multifunction import compute, compute_real
from concord.golden.mvm.mvm import multiply_entries, multiply_groups
from concord.golden.mvm.vector_rf import numbers
from concord.golden.schedule.arithmetic import RealArithmetic
from concord.spec.isa.chain import Chain
from concord.spec.isa.memories import VRFS, Mem, depth
from concord.spec.isa.operations import Operation

NUMBERS, CODES = 0, 1  #: Nodes of constant numbers, and of constant codes.
SHIFT = 32
PATTERNS = 1 << 16  #: The first elements of NUMBERS are all binary16 patterns, those that no memory holds.
ZERO = 0  #: Reference to the number +0.
ZERO_CODE = CODES << SHIFT  #: Reference to the code 0.


class Unrecognised(Exception):
    """The program does something for which the recovery has no form; the sentence says what."""


def refs(node: int, elements) -> np.ndarray:
    """References to elements of a node."""
    return np.asarray(elements, np.int64) | node << SHIFT


def node_of(table: np.ndarray) -> np.ndarray:
    """Node of each reference."""
    return table >> SHIFT


def element_of(table: np.ndarray) -> np.ndarray:
    """Element of each reference in its node."""
    return table & (1 << SHIFT) - 1


def read_by(table: np.ndarray) -> list[int]:
    """The nodes, or values, that references name, without the constants."""
    named = node_of(table[~is_constant(table)])
    return np.flatnonzero(np.bincount(named)).tolist()


def is_constant(table: np.ndarray) -> np.ndarray:
    """Whether each reference names a constant."""
    return table < 2 << SHIFT


class Constants:
    """Constant numbers by binary16 pattern, and constant codes as mantissas under exponents.

    Args:
        firmware: Firmware whose images of vector memories are constants, too.

    Attributes:
        dtype: Type of numbers.
    """

    dtype = np.float16

    def __init__(self, firmware: Firmware):
        self._firmware, self._config = firmware, firmware.config
        config = self._config
        self._hold(np.arange(PATTERNS).astype(np.uint16), firmware.vectors)
        self._mantissas = [np.zeros(1, np.int64)]
        self._exponents = [np.full(1, config.activations.e_min, np.int64)]
        self._count = 1
        self._entries = self._image(firmware)

    def _hold(self, patterns: np.ndarray, vectors: Mapping[Mem, np.ndarray]):
        """Keep the numbers of all binary16 patterns, and the content of vector memories."""
        self._spans, parts, size = {}, [patterns], PATTERNS
        for mem, words in vectors.items():
            self._spans[mem] = size, size + words.size
            parts.append(words.reshape(-1))
            size += words.size
        self._bits = np.concatenate(parts)

    def image(self, mem: Mem) -> np.ndarray:
        """References to the content of a vector memory, element by element, before the program starts."""
        if mem == Mem.VECTOR_RF:
            return self._entries
        if mem not in (*VRFS, Mem.DRAM):
            return np.zeros(0, np.int64)
        content = np.zeros(depth(self._config, mem) * self._config.mfu_lanes, np.int64)
        if mem in self._spans:
            first, last = self._spans[mem]
            content[:last - first] = np.arange(first, last)
        return content

    def bits(self, table: np.ndarray) -> np.ndarray:
        """uint16, the patterns of references to constant numbers."""
        return self._bits[table]

    def values(self, table: np.ndarray) -> np.ndarray:
        """The numbers of references to constant numbers."""
        return np.ascontiguousarray(self.bits(table)).view(self.dtype)

    def plain(self, table: np.ndarray) -> np.ndarray:
        """References in which equal constant numbers are equal."""
        fixed = is_constant(table) & (node_of(table) == NUMBERS)
        return np.where(fixed, self.bits(np.where(fixed, table, 0)), table)

    def is_zero(self, table: np.ndarray) -> np.ndarray:
        """Whether each reference names the number +0 or the code 0."""
        numbers = is_constant(table) & (node_of(table) == NUMBERS)
        return np.where(numbers, self.plain(table) == 0, table == ZERO_CODE)

    def computed(self, operation: Operation, *tables: np.ndarray) -> np.ndarray:
        """References to the results of a point-wise operation on constant numbers."""
        return compute(operation, *map(self.bits, tables)).astype(np.int64)

    def product(self, chain: Chain, table: np.ndarray, tiles: np.ndarray, rows: int) -> np.ndarray:
        """References to the results of a product of constant codes, of the tiles [row tiles, columns]."""
        stored, product, start = self._firmware.tiles, chain.product, None
        if product.bias:
            biases = np.append(self._firmware.biases.reshape(-1), np.zeros(rows, np.int32))
            start = biases[product.b * self._config.mfu_lanes:][:rows].astype(np.int64)
        function = multiply_groups if table.ndim == 4 else multiply_entries
        bits, _ = function(
            self._config, stored.mantissas[tiles].astype(np.float64),
            stored.exponents[tiles].astype(np.int64) - self._config.weights.e_min,
            self.mantissas(table), self.exponents(table).max(-1) - self._config.activations.e_min, start,
            rows=rows, integer=bool(product.integer), out_scale=chain.registers.out_scale)
        return bits.astype(np.int64)

    def stored(self, table: np.ndarray) -> tuple[str, np.ndarray]:
        """Memory that holds constant numbers, and int64 index of each in it; empty and -1 where no memory does."""
        for mem, (first, last) in self._spans.items():
            inside = (table >= first) & (table < last)
            if inside.any():
                return mem.name.lower(), np.where(inside, table - first, -1)
        return "", np.full(table.shape, -1, np.int64)

    def codes(self, mantissas: np.ndarray, exponents: np.ndarray) -> np.ndarray:
        """References to codes, which join the constants; `exponents` are E, broadcast to the mantissas."""
        first = self._count
        self._mantissas.append(np.asarray(mantissas, np.int64).reshape(-1))
        self._exponents.append(np.broadcast_to(exponents, np.shape(mantissas)).astype(np.int64).reshape(-1))
        self._count += self._mantissas[-1].size
        table = refs(CODES, np.arange(first, self._count)).reshape(np.shape(mantissas))
        return np.where(np.asarray(mantissas) == 0, ZERO_CODE, table)

    def mantissas(self, table: np.ndarray) -> np.ndarray:
        """int64, the mantissas of references to constant codes: the integers as they are stored."""
        return np.concatenate(self._mantissas)[element_of(table)]

    def exponents(self, table: np.ndarray) -> np.ndarray:
        """int64, the exponents E of references to constant codes; the smallest one for zeros."""
        return np.concatenate(self._exponents)[element_of(table)]

    def reals(self, table: np.ndarray) -> np.ndarray:
        """float64, the values of references to constant codes in block floating point."""
        unit = self.exponents(table) - self._config.activations.bits + 1
        return np.ldexp(self.mantissas(table).astype(np.float64), unit)

    def numbers(self, table: np.ndarray, *, integer: bool, unsigned: bool) -> np.ndarray:
        """References to the numbers that VectorRf gives for constant codes."""
        stored = self.exponents(table) - self._config.activations.e_min
        bits = numbers(self._config, self.mantissas(table)[..., None], stored, integer=integer, unsigned=unsigned)
        return bits[..., 0].astype(np.int64)

    def _image(self, firmware) -> np.ndarray:
        size = firmware.config.native_dim
        content = np.full((firmware.config.vector_rf, size), ZERO_CODE, np.int64)
        for part in firmware.entries:
            content[part.address:part.address + len(part.mantissas)] = self.codes(
                part.mantissas, part.exponents.astype(np.int64)[:, None])
        return content.reshape(-1)


class RealConstants(Constants):
    """Constant numbers in float64; there are no codes.

    Args:
        firmware: Firmware that carries its numbers in full precision.
    """

    dtype = np.float64

    def __init__(self, firmware: Firmware):
        self._firmware, self._config, self._images = firmware, firmware.config, firmware.full_precision
        patterns = np.arange(PATTERNS).astype(np.uint16).view(np.float16).astype(np.float64)
        self._hold(patterns.view(np.int64), {mem: np.ascontiguousarray(words).view(np.int64)
                                             for mem, words in self._images.vectors.items()})
        self._known: dict[int, int] = {}
        self._entries = self._image(firmware)

    def add(self, values: np.ndarray) -> np.ndarray:
        """References to numbers, which join the constants."""
        bits, where = np.unique(np.ascontiguousarray(values, np.float64).view(np.int64), return_inverse=True)
        lacking = [each for each in bits.tolist() if each not in self._known]
        self._known |= {each: len(self._bits) + number for number, each in enumerate(lacking)}
        self._bits = np.concatenate([self._bits, np.array(lacking, np.int64)])
        table = np.array([self._known[each] for each in bits.tolist()], np.int64)[where.reshape(np.shape(values))]
        return np.where(np.asarray(values) == 0, ZERO, table)

    def computed(self, operation: Operation, *tables: np.ndarray) -> np.ndarray:
        """References to the results of a point-wise operation on constant numbers."""
        return self.add(compute_real(operation, *map(self.values, tables)))

    def product(self, chain: Chain, table: np.ndarray, tiles: np.ndarray, rows: int) -> np.ndarray:
        """References to the results of a product of constants."""
        arithmetic = RealArithmetic(self._config, activations=False, binary16=False, clips={})
        function = arithmetic.multiply_groups if table.ndim == 4 else arithmetic.multiply_entries
        product, start = chain.product, None
        if product.bias:
            biases = np.append(self._images.biases.reshape(-1), np.zeros(rows))
            start = biases[product.b * self._config.mfu_lanes:][:rows]
        results, _ = function(self._config, self._images.tiles[tiles], None, self.values(table), None, start, rows=rows,
                              integer=bool(product.integer), out_scale=chain.registers.out_scale)
        return self.add(results)

    def mantissas(self, table: np.ndarray) -> np.ndarray:
        """float64, the constants that a product reads, which are numbers."""
        return self.values(table)

    def _image(self, firmware: Firmware) -> np.ndarray:
        content = np.full((firmware.config.vector_rf, firmware.config.native_dim), ZERO, np.int64)
        for part in self._images.entries:
            content[part.address:part.address + len(part.values)] = self.add(part.values)
        return content.reshape(-1)
