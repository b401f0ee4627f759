"""Sums: one chain that reads one vector, and takes the other as operand of its first addition."""

from concord.compiler.lib import limits
from concord.compiler.lib.layer_compiler import LayerCompiler
from concord.compiler.lib.program import activation, operate, read, write
from concord.spec.isa import Op
from concord.spec.memories import Mem


class AddCompiler(LayerCompiler):
    """Compiles the sum of two tensors."""

    def problems(self, layer, config):
        return limits.vector_rows(layer.outputs)

    def reads(self, index):
        return (None, Mem.ADDSUB_VRF0)[index]

    def emit(self, build, layer, sources, targets):
        value, operand = sources[0].place, sources[1].brought(build, Mem.ADDSUB_VRF0)
        build.program.chain(
            read(value),
            operate(Op.VV_ADD0, operand),
            *activation(layer.activation, 0),
            *map(write, targets),
            rows=layer.outputs,
        )
