"""The call that quantises numbers to a format, and what its codes are."""

from typing import NamedTuple

from concord.spec.numbers.formats import Format


class Quantizer(NamedTuple):
    """A call of a quantiser of the vocabulary.

    Attributes:
        size:     Number of neighbours that share an exponent; 0 where numbers are quantised one by one.
        codes:    What its codes are: `integers`, or `blocks` for real numbers mantissa * 2**exponent.
        zero:     Zero point, which is subtracted from codes before they are multiplied.
        limit:    Largest magnitude of codes, less `zero`.
        function: Name of the function.
        settings: Its settings, as pairs of name and value.
    """

    size: int
    codes: str
    zero: int
    limit: float
    function: str
    settings: tuple[tuple[str, object], ...]


def quantizer(fmt: Format, size: int, *, integer: bool, unsigned: bool = False) -> Quantizer:
    """The quantiser of a format.

    Args:
        fmt:      The format.
        size:     Number of neighbours that share an exponent, in block floating point.
        integer:  Whether codes are integers.
        unsigned: Whether these integers are unsigned codes.
    """
    if integer:
        low, high = (0, fmt.levels) if unsigned else (fmt.lowest, fmt.highest)
        zero = fmt.zero * unsigned
        function, precision = ("floats", {"precision": fmt.precision}) if fmt.precision else ("integers", {})
        return _made(0, "integers", zero, max(zero - low, high - zero), function, precision, lowest=low, highest=high)
    if fmt.precision and fmt.e_min == fmt.e_max:
        fraction = fmt.bits - 1 - fmt.e_min
        low, high = fmt.lowest * 2.0**-fraction, fmt.highest * 2.0**-fraction
        return _made(0, "blocks", 0, high, "floats", {"precision": fmt.precision}, lowest=low, highest=high,
                     fraction=fraction)
    function, others = "blocks", {"rule": str(fmt.rule), "symmetric": fmt.symmetric}
    if fmt.precision:
        function, others = "float_blocks", {"precision": fmt.precision}
    return _made(size, "blocks", 0, 2.0**fmt.e_max, function, {"size": size, "bits": fmt.bits, "exponents": (
        fmt.e_min, fmt.e_max)}, **others)


def _made(size, codes, zero, limit, function, first, **others) -> Quantizer:
    return Quantizer(size, codes, zero, limit, function, tuple({**first, **others}.items()))
