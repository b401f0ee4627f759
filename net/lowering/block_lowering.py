"""Lowers real weights of trained layers to blocks of mantissas and exponents for one native dimension."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import numpy as np
from concord.golden.mvm import quantizer
from concord.net.arithmetic.native_vectors import adjacent, spread
from concord.net.arithmetic.native_vectors import blocks as block_count
from concord.net.arithmetic.windows import reciprocal
from concord.net.cells.cell import Cell
from concord.net.layers.convolution import Along, BlockConv, native, seen
from concord.net.layers.dense import BlockDense
from concord.net.layers.pooling import BlockAverage, identity
from concord.net.layers.recurrent import BlockRecurrent
from concord.net.lowering.lowering import first_states
from concord.net.lowering.rounding import binary16, patterns
from concord.net.ops.pooling import AveragePooling
from concord.net.ops.recurrent import Direction, Recurrence
from concord.net.ops.weighted import Convolution, Linear
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format


def blocks(
    weights: np.ndarray, fmt: Format, block: int, places: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Quantise the last axis in blocks of a native dimension, as the matrix quantiser does with a zero-padded tile.

    Args:
        weights: Real[..., columns], which are rounded to binary16 first.
        fmt:     Format of the mantissas.
        block:   Number of elements of a block, the native dimension.
        places:  int32[columns], the place of each column in native vectors; None for columns that follow each other.

    Returns:
        Integers [..., columns], the mantissas, in the type of the format; and int8[..., blocks] exponents E.
    """
    bits = binary16(weights, "a weight")
    mantissas, exponents = quantizer.quantize_block(quantizer.split(spread(bits, places), block), fmt)
    at = slice(bits.shape[-1]) if places is None else places
    mantissas = mantissas.reshape(*bits.shape[:-1], -1)[..., at]
    return mantissas.astype(fmt.dtype), exponents.astype(np.int8)


def block_dense(
    *,
    name: str,
    weights: np.ndarray,
    bias: np.ndarray,
    weights_format: Format,
    input_format: Format,
    block: int,
    places: np.ndarray | None = None,
    activation: Activation = Activation.NONE,
) -> BlockDense:
    """Quantise real weights[outputs, inputs] and bias[outputs] for a native dimension; see `BlockRows` for `places`."""
    mantissas, exponents = blocks(weights, weights_format, block, places)
    return BlockDense(
        name=name,
        weights_format=weights_format,
        input_format=input_format,
        block=block,
        mantissas=mantissas,
        exponents=exponents,
        bias=binary16(bias, f"layer {name!r}, bias"),
        places=places,
        activation=activation,
        float_operator=Linear(weight=np.float32(weights), bias=np.float32(bias)),
    )


def block_conv(
    *,
    name: str,
    weights: np.ndarray,
    bias: np.ndarray,
    shape: tuple[int, int, int],
    groups: int = 1,
    weights_format: Format,
    input_format: Format,
    block: int,
    along: Along | None = None,
    places: np.ndarray | None = None,
    activation: Activation = Activation.NONE,
    **geometry,
) -> BlockConv:
    """Quantise real weights[outputs, channels / groups, rows, columns] and bias[outputs] for a native dimension.

    Args:
        along:    Direction of a block; `choose_along` of the image that enters the network by default.
        places:   See `BlockRows`.
        geometry: Stride, padding and dilation, see `BlockConv`.
        Others:   Fields of `BlockConv`.

    Raises:
        ValueError: the shapes do not fit, or a value is out of the range of binary16.
    """
    if np.ndim(weights) != 4 or groups < 1 or len(weights) % groups or np.shape(weights)[1] * groups != shape[0]:
        raise ValueError(f"layer {name!r}: kernels {np.shape(weights)} in {groups} groups do not see {shape[0]} "
                         "channels; check the layer")
    outputs, window = len(weights), np.shape(weights)[2:]
    along = along or choose_along(shape[0], groups, block)
    columns = seen(outputs, shape[0], groups)[:, None, None]
    rows = np.zeros((outputs, *window, shape[0]))
    np.put_along_axis(rows, columns, np.moveaxis(weights, 1, -1), -1)
    blocked = rows.reshape(outputs, *native(shape[0], window, along))
    mantissas, exponents = blocks(blocked, weights_format, block, places)
    mantissas = np.take_along_axis(mantissas.reshape(rows.shape), columns, -1)
    layer = BlockConv(
        name=name,
        weights_format=weights_format,
        input_format=input_format,
        block=block,
        along=along,
        shape=shape,
        **geometry,
        groups=groups,
        mantissas=np.ascontiguousarray(np.moveaxis(mantissas, -1, 1)),
        exponents=exponents,
        bias=binary16(bias, f"layer {name!r}, bias"),
        places=places,
        activation=activation,
    )
    return replace(layer, float_operator=Convolution(
        weight=np.float32(weights), bias=np.float32(bias), window=layer.window, groups=groups))


