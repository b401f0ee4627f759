"""How the first recurrent layer of a loop reads an image: the pixels of a time step lie side by side in one vector."""

from dataclasses import dataclass

import numpy as np
from concord.compiler.graph.values import Value
from concord.compiler.lib import tiling
from concord.net.arithmetic.places import adjacent, flattened, spread
from concord.net.arithmetic.sequences import TimeAxis
from concord.net.layers.layer import unchecked
from concord.net.layers.recurrent import BlockRecurrent, IntegerRecurrent, Recurrent
from concord.net.layers.sequences import ImageToSequence
from concord.spec.machine.config import Config


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Entry:
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
