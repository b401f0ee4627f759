"""What the commands for imported networks share: their files, how they are quantised, and results in a line."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from concord.nnp.lib import quantisation_options as options
from concord.nnp.lib.training import needing_torch
from concord.train.lib.methods import Gates, Recipe, WeightTraining

if TYPE_CHECKING:
    from concord.model.floating.network import FloatNetwork
    from concord.model.model import Model
    from concord.train.imported.quantised import Choices

#: Endings of the names of files that hold a network.
ENDINGS = (".onnx", ".safetensors")
Machine = Annotated[str, typer.Option(
    "--for", "--preset", "--config", metavar="MACHINE", show_default=False,
    help="Quantise for this machine, a preset or a TOML file, which sets the bits of weights and inputs, and "
         "--symmetric.")]
Data = Annotated[str | None, typer.Option(
    "--data", metavar="DATA", show_default=False,
    help="Data of your own: a TOML, .npz or .csv file, a folder, or module:callable.")]
Arithmetic = Annotated[options.NetworkArithmetic, typer.Option(
    help="Integers, or block floating point (bfp), whose mantissas have 2 to 8 bits.")]
Block = Annotated[int | None, typer.Option(
    help="Number of elements that share an exponent in block floating point.", show_default="16, or the machine's")]
Asymmetric = Annotated[bool, typer.Option(
    "--asymmetric", help="Give integer weights of recurrent layers a zero point, for which the machine needs one more "
                         "bit.")]
Shared = Annotated[bool, typer.Option(
    "--shared", help="Share one scale between the two matrices of a gate of a recurrent layer.")]
GateBits = Annotated[int, typer.Option(
    help="Bits of the outputs of gates of recurrent layers, 2 to 9; 0 keeps binary16.")]


def is_file(name: str) -> bool:
    """Whether a command's first word is a file of a network, rather than the name of a network or command."""
    return Path(name).suffix.lower() in ENDINGS or Path(name).is_file()


def float_network(path: str) -> "FloatNetwork":
    """The network of a file.

    Raises:
        ValueError: there is no such file, it cannot be read, or a package is missing.
    """
    if not Path(path).is_file():
        raise ValueError(f"{path}: there is no such file")
    if Path(path).suffix.lower() != ".onnx":
        from concord.model.floating import file

        return file.load(Path(path))
    try:
        from concord.front.read import read_network
    except ModuleNotFoundError as error:
        raise ValueError(f"{path}: reading ONNX files needs {error.name}: pip install concord-nnp[front]") from error
    return read_network(Path(path))


def choices(
    machine: str, recipe: Recipe, given: options.Widths, gates: Gates, arithmetic: options.NetworkArithmetic,
    block: int | None, symmetric: bool | None, accumulator: int | None = None,
) -> "Choices":
    """How a network is quantised, by the options of a command.

    Raises:
        ValueError: options contradict each other.
    """
    made = options.in_arithmetic(arithmetic, machine, recipe, given, block, symmetric, accumulator)
    if made is not recipe and gates != Gates():
        raise ValueError("bfp finds its own exponents: --asymmetric, --shared and --gate-bits are for integer")
    return needing_torch("concord.train.imported.quantised").Choices(recipe=made, gates=gates)


def widths(
    machine: str, weights_bits: int | None, input_bits: int | None, symmetric: bool | None, training: WeightTraining,
    gates: Gates,
) -> options.Widths:
    """The widths that the options choose, or those of a machine.

    Raises:
        ValueError: there is neither a machine nor both widths.
    """
    if not machine and None in (weights_bits, input_bits):
        raise ValueError("name the machine, such as --for vision or --for speech, or give --weights-bits and "
                         "--input-bits")
    found = options.widths(machine, weights_bits, input_bits, symmetric, training)
    if not machine or not gates.asymmetric:
        return found
    return options.Widths(weights=found.weights - 1, inputs=found.inputs, symmetric=found.symmetric)


def result(model: "Model", measures: tuple[tuple[str, str], ...]) -> str:
    """The measures of a model in a line.

    Args:
        model:    A model with its provenance.
        measures: What each figure of the provenance is called, and the name of its attribute.
    """
    from concord.model.data.measures import NAMES, text

    name, made = NAMES[model.task], model.provenance
    figures = [f"{called} {text(name, value)}" for called, attribute in measures
               if (value := getattr(made, attribute)) is not None]
    return f"{name} {', '.join(figures)}" if figures else "no labelled test set, so no measure"
