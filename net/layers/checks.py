"""Checks of the fields of layers. Each error names the layer and the field, and says what to do."""

import numpy as np
from concord.golden.mvm.elements import representable
from concord.net.arithmetic.native_vectors import blocks
from concord.spec.numbers.formats import EXACT_BITS, Format, product_sum_bits


def matrix_shape(layer, name: str) -> tuple[int, int]:
    """The shape of the matrix that gives the layer its size."""
    shape = np.shape(getattr(layer, name))
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"layer {layer.name!r}, {name}: a matrix [outputs, inputs] is needed, not the shape {shape}")
    return shape


def gates_shape(layer, name: str) -> tuple[int, int, int]:
    """The shape of the stacked matrices that give a recurrent layer its size."""
    shape, gates = np.shape(getattr(layer, name)), len(layer.cell.gates)
    if len(shape) != 3 or shape[0] != gates or 0 in shape:
        raise ValueError(f"layer {layer.name!r}, {name}: [{gates}, outputs, inputs] is needed, not the shape {shape}")
    return shape


def vectors(layer, name: str, keys: tuple[str, ...], size: int):
    """Refuse a mapping in which a vector is missing or unknown, or is not uint16[size] of finite numbers."""
    found = getattr(layer, name)
    if set(found) != set(keys):
        raise ValueError(f"layer {layer.name!r}, {name}: {', '.join(keys) or 'nothing'} is needed, not "
                         f"{', '.join(found) or 'nothing'}; export the model again")
    for key in keys:
        _array(f"layer {layer.name!r}, {name} {key}", found[key], np.uint16, (size,))


def block_count(layer, columns: int, at: np.ndarray | None = None) -> int:
    """Number of blocks of a row, whose columns follow each other or lie at places int32[columns]."""
    if layer.block < 1:
        raise ValueError(f"layer {layer.name!r}, block: a native dimension is 1 or more, not {layer.block}")
    if at is None:
        return -(-columns // layer.block)
    array(layer, "places", np.int32, (columns,))
    if at.min() < 0 or len(np.unique(at)) < columns:
        raise ValueError(f"layer {layer.name!r}, places: each column needs a place of its own, 0 or above; export the "
                         "model again")
    return blocks(at, layer.block)


def image_shape(layer) -> int:
    """Check the channels, rows and columns of an image layer's input; returns the number of channels."""
    if len(layer.shape) != 3 or min(layer.shape) < 1:
        raise ValueError(f"layer {layer.name!r}, shape: channels, rows and columns are needed, not {layer.shape}")
    return layer.shape[0]


def windows(layer):
    """Refuse windows whose numbers make no sense, or that do not fit in the input."""
    window, where = layer.window, f"layer {layer.name!r}"
    lengths = {"stride": 2, "dilation": 2, "padding": 4}
    for name, length in lengths.items():
        numbers = getattr(window, name)
        if len(numbers) != length or min(numbers) < (name != "padding"):
            least = 0 if name == "padding" else 1
            raise ValueError(f"{where}, {name}: {length} numbers from {least} are needed, not {list(numbers)}")
    if min(window.size) < 1 or min(window.counts(*layer.shape[1:])) < 1:
        raise ValueError(
            f"{where}: windows of {window.span[0]} x {window.span[1]} with padding {list(window.padding)} do "
            f"not fit into an input of {layer.shape[1]} x {layer.shape[2]}; check the layer's shape")


def kernels(layer, name: str) -> tuple[int, int, int, int]:
    """Check the kernels, groups and windows of a convolution; returns the shape that the kernels must have."""
    channels, shape = image_shape(layer), np.shape(getattr(layer, name))
    if len(shape) != 4 or 0 in shape:
        raise ValueError(f"layer {layer.name!r}, {name}: [outputs, channels, rows, columns] is needed, not the "
                         f"shape {shape}; export the model again")
    if layer.groups < 1 or channels % layer.groups or shape[0] % layer.groups:
        raise ValueError(f"layer {layer.name!r}: {layer.groups} groups do not divide {channels} channels and "
                         f"{shape[0]} outputs")
    windows(layer)
    return shape[0], channels // layer.groups, *shape[2:]


def array(
    layer, name, dtype, shape, *, optional=False, mantissas: Format | None = None, exponents: Format | None = None
):
    """Refuse an array of another type or shape, a code outside its format, or a binary16 value that is not finite."""
    value = getattr(layer, name)
    if value is not None or not optional:
        _array(f"layer {layer.name!r}, {name}", value, dtype, shape, mantissas, exponents)


def _array(where, value, dtype, shape, mantissas: Format | None = None, exponents: Format | None = None):
    if not isinstance(value, np.ndarray) or value.dtype != dtype or value.shape != shape:
        got = f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
        raise ValueError(f"{where}: {np.dtype(dtype)}{list(shape)} is needed, not {got}; export the model again")
    if mantissas and not (mantissas.lowest <= value.min() and value.max() <= mantissas.highest):
        raise ValueError(
            f"{where}: codes lie in {value.min()}..{value.max()}, outside {mantissas.lowest}..{mantissas.highest}, the "
            f"range of {mantissas.element}; quantise for this format, or give the layer a wider one"
        )
    if mantissas and not representable(value, mantissas):
        raise ValueError(f"{where}: some codes have more than the {mantissas.precision} significant bits of "
                         f"{mantissas.element}; quantise for this format, or give the layer a wider one")
    if exponents and not (exponents.e_min <= value.min() and value.max() <= exponents.e_max):
        raise ValueError(
            f"{where}: exponents lie in {value.min()}..{value.max()}, outside {exponents.e_min}..{exponents.e_max}, "
            "the range of the format; quantise for this format, or give the layer a wider one"
        )
    if dtype == np.uint16 and ((value & 0x7C00) == 0x7C00).any():
        raise ValueError(f"{where}: infinity or NaN in binary16; rescale the layer before export")


def exact(layer):
    """Refuse formats whose products of a block float64 cannot add up exactly."""
    weights, inputs = layer.weights_format, layer.input_format
    bits = product_sum_bits(weights, inputs, layer.block)
    if bits > EXACT_BITS:
        raise ValueError(f"layer {layer.name!r}: sums of {layer.block} products of {weights.element} and "
                         f"{inputs.element} need {bits} bits, and golden adds {EXACT_BITS}; choose shorter exponent "
                         "fields")


def right_shift(layer, name):
    """Refuse a shift that register OutScale cannot hold."""
    if not -32 <= getattr(layer, name) <= 31:
        raise ValueError(f"layer {layer.name!r}, {name}: {getattr(layer, name)} does not fit 6 signed bits (-32..31)")


def line(layer):
    """Refuse scales and offsets ahead of a quantiser that are not one for each channel, or a scale of 0."""
    found = layer.real.get("line")
    if found is not None and (found.shape != (2, layer.channels_in) or not found[0].all() or layer.quant_scale is None):
        raise ValueError(f"layer {layer.name!r}, real.line: a scale that is not 0 and an offset for each of the "
                         f"{layer.channels_in} channels are needed, beside a quant_scale; quantise the network again")


def real(layer):
    """Refuse recorded values and ranges that are not numbers."""
    for key, value in layer.real.items():
        if value.dtype not in (np.float32, np.float64) or not np.isfinite(value).all():
            raise ValueError(f"layer {layer.name!r}, real.{key}: finite float32 or float64 is needed; export again")
    for key, bounds in layer.ranges.items():
        if not np.isfinite(bounds).all() or bounds[0] > bounds[1]:
            raise ValueError(f"layer {layer.name!r}, ranges: {key} = {bounds} is no finite range; export again")
