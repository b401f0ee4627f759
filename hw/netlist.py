"""From Verilog to cells of an ECP5, as yosys maps them, and without carry cells that do nothing."""

import json
import subprocess
from pathlib import Path

from concord.hw.verilog import YOSYS

#: Cells of the registers with the attribute `keep`: it is one of wires, and Yosys would merge the cells of equal ones.
_KEPT = "a:keep %ci1:+[Q] t:$*dff* %i"


OPTIONS = "-nowidelut"  #: Those of synth_ecp5: without multiplexers of slices, functions of five inputs take two LUT4.


def script(top: str = "top", *, plain: bool = False, options: str = OPTIONS) -> str:
    """Yosys's commands from top.v to top.json.

    Names of wires are hidden: ABC takes none twice, and wires that nothing uses keep theirs, which makes Yosys fail.
    Those of cells stay, so that a path names the units through which it goes.

    Args:
        top:   Name of the top module.
        plain: Whether to do without multipliers and block RAM: lookup tables, carry cells and small memories do all.
        options: Options of synth_ecp5.
    """
    mapping = f"synth_ecp5 -top {top} {options}" + " -nodsp -nobram" * plain
    return "; ".join([
        "read_verilog top.v", f"hierarchy -top {top}", "rename -hide w:*", "proc",
        f"setattr -set keep 1 {_KEPT}", "opt_expr", "opt_clean", "wreduce",
        f"{mapping} -run :map_luts", "opt_clean -purge", f"{mapping} -run map_luts:check", "blackbox =A:whitebox",
        "setattr -unset src c:* w:*", "write_json top.json"])


SCRIPT = script()
#: Parameter of the first half of a carry cell that makes the carry itself, see `hw.lib.ecp5`.
_GENERATED = f"{0x000A:016b}"


def synthesise(text: str, folder: Path, *, top: str = "top", plain: bool = False, options: str = OPTIONS,
               idle: bool = False) -> Path:
    """Map Verilog to the netlist top.json in a folder.

    Args:
        text:   Verilog.
        folder: The folder, which also gets top.v and yosys.log.
        top:    Name of the top module.
        plain:  Whether to do without multipliers and block RAM.
        options: Options of synth_ecp5.
        idle:   Whether carries stay that nothing uses.

    Raises:
        RuntimeError: Yosys fails; the message ends with its output.
    """
    (folder / "top.v").write_text(text)
    commands = script(top, plain=plain, options=options)
    done = subprocess.run([YOSYS, "-q", "-l", "yosys.log", "-p", commands], cwd=folder, check=False,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
    if done.returncode:
        raise RuntimeError(f"yosys failed:\n{done.stderr[-2000:]}")
    path = folder / "top.json"
    design = json.loads(path.read_text())
    design["modules"] = {top: design["modules"][top]}  # without descriptions of cells
    if not idle:
        without_idle_carries(design["modules"][top]["cells"])
    path.write_text(json.dumps(design))
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
