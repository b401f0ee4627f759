"""What the commands for imported networks share: options, what is said of a network, and results in a line."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from concord.nnp.lib import quantisation_options as options
from concord.train.lib.methods import ActivationMethod

if TYPE_CHECKING:
    from concord.model.data.samples import DataSet
    from concord.model.floating.network import FloatNetwork
    from concord.model.model import Model

#: Endings of the names of files that hold a network.
ENDINGS = (".onnx", ".safetensors")
Machine = Annotated[str, typer.Option(
    "--for", "--preset", "--config", metavar="MACHINE", show_default=False,
    help="Quantise for this machine, a preset or a TOML file, which sets the bits of weights and inputs, and "
         "--symmetric.")]
Data = Annotated[str | None, typer.Option(
    "--data", metavar="DATA", show_default=False,
    help="Data of your own: a TOML, .npz or .csv file, a folder, or module:callable.")]
Anew = Annotated[bool, typer.Option(
    "--anew", help="Choose new integers and scales for a network that is quantised already, instead of its own.")]
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

PtqActivations = Annotated[
    ActivationMethod | None, typer.Option(
        "--ptq-activations", help="Method that finds the ranges of inputs of layers before any training.",
        show_default="ends for files of networks, else search")]


def is_file(name: str) -> bool:
    """Whether a command's first word is a file of a network, rather than the name of a network or command."""
    return Path(name).suffix.lower() in ENDINGS or Path(name).is_file()


def data_set(place: str) -> "DataSet":
    """The data set at a place; what was chosen by default is said on stderr.

    Raises:
        ValueError: there are no such data, or they are damaged.
    """
    from concord.model.data.read import read_data

    data = read_data(place)
    for note in data.notes:
        typer.echo(f"nnp: {note}", err=True)
    return data


def requantised(network: "FloatNetwork") -> str:
    """A line that says that a network is quantised already, where new integers are chosen; empty for others."""
    from concord.model.kept.graph import is_quantised

    if not is_quantised(network):
        return ""
    return f"{network.name} is quantised already: its weights are kept as numbers, integers and ranges are found anew\n"


def softmax(network: "FloatNetwork", model: "Model") -> str:
    """A line that says who computes the softmax at the end of a network; empty where there is none."""
    from concord.model.layers.softmax import Softmax

    if not network.softmax:
        return ""
    if isinstance(model.layers[-1], Softmax):
        return "the machine computes the softmax at the end: its outputs are probabilities\n"
    return ("the softmax at the end is left to the host, because the machine has no softmax unit for "
            f"{model.outputs} elements (attribute softmax_words)\n")


def is_kept(network: "FloatNetwork", anew: bool, others: bool) -> bool:
    """Whether a network is quantised already and keeps its integers and scales.

    Args:
        network: The network.
        anew:    Whether new ones are asked for.
        others:  Whether options are given that choose others.

    Raises:
        ValueError: options contradict each other.
    """
    from concord.model.kept.graph import is_quantised

    if not is_quantised(network):
        if anew:
            raise ValueError(f"{network.name}: it is not quantised, so leave out --anew")
        return False
    if others and not anew:
        raise ValueError(f"{network.name}: it is quantised already and keeps its integers and scales; leave out the "
                         "options that choose others, or add --anew")
    return not anew


def unfit(model: "Model", machine: str, place: str) -> str:
    """Why a machine cannot run a model, in sentences with their line ends; empty if it can, or if there is none.

    Args:
        model:   The model.
        machine: A preset or TOML file, or empty.
        place:   Path or URL of the model, for the command that makes a machine which holds it.
    """
    if not machine:
        return ""
    from concord.compiler.support import problems
    from concord.nnp.lib.presets import compile_for
    from concord.spec.machine_file import find_config

    if found := problems(model, find_config(machine)):
        return "".join(f"{machine} cannot run it: {problem}\n" for problem in found)
    try:
        compile_for(model, machine, place)
    except ValueError as error:
        return f"{machine} cannot run it: {error}\n"
    return ""


def result(model: "Model") -> str:
    """The measures of a model in a line."""
    from concord.model.data.measures import NAMES, text

    name = NAMES[model.task]
    figures = [f"{network} {text(name, value)}" for network, value in model.provenance.measures.items()]
    return f"{name} {', '.join(figures)}" if figures else "no labelled test set, so no measure"
