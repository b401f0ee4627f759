"""The matrix-vector multiplier: binary16 vectors in, binary16 vectors out."""

import numpy as np
from concord.golden.mvm.accumulator import accumulate
from concord.golden.mvm.converter import convert
from concord.golden.mvm.overflow import Events, output_events
from concord.golden.mvm.quantizer import quantize
from concord.spec.machine.config import Config


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
    mantissas, exponents = quantize(operand, config.activations, integer=integer, unsigned=unsigned)
    return multiply_entries(config, weights, weight_exponents, mantissas, exponents, start_values, rows=rows,
                            integer=integer, out_scale=out_scale)


def multiply_entries(config: Config, weights, weight_exponents, mantissas, exponents, start_values=None, *, rows: int,
                     integer: bool = False, out_scale: int = 0) -> tuple[np.ndarray, Events]:
    """Compute `multiply` of operands that are quantised already.

    Args:
        mantissas: Integers [..., columns, N].
        exponents: int64[..., columns], stored exponents.

    The other arguments and the result are those of `multiply`.
    """
    totals, events = accumulate(config, weights, weight_exponents, mantissas, exponents, start_values, rows=rows,
                                integer=integer)
    bits = convert(config, totals, integer=integer, out_scale=out_scale)
    if config.count_overflows:
        events += output_events(config, totals, bits, integer=integer)
    return bits, events


def multiply_groups(config: Config, weights, weight_exponents, mantissas, exponents, start_values=None, *, rows: int,
                    integer: bool = False, out_scale: int = 0) -> tuple[np.ndarray, Events]:
    """Compute `multiply_entries` where each row tile has an operand of its own.

    Args:
        mantissas: Integers [..., row_tiles, columns, N].
        exponents: int64[..., row_tiles, columns], stored exponents.

    The other arguments and the result are those of `multiply`.
    """
    n, parts, events = config.native_dim, [], Events()
    for tile in range(len(weights)):
        first, last = tile * n, min(rows, (tile + 1) * n)
        bits, counted = multiply_entries(
            config, weights[tile:tile + 1], weight_exponents[tile:tile + 1], mantissas[..., tile, :, :],
            exponents[..., tile, :], None if start_values is None else start_values[first:last], rows=last - first,
            integer=integer, out_scale=out_scale)
        parts.append(bits)
        events += counted
    return np.concatenate(parts, -1), events
