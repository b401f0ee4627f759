"""Options that several commands share."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class MachineKind(StrEnum):
    """The machine that runs the firmware."""

    GOLDEN = "golden"  #: The numpy model.
    LIBRARY = "library"  #: The Verilated machine as a shared library, which runs a program to its end.
    COCOTB = "cocotb"  #: The Verilated machine under cocotb, with bus models.


Machine = Annotated[MachineKind, typer.Option(
    "--machine",
    help="Machine that runs the firmware: the numpy model (golden), or Verilated hardware as a library or under "
         "cocotb.")]
Preset = Annotated[str, typer.Option(
    "--preset", "--config", metavar="MACHINE", show_default=False,
    help="Name of a preset, or TOML file of a machine; if not given, the first preset that fits the model.")]
Machines = Annotated[int, typer.Option(
    "--machines", help="Number of machines that share the network; each sends its results to the next one.")]
Cut = Annotated[str, typer.Option(
    "--cut", metavar="LAYER", show_default="where the machines share the work best",
    help="Layers behind which the network is cut, with commas between them: one less than machines.")]
Samples = Annotated[str | None, typer.Option(
    "--samples", help="Number of samples, or 'all'.", show_default="10, or as many as there are")]
ManySamples = Annotated[str | None, typer.Option(
    "--samples", help="Number of samples, or 'all'.", show_default="200, or as many as there are")]
Inputs = Annotated[Path | None, typer.Option(
    "--inputs", help="A .npy file of real numbers instead of a test set. Its axes are samples, then "
                     "time steps for a recurrent network, then those of one input, which are flattened in C order "
                     "(the last index changes fastest).",
    show_default=False)]
TestData = Annotated[str | None, typer.Option(
    "--data", metavar="PLACE", help="Data set: a .npz, .npy or .csv file, a folder (of images by class, of t10k-*.gz "
                                    "files, or of .ts files), module:callable, or a .toml file that describes one.",
    show_default="the shipped test set that the model names")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the summary, not a line for each sample.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", help="Number of worker processes.", min=1)]
CORES = os.cpu_count() or 1  #: Number of worker processes by default.
First = Annotated[int, typer.Option("--first", help="Index of the first sample.")]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="Path or URL of a quantised model.", show_default=False)]


def named(kind: type[StrEnum], name: str) -> StrEnum:
    """The member of a table of names.

    Raises:
        ValueError: there is none of this name.
    """
    if name not in list(kind):
        raise ValueError(f"{name!r}: choose one of {', '.join(kind)}")
    return kind(name)


def sample_range(text: str | None, first: int, available: int, default: int) -> slice:
    """The range of samples that `--samples` and `--first` choose.

    Args:
        text:      A number, "all", or None for `default` samples, or for all if there are fewer.
        first:     Index of the first sample.
        available: Number of samples that there are.
        default:   Number of samples if `text` is None.

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
