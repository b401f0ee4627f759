"""How an image enters: as the host sends it, and as a loop over time steps reads it.

The host sends it pixel by pixel, or cut into patches for the layer that reads it.
An image of few channels leaves most lanes of a native vector empty. The sender can put all rows of a window, all its
columns, or both side by side into one pixel; a pixel of the image is then sent several times.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from concord.compiler.graph.nodes import Value
from concord.compiler.lib import tiling
from concord.firmware.layout import Layout
from concord.net.arithmetic.native_vectors import adjacent, flattened, spread
from concord.net.arithmetic.windows import TimeAxis, Window
from concord.net.layers.convolution import Along, BlockConv, Conv
from concord.net.layers.layer import Layer, unchecked
from concord.net.layers.pooling import Average, BlockAverage
from concord.net.layers.recurrent import BlockRecurrent, IntegerRecurrent, Recurrent
from concord.net.layers.sequences import ImageToSequence
from concord.spec.machine.config import Config


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Sender:
    """How an image is sent.

    Attributes:
        image:  The image as the model has it.
        patch:  Whether a pixel holds all rows, and all columns, of a window.
        window: Window of the layers that read the image.
    """

    image: Value
    patch: tuple[bool, bool] = (False, False)
    window: Window = Window(size=(1, 1))

    @property
    def value(self) -> Value:
        """The image as it is sent."""
        positions = self.window.counts(*self.image.shape[1:])
        rows, columns = (
            count if together else size
            for count, size, together in zip(positions, self.image.shape[1:], self.patch, strict=True))
        down, across = self._held
        return Value.of(self.image.name, (self.image.shape[0] * down * across, rows, columns))

    @property
    def _held(self) -> tuple[int, int]:
        """Rows and columns of the image that a pixel holds."""
        return tuple(size if together else 1 for size, together in zip(self.window.size, self.patch, strict=True))

    def layout(self, align: int) -> Layout:
        """How the host lays out an image, with each pixel padded to a multiple of `align` elements."""
        channels, rows, columns = self.image.shape
        down, across = self.patch
        window, padding = self.window, self.window.padding
        return Layout(
            channels=channels, rows=rows, columns=columns, align=align, window=self._held,
            stride=(window.stride[0] if down else 1, window.stride[1] if across else 1),
            dilation=(window.dilation[0] if down else 1, window.dilation[1] if across else 1),
            padding=(*(padding[:2] if down else (0, 0)), *(padding[2:] if across else (0, 0))))


def senders(image: Value, readers: Sequence[Layer]) -> list[Sender]:
    """All ways to send an image to the layers that read it."""
    layer = readers[0]
    if not all(_patches(reader) and reader.window == layer.window for reader in readers):
        return [Sender(image=image)]
    along = [reader.along for reader in readers if isinstance(reader, BlockConv)]
    both = Sender(image=image, patch=(True, True), window=layer.window)
    if along:
        return [both if set(along) == {Along.PATCH} else Sender(image=image)]
    return [replace(both, patch=patch) for patch in product((False, True), repeat=2)]


def _patches(layer: Layer) -> bool:
    """Whether a layer can read patches: it multiplies all channels of a window, and its padding is zero."""
    return (isinstance(layer, Conv | BlockConv) and not isinstance(layer, Average | BlockAverage)
            and layer.groups == 1 and not getattr(layer, "border", 0))


def cheapest(config: Config, image: Value, readers: Sequence[Layer], made: Value | None) -> Sender:
    """The way to send an image that takes the fewest cycles, as far as it fits VectorRf.

    Args:
        made: Tensor that the only reader makes, if it multiplies.
    """
    found = senders(image, readers)
    return found[0] if len(found) == 1 else min(found, key=lambda sender: cost(config, sender, made))


def cost(config: Config, sender: Sender, made: Value) -> tuple[bool, int]:
    """Whether the image is too large for half of VectorRf, and cycles in which it comes in and is multiplied.

    Both pass through the multi-function units, one after the other.
    """
    value, window = sender.value, sender.window
    vectors = config.vectors_of(value.lanes)
    down, across = (1 if together else size for size, together in zip(window.size, sender.patch, strict=True))
    steps = -(-vectors * down * across // config.tile_engines)
    beats = made.pixels * config.vectors_of(made.lanes) * steps * config.groups
    words = value.pixels * config.words_of(value.lanes)
    sent = words * -(-2 * config.mfu_lanes // config.message_bytes)
    return value.pixels * vectors > config.vector_rf // 2, sent + beats


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SequenceEntry:
    """The time steps of an image.

    Attributes:
        config: Configuration of the machine.
        entry:  Which side of the image is time.
        value:  The image.
    """

    config: Config
    entry: ImageToSequence
    value: Value

    @property
    def pixels(self) -> int:
        """Number of pixels of a time step."""
        return self.value.pixels // self.entry.steps

    @property
    def apart(self) -> int:
        """Distance in words from one pixel to the next one in the vector of a time step."""
        return self.config.vectors_of(self.value.lanes) * self.config.vector_words

    @property
    def lanes(self) -> int:
        """Elements of the vector of a time step, those between the pixels among them."""
        return int(self._places.max()) + 1

    def strides(self, pixel: int) -> tuple[int, int]:
        """Distances from one time step, and from one pixel of a time step, to the next; `pixel` is that in a row."""
        row = pixel * self.value.shape[2]
        return (row, pixel) if self.entry.time is TimeAxis.ROWS else (pixel, row)

    def problems(self, layer: Recurrent) -> list[str]:
        """Sentences on why a layer cannot read the vectors of time steps as the machine stores them."""
        if isinstance(layer, BlockRecurrent) and not np.array_equal(self._places, adjacent(layer.inputs)):
            reason = (f"its blocks of {layer.block} elements do not follow the pixels of its input, each of which "
                      "begins a native vector")
            return [f"{reason}: give the image a multiple of {layer.block} channels, or one pixel for each time step"]
        return []

    def spread(self, layer: Recurrent) -> Recurrent:
        """A layer with its input weights at the lanes of their elements; integers only, blocks have no other lanes."""
        if np.array_equal(self._places, adjacent(layer.inputs)) or not isinstance(layer, IntegerRecurrent):
            return layer
        scale = layer.input_quant_scale
        return unchecked(layer, input_weights=spread(layer.input_weights, self._places),
                         input_quant_scale=None if scale is None else spread(scale, self._places))

    def scale(self, layer: Recurrent) -> np.ndarray | None:
        """uint16[words of all pixels * M], what the input of a layer of these lanes is multiplied by, or None."""
        values = getattr(layer, "input_quant_scale", None)
        return None if values is None else tiling.padded(values, self.pixels * self.apart * self.config.mfu_lanes, 0)

    @property
    def _places(self) -> np.ndarray:
        return flattened(self.value.places, self.pixels, self.config.native_dim)[self._order]

    @property
    def _order(self) -> np.ndarray:
        """The number among flattened elements, ordered by channel, of each element, ordered by pixel."""
        return np.arange(self.value.shape[0] * self.pixels).reshape(-1, self.pixels).T.ravel()
