"""`nnp train`: the shipped networks, from their training data to a quantised model."""

import importlib
import shlex
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from nnp.errors import sentences
from spec.formats import Format
from train.block_recipe import BlockRecipe
from train.methods import (
    ActivationMethod,
    ActivationTraining,
    Gates,
    InitialState,
    Methods,
    Recipe,
    Start,
    WeightMethod,
    WeightTraining,
)

app = typer.Typer(help="Train a network and quantise it (needs PyTorch).", no_args_is_help=True)

Seed = Annotated[int, typer.Option("--seed", help="Of every random choice.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Model file.")]
Data = Annotated[Path | None, typer.Option("--data", help="Folder of the training data.")]


class Arithmetic(StrEnum):
    """What a network is trained in."""

    INTEGER = "integer"
    BFP_LAZY = "bfp-lazy"


class ImageArithmetic(StrEnum):
    """What an image network computes in."""

    INTEGER = "integer"
    BFP = "bfp"


@app.command()
@sentences
def mlp(
    out: Out = Path("fashion-mlp.safetensors"),
    seed: Seed = 0,
    data: Data = None,
    arithmetic: Annotated[
        Arithmetic,
        typer.Option(help="FP32, then 4-bit integers; or 8-bit block floating point from the start, by lazy update."),
    ] = Arithmetic.INTEGER,
    weights: Annotated[WeightMethod, typer.Option(help="Integers and scales before QAT.")] = WeightMethod.MMSE,
    tensor: Annotated[bool, typer.Option("--tensor", help="One scale a matrix, not one a row.")] = False,
    activations: Annotated[
        ActivationMethod, typer.Option(help="Saturations and offsets before QAT.")
    ] = ActivationMethod.SEARCH,
    accumulator: Annotated[
        int | None, typer.Option(help="Bits of the sums: ranges grow until none overflows.", show_default="any")
    ] = None,
):
    """A multi-layer perceptron on Fashion-MNIST."""
    if accumulator is not None and not 1 <= accumulator <= 64:
        raise ValueError(f"--accumulator {accumulator} is no width: storage has 1 to 64 bits")
    methods = Methods(weights=weights, tensor=tensor, activations=activations)
    if arithmetic is Arithmetic.INTEGER:
        _train("mlp", out, seed=seed, folder=data, methods=methods, accumulator=accumulator)
    elif (methods, accumulator) == (Methods(), None):
        _train("lazy_mlp", out, seed=seed, folder=data)
    else:
        raise ValueError(
            "bfp-lazy trains from the start: --weights, --tensor, --activations and --accumulator are for integer"
        )


@app.command()
@sentences
def lstm(
    out: Out = Path("vowels-lstm.safetensors"),
    seed: Seed = 0,
    data: Data = None,
    bits: Annotated[int, typer.Option(help="Width of weights, inputs and hidden vectors, 2 to 16.")] = 8,
    asymmetric: Annotated[
        bool, typer.Option("--asymmetric", help="Integer zero points: the machine needs one bit more for weights.")
    ] = False,
    shared: Annotated[bool, typer.Option("--shared", help="One scale a gate, not one a matrix.")] = False,
    gate_bits: Annotated[int, typer.Option(help="Width of the outputs of gates, 2 to 9; 0: binary16.")] = 0,
    hidden: Annotated[
        list[int] | None, typer.Option(help="Size of an LSTM layer; once for each layer.", show_default="32")
    ] = None,
    epochs: Annotated[
        tuple[int, int, int], typer.Option(help="Of FP32, of QAT, and of QAT in the machine's arithmetic.")
    ] = (80, 10, 5),
    initial: Annotated[
        InitialState, typer.Option(help="h and c before the first time step.")
    ] = InitialState.ZERO,
):
    """An LSTM on JapaneseVowels: 8 bits per gate, or another width."""
    fmt, gates = Format(bits=bits, symmetric=True), Gates(asymmetric=asymmetric, shared=shared, outputs=gate_bits)
    options = {"weights_format": fmt, "input_format": fmt, "gates": gates, "initial": initial}
    _train("lstm", out, seed=seed, folder=data, hidden=hidden or (32,), epochs=epochs, **options)


