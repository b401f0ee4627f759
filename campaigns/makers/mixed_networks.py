"""Random small networks of images and recurrent layers in the formats of a machine."""

from dataclasses import replace

import numpy as np
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ImageNetworkMaker, geometry
from concord.net.arithmetic.native_vectors import adjacent
from concord.net.arithmetic.windows import TimeAxis
from concord.net.cells.cell import Cell
from concord.net.cells.lstm import LSTM
from concord.net.cells.registry import CELLS
from concord.net.layers.joins import SequenceConcat
from concord.net.layers.sequences import ImageToSequence, SequenceToImage
from concord.net.model import INPUT, Model
from concord.spec.machine.config import Config


class Mixed(ImageNetworkMaker):
    """Builds a random network, layer by layer, whose input is an image, or sequences of `steps` vectors.

    Args:
        steps: Number of time steps of the input; 0 for an image of `shape`. Of sequences, a vector has `shape[0]`
            elements.
    """

    def __init__(self, rng: np.random.Generator, config: Config, shape, *, block: bool, steps: int = 0):
        super().__init__(rng, config, shape, block=block)
        self.steps = steps

    def sequence(self, source: str, time: TimeAxis = TimeAxis.COLUMNS) -> str:
        """Read an image as a sequence; returns the name of the layer."""
        layer = ImageToSequence(name=f"sequence{len(self.layers)}", shape=self.shapes[source], time=time)
        return self._add(layer, (source,), (layer.outputs, 1, 1))

    def image(self, source: str, steps: int) -> str:
        """Read a sequence as an image; returns the name of the layer."""
        layer = SequenceToImage(name=f"image{len(self.layers)}", inputs=self.shapes[source][0], steps=steps)
        return self._add(layer, (source,), layer.made)

    def recurrent(self, source: str, outputs: int, cell: Cell = LSTM, *, reverse: bool = False) -> str:
        """Add a recurrent layer; returns its name."""
        make = networks.block_recurrent if self.block else networks.recurrent_layer
        layer = make(self.rng, self.config, cell, f"{cell.name}{len(self.layers)}", self.shapes[source][0], outputs)
        return self._add(replace(layer, reverse=reverse), (source,), (outputs, 1, 1))

    def both(self, a: str, b: str) -> str:
        """Join the vectors of two sequences at each time step; returns the name of the layer."""
        layer = SequenceConcat(name=f"both{len(self.layers)}", sizes=(self.shapes[a][0], self.shapes[b][0]))
        return self._add(layer, (a, b), (layer.outputs, 1, 1), adjacent(layer.outputs))


def anything(rng: np.random.Generator, config: Config, *, block: bool, layers: int = 10) -> Model:
    """A random graph of layers of images and recurrent layers, whose channels are such that blocks fit."""
    steps, sizes = int(rng.integers(2, 8)), [config.native_dim, 2 * config.native_dim] if block else [3, 5, 9, 20]
    made = Mixed(rng, config, (int(rng.choice(sizes)), 1, 1), block=block, steps=steps)
    if rng.integers(2):
        images, sequences = [made.image(INPUT, steps)], {INPUT: steps}
    else:
        made = Mixed(rng, config, (3, int(rng.integers(2, 7)), int(rng.integers(2, 7))), block=block)
        images, sequences = [made.conv(INPUT, int(rng.choice(sizes)), (2, 2))], {}
    vectors = []
    for _ in range(layers):
        at, size = str(rng.choice(images)), int(rng.choice(sizes))
        shape = made.shapes[at]
        match int(rng.integers(8)):
            case 0:
                window, geometry_of = geometry(rng, shape, 2)
                images.append(made.conv(at, size, window, **geometry_of))
            case 1:
                window = tuple(int(rng.integers(1, min(3, side) + 1)) for side in shape[1:])
                images.append(made.maximum(at, window, stride=(1, 1)) if rng.integers(2) else made.average(at, window))
            case 2:
                time = TimeAxis(rng.choice(list(TimeAxis)))
                name = made.sequence(at, time)
                sequences[name] = shape[1 if time is TimeAxis.ROWS else 2]
            case 3 | 4 if sequences:
                source = str(rng.choice(list(sequences)))
                name = made.recurrent(source, size, CELLS[rng.choice(["rnn", "gru"])], reverse=bool(rng.integers(2)))
                sequences[name] = sequences[source]
                vectors.append(name)
            case 5 if vectors:
                source = str(rng.choice(vectors))
                images.append(made.image(source, sequences[source]))
            case 6:
                same = [one for one in images if made.shapes[one] == shape]
                images.append(made.sum(at, str(rng.choice(same))))
            case 7:
                same = [one for one in images if made.shapes[one][1:] == shape[1:]]
                images.append(made.concat(at, str(rng.choice(same))))
    if vectors and rng.integers(2):
        made.dense(str(rng.choice(vectors)), 3)
    else:
        made.dense(images[-1], 3)
    return made.model()
