"""`nnp train`: trains networks and quantises them, from training data to a model file."""

import os
import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from concord.lib.extras import needing
from concord.lib.files import check_writable
from concord.net.cells.cell import Cell
from concord.net.cells.registry import CELLS
from concord.net.first_states import InitialState
from concord.net.quantize.options import DEFAULTS, QuantizationOptions
from concord.net.quantize.recipe import ActivationMethod, GateForm, Gates, Methods, WeightMethod
from concord.net.quantize.widths import NetworkArithmetic, integer_formats
from concord.nnp.commands.train_file import FILE, train_file
from concord.nnp.lib.errors import sentences
from concord.nnp.lib.field_options import GATES, OPTIONS, UNTRAINED, quantizing
from concord.spec.machine.machine_file import find_config
from concord.spec.numbers.formats import Format
from concord.train.bfp.options import BY_LAZY_UPDATE, LazyOptions, TrainedOn, formats_of
from concord.train.overflow.options import ANY_WIDTH, OverflowOptions
from concord.workflows.imports import is_file, result, runs_on
from concord.workflows.overflow_counts import counted
from concord.workflows.storage import written
from concord.workflows.training import (
    Checkpoint,
    Log,
    Out,
    Seed,
    command_line,
    epochs_of,
    followed,
    settings,
)
from typer.core import TyperGroup


class FilesToo(TyperGroup):
    """A group of commands whose first word may be a file as well, which the command FILE then takes."""

    def resolve_command(self, ctx, args: list[str]):
        """The command of the first word."""
        if args and args[0] not in self.commands and is_file(args[0]):
            args = [FILE, *args]
        return super().resolve_command(ctx, args)


app = typer.Typer(cls=FilesToo, no_args_is_help=True)
app.command(FILE)(sentences(train_file))


@app.callback()
def group():
    """Train a network and quantise it (needs PyTorch)."""


Network = Annotated[str, typer.Argument(
    help="mlp, resnet, resnet-small, mobilenet, mobilenet-small, inception, inception-small, or module:callable, "
         "which makes a torch.nn.Module.")]
Preset = Annotated[str, typer.Option(
    "--preset", "--config", metavar="MACHINE", show_default=False,
    help="Quantise for this machine, a preset or a TOML file, which sets the bits of weights and inputs.")]
Rows = Annotated[int, typer.Option(
    "--rows", help="Number of rows of weights that share a scale before QAT; 0 for all rows of a layer.", min=0)]
Data = Annotated[Path | None, typer.Option(
    "--data", help="Folder of training and test data, with the file names of Fashion-MNIST or JapaneseVowels.",
    show_default="the published data")]
_EPOCHS: dict[str, Any] = {"metavar": "FP32,QAT,MACHINE",
           "help": "Epochs of FP32 training, of quantisation-aware training (QAT), and of QAT in the machine's "
                   "arithmetic; of bfp-lazy, one number."}
ImageEpochs = Annotated[str, typer.Option("--epochs", show_default="8,4,1; 12 with bfp-lazy", **_EPOCHS)]
RecurrentEpochs = Annotated[str, typer.Option("--epochs", show_default="80,10,5; 20 with bfp-lazy", **_EPOCHS)]


class Arithmetic(StrEnum):
    """The arithmetic in which a perceptron is trained."""

    INTEGER = "integer"
    BFP_LAZY = "bfp-lazy"


class NetworkTraining(StrEnum):
    """The arithmetic in which an image network or a recurrent network is trained."""

    INTEGER = NetworkArithmetic.INTEGER
    BFP = NetworkArithmetic.BFP
    BFP_LAZY = Arithmetic.BFP_LAZY


ByArithmetic = Annotated[NetworkTraining | None, typer.Option(
    "--arithmetic", show_default="integer",
    help="Integers, or block floating point (bfp), whose mantissas have 2 to 8 bits, both after training in FP32; "
         "bfp-lazy: train in 8-bit block floating point from the start, with the lazy update.")]


