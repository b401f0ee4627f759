"""Verilog of a machine or of a unit, and the files that an integrator needs beside it."""

from amaranth.lib.wiring import Component
from concord.nnp.handover.registers import register_files
from concord.nnp.lib.integration import package
from concord.spec.config import Config


def verilog_files(unit: Component, name: str, machine: str, config: Config) -> dict[str, str]:
    """The text of each file, by its name.

    Args:
        unit:    The unit, or the whole machine.
        name:    Name of the unit; "nnp" is the machine, which has registers, too.
        machine: Name of the machine.
        config:  Its configuration.
    """
    return package(unit, name, machine, config) | (register_files(config) if name == "nnp" else {})
