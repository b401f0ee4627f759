"""Addresses of memories in banks."""

__all__ = ["UNCHECKED", "low_high"]

#: Attributes of a memory whose reads do not care for a write to the same address in the same cycle: without, synthesis
#: puts a multiplexer behind every block RAM.
UNCHECKED = {"no_rw_check": 1}


def low_high(value, count: int):
    """`value` modulo and divided by `count`, a power of two."""
    bits = (count - 1).bit_length()
    return value[:bits], value[bits:]
