"""Shape of the tensor that enters an ONNX graph."""

from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import TensorProto, helper

SAMPLES = 2  #: Samples of a batch where a file leaves their number open: two, so that mixing them is noticed.
TIME = 5  #: Time steps where a file leaves their number open.
#: Element types that are no real numbers.
UNREAL = frozenset({TensorProto.STRING, TensorProto.BOOL, TensorProto.COMPLEX64, TensorProto.COMPLEX128})
RECURRENT = frozenset({"LSTM", "GRU", "RNN"})


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphInput:
    """The input of a graph.

    Attributes:
        name:    Name of the tensor.
        kind:    Element type, of `onnx.TensorProto`.
        choices: What the axes may mean, the likeliest first.
    """

    name: str
    kind: int
    choices: tuple["Axes", ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Axes:
    """What the axes of an input mean.

    Attributes:
        shape:   Size of each axis.
        samples: Axis of the samples, or None if there is none.
        time:    Axis of the time steps, or None if the network takes no sequences.
        open_time: Whether the file leaves the number of time steps open.
    """

    shape: tuple[int, ...]
    samples: int | None
    time: int | None = None
    open_time: bool = False

    @property
    def one(self) -> tuple[int, ...]:
        """Shape of one sample, or of one time step."""
        return tuple(size for axis, size in enumerate(self.shape) if axis not in (self.samples, self.time))


def entry(path: Path, model: onnx.ModelProto, shape: tuple[int, ...] | None) -> GraphInput:
    """The only input of a graph.

    Args:
        path:  File of the model, for messages.
        model: The model.
        shape: Sizes of one sample, or of all axes; None for those in the file.

    Raises:
        ValueError: there are several inputs or none, an axis is open, or `shape` does not fit the file.
    """
    graph = model.graph
    constant = {tensor.name for tensor in graph.initializer}
    used = {name for node in graph.node for name in node.input}
    found = [value for value in graph.input if value.name not in constant and value.name in used]
    if len(found) != 1:
        names = ", ".join(repr(value.name) for value in found) or "none"
        raise ValueError(f"{path}: one input is needed, but the network has {len(found)} ({names}); export it with one "
                         "input, and with constants, such as states of zero, for the others")
    kind = found[0].type.tensor_type
    if not found[0].type.HasField("tensor_type") or not kind.HasField("shape"):
        raise ValueError(f"{path}: the shape of its input {found[0].name!r} is not known; export the network again "
                         "with an example input")
    if kind.elem_type in UNREAL or kind.elem_type not in helper.get_all_tensor_dtypes():
        names = {number: name for name, number in TensorProto.DataType.items()}
        held = names.get(kind.elem_type, f"the unknown type {kind.elem_type}")
        raise ValueError(f"{path}: its input {found[0].name!r} holds {held}; real numbers are needed")
    sizes = [size.dim_value if size.HasField("dim_value") and size.dim_value > 0 else None for size in kind.shape.dim]
    kinds = [node.op_type for node in graph.node if node.op_type in RECURRENT or node.op_type == "Conv"]
    return GraphInput(name=found[0].name, kind=kind.elem_type, choices=_choices(path, sizes, shape, kinds))


def _choices(path: Path, sizes: list[int | None], shape: tuple[int, ...] | None, kinds: list[str]) -> tuple[Axes, ...]:
    """What the axes may mean.

    Args:
        path:  File of the model, for messages.
        sizes: Sizes in the file, None for open ones.
        shape: Sizes that the user gives, or None.
        kinds: Convolutions and recurrent layers of the graph, in order.
    """
    if not sizes:
        raise ValueError(f"{path}: its input is a single number; a network of vectors or images is needed")
    if RECURRENT.intersection(kinds) and len(sizes) in (2, 3):
        orders = [(0, 1), (1, 0)] if len(sizes) == 3 else [(None, 0), (None, 1)]
        if kinds[0] not in RECURRENT and len(sizes) == 3 and (shape is not None or None not in sizes[1:]):
            # Convolutions come first, so the input is an image, which recurrent layers read as a sequence later.
            orders.insert(0, (0, None))
        return tuple(_filled(path, sizes, shape, samples, time) for samples, time in orders)
    return (_filled(path, sizes, shape, 0 if len(sizes) > 1 else None, None),)


def _filled(path: Path, sizes: list[int | None], shape, samples: int | None, time: int | None) -> Axes:
    """Sizes with numbers for the axes that are open."""
    theirs, sizes = sizes, list(sizes)
    if shape is not None:
        _take(path, sizes, shape, samples)
    open_time = time is not None and sizes[time] is None
    for axis, default in ((samples, SAMPLES), (time, TIME)):
        if axis is not None and sizes[axis] is None:
            sizes[axis] = default
    if None in sizes:
        shown = ", ".join("?" if size is None else str(size) for size in theirs)
        count = len(sizes) - (samples is not None)
        raise ValueError(f"{path}: its input has the shape [{shown}], with open axes; give the {count} sizes of one "
                         "sample by --shape, such as --shape 3,32,32")
    return Axes(shape=tuple(sizes), samples=samples, time=time, open_time=open_time)


def _take(path: Path, sizes: list[int | None], shape: tuple[int, ...], samples: int | None):
    """Put the sizes that the user gives into those of the file."""
    at = [axis for axis in range(len(sizes)) if len(shape) == len(sizes) or axis != samples]
    if len(at) != len(shape) or any(size < 1 for size in shape):
        raise ValueError(f"--shape {','.join(map(str, shape))}: {len(at)} sizes of 1 or more are needed, one for each "
                         f"axis of a sample of {path}")
    for axis, size in zip(at, shape, strict=True):
        if sizes[axis] not in (None, size) and axis != samples:
            raise ValueError(f"--shape {','.join(map(str, shape))}: {path} has {sizes[axis]} where this has {size}; "
                             "leave --shape out, or export the network for that shape")
        sizes[axis] = sizes[axis] or size
