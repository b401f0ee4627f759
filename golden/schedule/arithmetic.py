"""What an executor of chains computes with: the arithmetic of the machine, or another one on the same chains.

`MachineArithmetic` computes with binary16 patterns. `RealArithmetic` computes in float64, with quantisers and the
rounding to binary16 on or off. The values of its memories are real numbers: an entry of VectorRf holds numbers, not
mantissas, and unsigned codes are not lowered by their zero point. Sums do not wrap.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from concord.golden.lib.float16 import to_bits, to_real
from concord.golden.mfu.multifunction import compute, compute_real, pool_max
from concord.golden.mfu.reduction import NEUTRAL, running, running_real
from concord.golden.mfu.softmax import real_softmax, softmax
from concord.golden.mvm import elements
from concord.golden.mvm.mvm import multiply, multiply_entries, multiply_groups
from concord.golden.mvm.overflow import Events
from concord.golden.mvm.quantizer import invalid, quantize_reals
from concord.spec.isa.chain import Chain
from concord.spec.isa.operations import Operation
from concord.spec.machine.config import Config
from concord.spec.numbers.formats import Format


class MachineArithmetic:
    """The arithmetic of the machine, on binary16 patterns uint16: words [n, M] and operands [..., columns, N].

    Other arithmetics inherit it, and take the same arguments in the type of their memories.
    """

    compute = staticmethod(compute)
    pool_max = staticmethod(pool_max)
    running = staticmethod(running)
    neutral = staticmethod(NEUTRAL.__getitem__)
    softmax = staticmethod(softmax)
    invalid = staticmethod(invalid)
    multiply = staticmethod(multiply)
    multiply_entries = staticmethod(multiply_entries)
    multiply_groups = staticmethod(multiply_groups)

    def mode(self, chain: Chain, index: int) -> dict[str, Any]:
        """Arguments with which instruction `index` of a chain reads or writes VectorRf, or quantises an operand."""
        instruction = chain.instructions[index]
        return {"integer": bool(instruction.integer), "unsigned": bool(instruction.unsigned)}


class RealArithmetic(MachineArithmetic):
    """Computes chains in float64.

    Args:
        config:      The machine.
        activations: Whether vectors are quantised.
        binary16:    Whether results of products and of point-wise operations are rounded to binary16.
        clips:       Smallest and largest value that stays instead of a quantiser that is off, by the address of the
            instruction that quantises: where its clips are an activation function.
    """

    def __init__(self, config: Config, *, activations: bool, binary16: bool,
                 clips: Mapping[int, tuple[float, float]]):
        self._config, self._clips = config, clips
        self.activations, self.binary16 = activations, binary16

    def mode(self, chain: Chain, index: int) -> dict[str, Any]:
        """As `MachineArithmetic.mode`, with the clip of the instruction, or None."""
        return super().mode(chain, index) | {"clip": self._clips.get(chain.address + index)}

    def compute(self, operation: Operation, value: np.ndarray, operand: np.ndarray | None = None) -> np.ndarray:
        """A point-wise operation on float64 of one shape; with `binary16`, the machine's own."""
        if self.binary16:
            return to_real(compute(operation, to_bits(value), to_bits(operand) if operation.operand else None))
        return compute_real(operation, value, operand)

    def neutral(self, operation: Operation) -> float:
        """The number that changes no result of a reduction."""
        return 0.0 if operation is Operation.V_SUM else -np.inf

    def running(self, operation: Operation, words: np.ndarray, before=None):
        """A reduction after each word float64[..., words, M]; with `binary16`, the machine's own."""
        if self.binary16:
            result, after = running(operation, to_bits(words), before)
            return to_real(result), after
        return running_real(operation, words, before)

    def pool_max(self, pixels: np.ndarray) -> np.ndarray:
        """The largest value of each window float64[..., pixels, M]."""
        return pixels.max(-2)

    def softmax(self, elements: np.ndarray) -> np.ndarray:
        """The softmax of each vector float64[..., elements]; with `binary16`, the machine's own."""
        if self.binary16:
            return to_real(softmax(to_bits(elements)))
        return real_softmax(elements)

    def invalid(self, words: np.ndarray) -> bool:
        """Whether a word holds a NaN. An infinity may stand around an image of which a maximum is taken."""
        return bool(np.isnan(words).any())

    def multiply(self, config, weights, exponents, operand, start_values=None, *, rows, out_scale=0, integer=False,
                 unsigned=False, clip=None):
        """Products of operands float64[..., columns, N] that the quantiser takes; see `golden.mvm.mvm.multiply`."""
        values = self.quantized(operand, integer=integer, unsigned=unsigned, clip=clip)
        return self.multiply_entries(config, weights, exponents, values, None, start_values, rows=rows,
                                     integer=integer, out_scale=out_scale)

    def multiply_entries(self, config, weights, _exponents, values, _stored, start_values=None, *, rows,
                         integer=False, out_scale=0):
        """Products of numbers float64[..., columns, N] with weights float64[row_tiles, columns, N, N]."""
        columns, n = values.shape[-2:]
        matrix = weights.transpose(0, 2, 1, 3).reshape(-1, columns * n)
        sums = values.reshape(-1, columns * n) @ matrix.T
        return self._finished(sums.reshape(*values.shape[:-2], -1), start_values, rows, integer, out_scale)

    def multiply_groups(self, config, weights, _exponents, values, _stored, start_values=None, *, rows,
                        integer=False, out_scale=0):
        """Products where each row tile has an operand of its own: numbers float64[..., row_tiles, columns, N]."""
        sums = np.einsum("tcij,...tcj->...ti", weights, values, optimize=True)
        return self._finished(sums.reshape(*sums.shape[:-2], -1), start_values, rows, integer, out_scale)

    def quantized(self, x: np.ndarray, *, integer: bool, unsigned: bool, clip: tuple[float, float] | None):
        """Native vectors float64[..., N] as a quantiser leaves them, or only clipped where it is off."""
        if not self.activations:
            return x if clip is None else np.clip(x, *clip)
        return self._codes(x, self._config.activations, integer, unsigned)

    def tile(self, rows: np.ndarray, *, integer: bool) -> np.ndarray:
        """The rows float64[N, N] of a tile of vectors as the matrix quantiser leaves them, or as they are."""
        return self._codes(rows, self._config.weights, integer) if self.activations else rows

    @staticmethod
    def _codes(x: np.ndarray, fmt: Format, integer: bool, unsigned: bool = False) -> np.ndarray:
        """What the codes or blocks of native vectors stand for."""
        x = np.where(np.isnan(x), 0.0, x)
        if integer:
            return np.clip(elements.nearest(x, fmt), *((0, fmt.levels) if unsigned else (fmt.lowest, fmt.highest)))
        return block_numbers(*quantize_reals(x, fmt), fmt)

    def rounded(self, x: np.ndarray) -> np.ndarray:
        """Numbers as words hold them."""
        return to_real(to_bits(x)) if self.binary16 else x

    def _finished(self, sums, start_values, rows, integer, out_scale):
        """Results float64[..., rows] of sums over all columns."""
        sums = sums[..., :rows]
        if start_values is not None:
            sums = sums + start_values
        return self.rounded(np.ldexp(sums, -out_scale) if integer else sums), Events()


def block_numbers(mantissas, exponents, fmt: Format) -> np.ndarray:
    """float64[..., n] of mantissas [..., n] and exponents E [...] of blocks: mantissa * 2**(E - (bits - 1))."""
    return np.ldexp(np.asarray(mantissas, np.float64), np.asarray(exponents, np.int64)[..., None] - (fmt.bits - 1))
