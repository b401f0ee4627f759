"""Concatenations: the parts lie in adjacent words. A part that its layer did not write there directly is copied."""

from concord.compiler.lib import limits
from concord.compiler.lib.layer_compiler import LayerCompiler
from concord.compiler.lib.program import read, write
from concord.compiler.lib.reason import Reason


class ConcatCompiler(LayerCompiler):
    """Compiles the concatenation of tensors."""

    def problems(self, layer, config):
        lanes = config.mfu_lanes
        ragged = [
            Reason(sentence=f"its part of {size} elements is no whole number of words of {lanes}, so the next part "
                            f"would begin inside a word: give that part a multiple of {lanes} elements, or put it last")
            for size in layer.sizes[:-1] if size % lanes]
        return ragged + limits.vector_rows(max(layer.sizes))

    def offsets(self, layer, config):
        return [sum(layer.sizes[:part]) // config.mfu_lanes for part in range(len(layer.sizes))]

    def emit(self, build, layer, sources, targets):
        for source, word in zip(sources, self.offsets(layer, build.config), strict=True):
            missing = [target.at(word) for target in targets if not source.lies_at(target.at(word))]
            if missing:
                build.program.chain(read(source.place), *map(write, missing), rows=source.elements)
