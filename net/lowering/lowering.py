"""Lowers real scales and offsets of trained layers to the integers and binary16 vectors of the machine.

Training and compiler share this module. The formulas are written with operators alone, so that numpy and torch give
equal float64 numbers; `binary16` rounds them once.

Source: numerics.md of the specification, integer mode.
"""

from collections.abc import Mapping

import numpy as np
from concord.net.arithmetic.integer import largest_sum
from concord.net.arithmetic.line import Line
from concord.net.cells.cell import Cell
from concord.net.layers.dense import Dense
from concord.net.layers.recurrent import IntegerRecurrent
from concord.net.lowering.rounding import MOST_SHIFT, SMALLEST, binary16, integer_biases, patterns
from concord.net.ops.operator import Operator
from concord.net.ops.recurrent import Recurrence
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format

LARGE_SCALE = 2.0**-4  #: Scales below it leave room for those of other outputs to grow.


def largest_code(fmt: Format, unsigned: bool) -> int:
    """Largest magnitude of an operand code."""
    return fmt.levels if unsigned else -fmt.lowest


def start_values(weights: np.ndarray, fmt: Format, unsigned: bool) -> np.ndarray:
    """Start value of each row, zero * sum(W), which compensates for codes that are lowered by `zero`."""
    weights = np.asarray(weights, np.int64)
    return weights.sum(axis=-1) * (fmt.zero if unsigned else 0)


def right_shift(weights: np.ndarray, start: np.ndarray, fmt: Format, unsigned: bool) -> int:
    """p, the right shift of a sum that keeps its conversion to binary16 from overflowing."""
    bits = max(0, largest_sum(weights, start, largest_code(fmt, unsigned)) - 1).bit_length()
    return max(-32, bits - 15)


def of_normal_scales(p: int, gains: np.ndarray) -> int:
    """The right shift, from p on, of a layer whose scales would be too small for all bits of binary16.

    Every right shift up to `MOST_SHIFT` gives the same results otherwise, because the smallest sum is 1.

    Args:
        gains: float64 scales of a right shift of 0, at least one, as an array or a tensor.
    """
    used = abs(gains[gains != 0])
    if not len(used):
        return p
    least, most = float(used.min()), float(used.max())
    while most * 2.0**p < LARGE_SCALE and least * 2.0**p < SMALLEST and p < MOST_SHIFT:
        p += 1
    return p


def requantization(gain, constant, row_sums, *, s_in, m_in, s_out, m_out, p):
    """S and T of z = gain * (s_in * acc + m_in * sum(W)) + constant, in steps of s_out above m_out.

    Args:
        gain:     A[outputs], real value of one step of the weights, times the gain after the product.
        constant: C[outputs], the bias.
        row_sums: sum(W)[outputs], the sum of each row of weights.
        s_in:     Real value of one step of the input codes.
        m_in:     Real value of input code 0.
        s_out:    Step of the next quantiser; 1 for a result in real units.
        m_out:    Real value of its code 0; 0 for a result in real units.
        p:        Right shift of the sum, from `right_shift`.
    """
    scale = gain * s_in / s_out * 2.0**p
    offset = (constant + gain * m_in * row_sums - m_out) / s_out
    return scale, offset


def dense(
    *,
    name: str,
    codes: np.ndarray,
    gain: np.ndarray,
    constant: np.ndarray,
    weights_format: Format,
    input_format: Format,
    unsigned: bool,
    s_in: float,
    m_in: float = 0.0,
    s_out: float = 1.0,
    m_out: float = 0.0,
    quantize_input: bool = False,
    line: Line | None = None,
    activation: Activation = Activation.NONE,
    float_operator: Operator | None = None,
) -> Dense:
    """Lower one dense layer to integer mode.

    Args:
        codes:          Integer weights[outputs, inputs].
        quantize_input: Whether the input is in real units, which the layer converts to steps of its code (R and O).
        line:           What the network makes of each input ahead of the quantiser, which R and O do, too; None for
            nothing. `s_in`, `m_in` and the weights count behind it.
        Others:         Arguments of `requantization` and fields of `layers.dense.Dense`.
    """
    codes = np.asarray(codes).astype(np.int16)
    gain, constant = (np.broadcast_to(np.asarray(v, np.float64), codes.shape[:1]) for v in (gain, constant))
    s_in, m_in, s_out, m_out = (float(v) for v in (s_in, m_in, s_out, m_out))
    start = start_values(codes, input_format, unsigned)
    p = of_normal_scales(right_shift(codes, start, input_format, unsigned), gain * s_in / s_out)
    row_sums = codes.sum(axis=1, dtype=np.int64)
    scale, offset = requantization(gain, constant, row_sums, s_in=s_in, m_in=m_in, s_out=s_out, m_out=m_out, p=p)
    quantizer = (None, None) if not quantize_input else input_quantizer(
        name, Line.neutral(codes.shape[1]) if line is None else line, s_in, m_in)
    return Dense(
        name=name,
        weights_format=weights_format,
        input_format=input_format,
        unsigned=unsigned,
        weights=codes,
        start=start,
        p=p,
        scale=binary16(scale, f"layer {name!r}, scale"),
        offset=binary16(offset, f"layer {name!r}, offset"),
        quant_scale=quantizer[0],
        quant_offset=quantizer[1],
        activation=activation,
        float_operator=float_operator,
        real={
            "gain": gain.copy(),
            "constant": constant.copy(),
            "input": np.array([s_in, m_in]),
            "output": np.array([s_out, m_out]),
            **({} if line is None else {"line": np.array([line.scale, line.offset])}),
        },
    )


