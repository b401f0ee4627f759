"""Dense layers: one chain of a product and the point-wise operations after it.

A layer with more rows than the accumulators hold becomes several chains.
"""

import numpy as np
from concord.compiler.lib import bounds, limits, tiling
from concord.compiler.lib.allocation import Place
from concord.compiler.lib.build import Build
from concord.compiler.lib.layer_compiler import LayerCompiler
from concord.compiler.lib.program import activation, clipped, operate, read, write
from concord.compiler.lib.reason import Reason
from concord.model.layers.dense import BlockDense, Dense
from concord.spec.config import Config
from concord.spec.isa import Instruction, Op
from concord.spec.memories import Mem


class DenseCompiler(LayerCompiler):
    """Compiles a dense layer in integers or in block floating point.

    Args:
        arithmetic: Class that knows the product and the operations after it: `_Integer` or `_Block`.
    """

    from_queue = True

    def __init__(self, arithmetic: type):
        self._arithmetic = arithmetic

    def problems(self, layer, config):
        columns = config.vectors_of(layer.inputs)
        own = self._arithmetic.problems(layer, config)
        return own + limits.columns(config, columns) + limits.product_rows(config, layer.outputs)

    def emit(self, build, layer, sources, targets):
        parts = tiling.parts(build.config, layer.outputs)
        chains = self._arithmetic(build, layer, sources[0].place, len(parts))
        for part in parts:
            word = part.row // build.config.mfu_lanes
            build.program.chain(
                read(chains.source),
                chains.product(slice(part.row, part.row + part.rows)),
                *chains.operations(word),
                *(write(target.at(word)) for target in targets),
                rows=part.rows,
                columns=build.config.vectors_of(layer.inputs),
                out_scale=chains.out_scale,
            )
        build.bounds.append(chains.bound())


class _Integer:
    """activation(a * scale + offset), where a is the product: its chain uses the stages M0, A1 and F1.

    Attributes:
        source:    Place of the input, in units of the step of its codes.
        out_scale: Number of bits by which the sums are shifted right.
    """

    def __init__(self, build: Build, layer: Dense, source: Place, parts: int):
        self._build, self._layer, self._start = build, layer, bool(layer.start.any())
        self._content = content = build.content(layer)
        scale, offset = (tiling.whole_vectors(build.config, v) for v in (layer.quant_scale, layer.quant_offset))
        source = build.affine(source, layer.inputs, layer.name, scale, offset)
        self.source = build.readable(source, layer.inputs, layer.name, parts)
        self.out_scale = layer.p
        self._scale = build.allocator.constant(Mem.MULTIPLY_VRF0, content.scale, f"{layer.name}, scale")
        self._offset = build.allocator.constant(Mem.ADDSUB_VRF1, content.offset, f"{layer.name}, offset")

    @staticmethod
    def problems(layer: Dense, config: Config) -> list[Reason]:
        return limits.integer_operands(layer, config, [layer.weights]) + limits.start_values(layer.start, config)

    def product(self, rows: slice) -> Instruction:
        build, layer, content = self._build, self._layer, self._content
        made = Instruction(
            op=Op.MV_MUL,
            integer=1,
            unsigned=int(layer.unsigned),
            bias=int(self._start),
            a=build.integer_matrix(f"{layer.name}, weights", content.weights[rows]),
            b=build.bias(f"{layer.name}, start", content.start[rows]) if self._start else 0,
        )
        return clipped(made, content.real.get("clip"))

    def operations(self, word: int) -> list[Instruction]:
        scaled = operate(Op.VV_MUL0, self._scale.at(word)), operate(Op.VV_ADD1, self._offset.at(word))
        return [*scaled, *activation(self._layer.activation, 1)]

    def bound(self) -> bounds.Bound:
        return bounds.integer_bound(self._build.config, self._layer.product)


class _Block:
    """activation(product + bias): its chain uses the stages A0 and F0. The attributes are those of `_Integer`."""

    out_scale = None

    def __init__(self, build: Build, layer: BlockDense, source: Place, parts: int):
        self._build, self._layer = build, layer
        self.source = build.readable(source, layer.inputs, layer.name, parts)
        columns = build.config.vectors_of(layer.inputs) * build.config.native_dim
        content = build.content(layer)
        self._mantissas: np.ndarray = tiling.padded(layer.mantissas, columns, 1)
        self._content: np.ndarray = tiling.padded(content.mantissas, columns, 1)
        self._bias = build.allocator.constant(Mem.ADDSUB_VRF0, content.bias, f"{layer.name}, bias")

    @staticmethod
    def problems(layer: BlockDense, config: Config) -> list[Reason]:
        return limits.block_operands(layer, config) + limits.adjacent_blocks(layer)

    def product(self, rows: slice) -> Instruction:
        layer = self._layer
        tile = self._build.block_matrix(f"{layer.name}, weights", self._content[rows], layer.exponents[rows])
        return Instruction(op=Op.MV_MUL, a=tile)

    def operations(self, word: int) -> list[Instruction]:
        return [operate(Op.VV_ADD0, self._bias.at(word)), *activation(self._layer.activation, 0)]

    def bound(self) -> bounds.Bound:
        return bounds.block_bound(self._build.config, self._layer.name, self._mantissas, self._layer.exponents)


INTEGER, BLOCK = DenseCompiler(_Integer), DenseCompiler(_Block)
