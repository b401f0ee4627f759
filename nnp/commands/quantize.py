"""`nnp quantize`: converts a trained FP32 network into a quantised model, without training."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from concord.nnp.lib import imports
from concord.nnp.lib import quantisation_options as options
from concord.nnp.lib.training import command_line, needing_torch
from concord.train.lib.methods import ActivationMethod, ActivationTraining, Gates, WeightMethod, WeightTraining

if TYPE_CHECKING:
    from concord.front.read import Imported
    from concord.model.floating.network import FloatNetwork
    from concord.train.imported.choices import Choices
    from concord.train.lib.methods import Recipe
    from concord.train.qat.network import QuantisedNetwork
    from rich.table import Table


def quantize(
    network: Annotated[str, typer.Argument(
        metavar="FILE|NETWORK",
        help="ONNX file, or what `nnp import` wrote of one. Or one of mlp, resnet, resnet-small, mobilenet, "
             "mobilenet-small, inception and inception-small, or module:callable, which makes a torch.nn.Module.")],
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
    data: imports.Data = None,
    preset: imports.Machine = "",
    arithmetic: imports.Arithmetic = options.NetworkArithmetic.INTEGER,
    block: imports.Block = None,
    weights_bits: options.WeightsBits = None,
    input_bits: options.InputBits = None,
    weights_float: options.WeightsFloat = "",
    input_float: options.InputFloat = "",
    layer: options.Layer = None,
    symmetric: options.Symmetric = None,
    ptq_weights: options.PtqWeights = WeightMethod.MMSE,
    ptq_activations: imports.PtqActivations = None,
    rows: options.Rows = 1,
    weights: options.Weights = WeightTraining.WRPN,
    activations: options.Activations = ActivationTraining.UNIFORM,
    asymmetric: imports.Asymmetric = False,
    shared: imports.Shared = False,
    gate_bits: imports.GateBits = 0,
    anew: imports.Anew = False,
):
    """Quantise a trained network without training, print the error of each layer, and write a model (needs PyTorch).

    A FILE that is quantised already keeps its integers and scales, and needs neither --data nor PyTorch.
    """
    from concord.nnp.lib.files import check_writable

    gates = Gates(asymmetric=asymmetric, shared=shared, outputs=gate_bits)
    check_writable(out)
    if not imports.is_file(network):
        if anew:
            raise ValueError("--anew is for files of networks that are quantised already: leave it out")
        if gates != Gates() or arithmetic is not options.NetworkArithmetic.INTEGER or block is not None:
            raise ValueError("--arithmetic, --block, --asymmetric, --shared and --gate-bits are for files of networks; "
                             "`nnp train image --arithmetic bfp` trains this one")
        given = options.widths(preset, weights_bits, input_bits, symmetric, weights, (weights_float, input_float))
        given.check_integers()
        _built_in(network, parameters, out, calibration, data, options.recipe(
            given, options.layer_bits(layer), ptq_weights, ptq_activations or ActivationMethod.SEARCH, rows, weights,
            activations))
        return
    if parameters is not None:
        raise ValueError(f"{network}: it holds its parameters, so leave {parameters} out; name the model file with "
                         "--out")
    bits = {"weights_bits": weights_bits, "input_bits": input_bits, "symmetric": symmetric,
            "weights_float": weights_float, "input_float": input_float}
    methods = {"layers": options.layer_bits(layer), "block": block, "gates": gates, "ptq_weights": ptq_weights,
               "ptq_activations": ptq_activations, "rows": rows, "weights": weights, "activations": activations}
    _file(Path(network), data, calibration, out, preset, bits, methods | {"arithmetic": arithmetic}, anew)


def _file(file: Path, data: str | None, calibration: Path | None, out: Path, machine: str, bits: dict, methods: dict,
          anew: bool):
    """Quantise the network of a file, or keep its integers; `bits` and `methods` are arguments of `choices_for`."""
    from concord.nnp.lib.choices import choices_for, widths
    from concord.nnp.lib.front import opened

    chosen = choices_for(machine, **bits, **methods)
    found = opened(file)
    others = (calibration is not None or methods["arithmetic"] is not options.NetworkArithmetic.INTEGER
              or chosen != choices_for(machine, **bits))
    if imports.is_kept(found[0], anew, others):
        given = widths(machine, **bits)
        given.check_integers()
        _kept(found, data, out, given, machine)
    else:
        _imported(found[0], data, calibration, out, chosen, machine)


def _kept(opened: tuple["FloatNetwork", "Imported | None"], data: str | None, out: Path, given: options.Widths,
          machine: str):
    """Write the model of a network that is quantised already, with the integers and scales of its file."""
    from concord.nnp.lib import kept

    network, imported = opened
    made = kept.kept(network, machine, given)
    samples = kept.fitting(network, imports.data_set(data) if data else None)
    model = kept.write(out, made, samples, command_line())
    typer.echo(kept.words(made, kept.difference(made, model, samples, imported)), nl=False)
    typer.echo(f"{out}: {imports.result(model)}")
    typer.echo(imports.softmax(network, model), nl=False)
    typer.echo(imports.unfit(model, machine, str(out)), nl=False)


def _imported(network: "FloatNetwork", data: str | None, calibration: Path | None, out: Path, choices: "Choices",
              machine: str):
    """Quantise the network of a file."""
    from concord.nnp.lib.progress import shown
    from rich.console import Console

    train = needing_torch("concord.train.runs.imported")
    typer.echo(imports.requantised(network), nl=False)
    source = train.prepared(network, imports.data_set(data) if data else None, choices, calibration)
    with shown() as show:
        model = train.quantize(out, source, choices, command=command_line(), progress=show)
    Console().print(f"{out}: {imports.result(model)}", soft_wrap=True, highlight=False)
    typer.echo(imports.softmax(network, model), nl=False)
    typer.echo(imports.unfit(model, machine, str(out)), nl=False)


def _built_in(network: str, parameters: Path | None, out: Path, calibration: Path | None, data: str | None,
              recipe: "Recipe"):
    """Quantise a network of this repository, or of a module of Python."""
    if parameters is None:
        raise ValueError(f"{network}: name a file behind it that holds its FP32 parameters, or an ONNX file in its "
                         "place")
    from rich.console import Console

    train = needing_torch("concord.train.runs.quantize")
    console = Console()
    source = train.trained(network, parameters, recipe, calibration, Path(data) if data else None)
    with console.status("quantising"):
        quantised = train.QuantisedNetwork(source.net, source.inputs, recipe)
    console.print(loss_table(quantised))
    with console.status("checking golden against PyTorch"):
        model = train.write(out, source, quantised, recipe, command_line())
    console.print(f"{out}: {imports.result(model)}", soft_wrap=True, highlight=False)


def loss_table(quantised: "QuantisedNetwork") -> "Table":
    """A table of the error that quantisation causes in each layer."""
    from rich.table import Table

    table = Table("layer", "weights", "inputs", "weights, dB", "inputs, dB", "inputs clipped",
                  title="signal to quantisation noise", title_justify="left")
    for name, layer in quantised.layers.items():
        loss = layer.loss
        # An average has no weights of its own.
        bits, decibels = ("-", "-") if loss.weights is None else (
            f"{layer.weights_format.bits} bits", f"{loss.weights:.1f}")
        table.add_row(name, bits, f"{layer.input_format.bits} bits", decibels, f"{loss.inputs:.1f}",
                      f"{loss.clipped:.2%}")
    return table
