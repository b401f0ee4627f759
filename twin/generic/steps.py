"""One step of a flow as calls: its source or product, its operations, its writes, and words that are taken together."""

import numpy as np
from concord.spec.isa.instructions import SPECS, Op
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config
from concord.spec.numbers.softmax import fractions, wholes
from concord.twin.flow.flow import FlowStep, Refs
from concord.twin.flow.flow_of import built, complete_entries, complete_messages
from concord.twin.generic.items import INPUT, Items
from concord.twin.generic.reductions import ReducedWords
from concord.twin.generic.values import codes, quantized_entries


class StepCalls:
    """Adds the calls of steps in their order.

    Args:
        items: What the steps make is added to it.
    """

    def __init__(self, items: Items):
        self._items, self._lines, self._config = items, items.lines, items.config
        self._entries, self._messages = Pending(items, entries=True), Pending(items, entries=False)
        self._reduced = ReducedWords(self._lines, self._config.mfu_lanes)

    def add(self, step: FlowStep):
        """Add the calls of the next step."""
        if step.chain.loads:
            self._load(step)
            return
        value, arithmetic = self._source(step)
        for index, instruction in enumerate(step.chain.instructions):
            operation = SPECS[instruction.op].operation
            if operation and operation.reduces:
                value, arithmetic = self._reduced.call(step, index, operation, value), True
            elif operation:
                operands = [value, self._operand(step.reads[index], instruction.held)] if operation.operand else [value]
                value, arithmetic = self._lines.call(
                    operation.function, *(operands[::-1] if operation.swapped else operands)), True
            elif instruction.op == Op.V_WR:
                self._write(step, index, self._lines.call("canonical", value) if arithmetic else value)

    def _load(self, step):
        """Native tiles that the program takes from NetQ, or makes of vectors."""
        chain, n = step.chain, self._config.native_dim
        (made,) = step.makes.values()
        words = self._items.taken_words(step.reads[0])
        if chain.builds:
            index, zero = built(self._config, chain), self._lines.store("zero", np.zeros(1, np.float16))
            index = np.where(index < 0, step.reads[0].item.size * self._config.mfu_lanes, index)
            rows = self._lines.take(index, words, self._lines.call("start", INPUT, zero))
        else:
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

    def _operand(self, refs: Refs, held: int):
        """The second operand of an operation; of a held one, the first element for all."""
        constant, lanes = self._items.constant(refs), self._config.mfu_lanes
        if constant is not None:
            constant = np.broadcast_to(constant[..., :1], constant.shape) if held else constant
            return self._lines.store("operand", np.ascontiguousarray(constant))
        words = self._items.taken_words(refs)
        if not held:
            return words
        return self._lines.take(np.arange(len(refs.value))[:, None] * lanes + np.zeros(lanes, np.int64), words)

    def _normalised(self, step, words) -> str:
        """Name of the words of messages after the softmax unit; empty where the step completes none."""
        chain, lines = step.chain, self._lines
        words, count, rows = self._messages.complete(step, words), chain.result_words, chain.registers.rows
        if not words:
            return ""
        messages = self._items.flow.values[step.makes[len(chain.instructions) - 1]].count // count
        flat = lines.call("reshape", words, shape=(messages, count * self._config.mfu_lanes))
        tables = (lines.store("exponential", np.array(table, np.int32)) for table in (fractions(), wholes()))
        found = lines.call("softmax", lines.call("part", flat, first=0, last=rows), *tables)
        return lines.call("words", found, lanes=self._config.mfu_lanes)

    def _write(self, step, index, value):
        """Run one `v_wr` of a value [batch, positions, M]."""
        chain, mem = step.chain, Mem(step.chain.instructions[index].mem)
        first, last = step.span
        mask = np.ones((last - first, self._config.mfu_lanes), np.float16)
        mask[-(first + 1) % chain.result_words::chain.result_words, chain.last_lanes:] = 0
        written = value if mask.all() else self._lines.call("kept", value, self._lines.store("mask", mask))
        if mem == Mem.NET_Q and chain.normalises:
            written = self._normalised(step, written)
        if mem != Mem.VECTOR_RF:
            self._items.words[step.makes[index]] = written
            return
        vectors, count = self._entries.complete(step, written), self._items.flow.values[step.makes[index]].count
        if count:
            mode = chain.instructions[index]
            self._items.entries[step.makes[index]] = quantized_entries(
                self._lines, self._config, vectors, count, integer=bool(mode.integer), unsigned=bool(mode.unsigned))


