"""The chains of recurrent layers in each arithmetic: products of the input x and the hidden vector h, then the cell's.

In integers, one chain computes the input products u of all gates first; integer biases are added in its accumulator.
In block floating point, x and h are multiplied together, side by side.
"""

from dataclasses import replace

import numpy as np
from concord.compiler.cells.formula_trace import BlockTracer, IntegerTracer, ProductPart
from concord.compiler.cells.layout import Location
from concord.compiler.cells.time_step import ProductOperand, TimeStep, select_rows
from concord.compiler.lib import limits, tiling
from concord.compiler.lib.build import ModelBuild
from concord.compiler.lib.program import NET, Slot, operate, read, write
from concord.golden.lib import float16
from concord.golden.lib.float16 import to_real
from concord.net.layers.layer import Layer
from concord.net.layers.recurrent import BlockRecurrent, IntegerRecurrent
from concord.spec.isa.instructions import Instruction, Op
from concord.spec.isa.memories import Mem

#: Name of the input products u = W x * scale + bias of all gates.
INPUT_PRODUCTS = "u"


class IntegerStep(TimeStep):
    """The chains of an integer layer: first u = a_W * S_W + bias for all gates, then g = a_R * S_R + u for each gate.

    a_W and a_R are the products W x and R h, and S_W and S_R their scales.
    """

    tracer = IntegerTracer
    result = Mem.ADDSUB_VRF0
    first = Mem.MULTIPLY_VRF0
    integer = True

    @staticmethod
    def problems(layer, config):
        widest = max(layer.inputs, layer.outputs)
        return (
            limits.integer_operands(layer, config, [layer.input_weights, layer.recurrent_weights])
            + ([] if layer.start is None else limits.start_values(layer.start, config))
            + limits.columns(config, config.vectors_of(widest))
            + limits.product_rows(config, layer.outputs)
            + limits.quantized_results(layer, config)
        )

    def emit(self):
        self._emit_inputs()
        super().emit()

    def bounds(self):
        return [tiling.integer_bound(self.config, product) for product in self.layer.products()]

    def columns(self, part):
        return self.config.vectors_of(self.layer.outputs)

    def product(self, one):
        return ProductOperand(source=self.slot(one.operand, Mem.INITIAL_VRF), columns=self.columns(one.part),
                              out_scale=self.layer.recurrent_p)

    def multiply(self, one, chosen):
        return self._multiply("recurrent", select_rows(self.content.recurrent_weights, chosen))

    def constant(self, stored):
        if stored.name in self.layer.vectors:
            return self.content.vectors[stored.name]
        named = {"recurrent scale": self.content.recurrent_scale, "hidden scale": self.layer.hidden_quant_scale}
        return named[stored.name]

    def state_values(self, name):
        if name == IntegerTracer.CODES:
            first, scale = self.layer.initial[self.layer.cell.states[0]], self.layer.hidden_quant_scale
            return to_real(first) * to_real(scale) if self.build.real else float16.mul(first, scale)
        return super().state_values(name)

    def zero(self, name):
        return super().zero(self.layer.cell.states[0] if name == IntegerTracer.CODES else name)

    def _emit_inputs(self):
        """Emit the chains that write u of all gates to each memory from which it is read; each gate begins a word."""
        build, layer, config, content = self.build, self.layer, self.config, self.content
        weights = tiling.stacked(config, content.input_weights)
        parts = tiling.parts(config, len(weights), config.vectors_of(layer.inputs), build.most_tiles)
        source, scale = self.source, tiling.whole_vectors(config, layer.input_quant_scale)
        if scale is not None:
            scale = build.allocator.constant(Mem.MULTIPLY_VRF0, scale, f"{layer.name}, input scale")
            source = build.moved(source, layer.inputs, layer.name, operate(Op.VV_MUL0, scale))
        elif source == NET and len(parts) > 1:
            source = build.moved(source, layer.inputs, layer.name)
        scale = build.allocator.constant(
            Mem.MULTIPLY_VRF0, tiling.stacked(config, content.input_scale), f"{layer.name}, input scale of gates")
        bias = None if layer.start is not None else build.allocator.constant(
            Mem.ADDSUB_VRF1, tiling.stacked(config, content.bias), f"{layer.name}, bias")
        targets = [
            self.set_constant(INPUT_PRODUCTS, mem, build.allocator.vector(mem, len(weights), f"{layer.name}, u"))
            for mem in self.layout.memories(INPUT_PRODUCTS)
        ]
        for part in parts:
            word, rows = part.row // config.mfu_lanes, slice(part.row, part.row + part.rows)
            product = self._multiply("input", weights[rows])
            if bias is None:
                start = tiling.stacked(config, content.start)[rows]
                product = replace(product, bias=1, b=build.bias(f"{layer.name}, start", start))
            start, registers = (read(source), product), {
                "columns": config.vectors_of(layer.inputs), "out_scale": layer.input_p}
            if self.quantized:
                start, registers = (self.quantize(start, part, **registers),), {}
            build.program.chain(
                *start,
                operate(Op.VV_MUL0, scale.at(word)),
                *([] if bias is None else [operate(Op.VV_ADD1, bias.at(word))]),
                *(write(target.at(word)) for target in targets),
                rows=part.rows,
                **registers,
            )

    def _multiply(self, matrix: str, weights: np.ndarray) -> Instruction:
        address = self.build.matrix(f"{self.layer.name}, {matrix} weights", weights)
        return Instruction(op=Op.MV_MUL, integer=1, a=address)


