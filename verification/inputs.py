"""Inputs of a network: its own test set, a test set in a folder, or numbers in a file."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from concord.datasets.arrays import read_numbers
from concord.datasets.dataset import SHIPPED
from concord.datasets.description import ORIGIN
from concord.datasets.fitting import arranged, fitted
from concord.datasets.interface import Interface
from concord.datasets.measures import remark, scored
from concord.datasets.read import digest, read_data
from concord.datasets.samples import NO_DATA, DataSet, Samples, Task, sample_range
from concord.firmware.cascade import Cascade
from concord.firmware.firmware import Firmware
from concord.lib.input_axes import InputAxes, Order
from concord.net.model import Model

#: What holds a network and says what it takes and gives.
Held = Firmware | Cascade | Model
#: Most samples that a sentence names.
NAMED = 5
#: Number of random samples that `read_or_draw` makes.
DRAWN = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class InputSource:
    """The options that choose inputs.

    Attributes:
        inputs:  File of real numbers [samples, ...], or [samples, steps, ...] for a recurrent network; or None.
        data:    Location of a data set, as `datasets.read.read_data` takes it, or None.
        samples: Text of `--samples`; None for `default` samples, or for all if there are fewer.
        first:   Index of the first sample.
        default: Number of samples if `samples` is None.
        read:    The data set at the location `data`, if it was read already.
        order:   Order of the axes of a sample; None for that of the file of the network, or of a description of data.

    Raises:
        ValueError: both `inputs` and `data` are given.
    """

    inputs: Path | None
    data: str | None
    samples: str | None
    first: int
    default: int
    read: DataSet | None = None
    order: Order | None = None

    def __post_init__(self):
        if self.inputs and self.data is not None:
            raise ValueError("--inputs and --data are two sources of inputs: name one of them")

    @property
    def location(self) -> str:
        """The location that is read, which may take a while; empty where nothing is read anew."""
        return "" if self.read else str(self.inputs or self.data or "")

    @property
    def words(self) -> list[str]:
        """The options that name the location, as words of a command line."""
        given = (("--inputs", self.inputs), ("--data", self.data), ("--order", self.order))
        return [word for option, location in given if location for word in (option, str(location))]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Inputs:
    """The samples that were chosen.

    Attributes:
        samples: The numbers of the samples, and their labels if these are known.
        chosen:  Range of the samples in their source.
        name:    Name of the source, for messages.
        odd:     A sentence about numbers that are not finite or exceed binary16; empty if there are none.
        task:    What the network does with them.
        own:     Whether a model's predictions are those for the data set.
        notes:   Sentences on what was chosen by default.
    """

    samples: Samples
    chosen: slice
    name: str
    odd: str
    task: Task = Task.CLASSIFICATION
    own: bool = True
    notes: tuple[str, ...] = ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """All sentences about the inputs that a user reads."""
        return (*self.notes, *filter(None, [self.odd]))

    def __iter__(self):
        """Pairs of the index and the binary16 patterns of each sample, without the padding after its last time step."""
        return enumerate(self.samples, self.chosen.start)


def read(network: Held, source: InputSource) -> Inputs:
    """Read the inputs that a source chooses for a network.

    Raises:
        ValueError: there are no such inputs, or they do not fit the network.
    """
    odd, data, notes = "", None, ()
    task = network.task if isinstance(network, Model) else Task.CLASSIFICATION
    if source.inputs:
        name = str(source.inputs)
        numbers, notes = arranged(read_numbers(source.inputs), interface(network), name, source.order or Order.FILE)
        with np.errstate(over="ignore"):
            found = Samples(inputs=numbers.astype(np.float16).view(np.uint16))
    elif source.data is not None or network.inputs:
        name, data = network.data if source.data is None else source.data, fitting(
            network, source.data, source.read, source.order)
        found = data.tested(name)
        task = task if found.labels is None else data.task
    else:
        name, found = "nothing", Samples(inputs=np.zeros((1, 0), np.uint16))
    _check_steps(network, name, found)
    chosen = sample_range(source.samples, source.first, len(found), source.default)
    if source.inputs:
        odd = oddities(name, numbers[chosen], chosen.start)
    if data and (words := remark(task, found.part(chosen))):
        data = replace(data, notes=(*data.notes, f"{name}: {words}"))
    own = data is None or not isinstance(network, Model) or is_own(network, data)
    return Inputs(samples=found.part(chosen), chosen=chosen, name=name, odd=odd, task=task, own=own,
                  notes=data.notes if data else notes)


def read_or_draw(network: Firmware | Cascade, source: InputSource) -> Inputs:
    """The inputs that a source chooses, or random ones if it names no location and the network has no shipped test set.

    Random inputs are normally distributed, with 5 time steps where any number is right.

    Raises:
        ValueError: the source names a location without such inputs, or they do not fit the network.
    """
    if source.words or not network.inputs or network.data in SHIPPED:
        return read(network, source)
    shape = (DRAWN, *[network.steps or 5] * network.recurrent, network.inputs)
    numbers = np.random.default_rng(0).normal(size=shape).astype(np.float16)
    chosen = sample_range(source.samples, source.first, DRAWN, source.default)
    samples = Samples(inputs=numbers.view(np.uint16))
    return Inputs(samples=samples.part(chosen), chosen=chosen, name="random numbers", odd="")


def _check_steps(network: Held, name: str, samples: Samples):
    """Refuse sequences that are not as long as a network with a fixed number of time steps needs them."""
    if network.steps is not None:
        lengths = [samples.inputs.shape[1]] if samples.lengths is None else samples.lengths.tolist()
        if odd := set(lengths) - {network.steps}:
            raise ValueError(f"{name}: {network.name} takes sequences of {network.steps} time steps, not of "
                             f"{min(odd)}: cut or pad them")


def oddities(name: str, numbers: np.ndarray, first: int) -> str:
    """A sentence about numbers that binary16 cannot hold; empty if there are none.

    Args:
        name:    Name of the source of the numbers.
        numbers: Real numbers [samples, ...].
        first:   Index of the first sample.
    """
    finite = np.isfinite(numbers)
    with np.errstate(over="ignore"):
        beyond = finite & ~np.isfinite(numbers.astype(np.float16))
    odd = ~finite | beyond
    if not odd.any():
        return ""
    rows = np.flatnonzero(odd.reshape(len(odd), -1).any(axis=1)) + first
    return (f"{name}: of {odd.size:,} values {int((~finite).sum()):,} are not finite and {int(beyond.sum()):,} too "
            f"large for binary16, which makes them infinite; results of {_listed(rows.tolist())} mean nothing")


def _listed(rows: Sequence[int]) -> str:
    """Indices of samples as text; of many, only the first few."""
    text = ", ".join(map(str, rows[:NAMED]))
    return f"sample{'s' * (len(rows) > 1)} {text}" + f" and {len(rows) - NAMED:,} more" * (len(rows) > NAMED)


def interface(network: Held) -> Interface:
    """What a network takes and gives. One that comes from no file takes what its first layers take."""
    axes = network.axes or InputAxes(shape=network.image or (network.inputs,))
    return Interface(name=network.name, axes=axes, sequence=network.recurrent, outputs=network.outputs,
                     steps=network.steps, classes=tuple(network.classes), results=network.results,
                     table=network.table)


def fitting(network: Held, location: str | None, data: DataSet | None = None, order: Order | None = None
            ) -> DataSet:
    """A data set with test samples that fit a network.

    Args:
        network:  The network. Its description says how a location is read that has none of its own.
        location: Location as `read_data` takes it; None for the shipped set that the network names.
        data:     The data set at this location, if it was read already.
        order:    Order of the axes of a sample; None for that of the description.

    Raises:
        ValueError: there are no such data, or they do not fit the network.
    """
    if location is None and network.data not in SHIPPED:
        has = "no test set" if network.data == NO_DATA else f"the test set of {network.data}, which is not shipped"
        raise ValueError(f"{network.name} has {has}: give inputs with --inputs FILE.npy, or a test set with --data "
                         "LOCATION")
    where = location or network.data
    if data is None:
        data = read_data(network.data) if location is None else read_data(location, network.description, order)
    task = getattr(network, "task", data.task)
    if data.tested(where).labels is not None and task is not data.task and network.data != NO_DATA:
        raise ValueError(f"{where}: the data are for {data.task}, but {network.name} was made for {task}; write "
                         f"`task = \"{task}\"` in a TOML file that describes them, or name other data")
    data = fitted(data, interface(network), where)
    if network.axes is None and location is not None and order is not Order.MACHINE and network.image and (
            network.image[0] > 1):
        note = (f"{network.name} does not say in which order the file of its network has the axes of a sample: they "
                "are taken as channels, rows and columns")
        data = replace(data, notes=(*data.notes, note))
    test = data.tested(where)
    if test.labels is not None:
        _check_labels(network, data.task, test, test.labels, where)
    return data


def is_own(model: Model, data: DataSet) -> bool:
    """Whether the test samples are those for which a model keeps the predictions of its float networks."""
    known = _digest(model.description)
    if known is None:
        return data.name == model.data
    return known == (_digest(data.description) or digest(data.tested(data.name)))


def _digest(description: str) -> str | None:
    """The digest of the test set that a description records."""
    try:
        return tomllib.loads(description).get(ORIGIN, {}).get("test_digest")
    except (tomllib.TOMLDecodeError, AttributeError):
        return None


def _check_labels(network: Held, task: Task, test: Samples, labels: np.ndarray, location: str):
    """Refuse labels that the network's outputs cannot have."""
    match task:
        case Task.CLASSIFICATION if network.outputs % test.steps:
            raise ValueError(f"{location}: a sample has a class for each of {test.steps} time steps or pixels, "
                             f"{network.name} has {network.outputs} outputs; name another test set with --data")
        case Task.CLASSIFICATION if labels.max() >= network.outputs // test.steps:
            raise ValueError(f"{location}: the test set has class {labels.max()}, {network.name} has "
                             f"{network.outputs // test.steps} outputs; name another one with --data")
        case Task.REGRESSION if labels.shape[1] != network.outputs:
            raise ValueError(f"{location}: each sample has {labels.shape[1]} targets, {network.name} has "
                             f"{network.outputs} outputs; name the columns of the targets as `labels` in a TOML file")
        case Task.ANOMALY if not scored(network.outputs, test):
            raise ValueError(f"{location}: anomalies are scored by one output, or by as many as there are inputs; "
                             f"{network.name} has {network.outputs}")
