"""Reads networks of other tools, and the names of the classes that a file gives to its outputs."""

import ast
import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from concord.frontends.onnx.convert import Conversion, ahead, convert
from concord.frontends.onnx.embedding import Embedding, without_embedding
from concord.frontends.onnx.ending import SeveralOutputs, side_by_side
from concord.frontends.onnx.input_shape import Axes, GraphInput, entry
from concord.frontends.onnx.lib.problems import refusal
from concord.frontends.onnx.lib.views import SampleForm, axes
from concord.frontends.onnx.onnx_file import opset, read_onnx
from concord.lib.names import cleaned
from concord.lib.several import listed
from concord.net.graph import INPUT, Graph
from concord.net.passes.simplify import simplified
from onnx import numpy_helper

#: Nodes with the same weights from which on a recurrent layer is taken to be unrolled.
UNROLLED = 4
#: Attributes of classifiers of `ai.onnx.ml` that hold the names or numbers of classes.
ATTRIBUTES = ("classlabels_strings", "classlabels_ints", "classlabels_int64s")
#: Keys of the metadata of a file that hold them, as a dictionary or list in the notation of Python or JSON.
KEYS = ("names", "classes", "class_names", "labels")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Imported:
    """A network, and how its file computes the same.

    Attributes:
        network: The network.
        model:   The file's graph.
        entry:   The graph's input.
        axes:    What the axes of this input mean.
        tensor:  Name of the tensor of the graph that equals the network's output.
        numbers: int32 of the shape of the graph's input: where each element lies in samples of `network.shape`.
        indices: int32 of the shape of `tensor`: where each element lies in the network's outputs.
        embedding: The embedding in front of `model` in the file; None for none.
    """

    network: Graph
    model: onnx.ModelProto
    entry: GraphInput
    axes: Axes
    tensor: str
    numbers: np.ndarray
    indices: np.ndarray
    embedding: Embedding | None = None

    @property
    def samples(self) -> int:
        """Number of samples that one run of the graph takes."""
        features = int(np.prod(self.network.shape))
        return self.numbers.size // (features * self.time) if self.network.sequence else self.numbers.size // features

    @property
    def time(self) -> int:
        """Number of time steps that one run of the graph takes; 1 without sequences."""
        return self.axes.shape[self.axes.time] if self.network.sequence else 1

    def tensor_of(self, samples: np.ndarray) -> np.ndarray:
        """A tensor as the graph takes it, from samples as the network takes them."""
        return samples.reshape(-1)[self.numbers]


def read_network(path: Path | str, shape: tuple[int, ...] | None = None, output: str | None = None) -> Graph:
    """The network of an ONNX file; see `read`."""
    return read(path, shape, output).network


def read(path: Path | str, shape: tuple[int, ...] | None = None, output: str | None = None,
         seen: Callable[[str, Graph], None] = lambda name, graph: None) -> Imported:
    """Read an ONNX file.

    Args:
        path:   The file.
        shape:  Sizes of one sample, where the file leaves them open.
        output: Name of the output that the network gives, if the file has several, or of a tensor inside; or several
            such names with commas between them.
        seen:   Called with the network as the file has it, named "read", and after each pass that changes it.

    Raises:
        ValueError: the file cannot be read, or holds nodes that cannot be computed; the message lists all of these.
        OpenSteps: the file leaves the number of time steps open, and holds such nodes.
    """
    path = Path(path)
    model, embedding = without_embedding(read_onnx(path))
    hint = _unrolled(model)
    if embedding and shape and len(shape) == len(embedding.entry.type.tensor_type.shape.dim) - 1:
        shape = (*shape, embedding.table.shape[1])  # those of samples of token numbers
    try:
        first = entry(path, model, shape)
    except ValueError as error:
        raise ValueError(f"{error}\n{hint}" if hint else str(error)) from error
    try:
        model, found = _converted(path, model, first, output)
    except ValueError as error:
        raise ValueError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from error
    if found.problems:
        if names := ahead(model, found):
            hint = f"{hint}\n" * bool(hint) + f"The network up to there can be had: --output {names}"
        raise refusal(path, found.problems, len(model.graph.node), hint, open_time=found.axes.open_time)
    if found.ending.node == INPUT:
        left = "".join(f"; {note}" for note in found.build.notes)
        raise ValueError(f"{path}: nothing in it is left for the machine, because it only moves its input{left}; it "
                         "needs a layer at least, such as Gemm or Conv")
    try:
        if embedding:
            found.build.note(embedding.note)
        network = replace(_network(path, model, found), table=embedding and embedding.table)
        seen("read", network)
        network = simplified(network, seen)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return Imported(
        network=network, model=model, entry=first, axes=found.axes, tensor=found.ending.tensor,
        numbers=found.values[first.name].indices, indices=found.ending.indices,
        embedding=embedding)