class BlockStep(TimeStep):
    """The chains of a layer in block floating point. h lies directly after x, so that both can be one operand.

    Attributes:
        x:     Slot of x that this layer reads.
        moves: Whether x is written elsewhere, so that each time step must copy it.
    """

    tracer = BlockTracer
    result = Mem.INITIAL_VRF
    first = Mem.MULTIPLY_VRF1
    integer = False

    def __init__(self, build: ModelBuild, layer: BlockRecurrent, source: Slot):
        super().__init__(build, layer, source)
        # The result of the layer before is read where it is if it lies at the end: h only has to follow it.
        end = build.allocator.used(Mem.INITIAL_VRF)
        self.moves = source.mem != Mem.INITIAL_VRF or source.address + source.words != end
        self.x = (
            build.allocator.vector(Mem.INITIAL_VRF, layer.inputs, f"{layer.name}, input") if self.moves else source)
        self.at(Location(layer.cell.states[0], Mem.INITIAL_VRF))  # allocates h directly after x

    @staticmethod
    def problems(layer, config):
        columns = config.vectors_of(layer.inputs) + config.vectors_of(layer.outputs)
        own = limits.block_operands(layer, config)
        return own + limits.columns(config, columns) + limits.product_rows(config, layer.outputs) + (
            limits.quantized_results(layer, config))

    def emit(self):
        if self.moves:
            self.build.moved(self.source, self.layer.inputs, self.layer.name, target=self.x)
        super().emit()

    def product(self, one):
        columns = self.columns(one.part)
        source = self.slot(one.operand, Mem.INITIAL_VRF) if one.part is ProductPart.RECURRENT else self.x
        return ProductOperand(source=source, columns=columns)

    def multiply(self, one, chosen):
        mantissas, exponents = self._matrix(self.content, one.part)
        lowest = self.config.weights.e_min
        address = self.build.matrix(
            f"{self.layer.name}, weights", select_rows(mantissas, chosen), select_rows(exponents, chosen, lowest))
        return Instruction(op=Op.MV_MUL, a=address)

    def constant(self, stored):
        return self.content.bias if stored.name == "bias" else self.content.vectors[stored.name]

    def bounds(self):
        found = []
        for run in self.products():
            numbers = [self.layer.cell.index(one.gate) for one in run]
            name = self.layer.name + ("" if run[0].part is ProductPart.BOTH else f", {run[0].part}")
            tall = (part[numbers].reshape(-1, part.shape[-1]) for part in self._matrix(self.layer, run[0].part))
            found.append(tiling.block_bound(self.config, name, *tall))
        return found

    def _matrix(self, layer: BlockRecurrent, part: ProductPart) -> tuple[np.ndarray, np.ndarray]:
        """Mantissas [gates, outputs, columns] and exponents; x and h are each padded to whole native vectors."""
        size = self.config.native_dim
        both = [(layer.input_mantissas, layer.input_exponents), (layer.recurrent_mantissas, layer.recurrent_exponents)]
        chosen = {ProductPart.BOTH: both, ProductPart.INPUT: both[:1], ProductPart.RECURRENT: both[1:]}[part]
        mantissas = [
            tiling.padded(matrix, self.config.vectors_of(matrix.shape[2]) * size, 2) for matrix, _ in chosen]
        return np.concatenate(mantissas, axis=2), np.concatenate([exponents for _, exponents in chosen], axis=2)


#: The chains of a recurrent layer, by its class.
RECURRENT: dict[type[Layer], type[TimeStep]] = {IntegerRecurrent: IntegerStep, BlockRecurrent: BlockStep}
