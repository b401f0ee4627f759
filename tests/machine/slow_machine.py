"""The meaning of a chain, word by word and element by element, from the pages of the specification."""

from collections import Counter as Tally
from fractions import Fraction
from functools import reduce
from math import floor

import numpy as np
from concord.golden.lib.float16 import maximum
from concord.golden.mfu.multifunction import compute
from concord.spec.isa.check import Sequencer
from concord.spec.isa.instructions import SPECS, Op
from concord.spec.isa.memories import Mem
from concord.spec.isa.operations import Operation
from concord.spec.isa.rules import Violation
from concord.spec.machine.config import Config
from concord.spec.numbers.formats import Format, Rule
from concord.spec.numbers.softmax import fractions, wholes

LARGEST = 65504


def value_of(bits: int) -> Fraction | None:
    """The number of a binary16 pattern, an infinity as the largest finite number; None for a NaN."""
    number = float(np.uint16(bits).view(np.float16))
    if number != number:
        return None
    return Fraction(max(-LARGEST, min(LARGEST, number))) if abs(number) == float("inf") else Fraction(number)


def rounded(value: Fraction) -> int:
    """The binary16 pattern of a number; exact zero is +0, and any other number keeps its sign."""
    magnitude, sign = abs(value), 0x8000 * (value < 0)
    exponent = -14
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    unit = Fraction(2) ** (exponent - 10)
    steps = round(magnitude / unit)  # to nearest, ties to even
    number = steps * unit
    return sign | (0x7C00 if number > LARGEST else int(np.float16(float(number)).view(np.uint16)))


def quantized(fmt: Format, bits: list[int], *, integer: int, unsigned: int = 0) -> tuple[list[int], int]:
    """Mantissas and the stored exponent of a native vector."""
    values = [value_of(each) or Fraction(0) for each in bits]
    if integer:
        low, high = (0, fmt.levels) if unsigned else (fmt.lowest, fmt.highest)
        return [max(low, min(high, round(value))) - fmt.zero * unsigned for value in values], 0
    largest, exponent = max(map(abs, values)), fmt.e_min
    while exponent < fmt.e_max and (
            largest > Fraction(2) ** exponent or fmt.rule == Rule.FREXP and largest == Fraction(2) ** exponent):
        exponent += 1
    scale = Fraction(2) ** (fmt.bits - 1 - exponent)
    return [max(fmt.lowest, min(fmt.highest, round(value * scale))) for value in values], exponent - fmt.e_min


def softmax(bits: list[int]) -> list[int]:
    """The softmax of binary16 patterns, term by term in the formulas of `spec.numbers.softmax`."""
    values = [float(np.uint16(each).view(np.float16)) for each in bits]
    if max(values) == float("inf") or max(values) == -float("inf") or any(value != value for value in values):
        return [0x7E00] * len(bits)
    scaled = [floor(Fraction(value) * 2**16) if value > -float("inf") else -2**32 for value in values]
    terms = []
    for one in scaled:
        whole, t = divmod(max(scaled) - one, 2**16)
        base, slope = fractions()[t >> 9]
        factor, shift = wholes()[whole] if whole < len(wholes()) else (0, 0)
        terms.append((base - (slope * (t % 2**9) >> 9)) * factor >> shift)
    return [rounded(Fraction(term, sum(terms))) for term in terms]


def summed(bits: list[int]) -> int:
    """The sum of binary16 patterns, rounded once; infinities add up as numbers do."""
    infinite = [each for each in bits if each & 0x7FFF == 0x7C00]
    if any(value_of(each) is None for each in bits) or len(set(infinite)) == 2:
        return 0x7E00
    return infinite[0] if infinite else rounded(sum(map(value_of, bits)))


def largest_of(bits: list[int]) -> int:
    """The largest of binary16 patterns, of which +0 exceeds -0, and any NaN is 0x7e00."""
    if any(value_of(each) is None for each in bits):
        return 0x7E00
    return max(bits, key=lambda each: (float(np.uint16(each).view(np.float16)), each < 0x8000))


