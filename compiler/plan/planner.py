"""Plans the passes of a network: which chains compute each layer, and what each chain writes on its way."""

import numpy as np
from concord.compiler.emit.buffers import Buffer, place
from concord.compiler.emit.chains import Chain, Sending, Step
from concord.compiler.emit.passes import Pass, Planned
from concord.compiler.emit.products import bound_of, source_of, words_source_of
from concord.compiler.emit.sources import FromNet, FromNumbers, FromPlace, FromPool
from concord.compiler.emit.storage import ANY, CodesView, Numbers, NumbersView
from concord.compiler.emit.time_loops import HostLoop, TimeLoop
from concord.compiler.graph.network import Node
from concord.compiler.graph.stages import next_mfu, position
from concord.compiler.graph.values import Value
from concord.compiler.graph.wiring import Loop
from concord.compiler.lib.allocation import NET, Place
from concord.compiler.lib.build import Build
from concord.compiler.lib.tiling import Part
from concord.compiler.plan.demands import Demands, Reading
from concord.compiler.plan.streams import set_lifetimes
from concord.net.layers.add import Add
from concord.net.layers.average import BlockAverage
from concord.net.layers.concat import Concat
from concord.net.layers.pool import MaxPool
from concord.net.layers.recurrent import Recurrent
from concord.net.layers.sequences import SequenceToImage
from concord.spec.isa.instructions import Op
from concord.spec.isa.memories import OPERAND_MEMORIES, Mem, depth
from concord.spec.isa.operations import Operation, Stage

#: Largest relative distance of numbers that count as equal: what rounding to float64 leaves.
_SAME = 1e-13


