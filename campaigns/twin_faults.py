"""Injected faults, each named with the values of twin, golden and RTL side by side: `nox -s twin_faults`.

The first fault is one bit of one weight in the firmware; the second one is the rounding of products to binary16 in a
copy of the hardware. `nnp run --twin` runs two dense layers on the simulated hardware for each of them, and must name
layer, chain, instruction and element.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import typer
from concord.campaigns.broken_lines import replace_once
from concord.firmware.firmware import Firmware, Section, Tiles
from concord.firmware.firmware_file import save_firmware
from concord.sim.machines.build import ROOT
from concord.spec.isa.assembler import assemble
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import preset
from rich.console import Console

#: Two dense layers of 12 and 5 elements in block floating point, on the preset `tiny`.
PROGRAM = """s_wr Rows, 12
s_wr Columns, 2
v_rd NetQ
mv_mul 0
vv_add0 0
v_relu0
v_wr InitialVrf, 0
end_chain
s_wr Rows, 5
v_rd InitialVrf, 0
mv_mul 4
vv_add0 6
v_sigm0
v_wr NetQ
end_chain
end
"""
INPUTS = 16
SAMPLES = 10
#: File, text that occurs in it once, and what replaces it: the bits below the half bit no longer round up.
ROUNDING = "hw/lib/binary16_rounder.py", "rounded(field[:5], value)", "rounded(field[:5], value & 0x1ffc)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Injected:
    """A run with a fault, or without one.

    Attributes:
        title: The fault.
        file:  Name of the firmware, without its ending.
        names: What the command must say, among it layer and element of the first difference.
        code:  Its exit code.
    """

    title: str
    file: str
    names: tuple[str, ...]
    code: int = 1


NO_FAULT = Injected(title="no fault", file="right", names=(f"0 of {SAMPLES} samples differ",), code=0)
#: The weight belongs to element 3 of the output layer, the second one of its second word.
WEIGHT = Injected(title="one bit of one weight in the firmware", file="wrong",
                  names=("the first difference is in chain 1 of layer output", "wrote NetQ word 1 lane 1: twin"))
#: The element is the first one that the fault rounds to another number.
HARDWARE = Injected(title="one rounding in a copy of the hardware", file="right",
                    names=("the first difference is in chain 0 of layer hidden",
                           "wrote InitialVrf word 2 lane 0: twin"))


def main() -> None:
    """Inject faults into firmware and hardware, and let `nnp run --twin` name them; the exit code is 1 if it does not.

    An exit code of the command counts only beside the words that name layer and element, as a crash has it, too.
    """
    console, firmware = Console(), two_layers()
    with TemporaryDirectory(prefix="twin-faults-") as name:
        folder = Path(name)
        save_firmware(firmware, folder / "right.safetensors")
        save_firmware(with_changed_weight(firmware), folder / "wrong.safetensors")
        np.save(folder / "x.npy", np.random.default_rng(1).normal(size=(SAMPLES, INPUTS)))
        broken = broken_tree(folder / "tree")
        failed = False
        for injected, root in (NO_FAULT, ROOT), (WEIGHT, ROOT), (HARDWARE, broken):
            code, said = run(root, folder, f"{injected.file}.safetensors")
            wrong = problems(injected, code, said)
            console.rule(injected.title)
            lines = said if wrong else "\n".join(line for line in said.splitlines() if "differ" in line)
            console.print(lines, *wrong, sep="\n", markup=False, soft_wrap=True)
            failed |= bool(wrong)
    raise typer.Exit(failed)


def problems(injected: Injected, code: int, said: str) -> list[str]:
    """A sentence for each thing that the command should have said or returned."""
    found = [f"The command does not say {name!r}." for name in injected.names if name not in said]
    if code != injected.code:
        found.append(f"The exit code is {code}; it must be {injected.code}.")
    return found


def two_layers() -> Firmware:
    """Firmware of `PROGRAM` with random weights."""
    config, rng = preset("tiny"), np.random.default_rng(0)
    n = config.native_dim
    vector = rng.normal(size=(9, config.mfu_lanes)).astype(np.float16).view(np.uint16)
    tiles = Tiles(mantissas=rng.integers(-128, 128, (6, n, n)).astype(np.int16), integer=np.zeros(6, bool),
                  exponents=np.full((6, n), -1, np.int8))
    return Firmware(
        name="two-layers", config=config, data="", classes=(), inputs=INPUTS, outputs=5, loop=None, text=PROGRAM,
        instruction_words=np.array(assemble(PROGRAM), np.uint64), tiles=tiles,
        sections=(Section(layer="hidden", first=0, last=7), Section(layer="output", first=8, last=14)),
        vectors={Mem.ADDSUB_VRF0: vector, Mem.INITIAL_VRF: np.zeros((8, config.mfu_lanes), np.uint16)},
        biases=np.zeros((0, config.mfu_lanes), np.int32))


def with_changed_weight(firmware: Firmware) -> Firmware:
    """The same firmware with one bit of one weight of the output layer changed."""
    mantissas = firmware.tiles.mantissas.copy()
    mantissas[4, 3, 1] ^= 16
    return replace(firmware, tiles=replace(firmware.tiles, mantissas=mantissas))


def broken_tree(folder: Path) -> Path:
    """Copy the repository's rooms to a folder, and break the rounding of the hardware there."""
    for room in ROOT.glob("*/__init__.py"):
        shutil.copytree(room.parent, folder / room.parent.name, symlinks=True,
                        ignore=shutil.ignore_patterns("__pycache__"))
    replace_once(folder, *ROUNDING, "ROUNDING")
    return folder


def run(root: Path, folder: Path, firmware: str) -> tuple[int, str]:
    """Exit code and words of `nnp run --twin` with the code in `root`, on the Verilated library."""
    words = ["run", firmware, "--twin", "right.safetensors", "--inputs", "x.npy", "--machine", "library", "--quiet"]
    done = subprocess.run([sys.executable, "-m", "concord.nnp.main", *words], cwd=folder, text=True, check=False,
                          capture_output=True, env=os.environ | {"PYTHONPATH": str(root), "COLUMNS": "200"})
    return done.returncode, done.stdout + done.stderr


if __name__ == "__main__":
    typer.run(main)
