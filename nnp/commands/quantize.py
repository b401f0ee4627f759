"""`nnp quantize`: converts a trained FP32 network into a quantised model, without training."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from concord.nnp.lib import quantisation_options as options
from concord.train.lib.methods import ActivationMethod, ActivationTraining, WeightMethod, WeightTraining

if TYPE_CHECKING:
    from concord.train.qat.network import QuantisedNetwork
    from rich.table import Table


def quantize(
    network: options.Network,
    parameters: Annotated[Path, typer.Argument(
        help="Safetensors file of the network's FP32 parameters.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Model file.")] = Path("quantized.safetensors"),
    calibration: Annotated[
        Path | None,
        typer.Option(
            "--calibration",
            help="A .npy file of real inputs: samples, then the axes of one input.",
                     show_default="training images")
    ] = None,
    data: options.Data = None,
    preset: options.Preset = "",
    weights_bits: options.WeightsBits = None,
    input_bits: options.InputBits = None,
    layer: options.Layer = None,
    symmetric: options.Symmetric = None,
    ptq_weights: options.PtqWeights = WeightMethod.MMSE,
    ptq_activations: options.PtqActivations = ActivationMethod.SEARCH,
    rows: options.Rows = 1,
    weights: options.Weights = WeightTraining.WRPN,
    activations: options.Activations = ActivationTraining.UNIFORM,
):
    """Quantise a trained network without training, print the error of each layer, and write a model (needs PyTorch)."""
    import shlex
    import sys

    from concord.nnp.lib.files import check_writable
    from concord.nnp.lib.training import needing_torch
    from rich.console import Console

    given = options.widths(preset, weights_bits, input_bits, symmetric, weights)
    recipe = options.recipe(given, layer, ptq_weights, ptq_activations, rows, weights, activations)
    check_writable(out)
    train = needing_torch("concord.train.runs.quantize")
    console = Console()
    source = train.trained(network, parameters, recipe, calibration, data)
    with console.status("quantising"):
        quantised = train.QuantisedNetwork(source.net, source.inputs, recipe)
    console.print(loss_table(quantised))
    with console.status("checking golden against PyTorch"):
        model = train.write(out, source, quantised, recipe, shlex.join(["nnp", *sys.argv[1:]]))
    made = model.provenance
    accuracies = "no test set, so no accuracy" if source.images is None else (
        f"accuracy FP32 {made.fp32_accuracy:.2%}, quantised {made.golden_accuracy:.2%}")
    console.print(f"{out}: {accuracies}")


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
