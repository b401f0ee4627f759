"""The matrix-vector multiplier: binary16 vectors in, binary16 vectors out."""

import numpy as np
from concord.golden.mvm.accumulator import accumulate
from concord.golden.mvm.converter import convert
from concord.golden.mvm.overflow import Events, output_events
from concord.golden.mvm.quantizer import quantize_block, quantize_integer
from concord.spec.config import Config


def multiply(config: Config, weights, weight_exponents, operand, start_values=None, *, rows: int, integer: bool = False,
             unsigned: bool = False, out_scale: int = 0) -> tuple[np.ndarray, Events]:
    """Compute result[r] = sum over c of weights[r, c] * operand[c] for iterations of one `mv_mul`.

    Args:
        config:           The machine.
        weights:          Mantissas [row_tiles, columns, N, N]; float64 is fastest.
        weight_exponents: int64[row_tiles, columns, N], stored exponents.
        operand:          uint16[..., columns, N], binary16 patterns; leading axes are iterations.
        start_values:     int64[rows] in integer mode, or None.
        rows:             Number of rows of the result.
        integer:          Whether the product is in integer mode.
        unsigned:         Whether the operands are unsigned codes.
        out_scale:        Value of OutScale.

    Returns:
        uint16[..., rows] and the overflow events.
    """
    if integer:
        mantissas = quantize_integer(operand, config.activations, unsigned=unsigned)
        exponents = np.zeros(mantissas.shape[:-1], np.int64)
    else:
        mantissas, exponents = quantize_block(operand, config.activations)
        exponents = exponents - config.activations.e_min
    totals, events = accumulate(config, weights, weight_exponents, mantissas, exponents, start_values, rows=rows,
                                integer=integer)
    bits = convert(config, totals, integer=integer, out_scale=out_scale)
    if config.count_overflows:
        events += output_events(config, totals, bits, integer=integer)
    return bits, events
