"""`concord.verilog`: Verilog of a machine, and the files that an integrator needs beside it."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from concord.objects import Shown, table
from rich.console import RenderableType


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class Verilog(Shown):
    """Verilog of a machine or of a unit.

    Attributes:
        machine: Name of the machine.
        unit:    Name of the unit; "nnp" is the whole machine.
        files:   Text of each file, by its name.
    """

    machine: str
    unit: str
    files: Mapping[str, str]

    @property
    def summary(self) -> str:
        return f"Verilog of {self.unit} of {self.machine}, {len(self.files)} files"

    def tables(self) -> Iterator[RenderableType]:
        yield table(("file", "lines"), ((name, text.count("\n")) for name, text in self.files.items()))

    def save(self, folder: str | os.PathLike):
        """Write all files into a folder; they appear together."""
        from concord.lib.files import check_writable, write_all

        check_writable(Path(folder), folder=True)
        write_all(Path(folder), dict(self.files))


def verilog(preset: str = "vision", *, unit: str = "nnp") -> Verilog:
    """Generate Verilog, as `nnp verilog` does. A large machine takes minutes.

    Args:
        preset: Machine: a preset or a TOML file.
        unit:   Name of the unit, which is that of its file in hw/; "nnp" is the whole machine.

    Raises:
        ValueError: there is no such machine or unit, or no hardware can be generated.
    """
    from concord.handover.integration import verilog_files
    from concord.hw.units import component
    from concord.spec.machine.machine_file import find_config, machine_name

    config, name = find_config(preset), machine_name(preset)
    return Verilog(machine=name, unit=unit, files=verilog_files(component(unit, config), unit, name, config))
