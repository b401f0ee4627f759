"""One step of a flow as calls: its source, its operations, its writes."""

import numpy as np
from concord.spec.isa.instructions import SPECS, Op
from concord.spec.isa.memories import Mem
from concord.spec.numbers.softmax import fractions, wholes
from concord.twin.flow.flow import Refs, Step
from concord.twin.generic.items import Items
from concord.twin.generic.pending import Pending
from concord.twin.generic.products import product
from concord.twin.generic.values import codes, quantized_entries


class Steps:
    """Adds the calls of steps in their order.

    Args:
        items: What the steps make is added to it.
    """

    def __init__(self, items: Items):
        self._items, self._lines, self._config = items, items.lines, items.config
        self._entries, self._messages = Pending(items, entries=True), Pending(items, entries=False)

    def add(self, step: Step):
        """Add the calls of the next step."""
        if step.chain.loads:
            self._load(step)
            return
        value, arithmetic = self._source(step)
        for place, instruction in enumerate(step.chain.instructions):
            operation = SPECS[instruction.op].operation
            if operation:
                operands = [value, self._operand(step.reads[place])] if operation.operand else [value]
                value, arithmetic = self._lines.call(
                    operation.function, *(operands[::-1] if operation.swapped else operands)), True
            elif instruction.op == Op.V_WR:
                self._write(step, place, self._lines.call("canonical", value) if arithmetic else value)

    def _load(self, step):
        """Native tiles that the program takes from NetQ."""
        chain, n = step.chain, self._config.native_dim
        (made,) = step.makes.values()
        words = self._items.taken_words(step.reads[0])
        rows = self._lines.call("reshape", words, shape=(len(chain.tiles), n, n))
        self._items.tiles[made] = codes(self._lines, self._config.weights, rows, n, integer=bool(chain.target.integer))

    def _source(self, step) -> tuple[str, bool]:
        """Name of the words [batch, positions, M] before the operations, and whether arithmetic has made them."""
        chain, refs, lines = step.chain, step.reads[0], self._lines
        first, last = step.span
        if chain.product:
            words = lines.call("words", product(self._items, step), lanes=self._config.mfu_lanes)
            skipped = first % chain.result_words
            if (skipped, last - first) == (0, len(refs.value) * chain.result_words):
                return words, True
            index = np.arange(skipped, skipped + last - first)[:, None] * self._config.mfu_lanes
            return lines.take(index + np.arange(self._config.mfu_lanes), words), True
        pixels = refs.value.shape[1]
        take = self._numbers if chain.from_entries else self._words
        words = take(chain.source, refs)
        if pixels == 1:
            return lines.call("reshape", words, shape=(last - first, self._config.mfu_lanes)), False
        return lines.call("pool", words), True

    def _words(self, _, refs) -> str:
        """Name of words of a vector memory or queue [batch, *refs, M]."""
        return self._items.taken_words(refs)

    def _numbers(self, source, refs) -> str:
        """Name of words of VectorRf as numbers [batch, *refs, M]."""
        lines, fmt = self._lines, self._config.activations
        view = "mantissas" if source.integer else "reals"
        taken = self._items.taken_entries(refs, view, self._config.vector_words)
        if source.unsigned:
            taken = lines.call("shifted", taken, distance=fmt.zero)
        return lines.call("numbers", taken)

    def _operand(self, refs: Refs):
        """The second operand of an operation."""
        constant = self._items.constant(refs)
        return self._items.taken_words(refs) if constant is None else self._lines.store("operand", constant)

    def _normalised(self, step, words) -> str:
        """Name of the words of messages behind the softmax unit; empty where the step completes none."""
        chain, lines = step.chain, self._lines
        words, count, rows = self._messages.complete(step, words), chain.result_words, chain.registers.rows
        if not words:
            return ""
        messages = self._items.flow.values[step.makes[len(chain.instructions) - 1]].count // count
        flat = lines.call("reshape", words, shape=(messages, count * self._config.mfu_lanes))
        tables = (lines.store("exponential", np.array(table, np.int32)) for table in (fractions(), wholes()))
        found = lines.call("softmax", lines.call("part", flat, first=0, last=rows), *tables)
        return lines.call("words", found, lanes=self._config.mfu_lanes)

    def _write(self, step, place, value):
        """Run one `v_wr` of a value [batch, positions, M]."""
        chain, mem = step.chain, Mem(step.chain.instructions[place].mem)
        first, last = step.span
        mask = np.ones((last - first, self._config.mfu_lanes), np.float16)
        mask[-(first + 1) % chain.result_words::chain.result_words, chain.last_lanes:] = 0
        written = value if mask.all() else self._lines.call("kept", value, self._lines.store("mask", mask))
        if mem == Mem.NET_Q and chain.normalises:
            written = self._normalised(step, written)
        if mem != Mem.VECTOR_RF:
            self._items.words[step.makes[place]] = written
            return
        vectors, count = self._entries.complete(step, written), self._items.flow.values[step.makes[place]].count
        if count:
            mode = chain.instructions[place]
            self._items.entries[step.makes[place]] = quantized_entries(
                self._lines, self._config, vectors, count, integer=bool(mode.integer), unsigned=bool(mode.unsigned))
