"""What the commands for imported networks share: options, what is said of a network, and results in a line."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from concord.lib.extras import needing
from concord.workflows.storage import FileKind, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from concord.datasets.samples import DataSet
    from concord.frontends.onnx.read import Imported
    from concord.lib.input_axes import Order
    from concord.net.graph import Graph
    from concord.net.model import Model
    from concord.net.quantize.choices import Choices
    from concord.net.quantize.options import QuantizationOptions
    from concord.net.quantize.started import Begun
    from concord.net.quantize.widths import Widths

#: Endings of the names of files that hold a network.
ENDINGS = (".onnx", ".safetensors")
#: How the note begins that says which number of time steps was taken.
OPEN = "The file leaves the number of time steps open"


def is_file(name: str) -> bool:
    """Whether a command's first word is a file of a network, rather than the name of a network or command."""
    return Path(name).suffix.lower() in ENDINGS or Path(name).is_file()


def data_set(location: str, network: "Graph", imported: "Imported | None", order: "Order | None" = None
             ) -> "DataSet":
    """The data set at a location, as a network takes it; what was chosen by default is said on stderr.

    The network's own tool runs them, too; the result is printed.

    Raises:
        ValueError: there are no such data, they are damaged, or they do not fit the network; or the tool gives other
            outputs than the network.
    """
    from concord.datasets.fitting import fitted
    from concord.datasets.measures import remark
    from concord.datasets.read import read_data
    from concord.workflows.original import of_data, original_of

    read = read_data(location, order=order)
    data = fitted(read, network.interface, location)
    words = remark(data.task, data.test) if data.test else ""
    for note in (*data.notes, *[f"{location}: {words}"] * bool(words)):
        typer.echo(f"nnp: {note}", err=True)
    typer.echo(of_data(network, original_of(imported), read))
    return data


def compare_file(path: Path, network: "Graph", imported: "Imported | None", order: "Order | None"):
    """Run samples of a .npy file in the network's own tool, and print the result.

    Raises:
        ValueError: there is no such file, its numbers do not fit the network, or the tool gives other outputs.
    """
    from concord.workflows.original import of_file, original_of

    found, notes = of_file(network, original_of(imported), path, order)
    for note in notes:
        typer.echo(f"nnp: {note}", err=True)
    typer.echo(found)


def requantized(network: "Graph") -> str:
    """A line that says that a network is quantised already, where new integers are chosen; empty for others."""
    if not keeps(network, False):
        return ""
    return f"{network.name} is quantised already: its weights are kept as numbers, integers and ranges are found anew\n"


def softmax(network: "Graph", model: "Model") -> str:
    """A line that says who computes the softmax at the end of a network; empty where there is none."""
    from concord.net.layers.joins import Softmax

    if not network.softmax:
        return ""
    if isinstance(model.layers[-1], Softmax):
        return "the machine computes the softmax at the end: its outputs are probabilities\n"
    return ("the softmax at the end is left to the host, because the machine has no softmax unit for "
            f"{model.outputs} elements (attribute softmax_words)\n")


def keeps(network: "Graph", anew: bool) -> bool:
    """Whether a network is quantised already, and no new integers and scales are asked for."""
    from concord.net.passes.simplify import is_quantized

    return not anew and is_quantized(network)


def is_kept(network: "Graph", anew: bool, others: bool) -> bool:
    """Whether a network is quantised already and keeps its integers and scales.

    Args:
        network: The network.
        anew:    Whether new ones are asked for.
        others:  Whether options are given that choose others.

    Raises:
        ValueError: options contradict each other.
    """
    if not keeps(network, False):
        if anew:
            raise ValueError(f"{network.name}: it is not quantised, so leave out --anew")
        return False
    if others and not anew:
        raise ValueError(f"{network.name}: it is quantised already and keeps its integers and scales; leave out the "
                         "options that choose others, or add --anew")
    return not anew


