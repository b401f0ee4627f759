"""The test set of a network: the shipped one that it names, or one at a place; refused if it does not fit."""

import tomllib

from concord.golden.host.firmware import Firmware
from concord.model.data import dataset
from concord.model.data.description import ORIGIN
from concord.model.data.measures import scored
from concord.model.data.read import digest, read_data
from concord.model.data.samples import NO_DATA, DataSet, Samples, Task
from concord.model.model import Model


def fitting(network: Firmware | Model, place: str | None, data: DataSet | None = None) -> DataSet:
    """A data set with test samples that fit a network.

    Args:
        network: The network. Its description says how a place is read that has none of its own.
        place:   Place as `read_data` takes it; None for the shipped set that the network names.
        data:    The data set at this place, if it was read already.

    Raises:
        ValueError: there are no such data, or they do not fit the network.
    """
    if place is None and network.data not in dataset.SHIPPED:
        has = "no test set" if network.data == NO_DATA else f"the test set of {network.data}, which is not shipped"
        raise ValueError(f"{network.name} has {has}: give inputs with --inputs FILE.npy, or a test set with --data "
                         "PLACE")
    if data is None:
        data = read_data(network.data) if place is None else read_data(place, network.description)
    tested(data, network.data if place is None else place)
    if network.recurrent:
        data = data.as_sequences(network.inputs)
    _check_shape(network, data, place or network.data)
    if data.test.labels is not None:
        _check_labels(network, data, place or network.data)
    return data


def tested(data: DataSet, place: str) -> Samples:
    """The test samples of a data set.

    Raises:
        ValueError: there are none.
    """
    if data.test is None:
        raise ValueError(f"{place}: it holds no test set; with `test = 1` in a TOML file all samples are one")
    return data.test


def is_own(model: Model, data: DataSet) -> bool:
    """Whether the test samples are those for which a model keeps the predictions of its float networks."""
    try:
        known = tomllib.loads(model.description).get(ORIGIN, {}).get("test_digest")
    except (tomllib.TOMLDecodeError, AttributeError):
        known = None
    return data.name == model.data if known is None else known == digest(data.test)


def _check_shape(network: Firmware | Model, data: DataSet, place: str):
    """Refuse samples of another shape than the network takes."""
    if data.sequence != network.recurrent or data.test.inputs.shape[-1] != network.inputs:
        kind = "sequences of vectors" if network.recurrent else "vectors"
        raise ValueError(f"{place}: {network.name} takes {kind} of {network.inputs} numbers, the test set holds "
                         f"{'x'.join(map(str, data.test.inputs.shape[1:]))}; name another one with --data")
    given, wanted = ([size for size in shape if size > 1] for shape in (data.shape, network.image or ()))
    if len(given) > 1 and wanted and given != wanted:
        takes, holds = (" x ".join(map(str, shape)) for shape in (network.image, data.shape))
        raise ValueError(f"{place}: {network.name} takes images of {takes} (channels, rows, columns), not {holds}; "
                         "give `layout = \"hwc\"` or `shape` below [preprocessing] in a TOML file")


def _check_labels(network: Firmware | Model, data: DataSet, place: str):
    """Refuse labels that the network's outputs cannot have."""
    labels, task = data.test.labels, getattr(network, "task", data.task)
    if task is not data.task and network.data != NO_DATA:
        raise ValueError(f"{place}: the data are for {data.task}, but {network.name} was made for {task}; "
                         f"write `task = \"{task}\"` in a TOML file that describes them, or name other data")
    match data.task:
        case Task.CLASSIFICATION:
            if labels.max() >= network.outputs:
                raise ValueError(f"{place}: the test set has class {labels.max()}, {network.name} has "
                                 f"{network.outputs} outputs; name another one with --data")
            _check_names(network, data, place)
        case Task.REGRESSION if labels.shape[1] != network.outputs:
            raise ValueError(f"{place}: each sample has {labels.shape[1]} targets, {network.name} has "
                             f"{network.outputs} outputs; name the columns of the targets as `labels` in a TOML file")
        case Task.ANOMALY if not scored(network.outputs, data.test):
            raise ValueError(f"{place}: anomalies are scored by one output, or by as many as there are inputs; "
                             f"{network.name} has {network.outputs}")


def _check_names(network: Firmware | Model, data: DataSet, place: str):
    """Refuse classes whose names stand in another order than those of the network."""
    named, mine = (tuple(names) != dataset.names(len(names)) for names in (data.classes, network.classes))
    if named and mine and data.classes != tuple(network.classes[:len(data.classes)]):
        raise ValueError(f"{place}: its classes are {', '.join(data.classes[:10])}, those of {network.name} "
                         f"{', '.join(network.classes[:10])}; give `classes` in this order in a TOML file")
