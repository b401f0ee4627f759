"""The modules of PyTorch that can be quantised, and the windows of those that see images.

A one-dimensional module becomes a two-dimensional one for images of one row.
"""

from collections.abc import Sequence
from copy import deepcopy
from enum import StrEnum

import torch
from concord.net.arithmetic.windows import Window
from concord.spec.numbers.activation import Activation
from concord.train.lib.curves import CURVES
from torch import fx, nn
from torch.nn import functional


class Kind(StrEnum):
    """Operation of a node."""

    LAYER = "layer"  #: a convolution or dense layer
    ACTIVATION = "activation"  #: see `ACTIVATIONS`
    MAX = "max"  #: pooling
    AVERAGE = "average"  #: pooling
    ADD = "add"
    CONCAT = "concat"


class PaddedMaxPool2d(nn.Module):
    """The largest value of each window, with padding of its own on each side, which a maximum ignores.

    Args:
        kernel_size: Rows and columns of a window.
        stride:      Distance between neighbouring windows, down and across.
        padding:     Rows above and below the image, and columns left and right of it.
        dilation:    Distance between neighbouring pixels of a window, down and across.
    """

    def __init__(self, kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int],
                 dilation: Sequence[int] = (1, 1)):
        super().__init__()
        self.kernel_size, self.stride, self.dilation = tuple(kernel_size), tuple(stride), tuple(dilation)
        self.padding = tuple(padding)

    def forward(self, x):
        above, below, left, right = self.padding
        padded = functional.pad(x, (left, right, above, below), value=-torch.inf) if any(self.padding) else x
        return functional.max_pool2d(padded, self.kernel_size, self.stride, 0, self.dilation)


#: The activation function of each of these modules. The upper end of a Hardtanh or ReLU6 is the ceiling of a node.
ACTIVATIONS = {each.module: kind for kind, each in CURVES.items()} | {
    nn.ReLU6: Activation.RELU, nn.Hardtanh: Activation.RELU}
#: Kinds that have quantisers.
QUANTISED = Kind.LAYER, Kind.AVERAGE
MODULES = {
    **dict.fromkeys(ACTIVATIONS, Kind.ACTIVATION),
    nn.Conv2d: Kind.LAYER, nn.Conv1d: Kind.LAYER, nn.Linear: Kind.LAYER,
    nn.MaxPool2d: Kind.MAX, nn.MaxPool1d: Kind.MAX,
    PaddedMaxPool2d: Kind.MAX, nn.AvgPool2d: Kind.AVERAGE, nn.AvgPool1d: Kind.AVERAGE,
    nn.AdaptiveAvgPool2d: Kind.AVERAGE, nn.AdaptiveAvgPool1d: Kind.AVERAGE}
#: Modules for vectors, and those for images that take their place.
PLANES = {
    nn.Conv1d: nn.Conv2d, nn.MaxPool1d: nn.MaxPool2d, nn.AvgPool1d: nn.AvgPool2d,
    nn.AdaptiveAvgPool1d: nn.AdaptiveAvgPool2d}
#: Modules whose result is their input in evaluation.
PASSING = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.Flatten)
#: Modules that put a border around an image.
BORDERS = (nn.ZeroPad1d, nn.ZeroPad2d, nn.ConstantPad1d, nn.ConstantPad2d)
#: No zeros left, right, above and below.
NO_BORDER = (0, 0, 0, 0)


def border(node: fx.Node, module: nn.Module | None) -> tuple[int, ...] | None:
    """Zeros left, right, above and below that an operation puts around its input; None where it does something else."""
    if isinstance(module, BORDERS):
        zeros, value = module.padding, getattr(module, "value", 0)
    elif node.op == "call_function" and node.target is functional.pad:
        given = dict(zip(("input", "pad", "mode", "value"), node.args, strict=False)) | node.kwargs
        zeros, value = given["pad"], 0 if given.get("mode", "constant") == "constant" else None
        value = value if value is None else given.get("value") or 0
    else:
        return None
    fixed = all(isinstance(count, int) and count >= 0 for count in zeros)  # others follow from the tensor's shape
    return (*zeros, 0, 0)[:4] if value == 0 and len(zeros) in (2, 4) and fixed else None


