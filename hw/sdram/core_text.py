"""Verilog of LiteDRAM's controller, from a process of its own."""

import json
import subprocess
import sys
from dataclasses import asdict
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from concord.hw.sdram.chip import SdramChip

CORE = "sdram_core"  #: Name of the module.
PADS = 1  #: Clock cycles that registers at the pads take, which is what LiteDRAM's own pads for SDR take.


def require_litedram() -> None:
    """Refuse to go on without LiteDRAM.

    Raises:
        ValueError: it is not installed.
    """
    if find_spec("litedram") is None:
        raise ValueError("an SDRAM needs the controller LiteDRAM, which is not installed: "
                         "pip install 'concord-nnp[board]'")


@cache
def core_text(chip: SdramChip, bus: int, mhz: float) -> str:
    """Verilog of the module `CORE`, which `hw.sdram.sdram_controller.SdramController` holds.

    Args:
        chip: The chip; its clock is that of the controller.
        bus:  Bytes of the data bus of AXI4.
        mhz:  Clock.

    Raises:
        ValueError: LiteDRAM is not installed, or the clock is too fast for the chip.
        RuntimeError: LiteDRAM fails.
    """
    require_litedram()
    latency = chip.latency(mhz)
    described = {"name": CORE, "chip": asdict(chip), "bus": bus, "mhz": mhz, "latency": latency,
                 "delay": latency + PADS}
    made = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("litedram_core.py")), json.dumps(described)],
        capture_output=True, text=True, check=False)
    if made.returncode:
        raise RuntimeError(f"LiteDRAM makes no controller for {mhz:g} MHz: {made.stderr[-1000:]}")
    return made.stdout
