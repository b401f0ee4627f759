"""Training tensors: widths of mantissas, the range of exponents, and what the lazy update keeps of a parameter.

A block of `bits` is signed mantissas under one exponent E: value = mantissa * 2**(E - (bits - 1)). The exponent follows
the rule E = ceil(log2 of the largest magnitude), so that an exact power of two saturates, and mantissas round half away
from zero. A block is a whole tensor, or what lies along some of its axes.

Source: S2; numerics.md of the specification, lazy update and training tensors.
"""

from dataclasses import dataclass
from enum import IntEnum, IntFlag

E_MIN, E_MAX = -126, 128  #: of every block, stored as E - E_MIN in 8 bits; a block of zeros has E_MIN
EXPONENT_BITS = 8
MOST_LANES = 256  #: Most parameters that the lazy-update unit takes in one cycle.


class Width(IntEnum):
    """Mantissa bits of each kind of tensor, sign included."""

    PARAMETER = 8  #: weights and biases, the source's first
    ACTIVATION = 8  #: and the network's input, the second
    GRADIENT = 16  #: of activations, the third
    LINEAR = 32  #: sums, weight gradients and parameter updates, the fourth
    RESIDUAL = 16  #: what a parameter's mantissa does not show yet, the fifth


class Ask(IntFlag):
    """Why a block must go through the lazy update once more, from where it began."""

    CHANGE = 1  #: its exponent must change: a mantissa leaves the range, or all fit in one bit less
    FRESH = 2  #: all of it was zero, so that it has no exponent yet: it takes the update's


@dataclass(frozen=True, kw_only=True, slots=True)
class LazyFormat:
    """What is kept of a parameter: a mantissa w and a residual r, worth w - r / 2**shift units of the mantissa.

    Attributes:
        bits:     Bits of a mantissa.
        residual: Bits of a residual.
        shift:    t: one unit of the mantissa is 2**t units of the residual, 1 <= t <= residual - 1.
        update:   Bits of the mantissas of an update.
        guard:    Bits by which an aligned update may exceed the mantissas' range before it saturates.

    Raises:
        ValueError: a width out of its range.
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
        """Mantissas all of magnitude below this fit in one bit less. One less than a quarter of the range, so that a
        block whose exponent has just risen stays."""
        return (1 << self.bits - 2) - 1

    @property
    def limit(self) -> int:
        """Largest magnitude of an aligned update."""
        return (1 << self.bits - 1 + self.shift + self.guard) - 1

    @property
    def joint_bits(self) -> int:
        """Bits of the joint value (w << shift) - residual - aligned update, sign included."""
        return max(self.bits + self.shift + self.guard, self.residual) + 2

    @property
    def changes(self) -> range:
        """By how much one pass can change an exponent: enough for the largest joint value."""
        return range(-1, self.joint_bits - self.bits - self.shift + 2)

    def alignment(self, exponent: int, update_exponent: int) -> int:
        """Right shift, negative for left, of an update's mantissas to units of the residual."""
        return (exponent - (self.bits - 1) - self.shift) - (update_exponent - (self.update - 1))
