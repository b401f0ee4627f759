"""Transformers with few bits, without training and after quantisation-aware training (QAT).

`nox -s bench_attention_training`. Networks and samples are those of `bench_attention`. The vision
transformer is trained on its classes; blocks with random weights learn to give the outputs of the float network.
"""

import sys
import time
from dataclasses import replace
from typing import Annotated

import numpy as np
import torch
import typer
from concord.benchmarks.bench_attention import (
    ARITHMETICS,
    EPOCHS,
    NETWORKS,
    OUT,
    Transformer,
    decibels,
    entering,
    exported,
    without_training,
)
from concord.datasets.samples import DataSet, Samples, Task
from concord.frontends.onnx.read import Imported
from concord.golden.lib.float16 import to_bits
from concord.lib.input_axes import Order
from concord.net import network
from concord.net.model import Model
from concord.net.quantize.options import QuantizationOptions
from concord.net.quantize.widths import NetworkArithmetic
from concord.nnp.lib.errors import sentences
from concord.train.runs.imported import train_imported
from rich.console import Console
from rich.table import Table

#: Networks that are trained by default.
TRAINED = ("vision", "encoder", "decoder")
#: Bits of weights and of inputs. In blocks and in integers, attention has blocks of the same widths.
WIDTHS = ((4, 4), (3, 3), (2, 4))


def data_of(imported: Imported, found: Transformer) -> DataSet:
    """Training and test samples, whose targets are classes, or the outputs of the float network."""
    task = Task.REGRESSION if found.labels is None else Task.CLASSIFICATION

    def samples(x: np.ndarray, labels: np.ndarray | None) -> Samples:
        x = entering(imported, x)
        if labels is None:
            labels = imported.network.run(x).reshape(len(x), -1).astype(np.float32)
        return Samples(inputs=to_bits(x.reshape(len(x), -1)), labels=labels)

    return DataSet(name=imported.network.name, task=task, shape=imported.network.shape, description="",
                   order=Order.MACHINE, calibration=None, train=samples(found.train, found.learnt),
                   test=samples(found.test, found.labels))


def measured(imported: Imported, found: Transformer, data: DataSet, model: Model | None) -> float:
    """Accuracy in percent of a model in golden arithmetic, or of the float network, or the decibels of outputs."""
    x = data.test.inputs
    real = imported.network.run(entering(imported, found.test)).reshape(len(x), -1)
    made = real if model is None else network.outputs(model, x).view(np.float16).astype(np.float64)
    return decibels(real, made) if found.labels is None else 100 * (made.argmax(1) == found.labels).mean()


@sentences
def main(
    networks: Annotated[list[str] | None, typer.Option(
        "--network", help=f"{', '.join(NETWORKS)}; may be repeated.", show_default=", ".join(TRAINED))] = None,
    epochs: Annotated[int, typer.Option(
        help="Epochs of QAT; one more follows in the machine's arithmetic.", min=0)] = 8,
):
    """Quantise transformers to few bits, train them so, and print a table."""
    console, began = Console(width=None if sys.stdout.isatty() else 200), time.perf_counter()
    torch.set_num_threads(1)
    if unknown := set(networks or ()) - set(NETWORKS):
        raise ValueError(f"there is no network {min(unknown)!r}: choose of {', '.join(NETWORKS)}")
    OUT.mkdir(parents=True, exist_ok=True)
    table = Table(title="transformers in golden arithmetic", title_justify="left")
    for title in ("network", "arithmetic", "bits of weights", "bits of inputs", "float", "PTQ", "QAT"):
        table.add_column(title, justify="left" if title in ("network", "arithmetic") else "right")
    for name in networks or TRAINED:
        found = NETWORKS[name](EPOCHS, console)
        imported = exported(name, found)
        imported = replace(imported, network=replace(imported.network, name=name))
        data, unit = data_of(imported, found), "dB" if found.labels is None else "%"
        for arithmetic in ARITHMETICS:
            for weights, inputs in WIDTHS:
                choices = QuantizationOptions(arithmetic=NetworkArithmetic(arithmetic), weights_bits=weights,
                                              input_bits=inputs).choices()
                first = without_training(imported, found, choices)
                last = train_imported(OUT / "trained.safetensors", network=imported.network, data=data,
                                      choices=choices, epochs=(epochs, 1))
                cells = [name, arithmetic, str(weights), str(inputs), *(
                    "-" if unit == "dB" and model is None else f"{measured(imported, found, data, model):.1f} {unit}"
                    for model in (None, first, last))]
                table.add_row(*cells)
                console.print(", ".join(cells))
    console.print(table)
    console.print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    typer.run(main)
