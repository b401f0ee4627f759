"""Integer dense layers: one pass of product, scale, offset, activation."""

import numpy as np
from concord.compiler import bounds, tiling
from concord.compiler.allocation import NET, Place
from concord.compiler.build import Build
from concord.compiler.program import operate, read, write
from concord.model.layers import Activation, Dense
from concord.spec.isa import Instruction, Mem, Op, opcode
from concord.spec.operations import Operation

#: The operation of each activation but the identity.
ACTIVATIONS = {
    Activation.RELU: Operation.V_RELU,
    Activation.SIGMOID: Operation.V_SIGM,
    Activation.TANH: Operation.V_TANH,
}


def compile_dense(build: Build, layer: Dense, source: Place, target: Place):
    """`target` gets activation(a * scale + offset), the stages M0, A1 and F1 behind the product."""
    config, name = build.config, layer.name
    parts = tiling.parts(config, layer.outputs)
    source = build.affine(
        source, layer.inputs, name, padded(build, layer.quant_scale), padded(build, layer.quant_offset)
    )
    if source == NET and len(parts) > 1:
        source = build.moved(source, layer.inputs, name)
    scale = build.allocator.constant(Mem.MULTIPLY_VRF0, layer.scale, f"{name}, scale")
    offset = build.allocator.constant(Mem.ADDSUB_VRF1, layer.offset, f"{name}, offset")
    with_bias = bool(layer.start.any())
    for part in parts:
        rows = slice(part.row, part.row + part.rows)
        word = part.row // config.mfu_lanes
        product = Instruction(
            op=Op.MV_MUL,
            integer=1,
            unsigned=int(layer.unsigned),
            bias=int(with_bias),
            a=build.integer_matrix(f"{name}, weights", layer.weights[rows]),
            b=build.bias(f"{name}, start", layer.start[rows]) if with_bias else 0,
        )
        build.program.chain(
            read(source),
            product,
            operate(Op.VV_MUL0, scale.at(word)),
            operate(Op.VV_ADD1, offset.at(word)),
            *activation(layer.activation, 1),
            write(target.at(word)),
            rows=part.rows,
            columns=tiling.vectors(config, layer.inputs),
            out_scale=layer.p,
        )
    build.bounds.append(bounds.integer_bound(config, name, layer.weights, layer.start, layer.unsigned))


def activation(kind: Activation, mfu: int) -> list[Instruction]:
    """The operation of an activation, none for the identity."""
    return [operate(opcode(ACTIVATIONS[kind], mfu))] if kind in ACTIVATIONS else []


def padded(build: Build, values: np.ndarray | None) -> np.ndarray | None:
    """Operands for whole native vectors: padding of the input stays +0."""
    if values is None:
        return None
    return tiling.padded(values, tiling.vectors(build.config, len(values)) * build.config.native_dim, 0)