def decided(
    network: "Graph", asked: "QuantizationOptions", anew: bool, calibrated: bool,
) -> tuple[bool, "Choices", "Widths | None"]:
    """How a network is quantised: whether it keeps its own integers and scales, the choices otherwise, and the widths.

    Args:
        network:    The network.
        asked:      What the user says.
        anew:       Whether a network that is quantised already gets new integers and scales.
        calibrated: Whether samples to calibrate with are given.

    Returns:
        Whether it keeps its integers, the choices, and the widths that are named; None for those of the integers.

    Raises:
        ValueError: options are missing or contradict each other.
    """
    own = not asked.names_widths and keeps(network, anew)
    # The integers of the file decide the widths; these stand in while the other options are looked at.
    whole = replace(asked, weights_bits=8, input_bits=8) if own else asked
    choices = whole.choices()
    kept = is_kept(network, anew, calibrated or whole.beyond_widths)
    if own or not kept:
        return kept, choices, None
    widths = asked.widths()
    widths.check_integers()
    return kept, choices, widths


def runs_on(model: "Model", machine: str, location: str) -> str:
    """Which preset can run a model, or why none can, or why a given machine cannot, in sentences with their line ends.

    Args:
        model:    The model.
        machine:  A preset or TOML file; empty if any preset will do. Nothing is said of one that can run the model.
        location: Path or URL of the model, for the command that makes a machine which holds it.
    """
    from concord.compiler.support import problems
    from concord.spec.machine.machine_file import find_config
    from concord.workflows.presets import compile_for

    if machine and (found := problems(model, find_config(machine))):
        return "".join(f"{machine} cannot run it: {problem}\n" for problem in found)
    try:
        name, _ = compile_for(model, machine, location)
    except ValueError as error:
        return f"{machine} cannot run it: {error}\n" if machine else f"{error}\n"
    return "" if machine else f"preset {name} takes it\n"


def result(model: "Model") -> str:
    """The measures of a model in a line."""
    from concord.datasets.measures import NAMES, text

    name = NAMES[model.task]
    figures = [f"{network} {text(name, value)}" for network, value in model.provenance.measures.items()]
    return f"{name} {', '.join(figures)}" if figures else "no labelled test set, so no measure"


def sizes(text: str | None) -> tuple[int, ...] | None:
    """Sizes that an option gives as "3,32,32".

    Raises:
        ValueError: these are no sizes.
    """
    if text is None:
        return None
    parts = text.replace("x", ",").split(",")
    if not all(part.strip().isdecimal() and int(part) for part in parts):
        raise ValueError(f"--shape {text}: sizes of 1 or more are needed, with commas between them, such as 3,32,32")
    return tuple(int(part) for part in parts)


def shape_in(data: str | None, inputs: Path | None, order: "Order | None") -> tuple[int, ...] | None:
    """The shape of every sample of a data set or of a .npy file; None where there are none, or lengths differ.

    Raises:
        ValueError: there are no such data, or they are damaged.
    """
    if inputs:
        from concord.datasets.arrays import read_numbers

        return read_numbers(inputs).shape[1:]
    if data is None:
        return None
    from concord.datasets.read import read_data

    read = read_data(data, order=order)
    shape = read.shape[1:] if len(read.shape) == 3 and read.shape[0] == 1 else read.shape
    return None if read.sequence else shape


def opened(
    file: Path, shape: tuple[int, ...] | None = None, output: str | None = None,
    samples: "Callable[[], tuple[int, ...] | None]" = lambda: None,
) -> tuple["Graph", "Imported | None"]:
    """The network in float32 of an ONNX file, and that file; or of what `nnp import` wrote or a checkpoint, and None.

    Args:
        file:   The file.
        shape:  Sizes of one sample, where an ONNX file leaves them open.
        output: Name of the output that the network gives, where an ONNX file has several.
        samples: Gives the sizes of the samples that the network will get, if they are all alike: they decide where the
            file leaves the number of time steps open, and can only be computed for a given number.

    Raises:
        ValueError: the file cannot be read, holds nodes that cannot be computed, or is not in ONNX and `output` is
            given.
    """
    if Path(file).suffix == ".safetensors":
        from concord.net.graph_file import load

        check_no_output(file, output)
        if kind_of(file) is FileKind.CHECKPOINT:
            return needing("train", "concord.train.runs.lazy_checkpoint").checkpoint_network(file), None
        return load(file), None
    read = needing("front", "concord.frontends.onnx.read").read
    from concord.frontends.onnx.lib.problems import OpenSteps

    try:
        imported = read(file, shape, output)
    except OpenSteps:
        if shape or not (found := samples()):
            raise
        imported = read(file, found, output)
        note = f"{OPEN}; samples are {list(found)}, as the data have them."
        imported = replace(imported, network=replace(imported.network, notes=(*imported.network.notes, note)))
    return imported.network, imported