def plane(module: nn.Module) -> nn.Module:
    """A copy of a module; a one-dimensional one as a two-dimensional one."""
    kind = PLANES.get(type(module))
    if kind is None:
        return deepcopy(module)
    if kind is nn.AdaptiveAvgPool2d:
        return kind(1)

    def across(name: str, least: int) -> tuple[int, int]:
        value = getattr(module, name)
        return least, value if isinstance(value, int) else value[0]

    names = {"kernel_size": 1, "stride": 1, "padding": 0, "dilation": 1}
    same = getattr(module, "padding", 0) if isinstance(getattr(module, "padding", 0), str) else None
    sizes = {name: same if name == "padding" and same else across(name, least) for name, least in names.items()
             if hasattr(module, name)}
    if kind is not nn.Conv2d:
        return kind(**sizes)
    made = kind(module.in_channels, module.out_channels, **sizes, groups=module.groups, bias=module.bias is not None)
    made.weight.data = module.weight.data.unsqueeze(2).clone()
    if module.bias is not None:
        made.bias.data = module.bias.data.clone()
    return made


def unsupported(module: nn.Module | None) -> str | None:
    """Which options of a module cannot be quantised and what to use instead, or None."""
    match module:
        case nn.Conv2d() | nn.Conv1d():
            if module.padding_mode != "zeros":
                return "use a padding of zeros"
        case nn.Hardtanh():
            if module.min_val != 0 or module.max_val <= 0:
                return f"a clip to {module.min_val}..{module.max_val}: only one from 0 to a number above it is a relu"
        case nn.MaxPool2d() | nn.MaxPool1d():
            if module.ceil_mode or module.return_indices:
                return "use no ceil_mode and no return_indices"
        case nn.AvgPool2d() | nn.AvgPool1d():
            padded = module.padding not in (0, (0,), (0, 0))
            if module.ceil_mode or getattr(module, "divisor_override", None) or (
                    padded and not module.count_include_pad):
                return "use no ceil_mode, no divisor_override, and count the padding in (count_include_pad)"
        case nn.AdaptiveAvgPool2d() | nn.AdaptiveAvgPool1d():
            if module.output_size not in (1, (1,), (1, 1)):
                return "use an average over the whole image, output_size 1"
    return None


def window(module: nn.Module, shape: Sequence[int], zeros: Sequence[int] = NO_BORDER) -> Window | None:
    """The window of a convolution or pooling; None for a dense layer.

    Args:
        module: A two-dimensional module.
        shape:  Channels, rows and columns of its input, without the zeros around it.
        zeros:  Zeros left, right, above and below the input, beside the padding of the module.
    """
    if isinstance(module, nn.Linear):
        return None
    left, right, above, below = zeros
    if isinstance(module, nn.AdaptiveAvgPool2d):
        return Window(size=(above + shape[1] + below, left + shape[2] + right), padding=(above, below, left, right))
    size, stride, dilation = (
        _pair(getattr(module, name, 1)) for name in ("kernel_size", "stride", "dilation"))
    if module.padding == "same":  # an odd number is one larger at the end
        totals = [step * (along - 1) for step, along in zip(dilation, size, strict=True)]
        own = [part for total in totals for part in (total // 2, total - total // 2)]
    else:
        own = _sides(0 if module.padding == "valid" else module.padding)
    added = zip(own, (above, below, left, right), strict=True)
    return Window(size=size, stride=stride, dilation=dilation, padding=tuple(a + b for a, b in added))


def _sides(padding: int | Sequence[int]) -> tuple[int, ...]:
    """Padding above, below, left and right."""
    if not isinstance(padding, int) and len(padding) == 4:
        return tuple(padding)
    down, across = _pair(padding)
    return down, down, across, across


def _pair(value: int | Sequence[int]) -> tuple[int, int]:
    """A number for each axis."""
    return (value, value) if isinstance(value, int) else tuple(value)
