"""Converter: totals of the accumulator, rounded to binary16. `net/lowering/rounding.py` rounds biases."""

from concord.golden.lib.float16 import from_integer
from concord.spec.machine.config import Config


def convert(config: Config, totals, *, integer: bool, out_scale: int = 0):
    """Round totals once: totals * 2**-acc_frac, or totals * 2**-out_scale in integer mode.

    Args:
        config:    The machine.
        totals:    int64[...], or Python integers.
        integer:   Whether the product is in integer mode.
        out_scale: Value of OutScale, -32 to 31.

    Returns:
        uint16[...], binary16 patterns.
    """
    return from_integer(totals, out_scale if integer else config.acc_frac)
