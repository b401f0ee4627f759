"""Verilog of a machine or of a unit, and the files that an integrator needs beside it."""

from amaranth.lib.wiring import Component
from concord.handover.integration import MACHINES, package
from concord.handover.registers import register_files
from concord.hw.cascade import Cascade
from concord.hw.nnp import NNP
from concord.hw.verilog import verilog
from concord.lib.extras import require
from concord.spec.machine.config import Config


def verilog_files(unit: Component, name: str, machine: str, config: Config) -> dict[str, str]:
    """The text of each file, by its name.

    Args:
        unit:    The unit, the whole machine, or a pipeline of machines.
        name:    Name of the unit; "nnp" is the machine, and "cascade" are several, which have registers, too.
        machine: Name of the machine.
        config:  Its configuration.

    Raises:
        ValueError: the packages of the extra "synthesis" are not installed.
    """
    require("synthesis")
    files = package(unit, name, machine, config)
    if isinstance(unit, Cascade):
        files[f"{name}.v"] += "".join("\n" + verilog(NNP(each), module) for each, module in unit.modules.items())
    return files | (register_files(config) if name in MACHINES else {})
