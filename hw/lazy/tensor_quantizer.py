"""Exact sums to training tensors: the gates of golden.lazy.tensor.measure and golden.lazy.tensor.requantise."""

from operator import or_

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for
from concord.hw.lib.arithmetic import clamp, digits, shift_digit, tree
from concord.hw.lib.pipeline import Registered, delay, delay_control, follow
from concord.hw.lib.queue import Queue
from concord.hw.lib.reserved_queue import ReservedQueue
from concord.spec.numbers.lazy import E_MAX, E_MIN, EXPONENT_BITS

WIDTHS = (8, 16, 32)  #: Widths of mantissas, by their code.
_LSB = signed(10)  #: Exponent of one unit of the sums.
WIDEST = WIDTHS[-1]
PASSES = 16  # largest number of passes that are taken and not measured yet
MARGIN = 4  # words held beyond those in the pipeline


def block_order() -> data.StructLayout:
    """What one pass of a tensor is for: to measure it, or to convert it under a stored exponent E - E_MIN."""
    return data.StructLayout({"lsb": _LSB, "bits": range(len(WIDTHS)), "convert": 1, "exponent": EXPONENT_BITS})


def block_sums(sum_bits: int, lanes: int) -> data.StructLayout:
    """One word of sums; `last` on the last one of a tensor. Lanes beyond the end of a tensor are zeros."""
    return data.StructLayout({"sums": data.ArrayLayout(signed(sum_bits), lanes), "last": 1})


def block_mantissas(lanes: int) -> data.StructLayout:
    """One word of mantissas, extended from their own width to the widest."""
    return data.StructLayout({"mantissas": data.ArrayLayout(signed(WIDEST), lanes), "last": 1})


class TensorQuantizer(wiring.Component):
    """Measure training tensors, E = ceil(log2 max |sum|) + lsb, and convert them.

    A mantissa is clip(round(sum * 2**(lsb - (E - (bits - 1))))), rounded half away from zero.

    Args:
        sum_bits: Number of bits of a sum, sign included.
        lanes:    Number of sums in a word.

    Members:
        block: In(stream {lsb, bits, convert, exponent}). One for each pass; the exponent only counts in a conversion.
        i: In(stream {sums, last}). Words of sums; lanes beyond the end of a tensor are zeros.
        measured: Out(stream {exponent}). One for each pass that measures, stored as E - E_MIN.
        o: Out(stream {mantissas, last}). Words of the passes that convert.

    Timing:
        One word a cycle in and out, from tensor to tensor too. Mantissas come `latency` cycles after their sums.

    Raises:
        ValueError: `sum_bits` is out of its range.
    """

    def __init__(self, sum_bits: int, lanes: int):
        if not 2 <= sum_bits <= 62:
            raise ValueError(f"a tensor quantizer takes sums of 2 to 62 bits, not {sum_bits}")
        self.sum_bits, self.lanes = sum_bits, lanes
        self.right_bits = bits_for(WIDEST + sum_bits + 1)
        super().__init__({
            "block": In(stream.Signature(block_order())), "i": In(stream.Signature(block_sums(sum_bits, lanes))),
            "measured": Out(stream.Signature(data.StructLayout({"exponent": EXPONENT_BITS}))),
            "o": Out(stream.Signature(block_mantissas(lanes)))})

    @property
    def depth(self) -> int:
        """Cycles from sums at `i` to their computed mantissas."""
        return 1 + 1 + len(digits(self.right_bits)) + 4

    @property
    def latency(self) -> int:
        """Cycles from sums at `i` to their mantissas at `o`."""
        return self.depth + 2

    def elaborate(self, platform):
        m = Module()
        # Nothing stalls between a word taken and the queues: a word is taken when there is room for what it becomes.
        m.submodules.blocks = blocks = Queue(block_order(), 3)
        m.submodules.words = words = ReservedQueue(block_mantissas(self.lanes), self.depth + MARGIN)
        m.submodules.exponents = exponents = ReservedQueue(EXPONENT_BITS, PASSES)
        wiring.connect(m, wiring.flipped(self.block), blocks.i)
        wiring.connect(m, words.o, wiring.flipped(self.o))
        m.d.comb += [self.measured.valid.eq(exponents.o.valid), exponents.o.ready.eq(self.measured.ready),
                     self.measured.p.exponent.eq(exponents.o.payload)]
        taken, first, convert = Signal(), Signal(init=1), blocks.o.p.convert
        inside, unmeasured = Signal(range(words.depth + 1)), Signal(range(PASSES + 1))
        ends = taken & self.i.p.last
        m.d.comb += [
            self.i.ready.eq(blocks.o.valid & (inside != words.depth) & (unmeasured != PASSES)),
            taken.eq(self.i.valid & self.i.ready), blocks.o.ready.eq(ends)]
        m.d.sync += [
            inside.eq(inside + (taken & convert) - (self.o.valid & self.o.ready)),
            unmeasured.eq(unmeasured + (ends & ~convert) - (self.measured.valid & self.measured.ready))]
        with m.If(taken):
            m.d.sync += first.eq(self.i.p.last)

        lanes = [Registered(m, {"sum": value}) for value in self.i.p.sums]
        shared = Registered(m, self._control(blocks.o.p) | {"first": first, "last": self.i.p.last})
        lanes = [Registered(m, follow(lane, magnitude(lane["sum"]))) for lane in lanes]
        shared = Registered(m, follow(shared, {"right": clamp(
            shared["distance"], 0, WIDEST + self.sum_bits + 1)[:self.right_bits]}))
        self._measure(m, delay_control(m, taken & ~convert, 2), lanes, shared, exponents.i)
        self._convert(m, delay_control(m, taken & convert, 2), lanes, shared, words.i)
        return m

    def _control(self, block):
        """Values that all sums of a pass share. `distance` is the right shift, counted from the largest left shift."""
        below = Mux(block.bits == 0, WIDTHS[0], Mux(block.bits == 1, WIDTHS[1], WIDTHS[2]))
        return {"bits": block.bits, "lsb": block.lsb,
                "distance": block.exponent - block.lsb - below + (E_MIN + 1 + WIDEST)}

    def _measure(self, m, word, lanes, shared, exponents):
        """Measure the length of the largest |sum| - 1, which is the length of the bitwise or of all of them."""
        found = Signal(self.sum_bits)  # the highest bit says that a sum is not zero
        now = delay(m, tree([Cat(lane["below"], 1) & lane["some"].replicate(self.sum_bits) for lane in lanes], or_), 1)
        first, last, lsb = (delay(m, shared[name], 1) for name in ("first", "last", "lsb"))
        with m.If(delay_control(m, word, 1)):
            m.d.sync += found.eq(now | Mux(first, 0, found))
        length, steps = length_below(m, found)
        some, lsb = delay(m, found[-1], steps), delay(m, lsb, 1 + steps)
        stored = delay(m, clamp(length + lsb - E_MIN, 0, E_MAX - E_MIN)[:EXPONENT_BITS], 1)
        m.d.comb += [
            exponents.payload.eq(Mux(delay(m, some, 1), stored, 0)),
            exponents.valid.eq(delay_control(m, delay_control(m, word, 1) & last, 2 + steps))]

    def _convert(self, m, word, lanes, shared, words):
        """Align, round, detect mantissas out of range, negate and limit."""
        stages = [lambda lane, shared, low=low: {"value": shift_digit(lane["value"], shared["right"], low)[0]}
                  for low in digits(self.right_bits)]
        for stage in (*stages, nearest, _find_beyond, _negate, limit):
            lanes = [Registered(m, follow(lane, stage(lane, shared))) for lane in lanes]
            shared = Registered(m, shared)
        m.d.comb += [words.valid.eq(delay_control(m, word, len(stages) + 4)), words.p.last.eq(shared["last"])]
        m.d.comb += [mantissa.eq(lane["mantissa"]) for mantissa, lane in zip(words.p.mantissas, lanes, strict=True)]


