"""The output of a network: what of a graph's outputs the machine gives, and in which form."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from concord.frontends.onnx.lib.builder import Builder
from concord.frontends.onnx.lib.problems import Refused
from concord.frontends.onnx.lib.scores import Scores
from concord.frontends.onnx.lib.step import HostValue, UnknownValue, Value, misplaced
from concord.frontends.onnx.lib.views import ZERO, SampleForm, View
from onnx import helper


class SeveralOutputs(ValueError):
    """A graph gives several tensors, of which the machine gives one.

    Args:
        path:  File.
        names: Names of the outputs.
        apart: Whether the machine computes each of them itself, so that they can be joined.
    """

    def __init__(self, path: Path, names: tuple[str, ...], apart: bool):
        way = ", or join them by a Concat" if apart else ", or let each end ahead of what the host computes (Softmax)"
        super().__init__(f"{path}: it has {len(names)} outputs, {', '.join(map(repr, names))}; the machine gives one: "
                         f"choose it by --output NAME{way}")
        self.names, self.apart = names, apart


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Ending:
    """Where a network ends.

    Attributes:
        node:   Name of the node that gives the output.
        tensor: Name of the tensor of the graph that equals the output.
        indices: int32 of the shape of this tensor: where each element lies in the output, in C order.
        softmax: Whether the graph gives the softmax of the output, and not the output itself.
    """

    node: str
    tensor: str
    indices: np.ndarray
    softmax: bool = False


def choose(path: Path, outputs: dict[str, Value], wanted: str | None) -> View:
    """The tensor that the machine gives.

    Args:
        path:    File, for messages.
        outputs: Values of the graph's outputs by name.
        wanted:  Name of the output to give, or None for the only one.

    Raises:
        SeveralOutputs: there are several.
        ValueError: there is no such output.
    """
    if wanted is not None and wanted not in outputs:
        raise ValueError(f"{path}: it has no output {wanted!r}, and computes no such tensor; its "
                         f"outputs are {', '.join(map(repr, outputs))}")
    computed = {name: value.view if isinstance(value, HostValue) else value for name, value in outputs.items()
                if isinstance(value, HostValue | View) and wanted in (None, name)}
    if not computed:
        reason = next((value.reason for value in outputs.values() if isinstance(value, UnknownValue)), "")
        if any(isinstance(value, Scores) for value in outputs.values()):
            reason = "its output holds products of two computed tensors, which only an attention goes on with"
        raise ValueError(f"{path}: its output {', '.join(map(repr, outputs))} does not depend on its input"
                         if not reason else f"{path}: {reason}; export the network with another output")
    if len({(view.source.name, view.numbers.tobytes()) for view in computed.values()}) > 1:
        raise SeveralOutputs(path, tuple(outputs), all(isinstance(value, View) for value in outputs.values()))
    return next(iter(computed.values()))


def side_by_side(model: onnx.ModelProto, names: tuple[str, ...]) -> onnx.ModelProto:
    """The graph whose only output is a vector of all elements of these outputs, one output after the other."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    taken = {name for node in model.graph.node for name in (node.name, *node.output)}
    flat = [_unused(f"{name}_flat", taken) for name in names]
    whole = _unused("outputs", taken)
    made.graph.node.extend([
        *(helper.make_node("Flatten", [name], [each], each, axis=1) for name, each in zip(names, flat, strict=True)),
        helper.make_node("Concat", flat, [whole], whole, axis=1)])
    del made.graph.output[:]
    kind = model.graph.output[0].type.tensor_type.elem_type
    made.graph.output.append(helper.make_tensor_value_info(whole, kind, None))
    return made


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def softmaxed(outputs: dict[str, Value], wanted: str | None) -> bool:
    """Whether the graph gives the softmax of what the machine gives, and not that itself; arguments as for `choose`."""
    given = [value for name, value in outputs.items() if wanted in (None, name)]
    return any(isinstance(value, HostValue) and value.softmax for value in given) and not any(
        isinstance(value, View) for value in given)


def end(build: Builder, view: View, tensor: str) -> Ending:
    """The end of a network that gives a tensor.

    Raises:
        Refused: it is a part of what the last node gives, or a sequence of any length.
    """
    source = view.source
    if source.form is SampleForm.SEQUENCE and view.numbers.size == source.order.size > source.samples * source.shape[1]:
        if source.open_time:
            raise Refused("the output holds every time step, and the file leaves their number open", "export the "
                          "network with a fixed number of time steps, give the sizes by `nnp import --shape` or by the "
                          "shape of `concord.load`, or let it end with the last time step, such as output[:, -1] or "
                          "h_n of PyTorch")
        view = build.image_of_steps(view)
        source = view.source
    if source.form is SampleForm.IMAGE and view.numbers.ndim > 2:
        view = view if in_order(view) else build.own(view)
    else:
        view = build.flat(view)
    if not in_order(view):
        raise misplaced("the output is a part of what the last node computes, or lies in another order",
                        "give all of it, in order")
    if not in_order(view, channels_last=False):
        channels, rows, columns = view.source.shape
        build.note(f"The file gives its output as {rows} x {columns} x {channels}, with the channels last. Outputs of "
                   f"the machine, targets and what -o writes are {channels} x {rows} x {columns}.")
    return Ending(node=view.source.name, tensor=tensor, indices=view.indices.astype(np.int32))


def in_order(view: View, *, channels_last: bool = True) -> bool:
    """Whether a tensor is all that a node gives, in its order, or an image with the channels last if that may be."""
    indices, source = view.indices.reshape(-1), view.source
    if indices.size != source.order.size or indices.min() == ZERO:
        return False
    size = indices.size // source.samples
    one = np.arange(size).reshape(source.shape)
    image = channels_last and source.form is SampleForm.IMAGE and view.numbers.ndim > 2
    orders = [one, np.moveaxis(one, 0, -1)] if image else [one]
    # Samples need not lie one after the other: a recurrent layer gives [time, samples, elements].
    each = indices[np.argsort(indices // size, kind="stable")].reshape(source.samples, size)
    starts = size * np.arange(source.samples)[:, None]
    return any(np.array_equal(each, starts + order.reshape(-1)) for order in orders)
