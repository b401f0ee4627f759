"""Options that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class MachineKind(StrEnum):
    """What runs the firmware."""

    GOLDEN = "golden"  #: The numpy model.
    LIBRARY = "library"  #: The Verilated machine as a library, run to completion.
    COCOTB = "cocotb"  #: The Verilated machine under cocotb, with bus models.


Machine = Annotated[MachineKind, typer.Option("--machine", help="What runs the firmware.")]
Preset = Annotated[str, typer.Option("--preset", help="Machine configuration; the first that fits, if not given.")]
Samples = Annotated[str, typer.Option("--samples", help="How many samples, or 'all'.")]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Quantised model file.", show_default=False)]


def sample_count(text: str, available: int) -> int:
    """The number that `--samples` means.

    Raises:
        ValueError: it is neither `all` nor a number of samples that there are.
    """
    if text == "all":
        return available
    if not text.isdecimal() or not 1 <= int(text) <= available:
        raise ValueError(f"--samples {text} is neither 'all' nor a number in 1..{available}")
    return int(text)