def _converted(path: Path, model: onnx.ModelProto, first: GraphInput, output: str | None
               ) -> tuple[onnx.ModelProto, Conversion]:
    """A graph and what it becomes; of several outputs, the graph that gives them side by side.

    Raises:
        ValueError: as `convert` has it; or there are several outputs, which cannot be joined.
    """
    if names := _several(path, model, output):
        return _joined(path, model, first, names)
    try:
        return model, convert(path, model, first, output)
    except SeveralOutputs as error:
        if not error.apart:
            raise
        try:
            made, found = _joined(path, model, first, error.names)
        except ValueError:
            raise error from None
        if found.problems:
            raise error from None
        return made, found


def _several(path: Path, model: onnx.ModelProto, output: str | None) -> tuple[str, ...]:
    """The tensors that a choice of several names; none where it is one name, or left out.

    Raises:
        ValueError: there is no such tensor.
    """
    known = {name for node in model.graph.node for name in node.output}
    if output is None or output in known or "," not in output:
        return ()
    names = tuple(name.strip() for name in output.split(","))
    if missing := [name for name in names if name not in known]:
        raise ValueError(f"{path}: it computes no tensor {missing[0]!r}, which --output names")
    return names


def _joined(path: Path, model: onnx.ModelProto, first: GraphInput, names: tuple[str, ...]
            ) -> tuple[onnx.ModelProto, Conversion]:
    """The graph that gives some tensors side by side, and what it becomes; errors are those of `convert`."""
    made = side_by_side(model, names)
    found = convert(path, made, first, None)
    if found.problems:
        return made, found
    samples = found.build.input.samples
    sizes = tuple((cleaned(name), found.values[name].numbers.size // samples) for name in names)
    found.build.note(f"Its outputs {listed(sizes)} lie one after the other in one vector.")
    return made, replace(found, results=sizes)


def _network(path: Path, model: onnx.ModelProto, found: Conversion) -> Graph:
    source = found.build.input
    shape, sequence = source.shape, source.form is SampleForm.SEQUENCE
    order = axes(source.order) if not sequence else (0,)
    if sequence:
        shape = shape[1:]
    elif source.form is SampleForm.IMAGE and len(found.axes.shape) == 3 and shape[1] == 1:
        # One dimension: the row is no axis of the file.
        shape, order = (shape[0], shape[2]), axes(source.order[:, :, 0])
    whole = Graph(
        name=cleaned(path.stem), shape=tuple(int(size) for size in shape), sequence=sequence, axes=order,
        nodes=tuple(found.build.nodes), notes=tuple(found.build.notes), softmax=found.ending.softmax,
        origin=_origin(path, model), file_shape=found.axes.one, classes=class_names(model), results=found.results)
    return whole.ending_with(found.ending.node)


def _unrolled(model: onnx.ModelProto) -> str:
    """A hint if the same weights are used again and again, as in a recurrent layer that is unrolled over time."""
    uses = Counter(name for node in model.graph.node if node.op_type in ("MatMul", "Gemm") for name in node.input[1:2])
    name, count = uses.most_common(1)[0] if uses else ("", 0)
    return "" if count < UNROLLED else (
        f"{count} nodes multiply by the same weights {name!r}: a recurrent layer seems to be unrolled over its time "
        "steps; export it with torch.onnx.export(..., dynamo=False), which writes it as one node")


def _origin(path: Path, model: onnx.ModelProto) -> dict[str, str]:
    """Where a network comes from."""
    return {
        "file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "producer": f"{model.producer_name} {model.producer_version}".strip() or "unknown",
        "opset": str(opset(model, ""))}


def class_names(model: onnx.ModelProto) -> tuple[str, ...]:
    """The classes in the order of the outputs: those of a classifier's node, or of the metadata; empty without such."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name in ATTRIBUTES and (attribute.strings or attribute.ints):
                return _texts(attribute.strings or attribute.ints)
        if node.op_type == "ArrayFeatureExtractor" and node.input[0] in constants:  # classes by the largest output
            return _texts(numpy_helper.to_array(constants[node.input[0]]).reshape(-1).tolist())
    return next((names for entry in model.metadata_props if entry.key.lower() in KEYS
                 and (names := _written(entry.value))), ())


def _texts(values) -> tuple[str, ...]:
    return tuple(cleaned(value.decode(errors="replace") if isinstance(value, bytes) else str(value))
                 for value in values)


def _written(text: str) -> tuple[str, ...]:
    """Names in a text such as {0: 'cat', 1: 'dog'} or ["cat", "dog"]; empty for other texts."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ()
    if isinstance(value, dict):
        numbers = {str(key): name for key, name in value.items()}
        value = [numbers.get(str(index)) for index in range(len(numbers))]
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        return ()
    return _texts(value)
