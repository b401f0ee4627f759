"""Options that say how a network is quantised, for every command that does."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from concord.spec import config
from concord.spec.formats import Format
from concord.train.bfp.recipe import BlockRecipe
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
Preset = Annotated[str, typer.Option(
    "--preset", help="Quantise for this machine, which decides the widths of weights and inputs and --symmetric.",
    show_default=False)]
WeightsBits = Annotated[
    int | None, typer.Option("--weights-bits", help="1 to 8, or 16.", show_default="4, or the machine's")]
InputBits = Annotated[
    int | None, typer.Option("--input-bits", help="2 to 8, or 16.", show_default="4, or the machine's")]
Layer = Annotated[
    list[str] | None, typer.Option("--layer", help="NAME=WEIGHTS,INPUTS: bits of one layer.", show_default=False)]
Symmetric = Annotated[bool | None, typer.Option(
    "--symmetric/--full", help="Leave out the lowest code of inputs, as most machines do, or keep it.",
    show_default="full, or the machine's")]
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
Data = Annotated[Path | None, typer.Option(
    "--data", help="Folder of training and test data, in files named as those of Fashion-MNIST or JapaneseVowels.",
    show_default="the published data")]


@dataclass(frozen=True, kw_only=True, slots=True)
class Widths:
    """Bits of weights and of inputs, and whether inputs leave out their lowest code."""

    weights: int
    inputs: int
    symmetric: bool


def widths(
    preset: str, weights_bits: int | None, input_bits: int | None, symmetric: bool | None,
    training: WeightTraining = WeightTraining.WRPN,
) -> Widths:
    """What the options say, 4 bits each where they say nothing; or what a machine computes with.

    Args:
        preset:   The machine; empty where the other options decide.
        training: How weights are trained: odd integers are one bit wider than weights.

    Raises:
        ValueError: there is no such machine, or other options decide the same.
    """
    if not preset:
        weights, inputs = (4 if bits is None else bits for bits in (weights_bits, input_bits))
        return Widths(weights=weights, inputs=inputs, symmetric=bool(symmetric))
    machine = config.preset(preset)
    if (weights_bits, input_bits, symmetric) != (None, None, None):
        raise ValueError(f"--preset {preset} decides --weights-bits, --input-bits and --symmetric: leave those out")
    return Widths(weights=machine.weights.bits - training.odd, inputs=machine.activations.bits,
                  symmetric=machine.activations.symmetric)


def formats(preset: str, asymmetric: bool = False) -> tuple[Format, Format]:
    """Integer formats of weights and inputs on a machine.

    Args:
        asymmetric: Weights have zero points, which cost one bit.
    """
    machine = config.preset(preset)
    return (Format(bits=machine.weights.bits - asymmetric, symmetric=True),
            Format(bits=machine.activations.bits, symmetric=machine.activations.symmetric))


def block_recipe(preset: str, given: Widths, bits: Mapping[str, tuple[int, int]], block: int | None) -> BlockRecipe:
    """Block floating point of these widths, or of a machine.

    Raises:
        ValueError: networks are not trained in the machine's block floating point, or --block is another.
    """
    if not preset:
        return BlockRecipe(weights_bits=given.weights, input_bits=given.inputs, bits=bits,
                           **({} if block is None else {"block": block}))
    machine = config.preset(preset)
    if block is not None:
        raise ValueError(f"--preset {preset} decides --block: leave it out")
    made = BlockRecipe(weights_bits=given.weights, input_bits=given.inputs, bits=bits, block=machine.native_dim,
                       exponents=(machine.weights.e_min, machine.weights.e_max))
    if made.formats("") != (machine.weights, machine.activations):
        raise ValueError(f"--preset {preset}: networks are trained with symmetric mantissas, and with one range of "
                         "exponents under the rule frexp, which this machine does not have; speech has")
    return made


def epochs(text: str) -> tuple[int, int, int]:
    """The numbers of epochs that `--epochs` says.

    Raises:
        ValueError: they are not three numbers.
    """
    parts = text.split(",")
    try:
        first, second, third = map(int, parts)
    except ValueError as error:
        raise ValueError(f"--epochs {text}: three numbers parted by commas are needed, such as 8,4,1") from error
    return first, second, third


def recipe(
    given: Widths,
    layer: list[str] | None,
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
        weights_bits=given.weights, input_bits=given.inputs, symmetric=(True, given.symmetric), weights=weights,
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
