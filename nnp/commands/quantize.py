"""`nnp quantize`: converts a trained FP32 network into a quantised model, without training."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from concord.lib.extras import needing
from concord.net.quantize.options import DEFAULTS, QuantizationOptions
from concord.nnp.lib.field_options import TRAINING, quantizing
from concord.nnp.lib.options import Anew, AxesOrder, OneOutput, OwnData
from concord.workflows import imports
from concord.workflows.training import command_line

if TYPE_CHECKING:
    from concord.datasets.samples import DataSet
    from concord.frontends.onnx.read import Imported
    from concord.lib.input_axes import Order
    from concord.net.graph import Graph
    from concord.net.quantize.choices import Choices
    from concord.net.quantize.integers import Integers
    from concord.net.quantize.widths import Widths
    from rich.table import Table


@quantizing(without=TRAINING)
def quantize(
    network: Annotated[str, typer.Argument(
        metavar="FILE|NETWORK",
        help="ONNX file, what `nnp import` wrote of one, or a model, whose float network is quantised. "
             "Or one of mlp, resnet, resnet-small, mobilenet, mobilenet-small, inception and inception-small, "
             "or module:callable, which makes a torch.nn.Module.")],
    parameters: Annotated[Path | None, typer.Argument(
        help="Safetensors file of the FP32 parameters, for a NETWORK.", show_default=False)] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Model file.")] = Path("quantized.safetensors"),
    calibration: Annotated[
        Path | None,
        typer.Option(
            "--calibration",
            help="A .npy file of real inputs: samples, then the axes of one input.",
                     show_default="the data's calibration set, or 256 of its training samples")
    ] = None,
    data: OwnData = None,
    order: AxesOrder = None,
    output: OneOutput = None,
    chosen: QuantizationOptions = DEFAULTS,
    anew: Anew = False,
):
    """Quantise a trained network without training, print the error of each layer, and write a model.

    A FILE that is quantised already keeps its integers and scales, and needs no --data. Without a machine and bits, the
    model gets the narrowest formats that keep them. A NETWORK needs PyTorch.
    """
    from concord.lib.files import check_writable

    check_writable(out)
    if not imports.is_file(network):
        if anew:
            raise ValueError("--anew is for files of networks that are quantised already: leave it out")
        if chosen.gates != DEFAULTS.gates or chosen.arithmetic is not DEFAULTS.arithmetic or chosen.block is not None:
            raise ValueError("--arithmetic, --block, --asymmetric, --shared, --gate-bits and --bias-bits are for files "
                             "of networks; `nnp train image --arithmetic bfp` trains this one")
        if chosen.equalize or chosen.reconstruct:
            option = "--equalize" if chosen.equalize else "--reconstruct"
            raise ValueError(f"{option} is for files of networks: export this one to ONNX, or leave it out")
        imports.check_no_output(network, output)
        _built_in(network, parameters, out, calibration, data, chosen)
        return
    if parameters is not None:
        raise ValueError(f"{network}: it holds its parameters, so leave {parameters} out; name the model file with "
                         "-o")
    _file(Path(network), data, calibration, order, output, out, chosen, anew)


def _file(file: Path, data: str | None, calibration: Path | None, order: "Order | None", output: str | None,
          out: Path, chosen: QuantizationOptions, anew: bool):
    """Quantise the network of a file, or keep its integers."""
    found = imports.opened_or_kept(file, data, calibration, order, output)
    kept, choices, given = imports.decided(found[0], chosen, anew, calibration is not None)
    samples = imports.data_set(data, *found, order) if data else None
    if kept:
        _kept(found, samples, out, given, chosen.preset)
    else:
        _imported(found, samples, calibration, order, out, choices, chosen.preset)


def _kept(opened: tuple["Graph", "Imported | None"], samples: "DataSet | None", out: Path,
          given: "Widths | None", machine: str):
    """Write the model of a network that is quantised already, with the integers and scales of its file."""
    from concord.workflows import prequantized as kept

    network, imported = opened
    made = kept.kept(network, machine, given)
    model = kept.write(out, made, samples, command_line())
    typer.echo(kept.words(made, kept.difference(made, model, samples, imported)), nl=False)
    typer.echo(f"{out}: {imports.result(model)}")
    typer.echo(imports.softmax(network, model), nl=False)
    typer.echo(imports.runs_on(model, machine, str(out)), nl=False)


def _imported(opened: tuple["Graph", "Imported | None"], samples: "DataSet | None", calibration: Path | None,
              order: "Order | None", out: Path, choices: "Choices", machine: str):
    """Quantise the network of a file."""
    network, imported = opened
    from concord.lib.progress import shown
    from concord.net.quantize import run
    from rich.console import Console

    typer.echo(imports.requantized(network), nl=False)
    if calibration:
        imports.compare_file(calibration, network, imported, order)
    source = run.opened(network, samples, choices, calibration, order)
    with shown() as show:
        model = run.quantize(out, source, choices, command=command_line(), progress=show)
    Console().print(f"{out}: {imports.result(model)}", markup=False, soft_wrap=True, highlight=False)
    typer.echo(imports.softmax(network, model), nl=False)
    typer.echo(imports.runs_on(model, machine, str(out)), nl=False)


def _built_in(network: str, parameters: Path | None, out: Path, calibration: Path | None, data: str | None,
              chosen: QuantizationOptions):
    """Quantise a network of this repository, or of a module of Python."""
    if parameters is None:
        raise ValueError(f"{network}: name a file after it that holds its FP32 parameters, or an ONNX file "
                         "instead of it")
    from rich.console import Console

    train = needing("train", "concord.train.runs.quantize")
    console, recipe = Console(), chosen.recipe()
    source = train.trained(network, parameters, recipe, calibration, Path(data) if data else None)
    with console.status("quantising"):
        made, integers = train.quantize(source, recipe)
    console.print(loss_table(integers))
    with console.status("measuring golden"):
        model = train.write(out, source, made, recipe, command_line())
    console.print(f"{out}: {imports.result(model)}", markup=False, soft_wrap=True, highlight=False)
    typer.echo(imports.runs_on(model, chosen.preset, str(out)), nl=False)


def loss_table(integers: "Integers") -> "Table":
    """A table of the error that quantisation causes in each layer."""
    from rich.table import Table

    table = Table("layer", "weights", "inputs", "weights, dB", "inputs, dB", "inputs clipped",
                  title="signal to quantisation noise", title_justify="left")
    for name, rows in integers.rows.items():
        loss = integers.losses[name]
        # An average has no weights of its own.
        bits, decibels = ("-", "-") if loss.weights is None or rows.grid is None else (
            f"{rows.grid.format.bits} bits", f"{loss.weights:.1f}")
        table.add_row(name, bits, "-" if rows.inputs is None else f"{rows.inputs.bits} bits", decibels,
                      f"{loss.inputs:.1f}", f"{loss.clipped:.2%}")
    return table
