"""Recurrent layers in block floating point: products of the input x and the hidden vector h, then the cell's chains."""

import numpy as np
from concord.compiler.cells import gates
from concord.compiler.cells.formula_trace import BlockTracer, Part
from concord.compiler.cells.layout import Location
from concord.compiler.cells.time_step import Operand, TimeStep
from concord.compiler.lib import bounds, limits, tiling
from concord.compiler.lib.allocation import Place
from concord.compiler.lib.build import Build
from concord.net.layers.recurrent import BlockRecurrent
from concord.spec.isa.instructions import Instruction, Op
from concord.spec.isa.memories import Mem


class BlockStep(TimeStep):
    """The chains of a layer in block floating point. h lies directly after x, so that both can be one operand.

    Attributes:
        x:     Place of x that this layer reads.
        moves: Whether x is written elsewhere, so that each time step must copy it.
    """

    tracer = BlockTracer
    result = Mem.INITIAL_VRF
    first = Mem.MULTIPLY_VRF1

    def __init__(self, build: Build, layer: BlockRecurrent, source: Place):
        super().__init__(build, layer, source)
        # The result of the layer before is read in place if it lies at the end: h only has to follow it.
        end = build.allocator.used(Mem.INITIAL_VRF)
        self.moves = source.mem != Mem.INITIAL_VRF or source.address + source.words != end
        self.x = (
            build.allocator.vector(Mem.INITIAL_VRF, layer.inputs, f"{layer.name}, input") if self.moves else source)
        self.at(Location(layer.cell.states[0], Mem.INITIAL_VRF))  # allocates h directly after x

    @staticmethod
    def problems(layer, config):
        columns = config.vectors_of(layer.inputs) + config.vectors_of(layer.outputs)
        own = limits.block_operands(layer, config)
        return own + limits.columns(config, columns) + limits.product_rows(config, layer.outputs)

    def emit(self):
        if self.moves:
            self.build.moved(self.source, self.layer.inputs, self.layer.name, target=self.x)
        super().emit()

    def product(self, one):
        columns = {
            Part.BOTH: self.config.vectors_of(self.layer.inputs) + self.config.vectors_of(self.layer.outputs),
            Part.INPUT: self.config.vectors_of(self.layer.inputs),
            Part.RECURRENT: self.config.vectors_of(self.layer.outputs),
        }[one.part]
        source = self.place(one.operand, Mem.INITIAL_VRF) if one.part is Part.RECURRENT else self.x
        return Operand(source=source, columns=columns)

    def multiply(self, one, chosen):
        mantissas, exponents = self._matrix(self.content, one.part)
        lowest = self.config.weights.e_min
        address = self.build.block_matrix(
            f"{self.layer.name}, weights", gates.select(mantissas, chosen), gates.select(exponents, chosen, lowest))
        return Instruction(op=Op.MV_MUL, a=address)

    def constant(self, stored):
        return self.content.bias if stored.name == "bias" else self.content.vectors[stored.name]

    def bounds(self):
        found = []
        for run in self.products():
            numbers = [self.layer.cell.index(one.gate) for one in run]
            name = self.layer.name + ("" if run[0].part is Part.BOTH else f", {run[0].part}")
            tall = (part[numbers].reshape(-1, part.shape[-1]) for part in self._matrix(self.layer, run[0].part))
            found.append(bounds.block_bound(self.config, name, *tall))
        return found

    def _matrix(self, layer: BlockRecurrent, part: Part) -> tuple[np.ndarray, np.ndarray]:
        """Mantissas [gates, outputs, columns] and exponents; x and h are each padded to whole native vectors."""
        size = self.config.native_dim
        both = [(layer.input_mantissas, layer.input_exponents), (layer.recurrent_mantissas, layer.recurrent_exponents)]
        chosen = {Part.BOTH: both, Part.INPUT: both[:1], Part.RECURRENT: both[1:]}[part]
        mantissas = [
            tiling.padded(matrix, self.config.vectors_of(matrix.shape[2]) * size, 2) for matrix, _ in chosen]
        return np.concatenate(mantissas, axis=2), np.concatenate([exponents for _, exponents in chosen], axis=2)
