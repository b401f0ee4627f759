"""Options that several commands share."""

from enum import StrEnum
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
First = Annotated[int, typer.Option("--first", help="Index of the first sample.")]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="Quantised model file, or its URL.", show_default=False)]


def sample_range(text: str, first: int, available: int) -> slice:
    """The samples that `--samples` and `--first` mean.

    Raises:
        ValueError: there are no such samples.
    """
    if not 0 <= first < available:
        raise ValueError(f"--first {first} is not one of the samples 0..{available - 1}")
    if text == "all":
        return slice(first, available)
    if not text.isdecimal() or not 1 <= int(text) <= available - first:
        raise ValueError(f"--samples {text} is neither 'all' nor a number in 1..{available - first}")
    return slice(first, first + int(text))
