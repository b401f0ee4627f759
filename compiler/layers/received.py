"""Tensors of the machine before: one chain takes all words of one from NetQ."""

from concord.compiler.lib import limits
from concord.compiler.lib.allocation import NET
from concord.compiler.lib.layer_compiler import LayerCompiler
from concord.compiler.lib.program import read, write


class ReceivedCompiler(LayerCompiler):
    """Stores a tensor that the machine before sends."""

    def problems(self, layer, config):
        return limits.vector_rows(layer.outputs)

    def emit(self, build, layer, sources, targets):
        build.program.chain(read(NET), *map(write, targets), rows=layer.outputs)
