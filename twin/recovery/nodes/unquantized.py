"""Full precision in the place of quantised numbers: constants are real numbers, and quantisers are off.

What a firmware holds twice with equal binary16 numbers stays apart here where the real numbers differ.
"""

from collections.abc import Mapping

import numpy as np
from concord.firmware.firmware import Firmware
from concord.golden.mfu.multifunction import compute_real
from concord.golden.schedule.arithmetic import RealArithmetic
from concord.spec.isa.chain import Chain
from concord.spec.isa.instructions import Instruction, Op
from concord.spec.isa.operations import Operation
from concord.twin.recovery.nodes.elements import PATTERNS, ZERO, Constants, element_of, is_constant, node_of, read_by
from concord.twin.recovery.nodes.quantizers import Quantizers


class RealConstants(Constants):
    """Constant numbers in float64; there are no codes.

    Args:
        firmware: Firmware that carries its numbers in full precision.
    """

    dtype = np.float64

    def __init__(self, firmware: Firmware):
        self._firmware, self._config, self._images = firmware, firmware.config, firmware.full_precision
        patterns = np.arange(PATTERNS).astype(np.uint16).view(np.float16).astype(np.float64)
        self._hold(patterns.view(np.int64), {mem: np.ascontiguousarray(words).view(np.int64)
                                             for mem, words in self._images.vectors.items()})
        self._known: dict[int, int] = {}
        self._entries = self._image(firmware)

    def add(self, values: np.ndarray) -> np.ndarray:
        """References to numbers, which join the constants."""
        bits, where = np.unique(np.ascontiguousarray(values, np.float64).view(np.int64), return_inverse=True)
        lacking = [each for each in bits.tolist() if each not in self._known]
        self._known |= {each: len(self._bits) + number for number, each in enumerate(lacking)}
        self._bits = np.concatenate([self._bits, np.array(lacking, np.int64)])
        table = np.array([self._known[each] for each in bits.tolist()], np.int64)[where.reshape(np.shape(values))]
        return np.where(np.asarray(values) == 0, ZERO, table)

    def computed(self, operation: Operation, *tables: np.ndarray) -> np.ndarray:
        """References to the results of a point-wise operation on constant numbers."""
        return self.add(compute_real(operation, *map(self.values, tables)))

    def product(self, chain: Chain, table: np.ndarray, tiles: np.ndarray, rows: int) -> np.ndarray:
        """References to the results of a product of constants."""
        arithmetic = RealArithmetic(self._config, activations=False, binary16=False, clips={})
        function = arithmetic.multiply_groups if table.ndim == 4 else arithmetic.multiply_entries
        product, start = chain.product, None
        if product.bias:
            biases = np.append(self._images.biases.reshape(-1), np.zeros(rows))
            start = biases[product.b * self._config.mfu_lanes:][:rows]
        results, _ = function(self._config, self._images.tiles[tiles], None, self.values(table), None, start, rows=rows,
                              integer=bool(product.integer), out_scale=chain.registers.out_scale)
        return self.add(results)

    def mantissas(self, table: np.ndarray) -> np.ndarray:
        """float64, the constants that a product reads, which are numbers."""
        return self.values(table)

    def _image(self, firmware: Firmware) -> np.ndarray:
        content = np.full((firmware.config.vector_rf, firmware.config.native_dim), ZERO, np.int64)
        for part in self._images.entries:
            content[part.address:part.address + len(part.values)] = self.add(part.values)
        return content.reshape(-1)


class Clips(Quantizers):
    """Quantisers that are off: numbers stay as they are, or are clipped where that is an activation function."""

    def __init__(self, graph):
        super().__init__(graph)
        self._clips: Mapping[int, tuple[float, float]] = graph.firmware.full_precision.clips

    def codes(self, table: np.ndarray, instruction: Instruction, address: int) -> np.ndarray:
        """References to what a product or a write takes of numbers; see `Quantizers.codes`."""
        address += instruction.op == Op.MV_MUL  # A product's clip belongs to the instruction that multiplies.
        clip = self._clips.get(address)
        if clip is None:
            return table
        found, fixed = np.empty_like(table), is_constant(table)
        constants = self._graph.constants
        found[fixed] = constants.add(np.clip(constants.values(table[fixed]), *clip))
        op, settings = ("relu", ()) if clip == (0, np.inf) else ("clip", clip)
        for source in read_by(table):
            out = self._once(source, op, settings, address)
            mask = ~fixed & (node_of(table) == source)
            found[mask] = out[element_of(table[mask])]
        return found

    def numbers(self, table: np.ndarray, instruction: Instruction, address: int) -> np.ndarray:
        """The references themselves: entries of VectorRf hold numbers."""
        return table