class Planner:
    """Plans the passes of a network.

    Args:
        build:   Collects constants, tiles and bounds.
        demands: Demands of all layers.
        whole:   Whether a message of the result holds many pixels, see `Neighbours`.

    Attributes:
        passes: The passes, in order.
        sent:   Names of the tensors that leave the machine, in order.
    """

    def __init__(self, build: Build, demands: Demands, *, whole: bool = False):
        self._build, self._demands, self._whole = build, demands, whole
        self._config = build.config
        self._constants: dict[tuple[Mem, bytes], tuple[Place, np.ndarray]] = {}
        self._choose_memories()
        self.passes: list[Pass] = []
        self._sending: list[tuple[int, str]] = []  # number of passes so far, and tensor
        for node in demands.network.nodes:
            self._plan(node)
        set_lifetimes(self.passes, ())
        self.sent = self._in_order()

    def _in_order(self) -> tuple[str, ...]:
        """Names of the tensors that leave the machine.

        Raises:
            ValueError: two of them leave strip by strip in turn.
        """
        times, names = zip(*self._sending, strict=True)
        for name, other in ((names[k], names[k + 1]) for k in range(len(names) - 1) if times[k] == times[k + 1]):
            raise ValueError(f"the results of {name!r} and {other!r} are computed together, and one of them must be "
                             "sent whole before the other: cut elsewhere")
        return names

    def _choose_memories(self):
        """Choose memories for numbers that may lie in any one, the largest first."""
        network, placed = self._demands.network, {mem: [] for mem in ANY}
        if network.read is not Mem.VECTOR_RF:
            return
        order = {node.name: time for time, node in enumerate(network.nodes)}
        for node in network.nodes:
            if loop := network.loop(node):
                order[node.name] = order[loop.layers[0].name]
        first = {}
        for node in network.nodes:
            parts = node.sources if isinstance(node.layer, Concat) else ()
            first[node.name] = min([order[node.name], *(first[part.name] for part in parts)])
        for numbers in sorted(self._demands.numbers, key=lambda one: (one.buffer.mem is None, -one.buffer.size)):
            name, buffer = numbers.value.name, numbers.buffer
            taken = {view.buffer.mem for view in self._demands.sinks[name].numbers}
            last = max((order[node.name] for node, _ in network.consumers(numbers.value)), default=order[name])
            trials = {}
            for mem in [buffer.mem] if buffer.mem else [mem for mem in ANY if mem not in taken]:
                trial = Buffer(mem=mem, name=buffer.name, size=buffer.size, first=first[name], last=last)
                place([trial], 0, others := list(placed[mem]))
                trials[mem] = max(0, trial.end - depth(self._config, mem) * 7 // 8), others
            buffer.mem = min(trials, key=lambda mem: trials[mem][0])
            placed[buffer.mem] = trials[buffer.mem][1]

    def _keep(self, view: NumbersView) -> Place:
        """The words of a vector, whole native vectors that nothing else uses, so that their padding stays zero."""
        buffer, lanes = view.buffer, view.numbers.value.lanes
        if not buffer.kept:
            place = self._build.allocator.vector(buffer.mem or Mem.INITIAL_VRF, lanes, buffer.name)
            buffer.mem, buffer.address, buffer.size, buffer.kept = place.mem, place.address, place.words, True
        return Place(mem=buffer.mem, address=buffer.address, words=buffer.size)

    def _plan(self, node: Node):
        """Plan the pass of a layer, if it has one of its own."""
        network, reading = self._demands.network, self._demands.readings.get(node.name)
        if self._demands.unused(node):
            return
        if node.value.in_words and not isinstance(node.layer, Recurrent):
            for view in (*self._demands.sinks[node.name].numbers, *self._demands.sinks[node.name].codes):
                self._keep(view)
        match node.layer:
            case None if network.steps:
                return  # The loop over time steps takes it.
            case None:
                self._begin(node.value, Chain(source=FromNet()), node)
            case Add():
                if isinstance(self._demands.network.maker(reading.anchor).layer, Concat):
                    self._begin_pass(node.value)
                    self._add(node, self._numbers_view(reading.anchor))
            case Concat():
                if reading:
                    self._begin_pass(node.value)
                    self._sending.append((len(self.passes), node.name))
                    self._send(node, Chain(source=FromNumbers(view=reading.view)))
            case MaxPool() if reading.pools:
                for source, target in reading.pools:
                    chain = Chain(source=FromPool(source=source, window=node.layer.window, codes=target.codes))
                    chain.write(target)
                    self._begin_pass(node.value)
                    self._append(node, chain)
            case MaxPool():
                chain = Chain(source=FromPool(source=reading.view, window=node.layer.window))
                chain.activate(node.activation)
                self._begin(node.value, chain, node)
            case Recurrent() if node.value.in_words:
                if network.begins_loop(node):
                    self._plan_steps(network.loop(node))
            case Recurrent() | SequenceToImage():
                if network.begins_loop(node):
                    self._plan_loop(node, reading.view)
            case _:
                self._plan_product(node, reading)

    def _plan_loop(self, first: Node, view: NumbersView | None):
        """Plan a loop over time steps, what follows it in each step, and what follows the last step."""
        network = self._demands.network
        loop = network.loop(first)
        made = TimeLoop.begin(self._build, len(self.passes), first.value, loop, first.sources[0], view)
        self.passes.append(made)
        images = [network.node(layer.name) for layer in loop.images]
        for node in images:
            whole = self._demands.readings.get(node.name)
            chain = Chain(source=FromPlace(place=made.hidden[node.sources[0].name]))
            if whole:
                chain.write(whole.view)
                self._append(node, chain)
            else:
                self._complete(node, chain)
        for node in images:
            if whole := self._demands.readings.get(node.name):
                self._begin(node.value, Chain(source=FromNumbers(view=whole.view)), node)
        for node in [network.node(layer.name) for layer in loop.layers]:
            sinks = self._demands.sinks[node.name]
            if sinks.codes or sinks.numbers or sinks.net or self._demands.anchored(node.value):
                self._begin(node.value, Chain(source=FromPlace(place=made.hidden[node.name])), node)

    def _plan_steps(self, loop: Loop):
        """Plan a loop over the time steps that the host sends, and what follows the last step."""
        demands, network = self._demands, self._demands.network
        nodes = [network.node(layer.name) for layer in loop.layers]
        entering = {node.name: next(map(self._keep, demands.sinks[node.name].numbers), NET)
                    for node in network.entering}
        rows = loop.layers[0].inputs
        rows = self._config.vectors_of(rows) * self._config.native_dim if demands.whole_vectors else rows
        made = HostLoop.begin(
            self._build, len(self.passes), nodes[0].value, loop, entering, rows=rows, every=network.every)
        self.passes.append(made)
        if network.every:
            self._sending.append((len(self.passes), nodes[-1].name))
        for node in nodes:
            self._follow_hidden(node, made.hidden[node.name])

    def _follow_hidden(self, node: Node, hidden: Place):
        """Plan what follows the last time step of a recurrent layer: readers take its hidden vector where it lies."""
        sinks = self._demands.sinks[node.name]
        here = Buffer(mem=hidden.mem, name=f"{node.name}, hidden", size=hidden.words, address=hidden.address, kept=True)
        view = NumbersView(numbers=Numbers(value=node.value, buffer=here, words=hidden.words))
        for one in list(sinks.numbers):
            if one.numbers.value is node.value and one.buffer.mem in (None, hidden.mem):
                one.numbers.buffer = here
                sinks.numbers.remove(one)
        for one in (*sinks.numbers, *sinks.codes):
            self._keep(one)
        if sinks.codes or sinks.numbers or sinks.net or self._demands.anchored(node.value):
            self._begin(node.value, Chain(source=FromNumbers(view=view)), node)

    def _plan_product(self, node: Node, reading: Reading):
        layer, kernel = node.layer, reading.kernel
        if node.value.in_words:
            source = words_source_of(self._build, node, kernel, reading.view)
        else:
            source = source_of(self._build, node, kernel, reading.map)
        chain, real = Chain(source=source), self._build.content(layer)
        if kernel.codes.integer:
            self._operate(chain, Operation.VV_MUL, node, layer.scale, "scale", real.scale)
            if not self._demands.stages.adds_nothing(node):
                self._operate(chain, Operation.VV_ADD, node, layer.offset, "offset", real.offset)
        elif isinstance(layer, BlockAverage):
            self._operate(chain, Operation.VV_MUL, node, layer.scale, "scale", real.scale)
        else:
            self._operate(chain, Operation.VV_ADD, node, layer.bias, "bias", real.bias)
        chain.activate(node.activation)
        self._begin(node.value, chain, node, tuple(source.parts))
        self._build.bounds.append(bound_of(self._config, node, kernel))

    def _operate(self, chain: Chain, operation: Operation, node: Node, values: np.ndarray, what: str,
                 content: np.ndarray | None = None):
        """Add an operation with constants; `content` fills the memory in their place, if it is not None."""
        mfu = chain.stage(operation.stage)
        mem = OPERAND_MEMORIES[operation.stage][mfu]
        values, content = (node.value.spread(one) for one in (values, values if content is None else content))
        chain.apply(operation, mfu, self._constant(mem, values, content, f"{node.name}, {what}"))

    def _constant(self, mem: Mem, values: np.ndarray, content: np.ndarray, name: str) -> Place:
        """The place of constants; equal ones share it.

        Raises:
            ValueError: two constants share a place, and are equal only because they are rounded.
        """
        key, content = (mem, values.tobytes()), self._build.allocator.numbers(content)
        if key not in self._constants:
            self._constants[key] = self._build.allocator.constant(mem, content, name), content
        place, found = self._constants[key]
        if not np.allclose(found, content, rtol=_SAME, atol=0):
            raise ValueError(f"{name}: these numbers share a place with others that are equal to them only in "
                             "binary16, so the program has no place for both in full precision")
        return place

    def _begin_pass(self, value: Value):
        self.passes.append(Pass(time=len(self.passes), value=value))

    def _begin(self, value: Value, chain: Chain, node: Node, parts: tuple[Part, ...] | None = None):
        """Begin a pass with the chain that computes a tensor."""
        self._begin_pass(value)
        self._complete(node, chain, parts)

    def _append(self, node: Node, chain: Chain, parts: tuple[Part, ...] | None = None):
        whole = (Part(row=0, rows=node.value.lanes),)
        self.passes[-1].chains.append(Planned(layer=node.name, chain=chain, parts=parts or whole))

    def _complete(self, node: Node, chain: Chain, parts: tuple[Part, ...] | None = None):
        """Add all that follows a tensor: its ways out, and sums."""
        sinks, adds = self._demands.sinks[node.name], self._demands.anchored(node.value)
        apart = sinks.net and (_in_pieces(chain, node.value, parts) or self._together(node.value)
                               or self._demands.network.softmax is not None)
        if sinks.net:
            self._sending.append((len(self.passes), node.name))
        if sinks.net and not apart:
            chain.write(None)
        numbers = _write_numbers(chain, sinks.numbers)
        fused = self._demands.readings[adds[0].name].fused if adds else None
        if fused is not None:
            add = adds[0]
            chain.apply(Operation.VV_ADD, fused, self._demands.readings[add.name].view)
            chain.activate(add.activation)
            self._complete_sum(node, add, chain, parts)
            return
        waiting = list(sinks.codes)
        inside = next((view for view in waiting if view.codes.scale is None), None) or next(
            (view for view in waiting if self._fits(chain, view)), None)
        if inside:
            waiting.remove(inside)
        kept = self._kept(node, chain, sinks, numbers, inside, bool(waiting or adds or apart))
        if inside and chain.may_write(inside.buffer.mem):
            self._encode(node, chain, inside)
        elif inside:
            waiting.append(inside)
        if chain.steps or not isinstance(chain.source, FromNumbers):
            self._append(node, chain, parts)
        for target in [view for view in sinks.numbers if view not in numbers]:
            copy = Chain(source=FromNumbers(view=kept))
            copy.write(target)
            self._append(node, copy)
        if apart:
            self._send(node, Chain(source=FromNumbers(view=kept)))
        for view in waiting:
            again = Chain(source=FromNumbers(view=kept))
            self._encode(node, again, view)
            self._append(node, again)
        for add in adds:
            self._add(add, kept)

    def _send(self, node: Node, chain: Chain):
        """Let a chain send the result to the host, through the softmax unit if the network ends with a softmax."""
        softmax = self._demands.network.softmax
        if self._together(node.value) and chain.source.view.stride == self._config.words_of(node.value.lanes):
            chain = Sending(source=chain.source)
        if softmax is not None:
            chain.steps.append(Step(op=Op.V_SOFTMAX))
        chain.write(None)
        whole = (Part(row=0, rows=node.value.lanes),)
        name = node.name if softmax is None else softmax.name
        self.passes[-1].chains.append(Planned(layer=name, chain=chain, parts=whole))

    def _together(self, value: Value) -> bool:
        """Whether pixels of a result go to the machine behind in one message, rather than each in one of its own."""
        return self._whole and value.pixels > 1 and not isinstance(self.passes[-1], TimeLoop)

    def _complete_sum(self, node: Node, add: Node, chain: Chain, parts):
        """Go on with a sum in the chain of its anchor."""
        self._complete(add, chain, parts or (Part(row=0, rows=node.value.lanes),))

    def _add(self, add: Node, view: NumbersView):
        """Plan a sum as a chain of its own, whose source is its anchor."""
        chain = Chain(source=FromNumbers(view=view))
        chain.apply(Operation.VV_ADD, 0, self._demands.readings[add.name].view)
        chain.activate(add.activation)
        self._complete(add, chain)

    def _kept(self, node: Node, chain: Chain, sinks, numbers: list[NumbersView],
              inside: CodesView | NumbersView | None, needed: bool) -> NumbersView | None:
        """Numbers that later chains of a pass can read: some that are written anyway, or those of a strip.

        Args:
            inside: What the chain writes behind them.
        """
        needed |= len(numbers) < len(sinks.numbers)
        if needed and isinstance(chain.source, FromNumbers) and chain.position < 0:
            return chain.source.view
        if not needed or numbers:
            return numbers[0] if numbers else None
        avoid = frozenset(mem for mem in ANY if not chain.may_write(mem) or inside and inside.buffer.mem is mem)
        strip = Numbers(value=node.value, buffer=Buffer(mem=None, name=f"{node.name or 'network input'}, strip"),
                        words=self._config.words_of(node.value.lanes), strip=True, avoid=avoid)
        self.passes[-1].strips.append(strip)
        view = NumbersView(numbers=strip)
        chain.write(view)
        return view

    def _fits(self, chain: Chain, view: CodesView | NumbersView) -> bool:
        """Whether the stages that a chain has left can scale numbers as a map needs them."""
        mul = chain.stage(Stage.MUL)
        if view.codes.scale is None:
            return True
        return mul is not None and (
            view.codes.offset is None or next_mfu(Stage.ADD, position(Stage.MUL, mul)) is not None)

    def _encode(self, node: Node, chain: Chain, view: CodesView | NumbersView):
        """Scale numbers as a map needs them, and write their codes."""
        for operation, values, what in (
            (Operation.VV_MUL, view.codes.scale, "scale"), (Operation.VV_ADD, view.codes.offset, "offset")):
            if values is not None:
                self._operate(chain, operation, node, values, f"{view.buffer.name}, {what}")
        chain.write(view)

    def _numbers_view(self, value: Value) -> NumbersView:
        """The numbers of a whole tensor."""
        return next(view for view in self._demands.sinks[value.name].numbers if view.numbers.value is value)


def _in_pieces(chain: Chain, value: Value, parts: tuple[Part, ...] | None) -> bool:
    """Whether a chain computes an image in another order than pixel by pixel, which the host expects."""
    pooled = isinstance(chain.source, FromPool) and any(chain.source.window.padding)
    return value.pixels > 1 and (pooled or (parts is not None and len(parts) > 1))


def _write_numbers(chain: Chain, views: list[NumbersView]) -> list[NumbersView]:
    """Write numbers to the memories that one chain can write; returns those that it writes."""
    written = []
    for view in views:
        if (view.numbers.value.in_words or chain.takes(view)) and chain.may_write(view.buffer.mem):
            chain.write(view)
            written.append(view)
    return written