def input_quantizer(name: str, line: Line, s_in: float, m_in: float) -> tuple[np.ndarray, np.ndarray | None]:
    """R and O of a layer, uint16[channels], which make codes of the network's input x; no O where it is zero.

    The codes are those of u = line(x), in steps of `s_in` above `m_in`: R = scale / s_in, O = (offset - m_in) / s_in.
    """
    offset = (line.offset - m_in) / s_in
    return binary16(line.scale / s_in, f"layer {name!r}, quant_scale"), (
        binary16(offset, f"layer {name!r}, quant_offset") if offset.any() else None)


def recurrent(
    *,
    name: str,
    cell: Cell,
    input_codes: np.ndarray,
    recurrent_codes: np.ndarray,
    input_steps: np.ndarray,
    recurrent_steps: np.ndarray,
    bias: np.ndarray,
    weights_format: Format,
    input_format: Format,
    s_in: float,
    s_hidden: float | None = None,
    quantize_input: bool = True,
    initial: Mapping[str, np.ndarray] | None = None,
    vectors: Mapping[str, np.ndarray] | None = None,
    gate_bits: int = 0,
    gate_codes: np.ndarray | None = None,
    bias_bits: int = 0,
    result_format: Format | None = None,
    result_shifts: tuple[int, int] = (-32, -32),
    float_operator: Recurrence | None = None,
) -> IntegerRecurrent:
    """Lower a recurrent layer with one scale for each gate's matrix; x and h are signed codes.

    Args:
        input_codes:     Integer W[gates, outputs, inputs].
        recurrent_codes: Integer R[gates, outputs, outputs].
        input_steps:     Real value of one step of W, for each gate.
        recurrent_steps: Real value of one step of R, for each gate.
        bias:            Real[gates, outputs].
        s_in:            Real value of one step of the codes of x.
        s_hidden:        Real value of one step of the codes of h; 2**-(bits - 1) by default, for h in -1..1.
        quantize_input:  Whether x is in real units instead of steps of its code.
        initial:         Real[outputs], the first states by name; a missing state is zero.
        vectors:         Real[outputs], the vectors of the cell by name.
        gate_bits:       Width of the outputs of the gates; 0 for no quantisation.
        gate_codes:      Field of the layer.
        bias_bits:       Width of integer biases; 0 for biases in binary16.
        result_format:   Format of the codes of the products' results; None for binary16.
        result_shifts:   Least right shifts of the products with W and with R, which decide the steps of these codes.
        float_operator:  Field of the layer.
    """
    input_codes, recurrent_codes = (np.asarray(codes).astype(np.int16) for codes in (input_codes, recurrent_codes))
    gates, hidden, inputs = input_codes.shape
    s_hidden = 2.0 ** -(input_format.bits - 1) if s_hidden is None else float(s_hidden)
    s_in = float(s_in)
    bias, matrices = np.asarray(bias, np.float64), {}
    start = integer_biases(name, bias, np.asarray(input_steps, np.float64) * s_in, bias_bits) if bias_bits else None
    for matrix, codes, steps, step, first, least in (
        ("input", input_codes, input_steps, s_in, start, result_shifts[0]),
        ("recurrent", recurrent_codes, recurrent_steps, s_hidden, None, result_shifts[1]),
    ):
        first = np.zeros(codes.shape[:2], np.int64) if first is None else first
        p = max(least, right_shift(codes, first, input_format, unsigned=False))
        gain = np.asarray(steps, np.float64)[:, None]
        if result_format is None:
            p = of_normal_scales(p, gain * step)
        scale, _ = requantization(gain, 0.0, 0.0, s_in=step, m_in=0.0, s_out=1.0, m_out=0.0, p=p)
        matrices[f"{matrix}_p"] = p
        matrices[f"{matrix}_scale"] = binary16(scale * np.ones((gates, hidden)), f"layer {name!r}, {matrix}_scale")
    return IntegerRecurrent(
        name=name,
        cell=cell,
        weights_format=weights_format,
        input_format=input_format,
        input_weights=input_codes,
        recurrent_weights=recurrent_codes,
        **matrices,
        bias=binary16(np.zeros_like(bias) if bias_bits else bias, f"layer {name!r}, bias"),
        start=start,
        result_format=result_format,
        input_quant_scale=binary16(np.ones(inputs) / s_in, f"layer {name!r}, input") if quantize_input else None,
        hidden_quant_scale=binary16(np.ones(hidden) / s_hidden, f"layer {name!r}, hidden"),
        initial=first_states(name, cell, initial, hidden),
        vectors=patterns(name, vectors),
        gate_bits=gate_bits,
        gate_codes=gate_codes,
        float_operator=float_operator,
        real={
            "input_steps": np.asarray(input_steps, np.float64),
            "recurrent_steps": np.asarray(recurrent_steps, np.float64),
            "bias": bias,
            "input": np.array([s_in, 0.0]),
        },
    )


def first_states(name: str, cell: Cell, initial: Mapping[str, np.ndarray] | None, size: int) -> dict[str, np.ndarray]:
    """Binary16 patterns of every state before the first time step; a state that `initial` does not name is zero."""
    given = initial or {}
    if unknown := set(given) - set(cell.states):
        raise ValueError(f"layer {name!r}: {cell.title} has no state {min(unknown)!r}; its states are "
                         f"{', '.join(cell.states)}")
    return patterns(name, {state: given.get(state, np.zeros(size)) for state in cell.states})
