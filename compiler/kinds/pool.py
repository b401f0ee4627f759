"""Maximum pooling: of codes in VectorRf where all readers take integer codes, otherwise of numbers."""

import numpy as np
from concord.compiler.emit.chains import Chain
from concord.compiler.emit.sources import FromPool
from concord.compiler.graph.nodes import Kind, Node
from concord.compiler.graph.values import Codes, Value
from concord.compiler.plan.demands import Demands, Reading
from concord.compiler.plan.planner import Planner
from concord.spec.machine.config import Config
from concord.spec.numbers.activation import Activation

#: Integers up to it are binary16 numbers.
_EXACT = 2048


class Pool(Kind):
    """Maxima of windows; each channel stays in its lane."""

    def made(self, network, layer, sources):
        return Value(name=layer.name, shape=layer.made, places=sources[0].places)

    def demand(self, demands: Demands, node):
        """Codes if all consumers take integer codes, which rise with the numbers; otherwise numbers."""
        sinks, source = demands.sinks[node.name], node.sources[0]
        monotone = all(_monotone(demands.config, node, view.codes) for view in sinks.codes)
        if sinks.net or sinks.numbers or sinks.followed or not monotone:
            demands.readings[node.name] = Reading(view=demands.numbers_of(source))
            return
        window, pools = node.layer.window, []
        for view in sinks.codes:
            lowest = 0 if view.codes.unsigned else demands.config.activations.lowest
            border = np.full(source.shape[0], lowest, np.float16).view(np.uint16) if any(window.padding) else None
            real = None if border is None else np.full(source.shape[0], -np.inf)
            codes = view.codes.with_border(border, real)
            pools.append((demands.codes_of(source, codes, window, False), view))
        demands.readings[node.name] = Reading(pools=tuple(pools))

    def plan(self, planner: Planner, node):
        reading, window = planner.demands.readings[node.name], node.layer.window
        for source, target in reading.pools:
            chain = Chain(source=FromPool(source=source, window=window, codes=target.codes))
            chain.write(target)
            planner.begin_pass(node.value)
            planner.append(node, chain)
        if not reading.pools:
            chain = Chain(source=FromPool(source=reading.view, window=window))
            chain.activate(node.activation)
            planner.begin(node, chain)


def _monotone(config: Config, node: Node, codes: Codes) -> bool:
    """Whether the codes of the largest number are the largest code, so that codes can be compared."""
    if not codes.integer or config.activations.levels > _EXACT:
        return False
    if codes.scale is not None and (codes.scale & 0x8000).any():
        return False
    return node.activation is Activation.NONE or (
        node.activation is Activation.RELU and codes.unsigned and codes.offset is None)
