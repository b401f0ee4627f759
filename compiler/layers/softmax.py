"""Softmax: one chain that sends the result of the layer before it through the softmax unit to the host."""

from concord.compiler.lib import limits
from concord.compiler.lib.layer_compiler import LayerCompiler
from concord.compiler.lib.program import operate, read, write
from concord.spec.isa import Op


class SoftmaxCompiler(LayerCompiler):
    """Compiles a softmax at the end of a network."""

    def problems(self, layer, config):
        return limits.softmax(config, layer.inputs)

    def emit(self, build, layer, sources, targets):
        build.program.chain(read(sources[0].place), operate(Op.V_SOFTMAX), *map(write, targets), rows=layer.inputs)
