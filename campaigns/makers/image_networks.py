"""Random small networks of images in the formats of a machine."""

from math import prod

import numpy as np
from concord.campaigns.makers import networks
from concord.net.arithmetic.native_vectors import adjacent, flattened, joined
from concord.net.arithmetic.windows import Window
from concord.net.layers.convolution import Along
from concord.net.layers.enlarging import Enlarge
from concord.net.layers.joins import Add, Concat
from concord.net.layers.layer import Layer
from concord.net.layers.pooling import MaxPool
from concord.net.lowering import block_lowering, image_lowering, lowering
from concord.net.model import INPUT, Model
from concord.spec.machine.config import Config
from concord.spec.numbers.activation import Activation

#: Memories large enough for small networks; formats, dimensions and banks are those of the presets.
ROOM = {"initial_vrf": 512, "addsub_vrf": 1024, "multiply_vrf": 512, "matrix_tiles": 4096, "bias_words": 512,
        "instructions": 2048, "net_in": 4096, "vector_rf": 4096, "accumulator_rows": 256, "acc_int": 30}


class ImageNetworkMaker:
    """Builds a random network of images, layer by layer.

    Args:
        rng:    Source of random numbers.
        config: Machine whose formats the layers have.
        shape:  Channels, rows and columns of the network's input.
        block:  Whether layers are in block floating point, rather than in integers.
    """

    def __init__(self, rng: np.random.Generator, config: Config, shape: tuple[int, int, int], *, block: bool):
        self.rng, self.config, self.block = rng, config, block
        self.layers: list[Layer] = []
        self.sources: dict[str, tuple[str, ...]] = {}
        self.shapes = {INPUT: shape}
        self.places = {INPUT: adjacent(shape[0])}

    def model(self) -> Model:
        """The network."""
        return networks.model(self.layers, self.sources)

    def conv(self, source: str, outputs: int, size=(3, 3), *, real: bool = True, **options) -> str:
        """Add a convolution; `options` are its geometry, `unsigned` and `activation`. Returns its name."""
        shape, name = self.shapes[source], f"conv{len(self.layers)}"
        activation = options.pop("activation", Activation.RELU)
        groups, unsigned = options.pop("groups", 1), options.pop("unsigned", bool(self.rng.integers(2)))
        columns = shape[0] // groups * prod(size)
        offset = options.pop("offset", 0.0)
        if self.block:
            layer = block_lowering.block_conv(
                name=name, weights=self.rng.uniform(-1, 1, (outputs, shape[0] // groups, *size)) / np.sqrt(columns),
                bias=self.rng.normal(size=outputs) / 2, shape=shape, groups=groups, activation=activation,
                along=options.pop("along", None if source == INPUT else Along.CHANNELS),
                places=self._own_places(source), **self._formats(),
                **options)
        else:
            layer = image_lowering.convolution(
                self._rows(name, outputs, columns, unsigned, offset, activation, real), shape=shape,
                kernels=(outputs, shape[0] // groups, size[0], size[1]), groups=groups, **options)
        return self._add(layer, (source,), layer.made, self.places[source] if groups == outputs == shape[0] else None)

    def average(self, source: str, size, **options) -> str:
        """Add an average of windows; returns its name."""
        shape, name = self.shapes[source], f"average{len(self.layers)}"
        if self.block:
            layer = block_lowering.block_average(name=name, shape=shape, size=size, places=self._own_places(source),
                                                 **self._formats(), **options)
        else:
            layer = image_lowering.average(
                name=name, shape=shape, size=size, input_format=self.config.activations, unsigned=True,
                s_in=3 / self.config.activations.levels, m_in=float(self.rng.choice([0.0, -0.25])), quantize_input=True,
                **options)
        return self._add(layer, (source,), layer.made, self.places[source])

    def maximum(self, source: str, size, **options) -> str:
        """Add a maximum of windows; returns its name."""
        layer = MaxPool(name=f"max{len(self.layers)}", shape=self.shapes[source], size=size, **options)
        return self._add(layer, (source,), layer.made, self.places[source])

    def enlarge(self, source: str, factor, **options) -> str:
        """Add an enlargement, of the parts of a concatenation if it is `shuffled`; returns its name."""
        layer = Enlarge(name=f"large{len(self.layers)}", shape=self.shapes[source], factor=factor, **options)
        return self._add(layer, (source,), layer.made, self.places[source][: layer.made[0]])

    def sum(self, a: str, b: str, activation: Activation = Activation.NONE) -> str:
        """Add the sum of two tensors; returns its name."""
        layer = Add(name=f"sum{len(self.layers)}", inputs=prod(self.shapes[a]), activation=activation)
        return self._add(layer, (a, b), self.shapes[a], self.places[a])

    def concat(self, *sources: str) -> str:
        """Add the concatenation of tensors; returns its name."""
        shapes, size = [self.shapes[name] for name in sources], self.config.native_dim
        layer = Concat(name=f"concat{len(self.layers)}", sizes=tuple(map(prod, shapes)))
        if len({shape[1:] for shape in shapes}) == 1:
            shape = (sum(shape[0] for shape in shapes), *shapes[0][1:])
            return self._add(layer, sources, shape, joined([self.places[name] for name in sources], size))
        parts = [flattened(self.places[name], prod(self.shapes[name][1:]), size) for name in sources]
        return self._add(layer, sources, (layer.outputs, 1, 1), joined(parts, size))

    def dense(self, source: str, outputs: int, activation: Activation = Activation.NONE) -> str:
        """Add a dense layer on a flattened image; returns its name."""
        name, inputs = f"dense{len(self.layers)}", prod(self.shapes[source])
        if self.block:
            places = flattened(self.places[source], prod(self.shapes[source][1:]), self.config.native_dim)
            layer = block_lowering.block_dense(
                name=name, weights=self.rng.uniform(-1, 1, (outputs, inputs)) / np.sqrt(inputs),
                bias=self.rng.normal(size=outputs), activation=activation,
                places=None if np.array_equal(places, adjacent(inputs)) else places, **self._formats())
        else:
            layer = self._rows(name, outputs, inputs, bool(self.rng.integers(2)), 0.0, activation, True)
        return self._add(layer, (source,), (outputs, 1, 1))

    def _rows(self, name, outputs, columns, unsigned, offset, activation, real):
        """A random dense layer, the rows of a convolution."""
        low, high = self.config.weights.lowest, self.config.weights.highest
        return lowering.dense(
            name=name, codes=self.rng.integers(low, high + 1, (outputs, columns)),
            gain=self.rng.uniform(0.5, 1.5, outputs) / np.sqrt(columns) / high,
            constant=self.rng.normal(size=outputs) / 2, weights_format=self.config.weights,
            input_format=self.config.activations, unsigned=unsigned,
            s_in=3 / self.config.activations.levels, m_in=offset, quantize_input=real, activation=activation)

    def _formats(self):
        return {"weights_format": self.config.weights, "input_format": self.config.activations,
                "block": self.config.native_dim}

    def _own_places(self, source: str):
        places = self.places[source]
        return None if np.array_equal(places, adjacent(len(places))) else places

    def _add(self, layer: Layer, sources: tuple[str, ...], shape, places=None) -> str:
        self.layers.append(layer)
        self.sources[layer.name] = sources
        self.shapes[layer.name] = tuple(shape)
        self.places[layer.name] = adjacent(shape[0]) if places is None else places
        return layer.name


def geometry(rng: np.random.Generator, shape: tuple[int, int, int], largest: int = 3) -> tuple[tuple[int, int], dict]:
    """The size of a random window, and its stride, padding and dilation, for which an image has a position at least."""
    while True:
        rows, columns = rng.integers(1, largest + 1, 2).tolist()
        size, stride, dilation = (rows, columns), _pair(rng, 1, 3), _pair(rng, 1, 2)
        top, bottom, left, right = rng.integers(0, 3, 4).tolist()
        window = Window(size=size, stride=stride, dilation=dilation, padding=(top, bottom, left, right))
        if min(window.counts(*shape[1:])) >= 1:
            return size, {"stride": window.stride, "padding": window.padding, "dilation": window.dilation}


def _pair(rng, low, high):
    return tuple(int(n) for n in rng.integers(low, high + 1, 2))
