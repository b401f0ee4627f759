"""Networks that are quantised already: models with the same integers, and how these differ from their files."""

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from concord.datasets import measures
from concord.datasets.fitting import fitted
from concord.datasets.samples import NO_DATA, DataSet, Samples, Task
from concord.golden.mfu.softmax import real_softmax
from concord.net import network as golden
from concord.net.float_network import separated
from concord.net.graph import INPUT, Graph
from concord.net.layers.joins import Softmax, with_softmax
from concord.net.model import Model, Provenance
from concord.net.model_file import save_model
from concord.net.ops.grid import Quantize
from concord.net.ops.scale import Affine
from concord.net.qdq.formats import formats
from concord.net.qdq.network import Kept, keep
from concord.net.quantize.widths import Widths, softmax_elements
from concord.spec.machine.machine_file import find_config
from concord.spec.numbers.formats import Format
from concord.workflows.results import real

if TYPE_CHECKING:
    from concord.frontends.onnx.read import Imported

SAMPLES = 64  #: Samples on which a model is compared with its file.
_SOFTMAX = "the machine's softmax is less than 1 ulp away from the real one, and the file's is rounded to float32"


@dataclass(frozen=True, kw_only=True, slots=True)
class FileDifference:
    """How a model in golden arithmetic differs from the network's file.

    Attributes:
        where:   The samples, in words.
        codes:   Number of integers after quantisers that were compared.
        wrong:   How many of them differ.
        largest: Largest difference of an integer.
        outputs: Largest difference of an output.
        range:   Largest magnitude of an output of the file.
        by:      What computed the outputs of the file.
    """

    where: str
    codes: int
    wrong: int
    largest: int
    outputs: float
    range: float
    by: str

    def __str__(self):
        text = (f"on {self.where}, {self.wrong:,} of {self.codes:,} integers after quantisers differ from the file's"
                f" ({self.wrong / self.codes:.2%}")
        return (f"{text}{f', by at most {self.largest}' if self.wrong else ''}); outputs differ from those of "
                f"{self.by} by at most {self.outputs:.3g}, the largest of which is {self.range:.3g}")


def kept(network: Graph, machine: str, bits: Widths | None = None) -> Kept:
    """A network that is quantised already, for a machine.

    Args:
        network: The network.
        machine: A preset or TOML file; empty where `bits` decide.
        bits:    Bits of weights and operands; None without a machine for the narrowest that keep the integers.

    Raises:
        ValueError: there is no such machine, or it cannot compute the network as its file says.
    """
    if machine:
        config = find_config(machine)
        wanted = config.weights, config.activations
    elif bits is None:
        wanted = formats(network)
    else:
        wanted = Format(bits=bits.weights, symmetric=True), Format(bits=bits.inputs, symmetric=bits.symmetric)
    try:
        made = keep(network, *wanted)
    except ValueError as error:
        text = str(error).replace("the machine cannot", f"{machine or 'the machine'} cannot", 1)
        raise ValueError(f"{text}{_advice(network)}") from error
    if network.softmax and made.layers[-1].outputs <= softmax_elements(machine):
        layers = with_softmax(made.layers)
        made = replace(made, layers=layers, inexact={**made.inexact, layers[-1].name: _SOFTMAX})
    return made


def _advice(network: Graph) -> str:
    """The line with the command that makes a machine for a network that is quantised already, if there is one."""
    try:
        formats(network)
    except ValueError:
        return ""
    file = network.origin.get("file", f"{network.name}.onnx")
    return f"\nA machine that keeps its integers: `nnp presets --fit {shlex.quote(file)} -o my.toml`"


def model_of(made: Kept, name: str, data: DataSet | None, command: str) -> Model:
    """The model of a network that is quantised already, measured on the test set of its data, if there is one.

    Raises:
        ValueError: the data do not fit the network.
    """
    test = None if data is None else data.test
    task = Task.NONE if data is None else data.task
    outputs, figures = made.layers[-1].outputs, {}
    fields: dict[str, Any] = {
        "name": name, "layers": made.layers, "sources": made.sources, "task": task,
        "data": NO_DATA if data is None or test is None else data.name,
        "description": "" if data is None else data.description,
        "preprocessing": "numbers as the description of the data says, each rounded to binary16",
        "classes": _classes(data, task, outputs), "axes": made.network.input_axes}
    predictions = np.zeros(0, np.uint8)
    if test is not None:
        theirs = _file_outputs(made.network, test)
        theirs = real_softmax(theirs) if isinstance(made.layers[-1], Softmax) else theirs
        figures["fp32"] = figures["quantised"] = measures.first(task, theirs, test)
        predictions = measures.predictions(task, theirs)
    fields |= {"fp32_predictions": predictions, "quantized_predictions": predictions}

    def model(accuracy: float | None) -> Model:
        return Model(**fields, provenance=Provenance(
            command=command, method=_method(made), seed=0, fp32_accuracy=figures.get("fp32"),
            quantized_accuracy=figures.get("quantised"), golden_accuracy=accuracy))

    if test is None:
        return model(None)
    return model(measures.first(task, real(golden.outputs(model(None), test.inputs)), test))


