"""Overflow events of a product: their number, and their largest excess in bits."""

from dataclasses import dataclass

import numpy as np
from concord.golden.lib.float16 import INFINITY
from concord.spec.machine.config import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Overflow events.

    Attributes:
        partial:        Number of additions to a row whose exact result does not fit the accumulator.
        product:        Number of products that do not fit `product_bits`.
        output:         Number of totals that do not fit `output_bits`, or become an infinity.
        excess_partial: Largest number of bits that the accumulator lacked.
        excess_product: Largest number of bits that `product_bits` lacked.
        excess_output:  Largest number of bits that `output_bits` lacked; 1 for an infinity.
    """

    partial: int = 0
    product: int = 0
    output: int = 0
    excess_partial: int = 0
    excess_product: int = 0
    excess_output: int = 0

    def __add__(self, other):
        """Events of both: the counts are added, and the larger excess is kept."""
        return Events(
            partial=self.partial + other.partial, product=self.product + other.product,
            output=self.output + other.output,
            excess_partial=max(self.excess_partial, other.excess_partial),
            excess_product=max(self.excess_product, other.excess_product),
            excess_output=max(self.excess_output, other.excess_output))


def misfits(values, bits: int):
    """Number of integers that do not fit `bits` bits signed, and number of bits that the widest lacks.

    Args:
        values: Array of integers; of Python integers where 64 bits are not enough.
        bits:   Number of bits of the range, sign included.
    """
    if not values.size:
        return 0, 0
    smallest, largest = min(int(values.min()), -1), max(int(values.max()), 0)
    excess = max(largest.bit_length(), (~smallest).bit_length()) + 1 - bits
    if excess <= 0:
        return 0, 0
    limit = 1 << bits - 1
    return int(((values < -limit) | (values >= limit)).sum()), excess


def product_events(config: Config, weights, operand, rows: int) -> Events:
    """Count the products of mantissas that do not fit `product_bits`.

    Args:
        config:  The machine.
        weights: Integers [row_tiles, columns, N, N].
        operand: Integers [columns, N].
        rows:    Number of rows of the result; padding rows do not count.
    """
    # No mantissa has a larger magnitude than the lowest.
    if config.weights.lowest * config.activations.lowest < 1 << config.product_bits - 1:
        return Events()
    products = np.asarray(weights, np.int64) * np.asarray(operand, np.int64)[:, None]
    products = products.transpose(0, 2, 1, 3).reshape(-1, operand.size)[:rows]
    count, excess = misfits(products, config.product_bits)
    return Events(product=count, excess_product=excess)


def partial_events(config: Config, beats, start_values=None) -> Events:
    """Count the additions whose exact result does not fit the accumulator, which wraps.

    Args:
        config: The machine.
        beats:  Integers [rows, beats], the addend of each beat in order; Python integers where 62 bits are not enough.
        start_values: Integers [rows], which are added last.
    """
    if start_values is not None:
        beats = np.concatenate([beats, start_values[:, None]], axis=1)
    before = wrap(np.cumsum(beats, axis=1) - beats, config.sum_bits)
    count, excess = misfits(before + beats, config.sum_bits)
    return Events(partial=count, excess_partial=excess)


def output_events(config: Config, totals, bits, *, integer: bool) -> Events:
    """Count the totals that do not fit `output_bits` (integer mode), or whose binary16 is an infinity.

    Args:
        config:  The machine.
        totals:  Integers, wrapped to the accumulator.
        bits:    uint16 patterns of the totals after conversion.
        integer: Whether the product is in integer mode.
    """
    if integer:
        count, excess = misfits(totals, config.output_bits)
        return Events(output=count, excess_output=excess)
    count = int(((bits & np.uint16(0x7FFF)) == INFINITY).sum())
    return Events(output=count, excess_output=int(count > 0))


def wrap(values, bits: int):
    """The integers modulo 2**bits, signed. An int64 array is already wrapped if `bits` is 64 or more."""
    if values.dtype != object and bits >= 64:
        return values
    half = 1 << bits - 1
    return (values + half & (1 << bits) - 1) - half
