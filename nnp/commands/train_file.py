"""`nnp train FILE`: trains an imported network on with quantisers, from its own weights."""

import hashlib
from pathlib import Path
from typing import Annotated

import typer
from concord.lib.extras import needing
from concord.lib.files import check_writable
from concord.net.quantize.options import DEFAULTS, QuantizationOptions
from concord.nnp.lib.field_options import UNTRAINED, quantizing
from concord.nnp.lib.options import AxesOrder, OneOutput, OwnData
from concord.train.live.changes import MODEL
from concord.train.overflow.options import ANY_WIDTH, OverflowOptions
from concord.workflows import imports, overflow_counts, training
from concord.workflows.storage import written

#: Name of the command, which its help shows as that of a file.
FILE = "FILE"


@quantizing(without=UNTRAINED)
def train_file(
    file: Annotated[str, typer.Argument(
        metavar="FILE", help="ONNX file, what `nnp import` wrote of one, or a quantised model, which is trained on.",
        show_default=False)],
    data: OwnData = None,
    order: AxesOrder = None,
    output: OneOutput = None,
    chosen: QuantizationOptions = DEFAULTS,
    overflow: OverflowOptions = ANY_WIDTH,
    out: Annotated[str | None, typer.Option(
        "--out", "-o", help="Model file: a path or URL.",
        show_default="trained.safetensors, or model.safetensors in the folder of --run")] = None,
    seed: training.Seed = 0,
    epochs: Annotated[str, typer.Option(
        "--epochs", metavar="QAT,MACHINE",
        help="Epochs of quantisation-aware training (QAT), and of QAT in the machine's arithmetic.")] = "4,1",
    start_from: Annotated[Path | None, typer.Option(
        "--start-from", metavar="MODEL", help="Quantised model whose integers, scales and ranges initialise the layers "
                                              "that have the name and shape of one of its own.",
        show_default=False)] = None,
    rate: Annotated[float | None, typer.Option(
        "--rate", help="Learning rate at the beginning.",
        show_default="0.01, 0.0005 for recurrent networks and attention")] = None,
    log: training.Log = None,
    checkpoint: training.Checkpoint = None,
    run: training.Run = None,
    steering: training.Steering = None,
):
    """An imported network of your own on your own data, from its weights."""
    from concord.datasets.read import digest
    from concord.net import graph_file, model_file
    from rich.console import Console

    chosen.check_trains()
    source = Path(file)
    own, other = imports.model_in(source), model_file.load_model(start_from) if start_from else None
    begun, chosen = imports.begun(own, other, chosen)
    numbers, choices = training.epochs_of(epochs, "4,1"), chosen.choices()
    training.check_rate(rate)
    overflow.check(integers=not choices.blocks, batch_norm=chosen.batch_norm, staged=bool(chosen.stages))
    overflow = overflow_counts.counted(overflow, chosen.preset)
    if data is None:
        raise ValueError(f"{file}: name the data to train on with --data")
    train = needing("train", "concord.train.runs.imported").train_imported
    network, imported = imports.opened_or_kept(source, data, order=order, output=output)
    samples = imports.data_set(data, network, imported, order)
    typer.echo(imports.requantized(network), nl=False)
    deciding = {"seed": seed, "epochs": numbers, "rate": rate, "recipe": choices.recipe, "gates": choices.gates,
                "overflow": overflow, "network": source.name, "data": digest(samples.train) if samples.train else data,
                "numbers of the network": graph_file.digest(network)}
    deciding |= {"calibration samples": digest(samples.calibration)} if samples.calibration else {}
    deciding |= {"begun": begun.model.name, "file of begun": _digest(start_from or source)} if begun else {}
    out = out or str(run / MODEL if run else "trained.safetensors")
    with written(out) as path:
        check_writable(path)
        with training.followed(log, checkpoint, training.settings("imported", deciding), run=run, steering=steering,
                               epochs=sum(numbers)) as progress:
            model = train(
                path, network=network, data=samples, choices=choices, seed=seed, epochs=numbers, rate=rate,
                overflow=overflow, begun=begun, command=training.command_line(), progress=progress)
    Console().print(f"{out}: {imports.result(model)}", markup=False, soft_wrap=True, highlight=False)
    typer.echo(imports.softmax(network, model), nl=False)
    typer.echo(imports.runs_on(model, chosen.preset, out), nl=False)


def _digest(path: Path) -> str:
    """A digest of the bytes of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]
