"""`nnp compare`: compares starting points of quantisation-aware training (QAT), and draws their accuracy.

Source: S0.e, figure 11.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from concord.net.quantize.options import DEFAULTS, QuantizationOptions
from concord.nnp.lib.field_options import quantizing

if TYPE_CHECKING:
    from rich.table import Table

FP32 = 32  #: Bits that stand for FP32.


@quantizing(only=("preset", "weights_bits", "input_bits", "weights", "activations", "batch_norm"))
def compare(
    network: Annotated[str, typer.Option(
        "--network",
        help="mlp, resnet, resnet-small, mobilenet, mobilenet-small, inception, inception-small, or module:callable, "
             "which makes a torch.nn.Module.",
    )] = "resnet",
    chosen: QuantizationOptions = DEFAULTS,
    seeds: Annotated[int, typer.Option("--seeds", help="Number of seeds. Each trains all networks anew.", min=1)] = 3,
    epochs: Annotated[int, typer.Option("--epochs", help="Epochs of quantisation-aware training.", min=1)] = 4,
    fp32_epochs: Annotated[int, typer.Option(
        "--fp32-epochs", help="Epochs of the FP32 network's training.", min=0)] = 8,
    samples: Annotated[int, typer.Option("--samples", help="Number of training images.", min=1)] = 10_000,
    data: Annotated[Path | None, typer.Option(
        "--data", help="Folder of training and test data, with the file names of Fashion-MNIST.",
        show_default="the published data")] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Picture file (.png, .svg or .pdf); a .csv beside it gets the numbers.")
    ] = Path("compare.png"),
):
    """Draw accuracy against epoch for QAT that starts from FP32, min-max and PTQ, over seeds (needs PyTorch)."""
    from concord.lib.extras import needing
    from concord.lib.files import check_writable, write_all
    from concord.workflows.training import followed
    from rich.console import Console

    kind, numbers = out.suffix.removeprefix("."), out.with_suffix(".csv")
    if kind not in ("png", "svg", "pdf"):
        raise ValueError(f"-o {out}: the name of a picture ends with .png, .svg or .pdf")
    given = chosen.widths()
    given.check_integers()
    if given.weights == given.inputs == FP32:
        raise ValueError("--weights-bits 32 and --input-bits 32 leave nothing to quantise: give one of them fewer")
    check_writable(out)
    check_writable(numbers)
    starts = needing("train", "concord.train.runs.compare_starts")
    from concord.nnp.lib import curves
    from concord.train.runs.compare_starts import Setting
    from concord.train.runs.image import Images

    setting = Setting(network=network, weights=None if given.weights == FP32 else given.weights,
                      inputs=None if given.inputs == FP32 else given.inputs)
    ways = starts.recipes(setting, weights=chosen.weights, activations=chosen.activations, normalise=chosen.batch_norm,
                          symmetric=(True, given.symmetric))
    images = Images.load(samples, data)
    with followed() as progress:
        fp32, found = starts.curves(network, ways, images, seeds=seeds, fp32_epochs=fp32_epochs, epochs=epochs,
                                    progress=progress)
    mean = sum(fp32) / seeds
    write_all(out.parent, {out.name: curves.picture(kind, str(setting), mean, found),
                           numbers.name: curves.table(fp32, found).encode()})
    console = Console()
    console.print(_summary(f"{setting}, FP32 {mean:.2f} %, mean of seeds ± 95 %", found))
    console.print(f"{out}, {numbers}", markup=False)


def _summary(title: str, found: dict[str, list[list[float]]]) -> "Table":
    """A table of accuracies before training, after the first epoch, and at the end."""
    from concord.train.runs.compare_starts import band
    from rich.table import Table

    table = Table("start", "epoch 0", "epoch 1", "end", title=title, title_justify="left")
    for name, runs in found.items():
        mean, half = band(runs)
        table.add_row(name, *(f"{mean[epoch]:.2f} ± {half[epoch]:.2f}" for epoch in (0, 1, -1)))
    return table