def block_average(
    *,
    name: str,
    shape: tuple[int, int, int],
    size: tuple[int, int],
    weights_format: Format,
    input_format: Format,
    block: int,
    places: np.ndarray | None = None,
    activation: Activation = Activation.NONE,
    kind: type[BlockAverage] = BlockAverage,
    **geometry,
) -> BlockAverage:
    """The average of each window of `size` rows and columns, padding included; arguments as in `block_conv`."""
    mantissa, exponent = identity(weights_format)
    channels, pixels = shape[0], prod(size)
    at = adjacent(channels) if places is None else places
    exponents = np.full((channels, *size, block_count(at, block)), weights_format.e_min, np.int8)
    exponents[np.arange(channels), ..., at // block] = exponent
    one = mantissa * 2.0 ** (exponent - (weights_format.bits - 1))
    layer = kind(
        name=name,
        weights_format=weights_format,
        input_format=input_format,
        block=block,
        along=Along.CHANNELS,
        shape=shape,
        **geometry,
        groups=channels,
        mantissas=np.full((channels, 1, *size), mantissa, weights_format.dtype),
        exponents=exponents,
        scale=np.full(channels, reciprocal(one * pixels)),
        places=places,
        activation=activation,
    )
    return replace(layer, float_operator=AveragePooling(window=layer.window, count_padding=True))


def choose_along(channels: int, groups: int, block: int) -> Along:
    """Direction of the blocks of an image that enters the network, of which a sender may make patches.

    They lie along channels, unless more than half of a block would then be empty. Images inside the network always have
    blocks along channels.
    """
    return Along.PATCH if groups == 1 and 2 * channels < block else Along.CHANNELS


def block_recurrent(
    *,
    name: str,
    cell: Cell,
    input_weights: np.ndarray,
    recurrent_weights: np.ndarray,
    bias: np.ndarray,
    weights_format: Format,
    input_format: Format,
    block: int,
    initial: Mapping[str, np.ndarray] | None = None,
    vectors: Mapping[str, np.ndarray] | None = None,
    quantized_results: bool = False,
    gate_bits: int = 0,
    gate_codes: np.ndarray | None = None,
) -> BlockRecurrent:
    """Quantise real weights W[gates, outputs, inputs] and R[gates, outputs, outputs] for a native dimension.

    Args:
        initial: Real[outputs], the first states by name; a missing state is zero.
        vectors: Real[outputs], the vectors of the cell by name.
        quantized_results, gate_bits, gate_codes: Fields of the layer.
    """
    input_mantissas, input_exponents = blocks(input_weights, weights_format, block)
    recurrent_mantissas, recurrent_exponents = blocks(recurrent_weights, weights_format, block)
    numbers = Direction(
        input_weights=np.float32(input_weights), recurrent_weights=np.float32(recurrent_weights), bias=np.float32(bias),
        vectors={key: np.float32(value) for key, value in (vectors or {}).items()})
    return BlockRecurrent(
        name=name,
        cell=cell,
        weights_format=weights_format,
        input_format=input_format,
        block=block,
        input_mantissas=input_mantissas,
        input_exponents=input_exponents,
        recurrent_mantissas=recurrent_mantissas,
        recurrent_exponents=recurrent_exponents,
        bias=binary16(bias, f"layer {name!r}, bias"),
        initial=first_states(name, cell, initial, recurrent_mantissas.shape[-1]),
        vectors=patterns(name, vectors),
        quantized_results=quantized_results,
        gate_bits=gate_bits,
        gate_codes=gate_codes,
        float_operator=Recurrence(cell=cell, directions=(numbers,)),
    )
