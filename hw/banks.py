"""Addresses of memories in banks."""

__all__ = ["low_high"]


def low_high(value, count: int):
    """`value` modulo and divided by `count`, a power of two."""
    bits = (count - 1).bit_length()
    return value[:bits], value[bits:]
