"""Options that several commands share."""

import os
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
Samples = Annotated[str | None, typer.Option(
    "--samples", help="How many samples, or 'all'.", show_default="10, or as many as there are")]
ManySamples = Annotated[str | None, typer.Option(
    "--samples", help="How many samples, or 'all'.", show_default="200, or as many as there are")]
Inputs = Annotated[Path | None, typer.Option(
    "--inputs", help="A .npy of real numbers instead of a test set. Axes are samples, of sequences also steps, and "
                     "those of an input, which are flattened in C order: the last index changes fastest.",
    show_default=False)]
TestData = Annotated[Path | None, typer.Option(
    "--data", help="Folder of a test set: t10k-*.gz images, or JapaneseVowels_TEST.ts.",
    show_default="the shipped one that the model names")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the summary, and no line for each sample.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", help="Worker processes.", min=1)]
CORES = os.cpu_count() or 1  #: Worker processes where nothing is said.
First = Annotated[int, typer.Option("--first", help="Index of the first sample.")]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="Quantised model file, or its URL.", show_default=False)]


def sample_range(text: str | None, first: int, available: int, default: int) -> slice:
    """The samples that `--samples` and `--first` mean.

    Args:
        text:      A number, "all", or None for `default`, or all where there are fewer.
        first:     Index of the first sample.
        available: How many there are.
        default:   How many are meant where nothing is said.

    Raises:
        ValueError: there are no such samples.
    """
    if not 0 <= first < available:
        raise ValueError(f"--first {first} is not one of the samples 0..{available - 1}")
    if text is None:
        return slice(first, min(first + default, available))
    if text == "all":
        return slice(first, available)
    if not text.isdecimal() or not 1 <= int(text) <= available - first:
        raise ValueError(f"--samples {text} is neither 'all' nor a number in 1..{available - first}")
    return slice(first, first + int(text))
