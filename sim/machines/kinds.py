"""The kinds of machines that run firmware."""

from enum import StrEnum


class MachineKind(StrEnum):
    """The machine that runs the firmware."""

    GOLDEN = "golden"  #: The numpy model.
    LIBRARY = "library"  #: The Verilated machine as a shared library, which runs a program to its end.
    COCOTB = "cocotb"  #: The Verilated machine under cocotb, with bus models.
