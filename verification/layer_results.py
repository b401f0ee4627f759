"""The results of layers in what chains write, and their difference from the float network.

A chain writes the result of a layer position by position, in real units or in steps of the codes of its reader.
The unit that fits best is taken: in float64, values of a wrong layer, position or unit fit none.
"""

from collections.abc import Sequence

import numpy as np
from concord.golden.lib.float16 import to_real
from concord.net.layers.rows import IntegerRows
from concord.net.model import Model
from concord.spec.isa.chain import Chain
from concord.spec.isa.instructions import SPECS, opcode
from concord.spec.isa.operations import Operation

#: Opcodes of the largest element.
_LARGEST = {opcode(Operation.V_LARGEST, mfu) for mfu in range(2)}
#: Step and offset of a unit: real = step * value + offset.
Unit = tuple[float, float]


class Writes:
    """What the chains of one layer write at their ends, for one input."""

    def __init__(self):
        self._kinds: dict[tuple, list[np.ndarray]] = {}
        self._rows: dict[tuple, tuple[bool, int, int]] = {}

    def add(self, chain: Chain, words: np.ndarray):
        """Add words float64[n, M] of a chain. Chains that differ in addresses alone write one tensor together.

        Products of other channels have other tiles, or, in averages, other scales after the same tiles.
        """
        product = chain.product
        first = next((i.a for i in chain.instructions if SPECS[i.op].operand), None)
        kind = (*((i.op, i.mem) for i in chain.instructions), product and (product.a, first), chain.registers.rows)
        self._kinds.setdefault(kind, []).append(words)
        scores = any(i.op in _LARGEST for i in chain.instructions)
        self._rows[kind] = product is not None and not scores, chain.registers.rows, chain.result_words

    def tensors(self, outputs: int) -> list[np.ndarray]:
        """Tensors float64[outputs] that have been written whole, in the order of channel, row, column.

        Several products write some channels each; products of scores end with their largest one. Of a
        sequence, it is the vector of the last time step.
        """
        found, parts = [], []
        for kind, written in self._kinds.items():
            product, rows, count = self._rows[kind]
            words = np.concatenate(written)
            positions = words.reshape(len(words) // count, -1)[:, :rows]
            if rows == outputs:
                positions = positions[-1:]
            found.append(positions)
            parts += [positions] * product
        if len({len(part) for part in parts}) == 1:
            found.append(np.concatenate(parts, axis=1))
        return [positions.T.ravel() for positions in found if positions.size == outputs]


def units(model: Model) -> list[Unit]:
    """The units in which results of a model are written."""
    found: dict[Unit, None] = {(1.0, 0.0): None}
    for layer in (layer for layer in model.layers if isinstance(layer, IntegerRows)):
        found |= {(float(scale), float(offset)): None for scale, offset in (
            layer.real[end] for end in ("input", "output") if end in layer.real)}
        if layer.quant_scale is not None:
            factor = to_real(layer.quant_scale[0])
            shift = 0.0 if layer.quant_offset is None else to_real(layer.quant_offset[0])
            found[float(1 / factor), float(-shift / factor)] = None
    return list(found)


def squares(writes: Writes, wanted: np.ndarray, known: Sequence[Unit]) -> float | None:
    """Sum of the squares of the differences from a layer's outputs; None where no tensor was written whole.

    Args:
        writes: What the chains of the layer wrote.
        wanted: float64[outputs] of the float network.
        known:  Units, from `units`.
    """
    return min((float(np.square(tensor * step + offset - wanted).sum())
                for tensor in writes.tensors(wanted.size) for step, offset in known), default=None)
