"""Operand formats, which define the value of a block of mantissas."""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

WIDEST_FIXED = 16  #: Most bits of a mantissa whose element has no exponent of its own.
WIDEST_FLOATING = 36  #: Most bits of a mantissa whose element has one.
EXACT_BITS = 53  #: Bits of the magnitudes that float64 holds, in which golden adds up products.


class Rule(StrEnum):
    """How a block's exponent follows from its largest magnitude `a`."""

    CEIL = "ceil"  #: E = ceil(log2 a). An exact power of two clips.
    FREXP = "frexp"  #: 2**(E-1) <= a < 2**E. Only a value that rounds up to 2**E clips.


def check_types(record) -> None:
    """Refuse a dataclass in which an attribute does not have the type of its annotation; a bool is no int.

    Raises:
        ValueError: a sentence that names the attribute.
    """
    for field in fields(record):
        value, kind = getattr(record, field.name), field.type
        if type(value) is not kind:
            raise ValueError(f"{field.name} = {value!r} must be of type {getattr(kind, '__name__', kind)}, not "
                             f"{type(value).__name__}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """Signed mantissas of `bits` bits under one exponent: value = mantissa * 2**(E - (bits - 1)).

    In integer mode, the exponent is ignored and the value is the mantissa.

    With a precision p, a mantissa is m * 2**s, |m| < 2**p and 0 <= s <= bits - 1 - p: each element has an exponent s of
    its own, a block of one. It is stored as sign, exponent field and fraction. p = 1 makes it 0 or a power of two.

    Attributes:
        bits:      Number of bits of one mantissa, sign included, 2 to 16; with a precision p, p + 2**n - 1 for exponent
                   fields of n bits, at most 36.
        symmetric: Whether the lowest mantissa is -(2**(bits-1) - 1) instead of -2**(bits-1).
        e_min:     Smallest exponent E, at least -15.
        e_max:     Largest exponent E, at most 16.
        rule:      Rule by which the exponent is chosen.
        precision: Number of significant bits of an element that has its own exponent; 0 for elements that have none.

    Source: numerics.md of the specification, block floating point; S4.h, reduced-precision float and logarithmic.
    """

    bits: int = 8
    symmetric: bool = False
    e_min: int = -15
    e_max: int = 16
    rule: Rule = Rule.FREXP
    precision: int = 0

    def __post_init__(self):
        check_types(self)
        if not -15 <= self.e_min <= self.e_max <= 16:
            raise ValueError(f"exponents lie in -15..16 and rise, not {self.e_min}..{self.e_max}")
        if self.precision:
            self._check_elements()
        elif not 2 <= self.bits <= WIDEST_FIXED:
            raise ValueError(f"a mantissa has 2 to {WIDEST_FIXED} bits, not {self.bits}")

    def _check_elements(self):
        """Refuse elements with exponents of their own that have no code."""
        if not 1 <= self.precision <= 11:
            raise ValueError(f"precision = {self.precision}: an element has 1 to 11 significant bits, or 0 for none of "
                             "its own exponent")
        legal = [self.precision + (1 << n) - 1 for n in range(1, 6)]
        if self.bits not in legal or self.bits > WIDEST_FLOATING:
            raise ValueError(f"a mantissa of {self.bits} bits has no exponent field of {self.precision} significant "
                             f"bits: choose {', '.join(str(bits) for bits in legal if bits <= WIDEST_FLOATING)} bits")
        if not self.symmetric or self.rule is not Rule.FREXP:
            raise ValueError("elements with a precision have a sign and a magnitude: they need symmetric = true and "
                             "the rule frexp")

    @classmethod
    def floating(cls, exponent: int, fraction: int, **others) -> "Format":
        """Elements of `exponent` bits of exponent field and `fraction` bits after the leading one, as in E2M1.

        Raises:
            ValueError: there is no such format.
        """
        if not 1 <= exponent <= 5 or fraction < 0:
            raise ValueError(f"E{exponent}M{fraction}: an exponent field has 1 to 5 bits, and a fraction 0 or more")
        precision = fraction + 1
        return cls(bits=precision + (1 << exponent) - 1, symmetric=True, precision=precision, **others)

    @classmethod
    def from_record(cls, record: dict) -> "Format":
        """Make a format from a record that `dataclasses.asdict` made, also after a trip through JSON."""
        made: dict[str, Any] = record | {"rule": Rule(record["rule"])}
        return cls(**made)

    @property
    def lowest(self) -> int:
        """Smallest mantissa."""
        return -self.highest - (not self.symmetric)

    @property
    def highest(self) -> int:
        """Largest mantissa."""
        significant = self.precision or self.bits - 1
        return (1 << significant) - 1 << self.bits - 1 - significant

    @property
    def levels(self) -> int:
        """Largest unsigned code of integer mode."""
        return self.highest - (0 if self.precision else self.lowest)

    @property
    def zero(self) -> int:
        """Zero point: an unsigned code u is stored as the signed mantissa u - zero; 0 for elements with a precision."""
        return 0 if self.precision else -self.lowest

    @property
    def field_bits(self) -> int:
        """Number of bits of the exponent field of an element with a precision; 0 for others."""
        return (self.bits - self.precision).bit_length() if self.precision else 0

    @property
    def code_bits(self) -> int:
        """Number of bits in which an element is stored: two's complement, or sign, exponent field and fraction."""
        return 1 + self.field_bits + self.precision - 1 if self.precision else self.bits

    @property
    def exponent_bits(self) -> int:
        """Number of bits of the stored exponent E - e_min, at least 1."""
        return max(1, (self.e_max - self.e_min).bit_length())

    @property
    def dtype(self) -> str:
        """Type of the arrays in memory and in files that hold mantissas."""
        return "int16" if self.bits <= WIDEST_FIXED else "int64"

    @property
    def element(self) -> str:
        """What one element is, in words: "4 bits", or "E2M1" and the like."""
        return f"E{self.field_bits}M{self.precision - 1}" if self.precision else f"{self.bits} bits"


def product_sum_bits(weights: Format, inputs: Format, count: int) -> int:
    """Number of bits of the magnitude of a sum of `count` products of mantissas, at most."""
    return weights.bits - 1 + inputs.bits - 1 + max(0, count - 1).bit_length()