class Pending:
    """Words that steps of a chain have written, until all words that are taken together are there.

    Args:
        items:   The lines to which calls are added, and the machine.
        entries: Whether words are taken as entries, which zeros fill up at the end of an iteration; otherwise as
            messages, the words of an iteration.
    """

    def __init__(self, items: Items, *, entries: bool):
        self._items, self._entries = items, entries
        self._parts: list[tuple[int, int, str]] = []  # first and last position, and name, of earlier words
        self._zero = items.lines.store("zero", np.zeros(1, np.float16))

    def complete(self, step: FlowStep, words: str) -> str:
        """Add the words [batch, positions, M] of a step.

        Returns:
            Name of the words that are complete, [batch, words, M], or of native vectors [batch, entries, N]; empty
            where nothing is complete.
        """
        chain, config, (first, last) = step.chain, self._items.config, step.span
        size = config.vector_words if self._entries else chain.result_words
        begin, end = (complete_entries(config, chain, position) if self._entries else
                      complete_messages(chain, position) for position in (first, last))
        parts = [*self._parts, (first, last, words)]
        self._parts = []
        if last % chain.result_words % size:  # the last words belong to what is not complete
            self._parts = parts[-1:] if end > begin else parts
        if end == begin:
            return ""
        index, count = (self._vectors if self._entries else self._words)(chain, parts, begin, end)
        if len(parts) == 1 and count == index.size and np.array_equal(index.ravel(), np.arange(count)):
            return self._items.lines.call("reshape", words, shape=index.shape)
        zero = self._items.lines.call("start", words, self._zero)
        return self._items.lines.take(index, *(name for *_, name in parts), zero)

    def _vectors(self, chain, parts, begin, end) -> tuple[np.ndarray, int]:
        """Element, among those of `parts`, of each element of entries `begin` to `end`; and their number, which stands
        for a zero."""
        size, words = self._items.config.vector_words, chain.result_words
        iteration, entry = np.divmod(np.arange(begin, end), chain.entries)
        word = entry[:, None] * size + np.arange(size)
        index, count = self._elements(parts, iteration[:, None] * words + word)
        return np.where((word < words)[..., None], index, count).reshape(end - begin, -1), count

    def _words(self, _, parts, begin, end) -> tuple[np.ndarray, int]:
        """The same of words `begin` to `end`."""
        return self._elements(parts, np.arange(begin, end))

    def _elements(self, parts, positions):
        """The elements of the words at `positions`; `parts` gives the ranges of words that are there."""
        lanes, first = self._items.config.mfu_lanes, parts[0][0]
        return (positions - first)[..., None] * lanes + np.arange(lanes), (parts[-1][1] - first) * lanes


def product(items: Items, step: FlowStep) -> str:
    """Name of the results [batch, iterations, rows] of the product of a step."""
    chain, lines, n = step.chain, items.lines, items.config.native_dim
    operand = _operand(items, step)
    if step.reads[0].value.ndim == 2 or not chain.from_entries:
        return _multiplied(items, step, operand, 0, chain.row_tiles)
    size = chain.registers.columns * n  # elements of the operand of a row tile
    parts = [_multiplied(items, step, lines.call("part", operand, first=tile * size, last=(tile + 1) * size), tile,
                         tile + 1) for tile in range(chain.row_tiles)]
    return parts[0] if len(parts) == 1 else lines.call("join", *parts)


def cannot_wrap(config: Config, weights: np.ndarray, start: np.ndarray, *, integer: bool) -> bool:
    """Whether every sum of a product fits the accumulator and is exact in float64, whatever its operand is.

    Args:
        config:  The machine.
        weights: Values [rows, elements]; in block floating point with their exponents.
        start:   Start values [rows]; zeros if there are none.
        integer: Whether the product is in integer mode.
    """
    largest = -config.activations.lowest if integer else 2.0 ** config.activations.e_max
    most = float((np.abs(weights).sum(1) * largest + np.abs(start.astype(np.float64))).max())
    return most * 2.0 ** (0 if integer else config.acc_frac) < 2.0 ** min(config.sum_bits - 1, 53)


def _operand(items, step) -> str:
    """Name of the codes [batch, iterations, elements], those of all row tiles side by side."""
    chain, config, refs = step.chain, items.config, step.reads[0]
    mode, iterations = chain.product, len(refs.value)
    if chain.from_entries:
        entries = items.taken_entries(refs, "mantissas" if mode.integer else "reals")
        return items.lines.call("reshape", entries, shape=(iterations, refs.value[0].size * config.native_dim))
    words, size = items.taken_words(refs), refs.value[0].size * config.mfu_lanes
    vectors = items.lines.call("reshape", words, shape=(iterations, size // config.native_dim, config.native_dim))
    found = codes(items.lines, config.activations, vectors, config.native_dim, integer=bool(mode.integer),
                  unsigned=bool(mode.unsigned))
    return items.lines.call("reshape", found, shape=(iterations, size))


def _multiplied(items, step, operand, begin, end) -> str:
    """Name of the results [batch, iterations, rows] of row tiles `begin` to `end` of a product."""
    chain, config, lines = step.chain, items.config, items.lines
    mode, integer = chain.product, bool(chain.product.integer)
    first, last = begin * config.native_dim, min(end * config.native_dim, chain.registers.rows)
    start = np.zeros(last - first, np.int32)
    if mode.bias:
        start = items.images.biases()[mode.b:mode.b + chain.result_words].ravel()[first:last]
    arguments = (lines.store("start", start),) if mode.bias else ()
    scale = chain.registers.out_scale if integer else config.acc_frac
    weights = _weights(items, step, begin, end, last - first)
    if isinstance(weights, np.ndarray):
        stored = lines.store("weights", weights, bits=config.weights.bits)
        if cannot_wrap(config, weights, start, integer=integer):
            return lines.call("dense", operand, stored, *arguments, **({"scale": scale} if integer else {}))
        weights = stored
    units = (0, 0) if integer else tuple(fmt.e_min - fmt.bits + 1 for fmt in (config.activations, config.weights))
    return lines.call("accumulated", operand, weights, *arguments, scale=scale, bits=config.sum_bits, units=units,
                      shift=0 if integer else config.alignment)


def _weights(items, step, begin, end, rows) -> np.ndarray | str:
    """Weights [rows, elements], or the name of [batch, rows, elements] where the program loads them."""
    refs = Refs(value=step.tiles.value[begin:end], item=step.tiles.item[begin:end])
    tiles, n = items.taken_tiles(refs, integer=bool(step.chain.product.integer)), items.config.native_dim
    elements = refs.item.shape[1] * n
    if isinstance(tiles, np.ndarray):
        return tiles.transpose(0, 2, 1, 3).reshape(-1, elements)[:rows]
    order = np.arange(refs.item.size * n * n).reshape(*refs.item.shape, n, n).transpose(0, 2, 1, 3)
    return items.lines.take(order.reshape(-1, elements)[:rows], tiles)
