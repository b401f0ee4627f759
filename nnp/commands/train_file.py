"""`nnp train FILE`: trains an imported network on behind quantisers, from its own weights."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from concord.nnp.lib import imports
from concord.nnp.lib import quantisation_options as options
from concord.nnp.lib.files import check_writable
from concord.nnp.lib.front import read_float
from concord.nnp.lib.storage import written
from concord.nnp.lib.training import Checkpoint, Log, followed, needing_torch, settings
from concord.train.lib.methods import (
    ActivationTraining,
    Gates,
    Start,
    WeightMethod,
    WeightTraining,
)

#: Name of the command, which its help shows as the place of a file.
FILE = "FILE"


def train_file(
    file: Annotated[str, typer.Argument(
        metavar="FILE", help="ONNX file, or what `nnp import` wrote of one.", show_default=False)],
    data: imports.Data = None,
    machine: imports.Machine = "",
    out: Annotated[str, typer.Option(
        "--out", "-o", help="Model file: a path or URL.")] = "trained.safetensors",
    seed: Annotated[int, typer.Option("--seed", help="Seed of every random choice.")] = 0,
    epochs: Annotated[str, typer.Option(
        "--epochs", metavar="QAT,MACHINE",
        help="Epochs of quantisation-aware training (QAT), and of QAT in the machine's arithmetic.")] = "4,1",
    rate: Annotated[float | None, typer.Option(
        "--rate", help="Learning rate at the beginning.", show_default="0.01, 0.0005 for recurrent networks")] = None,
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
    start: options.Begin = Start.PTQ,
    batch_norm: options.BatchNorm = False,
    keep_input: options.KeepInput = False,
    asymmetric: imports.Asymmetric = False,
    shared: imports.Shared = False,
    gate_bits: imports.GateBits = 0,
    accumulator: Annotated[int | None, typer.Option(
        "--accumulator", help="Bits of the accumulator; ranges are enlarged until no sum overflows it.",
        show_default="any")] = None,
    log: Log = None,
    checkpoint: Checkpoint = None,
):
    """An imported network of your own on your own data, from its weights."""
    from concord.model.data.read import digest
    from rich.console import Console

    gates = Gates(asymmetric=asymmetric, shared=shared, outputs=gate_bits)
    given = imports.widths(machine, weights_bits, input_bits, symmetric, weights, gates, (weights_float, input_float))
    method = ptq_activations or imports.activation_method(arithmetic)
    recipe = options.recipe(
        given, layer, ptq_weights, method, rows, weights, activations, start, batch_norm, keep_input)
    numbers = options.epochs(epochs, "4,1")
    chosen = imports.choices(machine, recipe, given, gates, arithmetic, block, symmetric, accumulator)
    if rate is not None and not 0 < rate < 100:
        raise ValueError(f"--rate {rate:g}: a learning rate is above 0, such as 0.01")
    if accumulator is not None and not 1 <= accumulator <= 64:
        raise ValueError(f"--accumulator {accumulator} is no width: storage has 1 to 64 bits")
    if batch_norm and accumulator is not None:
        raise ValueError("--accumulator changes ranges, which --batch-norm's statistics do not follow: leave one out")
    if data is None:
        raise ValueError(f"{file}: name the data to train on with --data")
    train = needing_torch("concord.train.runs.imported").train_imported
    network, samples = read_float(Path(file)), imports.data_set(data)
    typer.echo(imports.requantised(network), nl=False)
    deciding = {"seed": seed, "epochs": numbers, "rate": rate, "recipe": chosen.recipe, "gates": gates,
                "accumulator": accumulator, "network": Path(file).name,
                "data": digest(samples.train) if samples.train else data}
    with written(out) as path:
        check_writable(path)
        with followed(log, checkpoint, settings("imported", deciding)) as progress:
            model = train(
                path, network=network, data=samples, choices=chosen, seed=seed, epochs=numbers, rate=rate,
                accumulator=accumulator, command=shlex.join(["nnp", *sys.argv[1:]]), progress=progress)
    figures = (("FP32", "fp32_accuracy"), ("QAT", "qat_accuracy"), ("golden", "golden_accuracy"))
    Console().print(f"{out}: {imports.result(model, figures)}", soft_wrap=True, highlight=False)
    typer.echo(imports.unfit(model, machine, out), nl=False)
