"""Bounds of sums, proved from the weights."""

from dataclasses import dataclass

import numpy as np
from concord.net.arithmetic.integer import IntegerProduct
from concord.spec.machine.config import Config
from concord.spec.numbers.formats import Format


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """The bound of one product's sums.

    Attributes:
        product: Name of the product.
        bits:    Accumulator bits, sign included, that hold every sum for any input.
        has:     Accumulator bits of the machine.
        clamped: Share of the weights' blocks whose exponent was clamped; 0 in integer mode.
    """

    product: str
    bits: int
    has: int
    clamped: float = 0.0

    @property
    def proven(self) -> bool:
        """Whether no sum can overflow, for any input."""
        return self.bits <= self.has

    def __str__(self) -> str:
        if self.proven:
            text = f"{self.product}: no sum wraps ({self.bits} of {self.has} accumulator bits)"
        else:
            text = f"{self.product}: a sum may wrap ({self.bits} accumulator bits hold every sum, there are {self.has})"
        return text + (f"; {self.clamped:.1%} of the weight blocks have a clamped exponent" if self.clamped else "")


def integer_bound(config: Config, product: IntegerProduct) -> Bound:
    """The bound of a product in integer mode."""
    return Bound(product=product.name, bits=product.bits, has=config.sum_bits)


def block_bound(config: Config, product: str, mantissas: np.ndarray, exponents: np.ndarray) -> Bound:
    """The bound of a product in block floating point, for inputs whose blocks all have the largest exponent.

    Args:
        mantissas: Mantissas of the weights, [rows, columns]; columns are a multiple of the native dimension N.
        exponents: Exponents of the weights, [rows, columns / N].
    """
    blocks = mantissas.reshape(*exponents.shape, config.native_dim)
    sums = np.abs(blocks.astype(np.int64)).sum(axis=-1) * -config.activations.lowest
    # All values are in units of the accumulator's last bit; they are Python integers, as up to 80 bits are legal.
    shifts = exponents.astype(np.int64) - config.weights.e_min
    across = config.activations.e_max - config.activations.e_min + config.alignment
    rows = (sums.astype(object) << shifts.astype(object)).sum(axis=1)
    return Bound(
        product=product,
        bits=(int(rows.max()) << across).bit_length() + 1,
        has=config.sum_bits,
        clamped=clamped_share(blocks, exponents, config.weights),
    )


def clamped_share(blocks: np.ndarray, exponents: np.ndarray, fmt: Format) -> float:
    """Share of blocks[..., N] whose exponent was limited: their mantissas saturate, or leave leading bits unused."""
    largest = np.abs(blocks).max(axis=-1)
    below = (exponents == fmt.e_min) & (largest > 0) & (largest < 1 << max(0, fmt.bits - 2))
    above = (exponents == fmt.e_max) & ((blocks == fmt.highest) | (blocks == fmt.lowest)).any(axis=-1)
    return float((below | above).mean())