class SlowMachine:
    """Memories as lists, and chains as loops.

    Args:
        machine: Golden machine whose memories are filled and whose input waits in NetQ.
    """

    def __init__(self, config: Config, machine):
        self.config, memory = config, machine.memory
        self.vectors = {mem: words.tolist() for mem, words in memory.vectors.items()}
        self.entries = list(zip(memory.entries.mantissas.tolist(), memory.entries.exponents.tolist(), strict=True))
        self.tiles, self.rows = memory.matrix.mantissas.tolist(), memory.matrix.exponents.tolist()
        self.biases, self.modes = memory.biases.ravel().tolist(), list(memory.matrix.modes)
        self.net_in, self.mvm, self.out = memory.net_in.take(len(memory.net_in)).tolist(), [], []
        self.counts, self.invalid = Tally(), False
        self.seen = {}  # elements of the present iteration, by reduction

    def run(self, program: list[int]):
        """Run a program up to its end or its first error."""
        try:
            for chain in Sequencer(self.config, list(program), list(self.modes)).walk():
                self._load(chain) if chain.loads else self._chain(chain)
        except Violation:
            pass

    def _load(self, chain):
        n = self.config.native_dim
        for tile in range(chain.target.a, chain.target.a + chain.registers.iterations):
            for row in range(n):
                bits = sum((self.net_in.pop(0) for _ in range(self.config.vector_words)), [])
                self.tiles[tile][row], self.rows[tile][row] = quantized(
                    self.config.weights, bits, integer=chain.target.integer)

    def _chain(self, chain):
        registers, waiting = chain.registers, []
        for iteration in range(registers.iterations):
            y, x = divmod(iteration, registers.iterations_x)
            start = chain.source.a + chain.source.inc * (x * registers.stride_x + y * registers.stride_y)
            words = self._product(chain, start) if chain.product else None
            for k in range(chain.result_words):
                self._word(chain, iteration, k, words[k] if words else self._source(chain, start, k), waiting)
            if chain.normalises:
                sent = sum(self.out[-chain.result_words:], [])
                sent[:registers.rows] = softmax(sent[:registers.rows])
                lanes = self.config.mfu_lanes
                self.out[-chain.result_words:] = [sent[k:k + lanes] for k in range(0, len(sent), lanes)]

    def _word(self, chain, iteration, k, word, waiting):
        """Run the operations and writes of word k; operands are read before the writes."""
        registers, first = chain.registers, 2 if chain.product or chain.pools else 1
        operations = chain.instructions[first:]
        operands = [self._operand(chain, i, iteration, k) for i in operations]
        for instruction, operand in zip(operations, operands, strict=True):
            if instruction.op == Op.V_SOFTMAX:
                continue
            if instruction.op != Op.V_WR and SPECS[instruction.op].operation.reduces:
                word = self._reduced(chain, instruction, k, word)
                continue
            if instruction.op != Op.V_WR:
                word = compute(SPECS[instruction.op].operation, np.array(word, np.uint16), operand).tolist()
                continue
            written, lanes = word, chain.registers.rows - k * self.config.mfu_lanes
            written = [bits if lane < lanes else 0 for lane, bits in enumerate(word)]
            if instruction.mem == Mem.VECTOR_RF:
                self._entry(chain, instruction, iteration, k, written, waiting)
            elif instruction.mem in (Mem.NET_Q, Mem.MVM_Q):
                (self.out if instruction.mem == Mem.NET_Q else self.mvm).append(written)
            else:
                self.vectors[instruction.mem][instruction.a + k + instruction.inc * iteration * registers.stride_out
                                              ] = written

    def _reduced(self, chain, instruction, k, word):
        """One word of a reduction, from all elements of the iteration up to it."""
        seen = self.seen[instruction.op] if k else []
        self.seen[instruction.op] = seen = seen + word[:chain.registers.rows - k * self.config.mfu_lanes]
        total = SPECS[instruction.op].operation is Operation.V_SUM
        return [summed(seen) if total else largest_of(seen)] * len(word)

    def _operand(self, chain, instruction, iteration, k):
        mem = SPECS[instruction.op].operand
        if instruction.op == Op.V_WR or mem is None:
            return None
        address = instruction.a + k * (not instruction.held) + instruction.inc * iteration * chain.registers.stride_out
        word = self.vectors[mem][address]
        return np.array(word[:1] * len(word) if instruction.held else word, np.uint16)

    def _entry(self, chain, instruction, iteration, k, written, waiting):
        size, registers = self.config.vector_words, chain.registers
        waiting.append(written)
        if (k + 1) % size and k + 1 < chain.result_words:
            return
        bits = sum(waiting, []) + [0] * (self.config.native_dim - len(waiting) * self.config.mfu_lanes)
        waiting.clear()
        skipped = iteration * registers.stride_vec + iteration // registers.iterations_x * registers.skip_vec
        self.entries[instruction.a + k // size + instruction.inc * skipped] = quantized(
            self.config.activations, bits, integer=instruction.integer, unsigned=instruction.unsigned)
        self.counts.update(("WRITE_VECTOR_RF", "VECTORS"))
        self.invalid |= any(each & 0x7C00 == 0x7C00 for each in bits)

    def _source(self, chain, start, k):
        source, registers = chain.source, chain.registers
        if source.mem in (Mem.NET_Q, Mem.MVM_Q):
            return (self.net_in if source.mem == Mem.NET_Q else self.mvm).pop(0)
        read = self._number if source.mem == Mem.VECTOR_RF else lambda _, address, word: self.vectors[source.mem][
            address + word]
        if not chain.pools:
            return read(source, start, k)
        self.counts["POOL"] += 1
        pixels = [read(source, start + x * registers.window_step + y * registers.window_pitch, k)
                  for y in range(registers.window_y) for x in range(registers.window_x)]
        return reduce(maximum, [np.array(pixel, np.uint16) for pixel in pixels]).tolist()

    def _number(self, source, address, k):
        """Word k of the entries from an address on, as numbers."""
        fmt, size, lanes = self.config.activations, self.config.vector_words, self.config.mfu_lanes
        mantissas, stored = self.entries[address + k // size]
        self.counts["READ_VECTOR_RF"] += 1
        chosen = mantissas[k % size * lanes:][:lanes]
        if source.integer:
            return [rounded(Fraction(mantissa + fmt.zero * source.unsigned)) for mantissa in chosen]
        return [rounded(mantissa * Fraction(2) ** (stored + fmt.e_min - (fmt.bits - 1))) for mantissa in chosen]

    def _product(self, chain, start):
        """The words of one iteration of a product."""
        config, registers, product = self.config, chain.registers, chain.product
        operands = [[self._column(chain, start, tile, c) for c in range(registers.columns)]
                    for tile in range(chain.row_tiles)] if chain.source.mem == Mem.VECTOR_RF else None
        if operands is None:
            operands = [self._fetched(chain, start)] * chain.row_tiles
        weight = -config.acc_frac if not product.integer else -registers.out_scale
        result = []
        for row in range(registers.rows):
            tile, row_of_tile = divmod(row, config.native_dim)
            total = self.biases[product.b * config.mfu_lanes + row] if product.bias else 0
            for c, (mantissas, stored) in enumerate(operands[tile]):
                number = product.a + tile * registers.columns + c
                dot = sum(w * x for w, x in zip(self.tiles[number][row_of_tile], mantissas, strict=True))
                shift = 0 if product.integer else config.alignment + self.rows[number][row_of_tile] + stored
                total += dot << shift
            half = 1 << config.sum_bits - 1
            result.append(rounded(((total + half) % (2 * half) - half) * Fraction(2) ** weight))
        result += [0] * (-len(result) % config.mfu_lanes)
        return [result[k:k + config.mfu_lanes] for k in range(0, len(result), config.mfu_lanes)]

    def _column(self, chain, start, tile, column):
        registers = chain.registers
        self.counts["READ_VECTOR_RF"] += 1
        if not chain.product.window:
            return self.entries[start + column]
        pixel, u = divmod(column, registers.window_vectors)
        y, x = divmod(pixel, registers.window_x)
        return self.entries[start + u + x * registers.window_step + y * registers.window_pitch
                            + tile * registers.window_group]

    def _fetched(self, chain, start):
        size, product, columns = self.config.vector_words, chain.product, []
        for column in range(chain.registers.columns):
            words = ([self.net_in.pop(0) for _ in range(size)] if chain.source.mem == Mem.NET_Q
                     else self.vectors[chain.source.mem][start + column * size:start + (column + 1) * size])
            bits = sum(words, [])
            columns.append(quantized(self.config.activations, bits, integer=product.integer,
                                     unsigned=product.unsigned))
            self.counts["VECTORS"] += 1
            self.invalid |= any(each & 0x7C00 == 0x7C00 for each in bits)
        return columns
