"""Options that say how a network is quantised, for every command that does."""

from pathlib import Path
from typing import Annotated

import typer
from concord.train.lib.methods import (
    ActivationMethod,
    ActivationTraining,
    Methods,
    Recipe,
    Start,
    WeightMethod,
    WeightTraining,
)

Network = Annotated[str, typer.Argument(
    help="mlp, resnet, mobilenet, inception, or module:callable, which makes a torch.nn.Module.")]
WeightsBits = Annotated[int, typer.Option("--weights-bits", help="1 to 8, or 16.")]
InputBits = Annotated[int, typer.Option("--input-bits", help="2 to 8, or 16.")]
Layer = Annotated[
    list[str] | None, typer.Option("--layer", help="NAME=WEIGHTS,INPUTS: bits of one layer.", show_default=False)]
Symmetric = Annotated[bool, typer.Option("--symmetric", help="Leave out the lowest code of inputs.")]
PtqWeights = Annotated[WeightMethod, typer.Option("--ptq-weights", help="Integers and scales before QAT.")]
PtqActivations = Annotated[
    ActivationMethod, typer.Option("--ptq-activations", help="Saturations and offsets before QAT.")]
Rows = Annotated[
    int, typer.Option("--rows", help="Rows of weights that share a scale before QAT; 0: all of a layer.", min=0)]
Weights = Annotated[WeightTraining, typer.Option("--weights", help="QAT of weights, which gives the integers.")]
Activations = Annotated[ActivationTraining, typer.Option("--activations", help="QAT of activations.")]
Begin = Annotated[Start, typer.Option("--start", help="Where QAT starts.")]
BatchNorm = Annotated[bool, typer.Option("--batch-norm", help="Keep batch normalisation under QAT; fold it after.")]
KeepInput = Annotated[bool, typer.Option("--keep-input", help="Do not train the range of the images: QAT is faster.")]
Data = Annotated[Path | None, typer.Option("--data", help="Folder of the training data.")]


def recipe(
    weights_bits: int,
    input_bits: int,
    layer: list[str] | None,
    symmetric: bool,
    ptq_weights: WeightMethod,
    ptq_activations: ActivationMethod,
    rows: int,
    weights: WeightTraining,
    activations: ActivationTraining,
    start: Start = Start.PTQ,
    batch_norm: bool = False,
    keep_input: bool = False,
) -> Recipe:
    """What the options mean together.

    Raises:
        ValueError: a width is none, or a method cannot do it.
    """
    return Recipe(
        weights_bits=weights_bits, input_bits=input_bits, symmetric=(True, symmetric), weights=weights,
        activations=activations, start=start, normalise=batch_norm, input_kept=keep_input,
        bits=dict(_layer_bits(text) for text in layer or ()),
        methods=Methods(weights=ptq_weights, rows=rows, activations=ptq_activations))


def _layer_bits(text: str) -> tuple[str, tuple[int, int]]:
    """The bits that --layer gives."""
    name, _, widths = text.partition("=")
    parts = widths.split(",")
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        raise ValueError(f"--layer {text!r}: NAME=WEIGHTS,INPUTS is needed, such as 0_0=8,8")
    return name, (int(parts[0]), int(parts[1]))
