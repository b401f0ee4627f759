"""Layers that multiply: dense layers, convolutions and averages, in integers and in block floating point.

A chain computes the product, applies the constants of the layer's arithmetic, and its activation function.
"""

from concord.compiler.emit.chains import Chain
from concord.compiler.emit.products import bound_of, source_of
from concord.compiler.emit.storage import NumbersView
from concord.compiler.graph import kernels
from concord.compiler.graph.nodes import Kind, Node
from concord.compiler.graph.values import Codes, Value
from concord.compiler.lib import limits, tiling
from concord.compiler.plan.demands import Demands, Reading
from concord.compiler.plan.planner import Planner
from concord.golden.lib import float16
from concord.net.layers.add import Add
from concord.net.layers.convolution import BlockConv
from concord.net.layers.dense import Dense
from concord.spec.isa.operations import Operation, next_mfu, position
from concord.spec.numbers.activation import Activation


class Product(Kind):
    """Products in block floating point, to which the bias is added."""

    def operations(self, network, node: Node) -> dict[str, Operation]:
        """What is applied to a product before its activation function, by the attribute that holds the constants."""
        return {"bias": Operation.VV_ADD}

    def operands(self, layer, config):
        """Each reason why the weights, or the codes of the input, do not fit a machine."""
        return limits.block_operands(layer, config)

    def limits(self, layer, config, *, images):
        found = self.operands(layer, config)
        if not images:
            found += [] if isinstance(layer, Dense) else limits.adjacent_blocks(layer)
            return found + limits.columns(config, config.vectors_of(layer.inputs)) + limits.product_rows(
                config, layer.outputs)
        if config.accumulator_rows < config.native_dim:
            vector = f"a native vector of {config.native_dim}"
            found.insert(0, limits.accumulator_rows(config, config.native_dim, vector))
        return found

    def made(self, network, layer, sources):
        if kernels.alone(layer, sources[0]):
            return Value(name=layer.name, shape=layer.made, places=sources[0].places)
        return network.new(layer)

    def objections(self, network, layer, source):
        if source.in_words:
            return []
        return kernels.problems(layer, source, network.config.native_dim, network.patched(source))

    def computed(self, network, node):
        last = -1
        for operation in self.operations(network, node).values():
            last = position(operation.stage, next_mfu(operation.stage, last))
        return last

    def minus_zero(self, network, node):
        return not isinstance(node.layer, BlockConv) or bool((node.layer.bias == float16.SIGN).any())

    def demand(self, demands: Demands, node):
        kernel, source = demands.network.kernel(node), node.sources[0]
        if source.in_words:
            reading = Reading(kernel=kernel, view=_words(demands, node, kernel.codes))
        else:
            code_map = demands.codes_of(source, kernel.codes, kernel.window, kernel.apart)
            reading = Reading(kernel=kernel, map=code_map)
        demands.readings[node.name] = reading

    def plan(self, planner: Planner, node):
        reading, build = planner.demands.readings[node.name], planner.build
        source = source_of(build, node, reading.kernel, reading.map or reading.view)
        chain, real = Chain(source=source), build.content(node.layer)
        for what, operation in self.operations(planner.demands.network, node).items():
            planner.operate(chain, operation, node, getattr(node.layer, what), what, getattr(real, what))
        chain.activate(node.activation)
        planner.begin(node, chain, tuple(source.parts))
        build.bounds.append(bound_of(build.config, node, reading.kernel))


class IntegerProduct(Product):
    """Products of integers, which are multiplied by S; then T is added, unless it is zero and no one sees its sign."""

    def operations(self, network, node):
        scale = {"scale": Operation.VV_MUL}
        return scale if _adds_nothing(network, node) else scale | {"offset": Operation.VV_ADD}

    def operands(self, layer, config):
        return limits.integer_operands(layer, config, [layer.weights]) + limits.start_values(layer.start, config)

    def minus_zero(self, network, node):
        return bool((node.layer.offset == float16.SIGN).any())


class BlockAverageProduct(Product):
    """Averages in block floating point: sums of pixels, which are multiplied by S."""

    def operations(self, network, node):
        return {"scale": Operation.VV_MUL}

    def minus_zero(self, network, node):
        return True


def _adds_nothing(network, node: Node) -> bool:
    """Whether the offset T of an integer layer can be skipped: it is zero, and no reader sees its sign."""
    if node.layer.offset.any():
        return False
    if node.activation is Activation.RELU:
        return True
    adds = network.consumers(node.value)
    if len(adds) != 1 or not isinstance(adds[0][0].layer, Add):
        return False
    makers = [network.maker(source) for source in adds[0][0].sources if source is not node.value]
    return adds[0][0].activation is Activation.RELU or not any(
        maker.kind.minus_zero(network, maker) for maker in makers)


def _words(demands: Demands, node: Node, codes: Codes) -> NumbersView | None:
    """The words that a product reads: the tensor's own numbers, or scaled ones; None for those in NetQ."""
    source, scaled = node.sources[0], codes.scale is not None or codes.offset is not None
    if not scaled:
        once = len(tiling.parts(demands.config, node.value.lanes)) == 1
        return None if once and demands.from_net(source) else demands.numbers_of(source)
    sinks = demands.sinks[source.name]
    found = next((view for view in sinks.codes
                  if view.numbers.value is source and view.codes.scales_as(codes)), None)
    if found is None:
        found = NumbersView(numbers=demands.new_numbers(source, source.read), codes=codes)
        sinks.codes.append(found)
    return found
