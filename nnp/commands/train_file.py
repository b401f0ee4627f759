"""`nnp train FILE`: trains an imported network on behind quantisers, from its own weights."""

from pathlib import Path
from typing import Annotated

import typer
from concord.nnp.lib import imports, training
from concord.nnp.lib import quantisation_options as options
from concord.nnp.lib.files import check_writable
from concord.nnp.lib.front import read_float
from concord.nnp.lib.storage import written
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
    out: training.Out = "trained.safetensors",
    seed: training.Seed = 0,
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
    accumulator: training.Accumulator = None,
    log: training.Log = None,
    checkpoint: training.Checkpoint = None,
):
    """An imported network of your own on your own data, from its weights."""
    from concord.model.data.read import digest
    from concord.nnp.lib.choices import choices_for
    from rich.console import Console

    gates, numbers = Gates(asymmetric=asymmetric, shared=shared, outputs=gate_bits), options.epochs(epochs, "4,1")
    chosen = choices_for(
        machine, arithmetic, weights_bits=weights_bits, input_bits=input_bits, symmetric=symmetric,
        weights_float=weights_float, input_float=input_float, layers=options.layer_bits(layer), block=block,
        gates=gates, ptq_weights=ptq_weights, ptq_activations=ptq_activations, rows=rows, weights=weights,
        activations=activations, start=start, batch_norm=batch_norm, keep_input=keep_input, accumulator=accumulator)
    if rate is not None and not 0 < rate < 100:
        raise ValueError(f"--rate {rate:g}: a learning rate is above 0, such as 0.01")
    training.check_accumulator(accumulator, batch_norm)
    if data is None:
        raise ValueError(f"{file}: name the data to train on with --data")
    train = training.needing_torch("concord.train.runs.imported").train_imported
    network, samples = read_float(Path(file)), imports.data_set(data)
    typer.echo(imports.requantised(network), nl=False)
    deciding = {"seed": seed, "epochs": numbers, "rate": rate, "recipe": chosen.recipe, "gates": gates,
                "accumulator": accumulator, "network": Path(file).name,
                "data": digest(samples.train) if samples.train else data}
    with written(out) as path:
        check_writable(path)
        with training.followed(log, checkpoint, training.settings("imported", deciding)) as progress:
            model = train(
                path, network=network, data=samples, choices=chosen, seed=seed, epochs=numbers, rate=rate,
                accumulator=accumulator, command=training.command_line(), progress=progress)
    Console().print(f"{out}: {imports.result(model)}", soft_wrap=True, highlight=False)
    typer.echo(imports.softmax(network, model), nl=False)
    typer.echo(imports.unfit(model, machine, out), nl=False)
