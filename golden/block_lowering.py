"""From a trained layer's real weights to blocks of mantissas and exponents for one native dimension."""

import numpy as np

from golden import quantizer
from golden.layers import Activation, BlockDense, BlockLSTM
from golden.lowering import binary16, recorded
from spec.formats import Format


def blocks(weights: np.ndarray, fmt: Format, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Quantise the last axis in blocks of a native dimension, as the matrix quantiser does with a zero-padded tile.

    Args:
        weights: Real[..., columns]; rounded to binary16 first.
        fmt:     Of one mantissa.
        block:   Native dimension.

    Returns:
        int16[..., columns] mantissas, and int8[..., ceil(columns / block)] exponents E.
    """
    bits = binary16(weights, "a weight")
    columns = bits.shape[-1]
    count = -(-columns // block)
    padded = np.zeros((*bits.shape[:-1], count * block), np.uint16)
    padded[..., :columns] = bits
    mantissas, exponents = quantizer.quantize_block(padded.reshape(*bits.shape[:-1], count, block), fmt)
    return mantissas.reshape(padded.shape)[..., :columns].astype(np.int16), exponents.astype(np.int8)


def block_dense(
    *,
    name: str,
    weights: np.ndarray,
    bias: np.ndarray,
    weights_format: Format,
    input_format: Format,
    block: int,
    activation: Activation = Activation.NONE,
) -> BlockDense:
    """Quantise real weights[outputs, inputs] and bias[outputs] for a native dimension."""
    mantissas, exponents = blocks(weights, weights_format, block)
    return BlockDense(
        name=name,
        weights_format=weights_format,
        input_format=input_format,
        block=block,
        mantissas=mantissas,
        exponents=exponents,
        bias=binary16(bias, f"layer {name!r}, bias"),
        activation=activation,
        real=recorded({"weights": weights, "bias": bias}),
    )


def block_lstm(
    *,
    name: str,
    input_weights: np.ndarray,
    recurrent_weights: np.ndarray,
    bias: np.ndarray,
    weights_format: Format,
    input_format: Format,
    block: int,
    initial_hidden: np.ndarray | None = None,
    initial_cell: np.ndarray | None = None,
) -> BlockLSTM:
    """Quantise real weights W[4, outputs, inputs] and R[4, outputs, outputs] for a native dimension."""
    input_mantissas, input_exponents = blocks(input_weights, weights_format, block)
    recurrent_mantissas, recurrent_exponents = blocks(recurrent_weights, weights_format, block)
    zeros = np.zeros(recurrent_mantissas.shape[-1])
    return BlockLSTM(
        name=name,
        weights_format=weights_format,
        input_format=input_format,
        block=block,
        input_mantissas=input_mantissas,
        input_exponents=input_exponents,
        recurrent_mantissas=recurrent_mantissas,
        recurrent_exponents=recurrent_exponents,
        bias=binary16(bias, f"layer {name!r}, bias"),
        initial_hidden=binary16(zeros if initial_hidden is None else initial_hidden, f"layer {name!r}, initial_hidden"),
        initial_cell=binary16(zeros if initial_cell is None else initial_cell, f"layer {name!r}, initial_cell"),
        real=recorded({"input_weights": input_weights, "recurrent_weights": recurrent_weights, "bias": bias}),
    )