def length_below(m, found):
    """The length of what is below the highest bit of `found`, if that bit is 1; and by how many cycles it is late."""
    value, length = Mux(found[-1], Cat(1, found[:-1]), 0), Const(0, 0)
    steps = (len(found) - 1).bit_length()
    for step in reversed(range(steps)):
        upper = value[1 << step:]
        value = delay(m, Mux(upper.any(), upper, value[:1 << step]), 1)
        length = Cat(delay(m, upper.any(), 1), delay(m, length, 1))
    return length, steps


def magnitude(value):
    """|sum|, with space above it for the largest left shift and below it for one fraction bit; and |sum| - 1."""
    negative = value[-1]
    flipped = value ^ negative.replicate(len(value))
    return {"negative": negative, "some": value.any(),
            "value": Cat(Const(0, WIDEST + 1), (flipped + negative)[:len(value)]),
            "below": (flipped + (~negative).replicate(len(value)))[:len(value) - 1]}


def nearest(lane, shared):
    """The magnitude, rounded to the nearest integer, ties away from zero."""
    return {"rounded": lane["value"][1:WIDEST + 1] + lane["value"][0], "beyond": lane["value"][WIDEST + 1:].any()}


def _find_beyond(lane, shared):
    """Whether a mantissa reaches the end of its range or exceeds it."""
    above = Array(lane["rounded"][bits - 1:].any() for bits in WIDTHS)
    return {"beyond": lane["beyond"] | above[shared["bits"]]}


def _negate(lane, shared):
    """The number with its sign, and the limit for this sign: the highest mantissa, or its complement."""
    end = Array(Const((1 << bits - 1) - 1, WIDEST) for bits in WIDTHS)[shared["bits"]]
    sign = lane["negative"].replicate(WIDEST)
    return {"mantissa": ((lane["rounded"][:WIDEST] ^ sign) + lane["negative"])[:WIDEST], "end": end ^ sign}


def limit(lane, shared):
    """The mantissa, limited to its range."""
    return {"mantissa": Mux(lane["beyond"], lane["end"], lane["mantissa"])}
