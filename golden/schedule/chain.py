"""Executes a chain: all operations on the words of all its iterations, in program order."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from concord.golden.host.counters import Counters
from concord.golden.mvm.vector_rf import EntryWords
from concord.golden.schedule.arithmetic import MachineArithmetic
from concord.golden.schedule.dram import PackedMoves
from concord.golden.schedule.memory import MachineMemory
from concord.golden.schedule.vectorisation import WordPlan, plan
from concord.spec.host.registers import READS, WRITES, Counter, Status
from concord.spec.isa.chain import Chain
from concord.spec.isa.check import KEPT
from concord.spec.isa.instructions import SPECS, Instruction, Op
from concord.spec.isa.memories import Mem
from concord.spec.isa.operations import Operation
from concord.spec.machine.config import Config

#: A trace is called after every instruction of a chain with the chain, the address of the instruction, the position
#: (iteration * words + word) of the first word, and the words uint16[n, M]. After a write, these are the written words.
Trace = Callable[[Chain, int, int, np.ndarray], None]

_ELEMENTS = 1 << 22  #: Elements of operands, of all row tiles together, that one call multiplies: a bound of memory.


class Executor:
    """Runs checked chains on a machine's memories.

    Args:
        config:     Configuration of the machine.
        memory:     Its memories.
        counters:   Its event counters.
        arithmetic: How numbers are computed: the machine's arithmetic, unless quantisers are off.

    Attributes:
        outputs: Words of each complete output message, in order; the sender removes them.
        flags:   Sticky flags INVALID_VECTOR and INVALID_MATRIX.
        trace:   Function that is called with every value, for reports.
    """

    def __init__(self, config: Config, memory: MachineMemory, counters: Counters,
                 arithmetic: MachineArithmetic | None = None):
        self.config, self.memory, self.counters = config, memory, counters
        self.arithmetic = arithmetic or MachineArithmetic()
        self.outputs: list[np.ndarray] = []
        self.flags = Status(0)
        self.trace: Trace | None = None
        self._plans: dict[Chain, WordPlan] = {}
        self._running: dict[int, Any] = {}  # What unfinished reductions of the present chain hold, by their index.
        self._message: list[np.ndarray] = []  # Words of the unfinished output message.
        self._entry_words = EntryWords(config, memory.dtype)
        self._packed = PackedMoves(config, memory, counters)

    def reset(self):
        """Clear the flags, and words of unfinished output and unfinished entries."""
        self.flags = Status(0)
        self._message.clear()
        self._entry_words.clear()

    def run(self, chain: Chain) -> Iterator[None]:
        """Run a chain; yields while it waits for words of NetQ."""
        self.counters.add(Counter.CHAINS, 1)
        if chain.outside:
            self._packed.run(chain)
            return
        if chain.builds:
            self._build(chain)
            return
        if chain.loads:
            yield from self._load(chain)
            return
        if chain not in self._plans:
            if len(self._plans) == KEPT:
                self._plans.clear()
            self._plans[chain] = plan(self.config, chain)
        if chain.product:
            yield from self._run_product(chain, self._plans[chain])
            return
        for first, last in self._plans[chain].spans:
            while first < last:
                values = self._source(chain, first, last)
                if len(values):
                    self._operate(chain, first, values)
                else:
                    yield
                first += len(values)

    def forget(self):
        """Drop the cached plans of an older program."""
        self._plans.clear()

    def _run_product(self, chain, plan_) -> Iterator[None]:
        words, iterations, spans = chain.result_words, chain.registers.iterations, plan_.spans
        short = chain.source.mem == Mem.NET_Q and len(self.memory.net_in) < iterations * chain.source_words
        if short and len(spans) == 1:
            # Each iteration runs as soon as its own operand is there.
            spans = [(t * words, (t + 1) * words) for t in range(iterations)]
        begin, results = 0, np.zeros(0)  # the first span begins an iteration
        for first, last in spans:
            if first % words == 0:
                begin, results = first, (yield from self._multiply(chain, plan_, first // words, -(-last // words)))
            self._operate(chain, first, results[first - begin:last - begin])

    def _load(self, chain) -> Iterator[None]:
        """Load native tiles from NetQ to MatrixRf."""
        for tile in chain.tiles:
            words = yield from self._take_vectors(chain.result_words, Counter.ROWS_LOADED)
            bits = words.reshape(self.config.native_dim, -1)
            self._flag(bits, Status.INVALID_MATRIX)
            self.memory.matrix.load(tile, bits, integer=bool(chain.target.integer))

    def _build(self, chain) -> None:
        """Make native tiles of vectors: these are their rows, or their columns if the chain transposes."""
        config, registers, target = self.config, chain.registers, chain.target
        starts = [chain.source.a + chain.source_offset(t) for t in range(registers.iterations)]
        words = self._read(Mem(chain.source.mem), np.array(starts)[:, None] + np.arange(chain.result_words))
        vectors = words.reshape(registers.iterations, -1)[:, :registers.rows]
        first = chain.source.a % config.vector_words * config.mfu_lanes
        for number, tile in enumerate(chain.tiles):
            bits = np.zeros((config.native_dim,) * 2, self.memory.dtype)
            count = registers.iterations_x
            bits[:count, first:first + registers.rows] = vectors[number * count:(number + 1) * count]
            self._flag(bits, Status.INVALID_MATRIX)
            rows = bits.T if target.transposed else bits
            self.memory.matrix.load(tile, rows, integer=bool(target.integer), full=True)
            self.counters.add(Counter.ROWS_LOADED, config.native_dim)

    def _take_vectors(self, count: int, counter: Counter):
        """Take `count` words, whole native vectors, from NetQ; yields while there are none."""
        parts, taken = [], 0
        while taken < count:
            words = self._pop(Mem.NET_Q, count - taken)
            if len(words):
                parts.append(words)
            else:
                yield
            before, taken = taken, taken + len(words)
            self.counters.add(counter, taken // self.config.vector_words - before // self.config.vector_words)
        return np.concatenate(parts)

    def _pop(self, mem: Mem, most: int) -> np.ndarray:
        """Take at most `most` words from a queue."""
        queue = self.memory.net_in if mem == Mem.NET_Q else self.memory.mvm
        words = queue.take(min(most, len(queue)))
        self.counters.add(READS[mem], len(words))
        return words

    def _read(self, mem: Mem, addresses: np.ndarray) -> np.ndarray:
        self.counters.add(READS[mem], addresses.size)
        return self.memory.vectors[mem][addresses]

    def _source(self, chain, first, last) -> np.ndarray:
        """The source words of positions [first, last), as far as they are available, after the pooling unit."""
        mem = Mem(chain.source.mem)
        addresses = self._plans[chain].addresses[0]
        if addresses is None:  # a queue
            return self._pop(mem, last - first)
        addresses = addresses[first:last]
        if mem == Mem.VECTOR_RF:
            self.counters.add(READS[mem], addresses.size)
            words = self.memory.entries.numbers(addresses, **self.arithmetic.mode(chain, 0))
        else:
            words = self._read(mem, addresses)
        if chain.pools:
            self.counters.add(Counter.POOL, len(words))
        return self.arithmetic.pool_max(words)

    def _multiply(self, chain, plan_, first, last):
        """Result words of iterations [first, last) of a product; yields while operands are missing.

        The quantiser takes operands from a vector memory or NetQ; those of VectorRf are quantised already.
        """
        count, registers, product, matrix = last - first, chain.registers, chain.product, self.memory.matrix
        start_values = self.memory.biases[product.b:product.b + chain.result_words].reshape(-1)[:registers.rows]
        factors = (self.config, *matrix.weights(chain.tiles, chain.row_tiles))
        mode = {"start_values": start_values if product.bias else None, "rows": registers.rows,
                "out_scale": registers.out_scale}
        operand = None
        if not chain.from_entries:
            operand = yield from self._operands(chain, plan_, first, last)
        words = np.zeros((count, chain.result_words * self.config.mfu_lanes), self.memory.dtype)
        step = max(1, _ELEMENTS // (len(chain.tiles) * self.config.native_dim))
        for begin in range(0, count, step):
            if operand is None:
                function, operands = self._entries(chain, plan_.addresses[0][first:last][begin:begin + step])
            else:
                function = partial(self.arithmetic.multiply, **self.arithmetic.mode(chain, 1))
                operands = (operand[begin:begin + step],)
            words[begin:begin + step, :registers.rows], events = function(*factors, *operands, **mode)
            self.counters.add_overflows(events)
        self.counters.add(Counter.TILES, count * len(chain.tiles))
        self.counters.add(Counter.BEATS, count * matrix.marks[chain.tiles.start:chain.tiles.stop].sum())
        return words.reshape(-1, self.config.mfu_lanes)

    def _entries(self, chain, addresses):
        """The function that multiplies columns of VectorRf, and their mantissas and stored exponents."""
        entries, shared = self.memory.entries, addresses.ndim == 2  # all row tiles read the same columns
        self.counters.add(READS[Mem.VECTOR_RF], addresses.size * (chain.row_tiles if shared else 1))
        function = self.arithmetic.multiply_entries if shared else self.arithmetic.multiply_groups
        return partial(function, integer=bool(chain.product.integer)), entries.operands(addresses)

    def _operands(self, chain, plan_, first, last):
        """Operand uint16[iterations, columns, N] of iterations [first, last) that the quantiser takes."""
        count, mem = last - first, Mem(chain.source.mem)
        if mem == Mem.NET_Q:
            operand = yield from self._take_vectors(count * chain.source_words, Counter.VECTORS)
        else:
            operand = self._read(mem, plan_.addresses[0][first:last])
            self.counters.add(Counter.VECTORS, count * chain.registers.columns)
        operand = operand.reshape(count, chain.registers.columns, -1)
        self._flag(operand, Status.INVALID_VECTOR)
        return operand

    def _flag(self, bits, flag: Status):
        if self.arithmetic.invalid(bits):
            self.flags |= flag

    def _operate(self, chain, first, values):
        """Run all instructions after the source, or after the product, on the words from position `first` on.

        The operands of a word are read before the word's own writes.
        """
        operands = [self._operand(chain, index, first, len(values)) for index in range(len(chain.instructions))]
        for index, instruction in enumerate(chain.instructions):
            spec = SPECS[instruction.op]
            if instruction.op == Op.V_WR:
                seen = self._write(chain, index, first, values)
            else:
                if spec.operation:
                    self.counters.add(Counter[spec.stage_name], len(values))
                    if spec.operation.reduces:
                        values = self._reduced(chain, index, spec.operation, first, values)
                    else:
                        values = self.arithmetic.compute(spec.operation, values, operands[index])
                seen = values
            if self.trace and not (index == 0 and chain.product):
                self.trace(chain, chain.address + index, first, seen)

    def _reduced(self, chain, index, operation: Operation, first, values):
        """The words after a reduction, which goes on within an iteration and begins again with the next one."""
        words = chain.result_words
        values = self._with_tail(chain, first, values, self.arithmetic.neutral(operation))
        results = np.empty_like(values)
        if first % words == 0 and len(values) % words == 0:
            shape = (-1, words, self.config.mfu_lanes)
            results = self.arithmetic.running(operation, values.reshape(shape))[0].reshape(values.shape)
            return results
        begin = first
        while begin < first + len(values):
            end = min(first + len(values), begin - begin % words + words)
            before = self._running[index] if begin % words else None
            piece = slice(begin - first, end - first)
            results[piece], self._running[index] = self.arithmetic.running(operation, values[piece], before)
            begin = end
        return results

    def _with_tail(self, chain, first, values, bits):
        """The words with `bits` in the lanes beyond Rows."""
        if chain.last_lanes == self.config.mfu_lanes:
            return values
        values = values.copy()
        values[-(first + 1) % chain.result_words::chain.result_words, chain.last_lanes:] = bits
        return values

    def _operand(self, chain, index, first, count):
        """The operand words of one point-wise operation, or None if it has none."""
        mem = SPECS[chain.instructions[index].op].operand
        if not mem:
            return None
        words = self._read(mem, self._plans[chain].addresses[index][first:first + count])
        return np.broadcast_to(words[:, :1], words.shape) if chain.instructions[index].held else words

    def _write(self, chain, index, first, values):
        """Run one `v_wr`; returns the words as they are written."""
        instruction: Instruction = chain.instructions[index]
        mem, written = Mem(instruction.mem), self._with_tail(chain, first, values, 0)
        if mem != Mem.VECTOR_RF:
            self.counters.add(WRITES[mem], len(written))
        if mem == Mem.NET_Q:
            self._output(chain, written)
        elif mem == Mem.MVM_Q:
            self.memory.mvm.put(written)
        elif mem == Mem.VECTOR_RF:
            self._store(chain, index, first, written)
        else:
            self.memory.vectors[mem][self._plans[chain].addresses[index][first:first + len(values)]] = written
        return written

    def _output(self, chain, words):
        """Add words to the present output message; each iteration makes one message."""
        self._message.append(words)
        ready = np.concatenate(self._message)
        whole = len(ready) // chain.result_words * chain.result_words
        messages = ready[:whole].reshape(-1, chain.result_words, self.config.mfu_lanes)
        self.outputs.extend(self._normalised(chain, messages) if chain.normalises else messages)
        self._message = [ready[whole:]]

    def _normalised(self, chain, messages):
        """The messages after the softmax unit, [messages, words, lanes]; lanes beyond Rows stay +0."""
        rows = chain.registers.rows
        elements = messages.reshape(-1, chain.result_words * self.config.mfu_lanes).copy()
        elements[:, :rows] = self.arithmetic.softmax(elements[:, :rows])
        return elements.reshape(messages.shape)

    def _store(self, chain, index, first, words):
        """Quantise the entries of VectorRf that are complete with these words."""
        numbers, vectors = self._entry_words.add(chain, first, words)
        self._flag(vectors, Status.INVALID_VECTOR)
        addresses = self._plans[chain].addresses[index][numbers.start:numbers.stop]
        self.memory.entries.store(addresses, vectors, **self.arithmetic.mode(chain, index))
        for counter in (Counter.VECTORS, WRITES[Mem.VECTOR_RF]):
            self.counters.add(counter, len(numbers))
