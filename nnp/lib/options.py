"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer
from concord.lib.input_axes import Order
from concord.sim.machines.kinds import MachineKind

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
OwnData = Annotated[str | None, typer.Option(
    "--data", metavar="DATA", show_default=False,
    help="Data of your own: a TOML, .npz or .csv file, a folder, or module:callable.")]
Anew = Annotated[bool, typer.Option(
    "--anew", help="Choose new integers and scales for a network that is quantised already, instead of its own.")]
AxesOrder = Annotated[Order | None, typer.Option(
    "--order", show_default="file", help="Order of the axes of a sample in --data, --inputs and --calibration: as the "
                                         "network's file takes them, or as the machine reads them (channels, rows, "
                                         "columns).")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the summary, not a line for each sample.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", help="Number of worker processes.", min=1)]
First = Annotated[int, typer.Option("--first", help="Index of the first sample.")]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="Path or URL of a quantised model.", show_default=False)]