@app.command()
@sentences
def image(
    network: Annotated[str, typer.Argument(help="mlp, resnet, mobilenet or inception.")] = "resnet",
    out: Out = Path("fashion-image.safetensors"),
    seed: Seed = 0,
    data: Data = None,
    arithmetic: Annotated[
        ImageArithmetic, typer.Option(help="Integers, or block floating point, whose mantissas have 2 to 8 bits.")
    ] = ImageArithmetic.INTEGER,
    block: Annotated[int, typer.Option(help="Elements that share an exponent in block floating point.")] = 16,
    weights_bits: Annotated[int, typer.Option(help="1 to 8, or 16.")] = 4,
    input_bits: Annotated[int, typer.Option(help="2 to 8, or 16.")] = 4,
    layer: Annotated[
        list[str] | None, typer.Option(help="NAME=WEIGHTS,INPUTS: bits of one layer.", show_default=False)
    ] = None,
    symmetric: Annotated[bool, typer.Option("--symmetric", help="Leave out the lowest code of inputs.")] = False,
    ptq_weights: Annotated[WeightMethod, typer.Option(help="Integers and scales before QAT.")] = WeightMethod.MMSE,
    ptq_activations: Annotated[
        ActivationMethod, typer.Option(help="Saturations and offsets before QAT.")
    ] = ActivationMethod.SEARCH,
    tensor: Annotated[bool, typer.Option("--tensor", help="One scale a layer, not one a row.")] = False,
    weights: Annotated[WeightTraining, typer.Option(help="QAT of weights.")] = WeightTraining.WRPN,
    activations: Annotated[ActivationTraining, typer.Option(help="QAT of activations.")] = ActivationTraining.UNIFORM,
    start: Annotated[Start, typer.Option(help="Where QAT starts.")] = Start.PTQ,
    epochs: Annotated[
        tuple[int, int, int], typer.Option(help="Of FP32, of QAT, and of QAT in the machine's arithmetic.")
    ] = (8, 4, 1),
    samples: Annotated[int, typer.Option(help="Training images.")] = 60_000,
):
    """A small image network on Fashion-MNIST, by any method at any width."""
    bits = {"weights_bits": weights_bits, "input_bits": input_bits,
            "bits": dict(_layer_bits(text) for text in layer or ())}
    methods = Methods(weights=ptq_weights, tensor=tensor, activations=ptq_activations)
    recipe = Recipe(**bits, symmetric=(True, symmetric), weights=weights, activations=activations, start=start,
                    methods=methods)
    if arithmetic is ImageArithmetic.BFP:
        if recipe != Recipe(**bits):
            raise ValueError("bfp finds its own exponents: --symmetric, --ptq-weights, --ptq-activations, --tensor, "
                             "--weights, --activations and --start are for integer")
        recipe = BlockRecipe(**bits, block=block)
    elif block != 16:
        raise ValueError("--block is for --arithmetic bfp")
    _train("image", out, network=network, recipe=recipe, seed=seed, folder=data, epochs=epochs, samples=samples)


def _layer_bits(text: str) -> tuple[str, tuple[int, int]]:
    """The bits that --layer gives."""
    name, _, widths = text.partition("=")
    parts = widths.split(",")
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        raise ValueError(f"--layer {text!r}: NAME=WEIGHTS,INPUTS is needed, such as 0_0=8,8")
    return name, (int(parts[0]), int(parts[1]))


def _train(kind: str, out: Path, **options):
    """Call the trainer with a progress bar for each phase."""
    from rich.console import Console
    from rich.progress import Progress

    train = _trainer(kind)
    command = shlex.join(["nnp", *sys.argv[1:]])
    with Progress() as bars:
        tasks = {}

        def progress(phase: str, step: int, steps: int, note: str):
            if phase not in tasks:
                tasks[phase] = bars.add_task(phase, total=steps)
            bars.update(tasks[phase], completed=step, description=f"{phase} {note}")

        model = train(out, command=command, progress=progress, **options)
    made = model.provenance
    Console().print(
        f"{out}: accuracy FP32 {made.fp32_accuracy:.2%}, QAT {made.qat_accuracy:.2%}, golden {made.golden_accuracy:.2%}"
    )


def _trainer(kind: str) -> Callable:
    try:
        return getattr(importlib.import_module(f"train.{kind}"), f"train_{kind}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ValueError("training needs PyTorch: pip install torch==2.13.0 (dependency group train)") from error
