"""Data in the form that an imported network takes."""

from collections.abc import Sequence
from math import prod

from concord.model.data.samples import DataSet
from concord.model.floating.network import FloatNetwork


def fitted(data: DataSet, network: FloatNetwork) -> DataSet:
    """The data as sequences where the network takes such.

    Raises:
        ValueError: they do not fit the network.
    """
    if network.sequence:
        data = data.as_sequences(prod(network.shape))
    elif data.sequence:
        raise ValueError(f"{data.name}: the samples are sequences, but {network.name} takes {words(network.shape)}; "
                         "give samples of one length as such arrays, without lengths")
    if fits(data.shape, network.shape):
        return data
    what = "a time step" if network.sequence else "a sample"
    raise ValueError(f"{data.name}: {what} is {words(data.shape)}, but {network.name} takes "
                     f"{words(network.shape)}{_advice(data, network)}")


def fits(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether numbers of a shape are those of the wanted one in the same order; sides of length 1 do not count."""
    sides = [[size for size in one if size != 1] for one in (shape, wanted)]
    return prod(shape) == prod(wanted) and (1 in (len(shape), len(wanted)) or sides[0] == sides[1])


def _advice(data: DataSet, network: FloatNetwork) -> str:
    """How to make samples fit."""
    if prod(data.shape) != prod(network.shape):
        return "; give the data that it was trained on"
    last = (*network.shape[1:], network.shape[0])
    if tuple(data.shape) == last:
        return ", channels first; write `layout = \"hwc\"` below [preprocessing] in the data's TOML file"
    return f"; write `shape = {list(network.shape)}` below [preprocessing] in the data's TOML file"


def words(shape: tuple[int, ...]) -> str:
    """A shape in words."""
    return " x ".join(map(str, shape)) + (" numbers" if len(shape) == 1 else "")