@app.command()
@sentences
@quantizing()
def mlp(
    out: Out = "fashion-mlp.safetensors",
    seed: Seed = 0,
    data: Data = None,
    arithmetic: Annotated[
        Arithmetic,
        typer.Option(
            help="integer: train in FP32, then in 4-bit integers. bfp-lazy: train in 8-bit block floating "
                          "point from the start, with the lazy update."),
    ] = Arithmetic.INTEGER,
    weights: Annotated[WeightMethod, typer.Option(
        help="Method that finds the scales of weights before QAT.")] = WeightMethod.MMSE,
    rows: Rows = 1,
    activations: Annotated[
        ActivationMethod, typer.Option(help="Method that finds the ranges of inputs of layers before QAT.")
    ] = ActivationMethod.SEARCH,
    stages: Annotated[str, typer.Option("--stages", help=OPTIONS["stages"].text)] = "",
    overflow: OverflowOptions = ANY_WIDTH,
    lazy: LazyOptions = BY_LAZY_UPDATE,
    epochs: Annotated[int | None, typer.Option(
        help="Most epochs of bfp-lazy.", min=1, show_default="12")] = None,
    samples: Annotated[int | None, typer.Option(
        help="Number of training images of bfp-lazy.", min=1, show_default="all")] = None,
    preset: Preset = "",
    log: Log = None,
    checkpoint: Checkpoint = None,
):
    """A multi-layer perceptron on Fashion-MNIST, or on images of your own."""
    overflow.check()
    methods = Methods(weights=weights, rows=rows, activations=activations)
    if arithmetic is Arithmetic.BFP_LAZY:
        if (methods, overflow, stages) != (Methods(), ANY_WIDTH, ""):
            raise ValueError("bfp-lazy trains from the start: --weights, --rows, --activations, --stages and the "
                             "options of overflows are for integer")
        _train_lazy("perceptron", out, preset, log, checkpoint, lazy, epochs or 12, seed=seed, folder=data,
                    samples=samples)
        return
    lazy.check(lazy=False)
    for name, given in ("epochs", epochs), ("samples", samples):
        if given is not None:
            raise ValueError(f"--{name} is for --arithmetic bfp-lazy: leave it out")
    chosen = {}
    if preset:
        chosen["weights_format"], chosen["input_format"] = integer_formats(preset)
    _train("mlp", out, preset, log, checkpoint, seed=seed, folder=data, methods=methods,
           overflow=counted(overflow, preset), stages=stages, **chosen)


