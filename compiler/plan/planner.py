"""Plans the passes of a network: which chains compute each layer, and what each chain writes on its way."""

import numpy as np
from concord.compiler.emit.chains import ChainStep, OpenChain, Sending
from concord.compiler.emit.passes import LayerPass, PlannedChain
from concord.compiler.emit.sources import FromNumbers, FromPool
from concord.compiler.emit.storage import ANY, Buffer, CodesView, NumbersView, TensorNumbers
from concord.compiler.emit.time_loops import TimeLoop
from concord.compiler.graph.nodes import PlannedNode, Value
from concord.compiler.lib.build import ModelBuild
from concord.compiler.lib.program import Slot
from concord.compiler.lib.tiling import RowPart
from concord.compiler.plan.addresses import choose_memories
from concord.compiler.plan.demands import Demands
from concord.compiler.plan.streams import set_lifetimes
from concord.net.layers.recurrent import Recurrent
from concord.spec.isa.instructions import Op
from concord.spec.isa.memories import OPERAND_MEMORIES, Mem
from concord.spec.isa.operations import Operation, Stage, next_mfu, position

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

    def __init__(self, build: ModelBuild, demands: Demands, *, whole: bool = False):
        self.build, self.demands, self._whole = build, demands, whole
        self._constants: dict[tuple[Mem, bytes], tuple[Slot, np.ndarray]] = {}
        choose_memories(build.config, demands)
        self.passes: list[LayerPass] = []
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

    def keep(self, view: NumbersView) -> Slot:
        """The words of a vector, whole native vectors that nothing else uses, so that their padding stays zero."""
        buffer, lanes = view.buffer, view.numbers.value.lanes
        if not buffer.kept:
            slot = self.build.allocator.vector(buffer.mem or Mem.INITIAL_VRF, lanes, buffer.name)
            buffer.mem, buffer.address, buffer.size, buffer.kept = slot.mem, slot.address, slot.words, True
        return Slot(mem=buffer.mem, address=buffer.address, words=buffer.size)

    def _plan(self, node: PlannedNode):
        """Plan the pass of a layer, if it has one of its own."""
        if self.demands.unused(node):
            return
        if node.value.in_words and not isinstance(node.layer, Recurrent):
            for view in (*self.demands.sinks[node.name].numbers, *self.demands.sinks[node.name].codes):
                if isinstance(view, NumbersView):  # codes of results lie in VectorRf
                    self.keep(view)
        node.kind.plan(self, node)

    def operate(self, chain: OpenChain, operation: Operation, node: PlannedNode, values: np.ndarray, what: str,
                content: np.ndarray | None = None):
        """Add an operation with constants; `content` fills the memory instead of them, if it is not None."""
        mfu = chain.stage(operation.stage)
        mem = OPERAND_MEMORIES[operation.stage][mfu]
        values, content = (node.value.spread(one) for one in (values, values if content is None else content))
        chain.apply(operation, mfu, self.constant(mem, values, content, f"{node.name}, {what}"))

    def hold(self, chain: OpenChain, operation: Operation, number: np.ndarray, content: np.ndarray, name: str):
        """Add an operation with one constant for all elements; `content` fills the memory instead of it."""
        mfu, lanes = chain.stage(operation.stage), self.build.config.mfu_lanes
        mem = OPERAND_MEMORIES[operation.stage][mfu]
        slot = self.constant(mem, np.repeat(number, lanes), np.repeat(content, lanes), name)
        chain.apply(operation, mfu, slot, held=True)

    def constant(self, mem: Mem, values: np.ndarray, content: np.ndarray, name: str) -> Slot:
        """The slot of constants; equal ones share it.

        Raises:
            ValueError: two constants share a slot, and are equal only because they are rounded.
        """
        key, content = (mem, values.tobytes()), self.build.allocator.numbers(content)
        if key not in self._constants:
            self._constants[key] = self.build.allocator.constant(mem, content, name), content
        slot, found = self._constants[key]
        if not np.allclose(found, content, rtol=_SAME, atol=0):
            raise ValueError(f"{name}: these numbers share words with others that are equal to them only in "
                             "binary16, so the program cannot hold both in full precision")
        return slot

    def begin_pass(self, value: Value):
        """Begin a pass over the pixels of a tensor."""
        self.passes.append(LayerPass(time=len(self.passes), value=value))

    def begin(self, node: PlannedNode, chain: OpenChain, parts: tuple[RowPart, ...] | None = None):
        """Begin a pass with the chain that computes a tensor."""
        self.bring(chain)
        self.begin_pass(node.value)
        self.complete(node, chain, parts)

    def bring(self, chain: OpenChain):
        """Make a pass that brings codes to VectorRf if a chain reads those of a tensor in Dram."""
        one = getattr(chain.source, "map", None)
        if one in self.demands.brought:
            maker = self.demands.network.maker(one.value)
            self.begin_pass(one.value)
            again = OpenChain(source=FromNumbers(view=self.demands.brought[one]))
            self._encode(maker, again, CodesView(codes=one.codes, map=one))
            self.append(maker, again)

    def _operand(self, node: PlannedNode) -> NumbersView:
        """The operand of a sum or product; of numbers in Dram, a strip, which the present pass brings."""
        reading = self.demands.readings[node.name]
        if reading.far is None:
            return reading.view
        memories, chain = OPERAND_MEMORIES[node.layer.operation.stage], OpenChain(source=FromNumbers(view=reading.far))
        strip = self.strip_in(memories[reading.fused or 0], reading.far.numbers.value)
        chain.write(strip)
        self.append(node, chain)
        return strip

    def append(self, node: PlannedNode, chain: OpenChain, parts: tuple[RowPart, ...] | None = None,
               layer: str | None = None):
        """Add a chain to the present pass.

        Args:
            parts: Lanes that it computes one after the other; by default all of them at once.
            layer: Name of the layer that it belongs to; by default that of the node.
        """
        whole = (RowPart(row=0, rows=node.value.lanes),)
        layer = node.name if layer is None else layer
        self.passes[-1].chains.append(PlannedChain(layer=layer, chain=chain, parts=parts or whole))

    def note_sent(self, name: str):
        """Note that the present pass sends a tensor."""
        self._sending.append((len(self.passes), name))

    def complete(self, node: PlannedNode, chain: OpenChain, parts: tuple[RowPart, ...] | None = None):
        """Add all that follows a tensor: its ways out, and sums."""
        sinks, adds = self.demands.sinks[node.name], self.demands.anchored(node.value)
        apart = sinks.net and (_in_pieces(chain, node.value, parts) or self._together(node.value)
                               or self.demands.network.softmax is not None)
        if sinks.net:
            self.note_sent(node.name)
        if sinks.net and not apart:
            chain.write(None)
        numbers = _write_numbers(chain, sinks.numbers)
        fused = self.demands.readings[adds[0].name].fused if adds else None
        if fused is not None:
            add = adds[0]
            chain.apply(add.layer.operation, fused, self._operand(add))
            chain.activate(add.activation)
            self.complete(add, chain, parts or (RowPart(row=0, rows=node.value.lanes),))
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
            self.append(node, chain, parts)
        for target in [view for view in sinks.numbers if view not in numbers]:
            copy = OpenChain(source=FromNumbers(view=kept))
            copy.write(target)
            self.append(node, copy)
        if apart:
            self.send(node, OpenChain(source=FromNumbers(view=kept)))
        for view in waiting:
            again = OpenChain(source=FromNumbers(view=kept))
            self._encode(node, again, view)
            self.append(node, again)
        for add in adds:
            self.add(add, kept)

    def send(self, node: PlannedNode, chain: OpenChain):
        """Let a chain send the result to the host, through the softmax unit if the network ends with a softmax."""
        softmax = self.demands.network.softmax
        if self._together(node.value) and chain.source.view.stride == self.build.config.words_of(node.value.lanes):
            chain = Sending(source=chain.source)
        if softmax is not None:
            chain.steps.append(ChainStep(op=Op.V_SOFTMAX))
        chain.write(None)
        self.append(node, chain, layer=None if softmax is None else softmax.name)

    def _together(self, value: Value) -> bool:
        """Whether pixels of a result go to the next machine in one message, rather than each in one of its own."""
        return self._whole and value.pixels > 1 and not isinstance(self.passes[-1], TimeLoop)

    def add(self, add: PlannedNode, view: NumbersView):
        """Plan a sum or product as a chain of its own, whose source is its anchor."""
        chain = OpenChain(source=FromNumbers(view=view))
        chain.apply(add.layer.operation, 0, self._operand(add))
        chain.activate(add.activation)
        self.complete(add, chain)

    def _kept(self, node: PlannedNode, chain: OpenChain, sinks, numbers: list[NumbersView],
              inside: CodesView | NumbersView | None, needed: bool) -> NumbersView | None:
        """Numbers that later chains of a pass can read: some that are written anyway, or those of a strip.

        Args:
            inside: What the chain writes after them.
        """
        needed |= len(numbers) < len(sinks.numbers)
        if needed and isinstance(chain.source, FromNumbers) and chain.position < 0:
            return chain.source.view
        if not needed or numbers:
            return numbers[0] if numbers else None
        avoid = frozenset(mem for mem in ANY if not chain.may_write(mem) or inside and inside.buffer.mem is mem)
        view = self.strip(node.value, avoid)
        chain.write(view)
        return view

    def strip(self, value: Value, avoid: frozenset[Mem] = frozenset()) -> NumbersView:
        """Numbers of a strip of a tensor, during the present pass, in any memory but those to avoid."""
        strip = TensorNumbers(value=value, buffer=Buffer(mem=None, name=f"{value.name or 'network input'}, strip"),
                              words=self.build.config.words_of(value.lanes), strip=True, avoid=avoid)
        self.passes[-1].strips.append(strip)
        return NumbersView(numbers=strip)

    def strip_in(self, mem: Mem, value: Value) -> NumbersView:
        """Numbers of a strip of a tensor, during the present pass, in a memory."""
        return self.strip(value, frozenset(ANY) - {mem})

    def _fits(self, chain: OpenChain, view: CodesView | NumbersView) -> bool:
        """Whether the stages that a chain has left can scale numbers as a map needs them."""
        mul = chain.stage(Stage.MUL)
        if view.codes.scale is None:
            return True
        return mul is not None and (
            view.codes.offset is None or next_mfu(Stage.ADD, position(Stage.MUL, mul)) is not None)

    def _encode(self, node: PlannedNode, chain: OpenChain, view: CodesView | NumbersView):
        """Scale numbers as a map needs them, and write their codes."""
        for operation, values, what in (
            (Operation.VV_MUL, view.codes.scale, "scale"), (Operation.VV_ADD, view.codes.offset, "offset")):
            if values is not None:
                self.operate(chain, operation, node, values, f"{view.buffer.name}, {what}")
        chain.write(view)


def _in_pieces(chain: OpenChain, value: Value, parts: tuple[RowPart, ...] | None) -> bool:
    """Whether a chain computes an image in another order than pixel by pixel, which the host expects."""
    pooled = isinstance(chain.source, FromPool) and any(chain.source.window.padding)
    return value.pixels > 1 and (pooled or (parts is not None and len(parts) > 1))


def _write_numbers(chain: OpenChain, views: list[NumbersView]) -> list[NumbersView]:
    """Write numbers to the memories that one chain can write; returns those that it writes."""
    written = []
    for view in sorted(views, key=lambda view: view.buffer.mem is Mem.DRAM):  # later chains read the first one
        if (view.numbers.value.in_words or chain.takes(view)) and chain.may_write(view.buffer.mem):
            chain.write(view)
            written.append(view)
    return written