def write(out: Path, made: Kept, data: DataSet | None, command: str) -> Model:
    """Write the model of a network that is quantised already; see `model_of`."""
    model = separated(model_of(made, Path(out).stem, data, command), made.network)
    save_model(model, out)
    return model


def difference(made: Kept, model: Model, data: DataSet | None, imported: "Imported | None" = None) -> FileDifference:
    """How a model differs from its file on samples of its data, or on random inputs, in front of a softmax at its end.

    Args:
        imported: The file, whose graph onnxruntime runs if it is installed; None for a run in float64.
    """
    x, where = _inputs(made, data)
    traces = dict(zip((layer.name for layer in model.layers), golden.forward(model, x), strict=True))
    numbers = real(x).reshape(len(x), *made.network.shape)
    file = made.network.forward(numbers)
    wrong = codes = largest = 0
    for name, (layer, of) in made.quantizers.items():
        found = traces[layer].codes
        assert found is not None  # a layer that reads a quantiser has one product
        apart = np.abs(found - of.stored - np.rint(file[name].reshape(len(x), -1) / of.step))
        wrong, codes, largest = wrong + int(np.count_nonzero(apart)), codes + apart.size, max(largest, int(apart.max()))
    ours = real(traces[model.before_end.layers[-1].name].outputs)
    theirs, ours, by = _theirs(imported, numbers, ours, file[made.network.nodes[-1].name])
    return FileDifference(
        where=where, codes=codes, wrong=wrong, largest=largest, outputs=float(np.abs(ours - theirs).max()),
        range=float(np.abs(theirs).max()), by=by)


def _theirs(imported: "Imported | None", x: np.ndarray, ours: np.ndarray, file: np.ndarray
            ) -> tuple[np.ndarray, np.ndarray, str]:
    """Outputs of the file and of the model in one order, and what computed those of the file."""
    if imported is not None:
        from concord.frontends.onnx.compare import outputs

        try:
            return *outputs(imported, x, ours), "onnxruntime"
        except (ModuleNotFoundError, ValueError):
            pass  # the reference in float64 stands in
    return file.reshape(len(ours), -1), ours, "the file in float64"


def _inputs(made: Kept, data: DataSet | None) -> tuple[np.ndarray, str]:
    """uint16[samples, inputs] of data, or random ones within the range of the first quantisers; and what they are."""
    for name in ("test", "train", "calibration"):
        if data is not None and (part := data.parts()[name]):
            chosen = part.first(SAMPLES)
            return chosen.inputs, f"{len(chosen)} {name} samples of {data.name}"
    ahead, scale, offset = {INPUT}, 1.0, 0.0
    for node in made.network.nodes:
        if isinstance(node.op, Affine) and node.sources == (INPUT,):
            ahead.add(node.name)
            scale, offset = (value.reshape(-1, *[1] * (len(made.network.shape) - 1))
                             for value in (node.op.scale, node.op.offset))
    of = next(made.quantizers[node.name][1] for node in made.network.nodes
              if isinstance(node.op, Quantize) and node.sources[0] in ahead)
    x = np.random.default_rng(0).uniform(of.first, of.last, (SAMPLES, *made.network.shape)) * of.step
    x = ((x - offset) / scale).astype(np.float16)
    return np.ascontiguousarray(x.reshape(SAMPLES, -1)).view(np.uint16), f"{SAMPLES} random inputs"


def _file_outputs(network: Graph, samples: Samples) -> np.ndarray:
    """float64[samples, outputs] of the network as its file computes them."""
    x = real(samples.inputs).reshape(len(samples), *network.shape)
    return np.concatenate([network.run(x[at:at + 500]).reshape(len(x[at:at + 500]), -1)
                           for at in range(0, len(x), 500)])


def _classes(data: DataSet | None, task: Task, outputs: int) -> tuple[str, ...]:
    """A name for each output of a classifier."""
    named = () if data is None else data.classes
    if task is not Task.CLASSIFICATION:
        return named
    return (*named, *(f"class {index}" for index in range(len(named), outputs)))


def _method(made: Kept) -> str:
    same = "with the same bits" if made.exact else "whose sums are rounded to binary16"
    return f"{made.network.name}: imported; the integers and scales of its file, {same}"


def fitting(network: Graph, data: DataSet | None) -> DataSet | None:
    """Data in the form that a network takes, or None.

    Raises:
        ValueError: they do not fit the network.
    """
    return None if data is None else fitted(data, network.interface)


def words(made: Kept, found: FileDifference) -> str:
    """What is kept, and how the model differs, in sentences with their line ends."""
    name = made.network.name
    text = f"{name} is quantised already: its integers and scales are kept (--anew chooses new ones)\n"
    if made.exact:
        return f"{text}golden gives the bits of the file for every input: {found}\n"
    layers = "".join(f"  {layer}: {why}\n" for layer, why in made.inexact.items())
    return (f"{text}bits may differ from those of the file in {len(made.inexact)} of {len(made.layers)} layers\n"
            f"{layers}{found}\n")
