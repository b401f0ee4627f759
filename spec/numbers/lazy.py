"""Training tensors: widths of mantissas, the range of exponents, and the format of a parameter in the lazy update.

A training tensor of `bits` has signed mantissas under one exponent E: value = mantissa * 2**(E - (bits - 1)). The
exponent follows the rule E = ceil(log2 of the largest magnitude), so that an exact power of two saturates; mantissas
round half away from zero. The exponent belongs to the whole tensor, or to what lies along some of its axes.

Source: S2; numerics.md of the specification, lazy update and training tensors.
"""

from dataclasses import dataclass
from enum import IntEnum, IntFlag

E_MIN, E_MAX = -126, 128  #: Range of E, stored as E - E_MIN in 8 bits; a tensor of zeros has E_MIN.
EXPONENT_BITS = 8
MOST_LANES = 256  #: Largest number of parameters that the lazy-update unit takes in one cycle.


class Width(IntEnum):
    """Mantissa bits of each kind of tensor, sign included."""

    PARAMETER = 8  #: weights and biases; the first width of the source
    ACTIVATION = 8  #: activations and the network's input; the second
    GRADIENT = 16  #: gradients of activations; the third
    LINEAR = 32  #: sums, weight gradients and parameter updates; the fourth
    RESIDUAL = 16  #: residuals of parameters; the fifth


ACCUMULATOR_BITS = 48  #: Bits of a sum over products, sign included.
#: Most products of a gradient of 16 bits and a number of 8 bits that a sum has: samples times positions for parameters.
MOST_TERMS = 1 << ACCUMULATOR_BITS - Width.GRADIENT - Width.ACTIVATION


class Repeat(IntFlag):
    """Request of the lazy-update unit: the reasons why a tensor must pass through it again, from its first state."""

    CHANGE = 1  #: the exponent must change, because a mantissa leaves the range or all of them need one bit less
    FRESH = 2  #: the tensor was all zero and has no exponent yet; it takes the exponent of the update


@dataclass(frozen=True, kw_only=True, slots=True)
class LazyFormat:
    """Format of a parameter: a mantissa w and a residual r, with the value w - r / 2**shift in units of the mantissa.

    Attributes:
        bits:     Number of bits of a mantissa.
        residual: Number of bits of a residual.
        shift:    t, where one unit of the mantissa is 2**t units of the residual; 1 <= t <= residual - 1.
        update:   Number of bits of the mantissas of an update.
        guard:    Number of bits by which an aligned update may exceed the range of the mantissas before it saturates.

    Raises:
        ValueError: a width is out of its range.
    """

    bits: int = Width.PARAMETER
    residual: int = Width.RESIDUAL
    shift: int = Width.RESIDUAL - 1
    update: int = Width.LINEAR
    guard: int = 8

    def __post_init__(self):
        for name, low, high in (("bits", 3, 16), ("residual", 2, 16), ("shift", 1, self.residual - 1),
                                ("update", 2, 32), ("guard", 1, 16)):
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} = {getattr(self, name)} of a lazy update must lie in {low}..{high}")

    @property
    def lowest(self) -> int:
        """Smallest mantissa."""
        return -(1 << self.bits - 1)

    @property
    def highest(self) -> int:
        """Largest mantissa."""
        return (1 << self.bits - 1) - 1

    @property
    def small(self) -> int:
        """If all magnitudes are below this, the exponent falls by one. It is one less than a quarter of the range, so
        that an exponent that has just risen does not fall again."""
        return (1 << self.bits - 2) - 1

    @property
    def limit(self) -> int:
        """Largest magnitude of an aligned update."""
        return (1 << self.bits - 1 + self.shift + self.guard) - 1

    @property
    def joint_bits(self) -> int:
        """Number of bits of the joint value (w << shift) - residual - aligned update, sign included."""
        return max(self.bits + self.shift + self.guard, self.residual) + 2

    @property
    def changes(self) -> range:
        """Changes of the exponent that one pass can make; the largest one fits the largest joint value."""
        return range(-1, self.joint_bits - self.bits - self.shift + 2)

    def alignment(self, exponent: int, update_exponent: int) -> int:
        """Right shift that brings the mantissas of an update to units of the residual; negative for a left shift."""
        return (exponent - (self.bits - 1) - self.shift) - (update_exponent - (self.update - 1))
