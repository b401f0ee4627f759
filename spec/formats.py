"""Operand formats, which define the value of a block of mantissas."""

from dataclasses import dataclass, fields
from enum import StrEnum


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
        value = getattr(record, field.name)
        if type(value) is not field.type:
            raise ValueError(f"{field.name} = {value!r} must be of type {field.type.__name__}, not "
                             f"{type(value).__name__}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """Signed mantissas of `bits` bits under one exponent: value = mantissa * 2**(E - (bits - 1)).

    In integer mode, the exponent is ignored and the value is the mantissa.

    Attributes:
        bits:      Number of bits of one mantissa, sign included, 2 to 16.
        symmetric: Whether the lowest mantissa is -(2**(bits-1) - 1) instead of -2**(bits-1).
        e_min:     Smallest exponent E, at least -15.
        e_max:     Largest exponent E, at most 16.
        rule:      Rule by which the exponent is chosen.

    Source: numerics.md of the specification, block floating point.
    """

    bits: int = 8
    symmetric: bool = False
    e_min: int = -15
    e_max: int = 16
    rule: Rule = Rule.FREXP

    def __post_init__(self):
        check_types(self)
        if not 2 <= self.bits <= 16:
            raise ValueError(f"a mantissa has 2 to 16 bits, not {self.bits}")
        if not -15 <= self.e_min <= self.e_max <= 16:
            raise ValueError(f"exponents lie in -15..16 and rise, not {self.e_min}..{self.e_max}")

    @classmethod
    def from_record(cls, record: dict) -> "Format":
        """Make a format from a record that `dataclasses.asdict` made, also after a trip through JSON."""
        return cls(**record | {"rule": Rule(record["rule"])})

    @property
    def lowest(self) -> int:
        """Smallest mantissa."""
        return -(1 << self.bits - 1) + self.symmetric

    @property
    def highest(self) -> int:
        """Largest mantissa."""
        return (1 << self.bits - 1) - 1

    @property
    def levels(self) -> int:
        """Largest unsigned code of integer mode."""
        return self.highest - self.lowest

    @property
    def zero(self) -> int:
        """Zero point: an unsigned code u is stored as the signed mantissa u - zero."""
        return -self.lowest

    @property
    def exponent_bits(self) -> int:
        """Number of bits of the stored exponent E - e_min, at least 1."""
        return max(1, (self.e_max - self.e_min).bit_length())
