"""What the tool that a network comes from gives for the user's own samples: onnxruntime, qonnx, or PyTorch.

An import is right if both give the same outputs, but for the rounding of float32, and the same measure. The samples
enter that tool as they stand in the data, in the order of the network's file, so that a wrong order of axes shows, too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from concord.datasets.arrays import read_numbers
from concord.datasets.embedding import arrayed, tokens_of
from concord.datasets.fitting import arranged, fitted
from concord.datasets.measures import measure, text
from concord.datasets.samples import DataSet, Samples, Task
from concord.golden.mfu.softmax import real_softmax
from concord.lib.input_axes import Order
from concord.net.graph import Graph
from concord.net.ops.grid import Quantize
from concord.workflows.results import real

if TYPE_CHECKING:
    from concord.frontends.onnx.read import Imported

SAMPLES = 200  #: Most samples whose outputs are compared; our own run in float64.
MOST = slice(0, 1000)  #: Samples that the tool runs where no others are asked for.
CLOSE = 1e-4  #: Largest difference of an output that rounding to float32 explains, relative to the largest output.
CLOSE_HALF = 1e-2  #: The same of rounding to floats of 16 bits, in the network's file.
SLACK = 1e-3  #: Largest difference of a measure, relative to it, that rounding explains.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Original:
    """A network in the tool that it comes from.

    Attributes:
        by:  Name of the tool.
        run: Function of float64[samples, ...] in the order of the network's file, or [samples, time, ...], or of
            integers without the last axis, the token numbers of an embedding; and of the lengths of sequences or None.
            It gives the outputs float64[samples, outputs] twice: in the order of the network and in that of the file.
            It raises ValueError if the tool cannot run, ModuleNotFoundError if it is not installed.
        softmax: Whether these are after the softmax at the end of the network, which our own run leaves out.
        close: Largest difference of an output that its rounding explains, relative to the largest output.
    """

    by: str
    run: Callable[[np.ndarray, np.ndarray | None], tuple[np.ndarray, np.ndarray]]
    softmax: bool = False
    close: float = CLOSE


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Comparison:
    """What the tool that a network comes from gave for samples.

    Attributes:
        by:         Name of the tool.
        reason:     Why it did not run; empty if it ran.
        samples:    Number of samples.
        difference: Largest difference of an output from ours, relative to the largest output.
        measures:   Measures of its outputs; empty without labels.
    """

    by: str
    reason: str = ""
    samples: int = 0
    difference: float = 0.0
    measures: Mapping[str, float] = field(default_factory=dict)

    @property
    def record(self) -> dict[str, str | int | float]:
        """The comparison as JSON has it."""
        return {"by": self.by, "reason": self.reason, "samples": self.samples, "difference": self.difference}

    def __str__(self):
        if self.reason:
            return f"{self.by}: not measured: {self.reason}"
        figures = "".join(f", {name} {text(name, value)}" for name, value in self.measures.items())
        return (f"{self.by}: outputs for {self.samples} samples differ by at most {self.difference:.1e} of the largest"
                f"{figures}")


def original_of(imported: "Imported | None") -> Original | None:
    """The tool that runs an ONNX file; None for a network of another file."""
    if imported is None:
        return None
    from concord.frontends.onnx.compare import run_file, tool

    return Original(by=tool(imported), run=lambda x, lengths: run_file(imported, x, lengths), close=closeness(imported))


def closeness(imported: "Imported") -> float:
    """Largest difference of an output that rounding in a file explains, relative to the largest output."""
    from concord.frontends.onnx.compare import has_halves

    return CLOSE_HALF if has_halves(imported) else CLOSE


def at_random(imported: "Imported") -> tuple[bool, str]:
    """Whether an ONNX file was run on random inputs in its tool, and a sentence on the difference, or why it was not.

    Raises:
        ValueError: the import is wrong.
    """
    from concord.frontends.onnx.compare import difference as on_random_inputs

    try:
        worst = on_random_inputs(imported)
    except ModuleNotFoundError:
        return False, "Not compared with the file, because onnxruntime is not installed: pip install onnxruntime."
    except ValueError as error:
        return False, f"Not compared with the file: {error}."
    if not worst <= closeness(imported):
        raise ValueError(f"{imported.network.origin['file']}: the import differs from what onnxruntime computes by "
                         f"{worst:.2g} of the largest output; please report this, with the file")
    return True, f"On random inputs, outputs differ from onnxruntime's by at most {worst:.1e} of the largest output."


def of_data(network: Graph, original: Original | None, data: DataSet, chosen: slice = MOST) -> Comparison:
    """What the tool gives for samples of a data set as it was read, compared with the network on the fitted ones.

    They are test samples; where there are none, samples for training or calibration.

    Args:
        network:  The network.
        original: The tool; None where there is none.
        data:     The data as they were read.
        chosen:   The samples.

    Raises:
        ValueError: outputs or measures differ by more than rounding explains.
    """
    takes = network.interface
    tokens = tokens_of(_first(data).part(chosen), takes)
    if takes.sequence and tokens is None:
        data = data.as_sequences(int(np.prod(takes.axes.shape)))
    given = _first(data).part(chosen)
    ours = _first(fitted(data, takes)).part(chosen)
    numbers = real(given.inputs) if tokens is None else tokens
    if tokens is None and (data.order is Order.MACHINE or data.image):
        numbers = _turned_back(network, real(ours.inputs))
    return _compared(network, original, data.name, numbers, ours, data.task,
                     given if data.task is Task.ANOMALY else ours)


def _first(data: DataSet) -> Samples:
    """Test samples; where there are none, samples for training or calibration."""
    return next(part for part in (data.test, data.train, data.calibration) if part is not None)


def of_array(network: Graph, original: Original | None, array: np.ndarray, location: str,
             order: Order | None = None) -> Comparison:
    """The same for an array of samples without labels, which is rounded to binary16 first, as a machine reads it."""
    axes = 2 if network.sequence else 1
    if (tokens := arrayed(array, network.interface, location)) is not None:
        inputs, _ = arranged(array, network.interface, location)
        ours = Samples(inputs=np.ascontiguousarray(inputs.astype(np.float16)).view(np.uint16))
        return _compared(network, original, location, tokens, ours, Task.NONE, ours)
    with np.errstate(over="ignore"):
        array = array.astype(np.float16)
    array = array[np.isfinite(array).reshape(len(array), -1).all(axis=1)]
    order = order or Order.FILE
    inputs, _ = arranged(array, network.interface, location, order)
    ours = Samples(inputs=np.ascontiguousarray(inputs).view(np.uint16))
    numbers = array.astype(np.float64).reshape(*array.shape[:axes], -1)
    if order is Order.MACHINE:
        numbers = _turned_back(network, real(ours.inputs))
    return _compared(network, original, location, numbers, ours, Task.NONE, ours)


def of_file(network: Graph, original: Original | None, path: Path, order: Order | None) -> tuple[Comparison, tuple]:
    """The same for a .npy file, and notes on the order of its axes.

    Raises:
        ValueError: there is no such file, its numbers do not fit the network, or the tool gives other outputs.
    """
    array = read_numbers(path)
    _, notes = arranged(array, network.interface, str(path), order or Order.FILE)
    return of_array(network, original, array, str(path), order), notes


def _turned_back(network: Graph, inputs: np.ndarray) -> np.ndarray:
    """Inputs of the machine in the order of the file."""
    made = np.empty_like(inputs)
    made[..., network.input_axes.indices(network.input_axes.file)] = inputs
    return made


def _compared(network: Graph, original: Original | None, location: str, numbers: np.ndarray, samples: Samples,
              task: Task, labelled: Samples) -> Comparison:
    """Both runs, and the check that they are equal; `labelled` is measured with outputs in the order of the file.

    Token numbers run on the vectors of the file, which are not rounded to binary16.
    """
    tokens, inputs = network.table is not None and numbers.dtype.kind in "iu", real(samples.inputs)
    if tokens:
        inputs, _ = arranged(numbers, network.interface, location)
        numbers = numbers if network.sequence else numbers.reshape(len(numbers), *network.input_axes.file[:-1])
    else:
        numbers = numbers.reshape(*numbers.shape[:-1], *network.input_axes.file)
    if original is None:
        return Comparison(by="onnxruntime", reason="the network does not come from an ONNX file here; name that file")
    try:
        found, in_file = original.run(numbers, samples.lengths)
    except ModuleNotFoundError as error:
        return Comparison(by=original.by, reason=f"{error.name} is not installed")
    except ValueError as error:
        return Comparison(by=original.by, reason=str(error))
    count = min(SAMPLES, len(samples))
    first = samples.first(count)
    ours = outputs(network, original, inputs[:count], first.lengths)
    apart = checked(network, original, ours, found[:count], location)
    if labelled.steps > 1:  # the file may have the classes of a time step side by side
        in_file = found
    theirs = measure(task, in_file[:count], labelled.first(count))
    in_order = measure(task, found[:count], first)
    for name, value in measure(task, ours, first).items():
        if not _same(name, value, theirs[name], found[:count], original.close):
            why = ("the order of its outputs is not that of the labels: choose the tensor ahead of the last "
                   "transposition by --output NAME, and give labels in its order")
            if in_order[name] == theirs[name]:
                why = ("the outputs are equal but for rounding, which decides this measure: they hardly differ from "
                       "sample to sample, so train the network on, or give other samples")
            raise ValueError(f"{location}: {name} is {text(name, theirs[name])} in {original.by}, but "
                             f"{text(name, value)} in {network.name} as it was imported, on {count} samples; {why}")
    return Comparison(by=original.by, samples=len(samples), difference=apart, measures=measure(task, in_file, labelled))


def outputs(network: Graph, original: Original, x: np.ndarray, lengths: np.ndarray | None) -> np.ndarray:
    """float64[samples, outputs] of our own run, from real numbers as the machine reads them, in the last axis."""
    found = network.run(x.reshape(*x.shape[:-1], *network.shape), lengths).reshape(len(x), -1)
    return real_softmax(found) if original.softmax else found


def checked(network: Graph, original: Original, ours: np.ndarray, theirs: np.ndarray, location: str) -> float:
    """The difference of outputs, see `difference`.

    Raises:
        ValueError: it is more than rounding explains.
    """
    apart = difference(network, ours, theirs)
    if not apart <= original.close:
        raise ValueError(f"{location}: {network.name} is not what {original.by} computes: on {len(ours)} "
                         f"sample{'s' * (len(ours) > 1)}, outputs differ by {apart:.2g} of the largest output; please "
                         "report this, with the network")
    return apart


def difference(network: Graph, ours: np.ndarray, theirs: np.ndarray) -> float:
    """Largest difference of an output, relative to the largest output; NaN if some are no numbers.

    Where results are rounded to integers, float32 may round one to the neighbouring integer. The difference is then the
    median over samples, because a wrong import differs in most of them.
    """
    apart, largest = np.abs(ours - theirs).max(axis=1), float(np.abs(theirs).max())
    rounds = network.has(Quantize)
    found = float(np.median(apart) if rounds else apart.max())
    return found / largest if largest else found


def _same(name: str, ours: float, theirs: float, outputs: np.ndarray, close: float) -> bool:
    """Whether two measures are equal but for rounding, which may turn the class of a sample with two equal outputs.

    Args:
        name:         Name of the measure.
        ours, theirs: The measures.
        outputs:      Outputs of the tool.
        close:        Largest difference of an output that rounding explains, relative to the largest output.
    """
    if np.isnan(ours) and np.isnan(theirs):  # where no time step has a class, no share is defined
        return True
    if name != "accuracy":
        return bool(np.isclose(ours, theirs, rtol=max(SLACK, close), atol=max(SLACK, close)))
    if outputs.shape[1] < 2:
        return ours == theirs
    top = np.sort(outputs, axis=1)
    ties = (top[:, -1] - top[:, -2] <= 2 * close * np.abs(outputs).max()).mean()
    return abs(ours - theirs) <= ties + 1e-9