def _recurrent(cell: Cell):
    """Add the command that trains networks of a cell."""

    @sentences
    @quantizing()
    def train(
        out: Out = f"vowels-{cell.name}.safetensors",
        seed: Seed = 0,
        data: Data = None,
        arithmetic: ByArithmetic = None,
        preset: Preset = "",
        bits: Annotated[
            int | None,
            typer.Option(help="Bits of weights, inputs and hidden vectors: 2 to 16, with bfp 2 to 8.",
                         show_default="8, or the machine's"),
        ] = None,
        block: Annotated[
            int | None,
            typer.Option(help="Number of elements that share an exponent in block floating point.",
                         show_default="16, or the machine's"),
        ] = None,
        asymmetric: Annotated[
            bool, typer.Option(
                "--asymmetric", help="Give integer weights a zero point, for which the machine needs one more bit.")
        ] = False,
        shared: Annotated[bool, typer.Option(
            "--shared", help="Share one scale between the two matrices of a gate.")] = False,
        gate_bits: Annotated[int, typer.Option(help="Bits of the outputs of gates, 2 to 9; 0 keeps binary16.")] = 0,
        gate_form: Annotated[GateForm, typer.Option(
            help="How the codes of these outputs lie: over all that the curve can give, or by the range that the "
                 "training set shows, symmetric about zero or asymmetric.")] = GateForm.CURVE,
        bias_bits: Annotated[int, typer.Option(
            help="Bits of integer biases of gates, 2 to 32, which the accumulator adds; 0 keeps binary16.")] = 0,
        output_bits: Annotated[int | None, typer.Option(
            help="Bits to which the results of all products are quantised before anything else works on them: as many "
                 "as the machine's inputs have.", show_default="binary16")] = None,
        hidden: Annotated[
            list[int] | None, typer.Option(
                help="Size of a recurrent layer; repeat it for each layer.", show_default="32")
        ] = None,
        bidirectional: Annotated[
            bool, typer.Option("--bidirectional", help="Each layer also reads the sequence from its end.")
        ] = False,
        epochs: RecurrentEpochs = "",
        initial: Annotated[
            InitialState, typer.Option(help="Initial states, before the first time step.")
        ] = InitialState.ZERO,
        overflow: OverflowOptions = ANY_WIDTH,
        lazy: LazyOptions = BY_LAZY_UPDATE,
        log: Log = None,
        checkpoint: Checkpoint = None,
    ):
        gates = Gates(asymmetric=asymmetric, shared=shared, outputs=gate_bits, form=gate_form, biases=bias_bits)
        if arithmetic is NetworkTraining.BFP_LAZY:
            if (gates, overflow, initial, bits, block, output_bits, bidirectional) != (
                    Gates(), ANY_WIDTH, InitialState.ZERO, None, None, None, False):
                raise ValueError("bfp-lazy trains from the start: besides its own options, only --preset, --data, "
                                 "--hidden, --epochs, --log and --checkpoint are for it")
            _train_lazy(cell.name, out, preset, log, checkpoint, lazy, lazy_epochs(epochs, 20), seed=seed, folder=data,
                        hidden=hidden or (32,))
            return
        lazy.check(lazy=False)
        quantized = NetworkArithmetic(arithmetic or NetworkArithmetic.INTEGER)
        if quantized is NetworkArithmetic.BFP:
            gates.check_blocks()
        if quantized is NetworkArithmetic.INTEGER and block is not None:
            raise ValueError("--block is for --arithmetic bfp")
        overflow.check(integers=quantized is NetworkArithmetic.INTEGER)
        formats = _formats(quantized, preset, bits, block, asymmetric)
        _train("recurrent", out, preset, log, checkpoint, cell=cell.name, seed=seed, folder=data,
               hidden=hidden or (32,), both=bidirectional, epochs=epochs_of(epochs or "80,10,5"), gates=gates,
               output_bits=output_bits, initial=initial, overflow=counted(overflow, preset), **formats)

    train.__doc__ = f"{cell.title}, on JapaneseVowels, or on sequences of your own: 8 bits, or another width."
    app.command(cell.name)(train)


for _cell in CELLS.values():
    _recurrent(_cell)


def _formats(
    arithmetic: NetworkArithmetic, preset: str, bits: int | None, block: int | None, asymmetric: bool
) -> dict:
    """Arguments of recurrent training: the formats of weights and inputs, and the block size or None."""
    blocks = arithmetic is NetworkArithmetic.BFP
    if preset:
        if bits is not None or block is not None:
            raise ValueError(f"--preset {preset} decides --bits and --block: leave them out")
        machine = find_config(preset)
        if blocks:
            return {"weights_format": machine.weights, "input_format": machine.activations, "block": machine.native_dim}
        weights, inputs = integer_formats(preset, asymmetric)
        return {"weights_format": weights, "input_format": inputs, "block": None}
    exponents: dict[str, Any] = {"e_min": -11, "e_max": 4} if blocks else {}
    same = Format(bits=8 if bits is None else bits, symmetric=True, **exponents)
    return {"weights_format": same, "input_format": same, "block": (block or 16) if blocks else None}


