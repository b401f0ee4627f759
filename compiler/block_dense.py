"""Dense layers in block floating point: one pass of product, bias, activation."""

from concord.compiler import bounds, tiling
from concord.compiler.allocation import NET, Place
from concord.compiler.build import Build
from concord.compiler.dense import activation
from concord.compiler.program import operate, read, write
from concord.model.layers import BlockDense
from concord.spec.isa import Instruction, Mem, Op


def compile_block_dense(build: Build, layer: BlockDense, source: Place, target: Place):
    """`target` gets activation(product + bias), the stages A0 and F0 behind the product."""
    config, name = build.config, layer.name
    parts = tiling.parts(config, layer.outputs)
    if source == NET and len(parts) > 1:
        source = build.moved(source, layer.inputs, name)
    columns = tiling.vectors(config, layer.inputs)
    mantissas = tiling.padded(layer.mantissas, columns * config.native_dim, 1)
    bias = build.allocator.constant(Mem.ADDSUB_VRF0, layer.bias, f"{name}, bias")
    for part in parts:
        rows = slice(part.row, part.row + part.rows)
        word = part.row // config.mfu_lanes
        tile = build.block_matrix(f"{name}, weights", mantissas[rows], layer.exponents[rows])
        build.program.chain(
            read(source),
            Instruction(op=Op.MV_MUL, a=tile),
            operate(Op.VV_ADD0, bias.at(word)),
            *activation(layer.activation, 0),
            write(target.at(word)),
            rows=part.rows,
            columns=columns,
        )
    build.bounds.append(bounds.block_bound(config, name, mantissas, layer.exponents))
