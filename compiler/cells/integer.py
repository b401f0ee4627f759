"""Integer recurrent layers: one chain for the input products u of all gates, then the cell's chains."""

import numpy as np
from concord.compiler.cells import gates
from concord.compiler.cells.formula_trace import IntegerTracer
from concord.compiler.cells.time_step import Operand, TimeStep
from concord.compiler.lib import bounds, limits, tiling
from concord.compiler.lib.allocation import NET
from concord.compiler.lib.program import operate, read, write
from concord.golden.lib import float16
from concord.golden.lib.float16 import to_real
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

    @staticmethod
    def problems(layer, config):
        widest = max(layer.inputs, layer.outputs)
        return (
            limits.integer_operands(layer, config, [layer.input_weights, layer.recurrent_weights])
            + limits.columns(config, config.vectors_of(widest))
            + limits.product_rows(config, layer.outputs)
        )

    def emit(self):
        self._emit_inputs()
        super().emit()

    def bounds(self):
        return [bounds.integer_bound(self.config, product) for product in self.layer.products()]

    def product(self, one):
        columns = self.config.vectors_of(self.layer.outputs)
        return Operand(source=self.place(one.operand, Mem.INITIAL_VRF), columns=columns,
                       out_scale=self.layer.recurrent_p)

    def multiply(self, one, chosen):
        return self._multiply("recurrent", gates.select(self.content.recurrent_weights, chosen))

    def constant(self, stored):
        if stored.name in self.layer.vectors:
            return self.content.vectors[stored.name]
        if stored.name.startswith("centre "):
            centre = float(stored.name.removeprefix("centre "))
            return np.full(self.layer.outputs, centre, np.float16).view(np.uint16)
        named = {"recurrent scale": self.content.recurrent_scale, "hidden scale": self.layer.hidden_quant_scale}
        return named[stored.name]

    def state_values(self, name):
        if name == IntegerTracer.CODES:
            first, scale = self.layer.initial[self.layer.cell.states[0]], self.layer.hidden_quant_scale
            return to_real(first) * to_real(scale) if self.build.real else float16.mul(first, scale)
        return super().state_values(name)

    def _emit_inputs(self):
        """Emit the chains that write u of all gates to each memory from which it is read; each gate begins a word."""
        build, layer, config, content = self.build, self.layer, self.config, self.content
        weights = tiling.stacked(config, content.input_weights)
        parts = tiling.parts(config, len(weights))
        source, scale = self.source, tiling.whole_vectors(config, layer.input_quant_scale)
        if scale is not None:
            scale = build.allocator.constant(Mem.MULTIPLY_VRF0, scale, f"{layer.name}, input scale")
            source = build.moved(source, layer.inputs, layer.name, operate(Op.VV_MUL0, scale))
        elif source == NET and len(parts) > 1:
            source = build.moved(source, layer.inputs, layer.name)
        scale, bias = (
            build.allocator.constant(mem, tiling.stacked(config, values), f"{layer.name}, {what}")
            for mem, values, what in (
                (Mem.MULTIPLY_VRF0, content.input_scale, "input scale of gates"),
                (Mem.ADDSUB_VRF1, content.bias, "bias"),
            )
        )
        targets = [
            self.set_constant(INPUT_PRODUCTS, mem, build.allocator.vector(mem, len(weights), f"{layer.name}, u"))
            for mem in self.layout.memories(INPUT_PRODUCTS)
        ]
        for part in parts:
            word = part.row // config.mfu_lanes
            build.program.chain(
                read(source),
                self._multiply("input", weights[part.row : part.row + part.rows]),
                operate(Op.VV_MUL0, scale.at(word)),
                operate(Op.VV_ADD1, bias.at(word)),
                *(write(target.at(word)) for target in targets),
                rows=part.rows,
                columns=config.vectors_of(layer.inputs),
                out_scale=layer.input_p,
            )

    def _multiply(self, matrix: str, weights: np.ndarray) -> Instruction:
        address = self.build.integer_matrix(f"{self.layer.name}, {matrix} weights", weights)
        return Instruction(op=Op.MV_MUL, integer=1, a=address)
