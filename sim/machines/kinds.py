"""The kinds of machines that run firmware."""

from typing import ClassVar, Self

SERIAL = "serial:"  #: Beginning of the name of a machine at a serial port, before the name of the port.


class MachineKind(str):
    """The machine that runs the firmware, by its name.

    Raises:
        ValueError: there is no such machine.
    """

    __slots__ = ()

    GOLDEN: ClassVar[Self]  #: The numpy model.
    LIBRARY: ClassVar[Self]  #: The Verilated machine as a shared library, which runs a program to its end.
    COCOTB: ClassVar[Self]  #: The Verilated machine under cocotb, with bus models.
    NETLIST: ClassVar[Self]  #: The Verilated netlist of the machine: cells of an ECP5, as in its bitstream.

    def __new__(cls, name: str):
        if name not in KINDS and not (name.startswith(SERIAL) and name != SERIAL):
            raise ValueError(f"there is no machine {name!r}: choose one of {', '.join(KINDS)}, or {SERIAL}PORT, such "
                             f"as {SERIAL}/dev/ttyUSB0, for one on a board")
        return super().__new__(cls, name)

    @property
    def port(self) -> str:
        """The serial port at which the machine is; empty for one in this computer."""
        return self.removeprefix(SERIAL) if self.startswith(SERIAL) else ""

    @property
    def building(self) -> str:
        """How long its build takes, and when; empty where nothing is built."""
        if self == MachineKind.NETLIST:
            return "synthesis and Verilator take many minutes, where none has been built before"
        return "minutes, where none has been built before" if self in (MachineKind.LIBRARY, MachineKind.COCOTB) else ""


SOON = ("golden", "library", "cocotb")  #: Names of the machines in this computer that are there within seconds.
KINDS = (*SOON, "netlist")  #: Names of the machines in this computer.

MachineKind.GOLDEN, MachineKind.LIBRARY, MachineKind.COCOTB, MachineKind.NETLIST = map(MachineKind, KINDS)
