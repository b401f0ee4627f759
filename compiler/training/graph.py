"""A network under training as operations on values: what a step computes, before anything has an address.

Everything with parameters is a convolution: a dense layer has a kernel as large as its input, and gives one pixel. A
`Relu` becomes a flag of the operation before it, and a maximum pooling whose windows do not overlap a part of the
product before it. A first convolution over few channels works on patches, which hold a whole window in one word.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from concord.golden.lazy import tensor_network
from concord.golden.lazy.tensor_network import AveragePool, Conv, Dense, Layer, MaxPool, Relu, Residual
from concord.spec.trainer.config import LANES, PATCH_ROW_BYTES


@dataclass(eq=False, slots=True)
class StepValue:
    """A tensor of a step.

    Attributes:
        channels, height, width: Size of each sample; a vector has one pixel.
        relu:   Whether it came out of a relu, so that whatever makes its gradient masks it.
        wanted: Whether its gradient is needed: there are parameters before it.
        planes: Bytes of a number.
        same:   The value whose bytes and exponent it shares, if it is another name of one.
        scale:  The value whose exponent it shares.
    """

    channels: int
    height: int
    width: int
    relu: bool = False
    wanted: bool = False
    planes: int = 1
    same: "StepValue | None" = None
    scale: "StepValue | None" = None

    @property
    def blocks(self) -> int:
        """Number of words of a pixel."""
        return -(-self.channels // LANES)

    @property
    def pixels(self) -> int:
        return self.height * self.width


@dataclass(frozen=True, slots=True)
class PoolWindows:
    """Windows of a pooling."""

    size: int
    stride: int
    mean: bool = False
    relu: bool = False

    @property
    def passes(self) -> bool:
        """Whether gradients go back as they are: each pixel lies in one window at most."""
        return not self.mean and self.stride >= self.size

    def count(self, pixels: int) -> int:
        """Number of windows along an axis."""
        return (pixels - self.size) // self.stride + 1


@dataclass(eq=False, slots=True, kw_only=True)
class Product:
    """A convolution or dense layer.

    Attributes:
        name:   Name of the layer.
        x, y:   Input and output, which `pool` made of the sums if there is one.
        rows, columns: Size of the kernel.
        height, width: Size of the image of sums.
        dense:  Whether the kernel is the whole image.
        relu:   Whether the sums pass a relu.
        pool:   Maximum pooling of the sums.
        patch:  The convolution whose windows are x, if x is made of patches of the network's input.
        source: That input.
    """

    name: str
    x: StepValue
    y: StepValue
    outputs: int
    rows: int = 1
    columns: int = 1
    stride: int = 1
    padding: int = 0
    height: int = 1
    width: int = 1
    dense: bool = False
    relu: bool = False
    pool: PoolWindows | None = None
    patch: Conv | None = None
    source: StepValue | None = None

    @property
    def taps(self) -> int:
        return self.rows * self.columns

    @property
    def blocks(self) -> int:
        """Number of blocks of outputs."""
        return -(-self.outputs // LANES)

    @property
    def padded(self) -> int:
        """Rows of weights of one tap and block of channels."""
        return self.blocks * LANES

    @property
    def pixels(self) -> int:
        return self.height * self.width

    def pooled(self, rows: range) -> range:
        """The rows behind the pooling whose windows begin in rows of sums; without a pooling, the same rows."""
        if not self.pool:
            return rows
        first, last = (min(-(-row // self.pool.stride), self.y.height) for row in (rows.start, rows.stop))
        return range(first, last)

    @property
    def weight_words(self) -> int:
        return self.taps * self.x.blocks * self.padded


@dataclass(eq=False, slots=True)
class Pool:
    """A pooling of its own; a relu of its own is one of windows of one pixel."""

    name: str
    x: StepValue
    y: StepValue
    windows: PoolWindows


@dataclass(eq=False, slots=True)
class BranchSum:
    """The sum of two values."""

    name: str
    a: StepValue
    b: StepValue
    y: StepValue
    relu: bool = False


@dataclass(eq=False, slots=True)
class Split:
    """One value under two names, whose gradients are added."""

    name: str
    x: StepValue
    a: StepValue
    b: StepValue


Operation = Product | Pool | BranchSum | Split


@dataclass(eq=False, slots=True)
class StepGraph:
    """A step: its operations in order, their input and output."""

    x: StepValue
    y: StepValue
    operations: list[Operation] = field(default_factory=list)

    @property
    def products(self) -> list[Product]:
        return [each for each in self.operations if isinstance(each, Product)]


def graph(layers: Sequence[Layer], shape: Sequence[int]) -> StepGraph:
    """The step of a network.

    Args:
        layers: Layers of `golden.lazy.tensor_network`.
        shape:  Shape of one sample: [inputs] or [channels, rows, columns].

    Raises:
        ValueError: a network that cannot be trained, or not on a trainer.
    """
    tensor_network.check(tuple(layers))
    if len(shape) not in (1, 3) or min(shape) < 1:
        raise ValueError(
            f"a sample of the shape {list(shape)}: give it as [inputs] or as [channels, rows, columns], each 1 or more"
        )
    x = StepValue(*shape, *(1,) * (3 - len(shape)))
    made = StepGraph(x, x)
    made.y = _branch(made, layers, x, "")
    made.y.planes = 4
    return made


def _branch(made: StepGraph, layers: Sequence[Layer], x: StepValue, prefix: str) -> StepValue:
    last = None  # the operation whose output x is, if nobody else has x
    for index, layer in enumerate(layers):
        name = f"{prefix}{index}"
        match layer:
            case Conv() | Dense():
                last = _product(made, layer, name, x)
            case Relu() if last and not last.y.relu:
                _set_relu(last)
                continue
            case Relu():
                y = StepValue(x.channels, x.height, x.width, True, x.wanted, scale=x)
                last = Pool(name, x, y, PoolWindows(1, 1, relu=True))
            case MaxPool() if isinstance(last, Product) and not last.pool and layer.stride >= layer.size:
                windows = PoolWindows(layer.size, layer.stride)
                y = _pooled(last.y, windows, name)
                y.scale = None
                last.pool, last.y, x = windows, y, y
                continue
            case MaxPool() | AveragePool():
                windows = PoolWindows(layer.size, layer.stride, isinstance(layer, AveragePool))
                last = Pool(name, x, _pooled(x, windows, name), windows)
            case Residual():
                last = _sum(made, layer, name, x)
            case _:
                raise ValueError(
                    f"layer {name!r} is recurrent, and a trainer has no such layers; train it with `train.bfp`"
                )
        made.operations.append(last)
        x = last.y
    return x


def _set_relu(last: Product | Pool | BranchSum):
    last.y.relu = True
    if isinstance(last, Pool) or (isinstance(last, Product) and last.pool):
        windows = last.windows if isinstance(last, Pool) else last.pool
        changed = PoolWindows(windows.size, windows.stride, windows.mean, True)
        if isinstance(last, Pool):
            last.windows = changed
        else:
            last.pool = changed
    else:
        last.relu = True


def _pooled(x: StepValue, windows: PoolWindows, name: str) -> StepValue:
    height, width = windows.count(x.height), windows.count(x.width)
    if min(height, width) < 1:
        raise ValueError(
            f"layer {name!r} pools windows of {windows.size} pixels, and its input has {x.height} x {x.width}"
        )
    # Without a mean and without overlap, a relu ahead of the pooling masks what comes back behind it as well.
    relu = x.relu and not windows.mean and windows.passes
    return StepValue(x.channels, height, width, relu, x.wanted, scale=None if windows.mean else x)


def _product(made: StepGraph, layer: Conv | Dense, name: str, x: StepValue) -> Product:
    if isinstance(layer, Dense):
        if layer.inputs != x.channels * x.pixels:
            raise ValueError(f"layer {name!r} takes {layer.inputs} numbers, and there are {x.channels * x.pixels}")
        y = StepValue(layer.outputs, 1, 1, wanted=True)
        return Product(name=name, x=x, y=y, outputs=layer.outputs, rows=x.height, columns=x.width, dense=True)
    if layer.inputs != x.channels:
        raise ValueError(f"layer {name!r} takes {layer.inputs} channels, and there are {x.channels}")
    height, width = ((n + 2 * layer.padding - layer.size) // layer.stride + 1 for n in (x.height, x.width))
    if min(height, width) < 1:
        raise ValueError(f"layer {name!r} has kernels of {layer.size} pixels, and its input has {x.height} x {x.width}")
    y = StepValue(layer.outputs, height, width, wanted=True)
    found = Product(name=name, x=x, y=y, outputs=layer.outputs, height=height, width=width)
    row = layer.size * layer.inputs
    if x is made.x and layer.size > 1 and row <= PATCH_ROW_BYTES and row * layer.size <= LANES:
        found.patch, found.source = layer, x
        found.x = StepValue(row * layer.size, height, width, scale=x)
    else:
        found.rows = found.columns = layer.size
        found.stride, found.padding = layer.stride, layer.padding
    return found


def _sum(made: StepGraph, layer: Residual, name: str, x: StepValue) -> BranchSum:
    ways = [StepValue(x.channels, x.height, x.width, False, x.wanted, same=x, scale=x) for _ in range(2)]
    made.operations.append(Split(name, x, *ways))
    a, b = (
        _branch(made, branch, way, f"{name}.{side}.")
        for branch, way, side in ((layer.body, ways[0], "body"), (layer.shortcut, ways[1], "shortcut"))
    )
    sizes = [(each.channels, each.height, each.width) for each in (a, b)]
    if sizes[0] != sizes[1]:
        raise ValueError(f"layer {name!r} adds {sizes[0]} and {sizes[1]} channels, rows and columns")
    return BranchSum(name, a, b, StepValue(*sizes[0], wanted=a.wanted or b.wanted))