@app.command()
@sentences
@quantizing(without=(*GATES, *UNTRAINED, "arithmetic"))
def image(
    network: Network = "resnet",
    out: Out = "fashion-image.safetensors",
    seed: Seed = 0,
    data: Data = None,
    arithmetic: ByArithmetic = None,
    chosen: QuantizationOptions = DEFAULTS,
    overflow: OverflowOptions = ANY_WIDTH,
    lazy: LazyOptions = BY_LAZY_UPDATE,
    epochs: ImageEpochs = "",
    samples: Annotated[int, typer.Option(help="Number of training images.")] = 60_000,
    fp32: Annotated[
        Path | None, typer.Option("--fp32", help="File to write the FP32 parameters to, for `nnp quantize`.")
    ] = None,
    log: Log = None,
    checkpoint: Checkpoint = None,
):
    """A small image network on Fashion-MNIST, or on images of your own, by any method at any width."""
    if samples < 1:
        raise ValueError(f"--samples {samples}: one training image at least")
    if arithmetic is NetworkTraining.BFP_LAZY:
        if (replace(chosen, preset=""), overflow, fp32) != (DEFAULTS, ANY_WIDTH, None):
            raise ValueError("bfp-lazy trains from the start: besides its own options, only --preset, --data, "
                             "--samples, --epochs, --log and --checkpoint are for it")
        _train_lazy(network, out, chosen.preset, log, checkpoint, lazy, lazy_epochs(epochs, 12), seed=seed,
                    folder=data, samples=samples)
        return
    lazy.check(lazy=False)
    if arithmetic:
        chosen = replace(chosen, arithmetic=NetworkArithmetic(arithmetic))
    chosen.check_trains()
    overflow.check(integers=chosen.arithmetic is NetworkArithmetic.INTEGER, batch_norm=chosen.batch_norm,
                   staged=bool(chosen.stages))
    recipe = chosen.recipe()
    if fp32:
        check_writable(fp32)
    _train("image", out, chosen.preset, log, checkpoint, network=network, recipe=recipe, seed=seed, folder=data,
           epochs=epochs_of(epochs or "8,4,1"), overflow=counted(overflow, chosen.preset), samples=samples, fp32=fp32)


def _train_lazy(network: str, out: str, preset: str, log: Path | None, checkpoint: Path | None, lazy: LazyOptions,
                epochs: int, **chosen):
    """Train a network by lazy update, in one process or, started by torchrun, in several.

    Raises:
        ValueError: an option is out of range, or the machine cannot run the result.
    """
    lazy.check(lazy=True)
    formats = formats_of(preset)
    if lazy.processes > 1 and "WORLD_SIZE" not in os.environ:
        run = needing("train", "concord.train.bfp.parallel").started
        raise typer.Exit(run(lazy.processes, ["-m", "concord.nnp.main", *sys.argv[1:]]))
    if checkpoint:
        check_writable(checkpoint / "checkpoint.safetensors")
    if lazy.machine is not TrainedOn.PYTORCH:
        trainers = needing("train", "concord.verification.trainers")
        chosen["machine"] = trainers.machine_training(lazy.machine, compare=bool(lazy.compare), cores=lazy.cores)
    _train("lazy", out, preset, log, None, network=network, lazy=lazy, epochs=epochs,
           formats=formats, kept=checkpoint, **chosen)


def lazy_epochs(text: str, default: int) -> int:
    """The number of epochs of bfp-lazy that `--epochs` gives.

    Raises:
        ValueError: the value is no number above 0.
    """
    if text and not (text.isdecimal() and int(text)):
        raise ValueError(f"--epochs {text}: bfp-lazy takes one number above 0, such as {default}")
    return int(text) if text else default


def _train(kind: str, out: str, preset: str, log: Path | None, checkpoint: Path | None, **chosen):
    """Run `train_KIND` of `train.runs.KIND`, with a progress bar for each phase, and say what can run the model."""
    from rich.console import Console

    train = getattr(needing("train", f"concord.train.runs.{kind}"), f"train_{kind}")
    deciding = {name: value for name, value in chosen.items() if name != "fp32"}
    with written(out) as path:
        check_writable(path)
        with followed(log, checkpoint, settings(kind, deciding)) as progress:
            model = train(path, command=command_line(), progress=progress, **chosen)
    if model is None:  # one of several processes, of which the first one writes the model
        return
    Console().print(f"{out}: {result(model)}", markup=False, soft_wrap=True, highlight=False)
    typer.echo(runs_on(model, preset, out), nl=False)
