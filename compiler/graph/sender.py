"""How the host sends an image: pixel by pixel, or cut into patches for the layer that reads it.

An image of few channels leaves most lanes of a native vector empty. The sender can put all rows of a window, all its
columns, or both side by side into one pixel; a pixel of the image is then sent several times.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from concord.compiler.graph import kernels
from concord.compiler.graph.values import Value
from concord.firmware.layout import Layout
from concord.net.arithmetic.windows import Window
from concord.net.layers.average import Average, BlockAverage
from concord.net.layers.convolution import Along, BlockConv, Conv
from concord.net.layers.layer import Layer
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
        places = self.window.counts(*self.image.shape[1:])
        rows, columns = (
            place if together else size
            for place, size, together in zip(places, self.image.shape[1:], self.patch, strict=True))
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

    Both pass through the multi-function units, one behind the other.
    """
    value, window = sender.value, sender.window
    vectors = config.vectors_of(value.lanes)
    down, across = (1 if together else size for size, together in zip(window.size, sender.patch, strict=True))
    steps = -(-vectors * down * across // config.tile_engines)
    beats = made.pixels * config.vectors_of(made.lanes) * steps * config.groups
    words = value.pixels * config.words_of(value.lanes)
    sent = words * -(-2 * config.mfu_lanes // config.message_bytes)
    return value.pixels * vectors > config.vector_rf // 2, sent + beats


def kernel_of(sender: Sender, layer: Layer, made: Value, content: Layer) -> kernels.Kernel:
    """The weights of a layer that reads the image as it is sent; see `kernels.kernel_of`."""
    kernel = kernels.kernel_of(layer, sender.image, made, content)
    return kernels.patched(kernel, sender.patch) if any(sender.patch) else kernel
