"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer
from concord.lib.input_axes import Order
from concord.sim.machines.kinds import MachineKind

#: Help of `-o` of the commands that write outputs.
OUTPUTS = ("File to write the outputs to: a .npy array; an .npz file with an array for each output by its name; or a "
           ".csv file with a line for each sample.")
MACHINES = "[golden|library|cocotb|netlist|serial:PORT]"  #: What `--machine` takes.


def machine_kind(name: str) -> MachineKind:
    """The machine of a name, for typer, which reports the error."""
    try:
        return MachineKind(name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Machine = Annotated[MachineKind, typer.Option(
    "--machine", metavar=MACHINES, parser=machine_kind,
    help="Machine that runs the firmware: the numpy model (golden), Verilated hardware as a library or under cocotb, "
         "its netlist after synthesis, or a board at a serial port.")]
Preset = Annotated[str, typer.Option(
    "--preset", "--config", metavar="MACHINE", show_default=False,
    help="Name of a preset, or TOML file of a machine; if not given, the first preset that fits the model.")]
Machines = Annotated[int, typer.Option(
    "--machines", help="Number of machines that share the network; each sends its results to the next one.")]
Cut = Annotated[str, typer.Option(
    "--cut", metavar="LAYER", show_default="where the machines share the work best",
    help="Layers after which the network is cut, with commas between them: one less than machines.")]
Cores = Annotated[int, typer.Option(
    "--cores", help="Number of machines that share one memory; each runs the whole network, and they take samples in "
                    "turns.")]
Batch = Annotated[int, typer.Option(
    "--batch", help="Number of samples that the machine takes at once, so that they share each tile that comes from "
                    "memory outside the chip; for networks of vectors.")]
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
    "--data", metavar="LOCATION", help="Data set: a .npz, .npy or .csv file, a folder (of images by class, of "
                                       "t10k-*.gz files, or of .ts files), module:callable, or a .toml file that "
                                       "describes one.",
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
OneOutput = Annotated[str | None, typer.Option(
    "--output", metavar="NAME", show_default=False,
    help="Name of the output that the machine gives, if the ONNX file has several, or of a tensor inside; or several "
         "names with commas between them, whose tensors become one vector. Labels of classes are those of one output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the summary, not a line for each sample.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", help="Number of worker processes.", min=1)]
Scheduler = Annotated[str, typer.Option(
    "--scheduler", metavar="ADDRESS", show_default=False,
    help="Take the workers of the Dask cluster whose scheduler is at this address, such as tcp://192.168.0.1:8786, "
         "instead of processes of this computer (docs/cluster.md).")]
First = Annotated[int, typer.Option("--first", help="Index of the first sample.")]
FirstState = Annotated[str, typer.Option(
    "--first-state", metavar="STATE", show_default="that of the model",
    help="State of recurrent layers before the first time step: zero, uniform or normal, with a seed as uniform:7, or "
         "an .npz file with an array for each layer and state, such as lstm1.hidden; what it does not name stays.")]
KeepState = Annotated[bool, typer.Option(
    "--keep-state", help="Samples are parts of one sequence: each starts from the state that the last one left.")]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="Path or URL of a quantised model.", show_default=False)]
