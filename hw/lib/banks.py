"""Addresses of memories in banks."""

#: Attributes of a memory that is never read and written at the same address in one cycle. Without them, synthesis adds
#: a multiplexer to every block RAM.
UNCHECKED = {"no_rw_check": 1}


def low_high(value, count: int):
    """(value mod count, value / count) for a power of two `count`."""
    bits = (count - 1).bit_length()
    return value[:bits], value[bits:]