def opened_or_kept(file: Path, data: str | None = None, inputs: Path | None = None, order: "Order | None" = None,
                   output: str | None = None) -> tuple["Graph", "Imported | None"]:
    """The network in float32 that a model was quantised from, and None; of any other file, what `opened` gives.

    Args:
        file:   The file.
        data:   Data set that the network will get, see `shape_in`.
        inputs: A .npy file of samples instead.
        order:  Order of the axes of a sample.
        output: Name of the output that the network gives, where an ONNX file has several.

    Raises:
        ValueError: the file cannot be read, or holds a model without that network.
    """
    model = model_in(file)
    if model is not None:
        check_no_output(file, output)
        return kept_by(model), None
    network, imported = opened(file, output=output, samples=lambda: shape_in(data, inputs, order))
    for note in network.notes:
        if note.startswith(OPEN):
            typer.echo(f"nnp: {note}", err=True)
    return network, imported


def check_no_output(location: Path | str, output: str | None):
    """Refuse the name of an output for a file that is not in ONNX.

    Raises:
        ValueError: there is one.
    """
    if output is not None:
        raise ValueError(f"{location}: --output {output} chooses an output of an ONNX file; import one of its outputs "
                         f"by `nnp import FILE --output {output}`, and name what that writes")


def model_in(file: Path) -> "Model | None":
    """The quantised model of a file; None if the file holds something else.

    Raises:
        ValueError: the model is damaged.
    """
    from concord.lib import tensor_file
    from concord.net import model_file

    return model_file.load_model(file) if tensor_file.holds(model_file.KIND, file) else None


def kept_by(model: "Model") -> "Graph":
    """The network in float32 that a model was quantised from.

    Raises:
        ValueError: the model does not hold it.
    """
    from concord.net.float_network import float_network

    network = float_network(model)
    if network is None:
        raise ValueError(f"{model.name}: the model does not hold the network that it was quantised from; name the file "
                         "of that network")
    if (axes := model.axes) is None:
        return network
    plane = (axes.shape[0], 1, axes.shape[1]) if len(axes.shape) == 2 else axes.shape
    return network if plane != network.plane else replace(
        network, shape=axes.shape, axes=axes.axes, file_shape=axes.file)


def begun(own: "Model | None", other: "Model | None", asked: "QuantizationOptions") -> tuple[
        "Begun | None", "QuantizationOptions"]:
    """The model from which training starts, if there is one, and the options with its widths.

    Args:
        own:   The model that is trained on, or None.
        other: The model from which layers of another network start, or None.
        asked: What the user says.

    Raises:
        ValueError: options contradict each other, or the model has no layer that can be trained on.
    """
    from concord.net.quantize.started import Begun

    if own and other:
        raise ValueError(f"{own.name}: a model is trained on from its own numbers: leave --start-from out")
    if own is None:
        return Begun(model=other, whole=False) if other else None, asked
    found = Begun(model=own, whole=True)
    if asked.only_widths != type(asked)(preset=asked.preset) or asked.layers:
        raise ValueError(f"{own.name}: a model keeps its widths under training: leave out the options that choose "
                         "others")
    first = next(iter(found.layers.values()))
    return found, asked if asked.preset else replace(
        asked, weights_bits=first.weights_format.bits, input_bits=first.input_format.bits)
