"""Quantises binary16 to mantissas, as golden.mvm.quantizer does."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for
from concord.hw.lib import elements
from concord.hw.lib.float16 import Binary16, significand
from concord.hw.lib.payloads import lane_group, operand_word
from concord.hw.lib.pipeline import delay, delay_control
from concord.hw.lib.queue import Queue
from concord.spec.machine import timing
from concord.spec.numbers.formats import Format, Rule

LARGEST = 0x7BFF  # magnitude bits of the largest finite number


def quantized(fmt: Format, lanes: int) -> data.StructLayout:
    """One word of mantissas and its block's stored exponent E - e_min; `end` marks the last word of the block."""
    return data.StructLayout(lane_group(fmt, lanes).members | {"end": 1, "last": 1})


class Quantizer(wiring.Component):
    """Quantises blocks of `size` numbers: mantissa = clip(round(x * 2**((bits - 1) - E)), lowest, highest).

    Elements with exponents of their own leave as codes.

    In integer mode mantissa = clip(round(x), lowest, highest), or clip(round(x), 0, levels) - zero if unsigned, and
    the exponent is 0. A block keeps one mode, and `unsigned` comes with `integer` only.

    Args:
        fmt:   Format of the blocks.
        lanes: Number of elements of a word.
        size:  Number of elements of a block, a multiple of `lanes`.
        short: Whether `last` ends a block early. The elements that the block lacks count as zeros.

    Members:
        i: In(stream {word, integer, unsigned, last}). Binary16 words.
        o: Out(stream {mantissas, exponent, end, last}). Words of mantissas; `end` marks the last word of a block.
        invalid: Out(1). The word taken in this cycle holds a NaN or an infinity.
        block: Out(1). Pulse: the exponent of a block has been found.

    Timing:
        One word a cycle in and out. The first word of a block comes out `latency` cycles after its last went in. A
        queue holds the words of about two blocks, so that one fills while the other leaves. With `short` it holds just
        enough words for `i` never to stall while `o` does not.
    """

    def __init__(self, fmt: Format, lanes: int, size: int, *, short: bool = False):
        self.fmt, self.lanes, self.block_words, self.short = fmt, lanes, size // lanes, short
        super().__init__({"i": In(stream.Signature(operand_word(lanes))),
                          "o": Out(stream.Signature(quantized(fmt, lanes))), "invalid": Out(1), "block": Out(1)})

    @property
    def compare(self) -> int:
        """Cycles from a word to its largest magnitude."""
        return (self.lanes - 1).bit_length()

    @property
    def latency(self) -> int:
        """Cycles from the last word of a block at `i` to the first word of its mantissas at `o`."""
        # A finite number, the largest magnitude, the exponent in two steps, its queue, six steps of conversion.
        latency = 1 + self.compare + 1 + 2 + 2 + len(_FIXED)
        assert latency == timing.quantizer(self.lanes)
        return latency

    @property
    def depths(self) -> tuple[int, int]:
        """Number of words, and of exponents of blocks, that can wait for their conversion."""
        if self.short:  # every word may be a block
            return (self.block_words + self.compare + 8,) * 2
        words = 2 * self.block_words + self.compare + 8
        return words, 2 + words // self.block_words

    def elaborate(self, platform):
        m = Module()
        # The stages after the queues may stall. The stages before them never stall once a word is taken.
        word = data.StructLayout({"lanes": data.ArrayLayout(16, self.lanes), "end": 1})
        scale = data.StructLayout({"base": 6, "exponent": self.fmt.exponent_bits, "unsigned": 1, "last": 1})
        word_depth, scale_depth = self.depths
        m.submodules.words = words = Queue(word, word_depth)
        m.submodules.scales = scales = Queue(scale, scale_depth)

        # Words enter the queue one cycle after they are taken, when one more may be taken.
        clean = [delay(m, _finite(Binary16(lane), self.i.p.integer), 1) for lane in self.i.p.word]
        taken = self.i.valid & self.i.ready
        entering = delay_control(m, taken, 1)
        m.d.comb += [
            self.i.ready.eq(words.level < words.depth - 1),
            words.i.valid.eq(entering), words.i.p.lanes.eq(Cat(clean)), self.invalid.eq(delay_control(
                m, taken & Cat(Binary16(lane).exponent.all() for lane in self.i.p.word).any(), 1))]
        i = self.i.p
        self._measure(m, clean, entering, delay(m, Cat(i.integer, i.unsigned, i.last), 1), words.i.p.end, scales)
        self._convert(m, words, scales)
        return m

    def _measure(self, m, clean, taken, mode, end, scales):
        """Find the largest magnitude of each block, and from it the exponent and the scale."""
        fmt = self.fmt
        place = Signal(range(self.block_words))
        m.d.comb += end.eq((place == self.block_words - 1) | (mode[2] if self.short else 0))
        with m.If(taken):
            m.d.sync += place.eq(Mux(end, 0, place + 1))

        values = [lane[:15] for lane in clean]
        while len(values) > 1:
            values = [delay(m, _greater(*values[k:k + 2]), 1) for k in range(0, len(values), 2)]
        first, close = delay(m, place == 0, self.compare), Signal()
        m.d.sync += close.eq(delay_control(m, taken & end, self.compare))
        largest = Signal(15)
        with m.If(delay_control(m, taken, self.compare)):
            m.d.sync += largest.eq(Mux(first, values[0], _greater(values[0], largest)))
        integer, unsigned, last = delay(m, mode, self.compare + 2)

        # Exponents E count from -15. The exponent and the base of the shifts, which follows from it, do not wait for
        # each other.
        power, low, high = delay(m, _exponent(largest, fmt), 1), fmt.e_min + 15, fmt.e_max + 15
        stored = Mux(integer | (power < low), 0, Mux(power > high, high - low, power - low))[:fmt.exponent_bits]
        base = Mux(power < low, low + 1, Mux(power > high, high + 1, power + 1))
        ready = delay_control(m, close, 2)
        m.d.comb += [
            scales.i.valid.eq(ready), self.block.eq(ready),
            scales.i.p.base.eq(delay(m, Mux(integer, 15 + fmt.bits, base)[:6], 1)),
            scales.i.p.exponent.eq(delay(m, stored, 1)),
            scales.i.p.unsigned.eq(delay(m, unsigned, 1)), scales.i.p.last.eq(delay(m, last, 1))]

    def _convert(self, m, words, scales):
        """Align, round and clip the elements in six stages, which stall together."""
        step, end = Signal(), words.o.p.end
        moving = words.o.valid & scales.o.valid
        m.d.comb += [step.eq(self.o.ready | ~self.o.valid), words.o.ready.eq(step & moving),
                     scales.o.ready.eq(step & moving & end)]

        def later(value, reset_less=True):
            kept = Signal(Value.cast(value).shape(), reset_less=reset_less)
            with m.If(step):
                m.d.sync += kept.eq(value)
            return kept

        side = Cat(scales.o.p.exponent, end, scales.o.p.last & end)
        valid, unsigned = moving, scales.o.p.unsigned
        first, *others = _FLOATING if self.fmt.precision else _FIXED
        lanes = [first(Binary16(lane), scales.o.p.base, self.fmt) for lane in words.o.p.lanes]
        for function in others:
            side, valid, unsigned = later(side), later(valid, False), later(unsigned)
            lanes = [function(*map(later, lane), self.fmt, unsigned) for lane in lanes]
        m.d.comb += [
            self.o.valid.eq(later(valid, False)), Value.cast(self.o.p.mantissas).eq(Cat(later(lane) for lane in lanes)),
            Cat(self.o.p.exponent, self.o.p.end, self.o.p.last).eq(later(side))]


def _greater(a, b=None):
    """The larger of one or two unsigned values."""
    return a if b is None else Mux(a > b, a, b)


def _finite(number, integer):
    """The bits of a number; 0 for a NaN, and in block mode the largest finite number for an infinity."""
    huge, nan = number.exponent.all(), number.fraction.any()
    bits = Mux(huge & nan, 0, Mux(huge & ~integer, LARGEST, number.as_value()[:15]))
    return Cat(bits, number.sign)


def _exponent(magnitude, fmt: Format):
    """Exponent E + 15 of a block before it is clipped; `magnitude` holds the 15 bits of its largest magnitude."""
    field, fraction = magnitude[10:], magnitude[:10]
    power = ~fraction.any() if fmt.rule == Rule.CEIL else Const(0)
    # A subnormal's E is -14 if it is at least (ceil: above) one half of the smallest normal number; below, the format
    # does not tell exponents apart. Counted from -15:
    half = fraction[9] & (fraction[:9].any() if fmt.rule == Rule.CEIL else 1)
    above = Mux(field.any(), field + 1 - power, half)
    if fmt.precision:  # magnitudes that round up to a power of two
        ones = fraction[-fmt.precision:].all()
        small = Mux(fraction[9], 1 + fraction[9 - fmt.precision:9].all(), fraction[8 - fmt.precision:9].all())
        above = Mux(field.any(), field + 1 + ones, small)
    return above


def _distance(number, base, fmt: Format):
    """Sign, significand and right shift of a number."""
    field, bits = significand(number)
    return number.sign, bits, base - field


def _limited(sign, bits, shift, fmt: Format, unsigned):
    """The same, with a shift that is no longer than needed, and whether the number is beyond any range."""
    limited = Mux(shift > fmt.bits + 2, fmt.bits + 2, shift)[:bits_for(fmt.bits + 2)]
    return sign, bits, limited, shift < 0


def align(sign, bits, shift, beyond, fmt, unsigned):
    """The number, shifted to 12 fraction bits."""
    return sign, Cat(Const(0, fmt.bits + 2), bits) >> shift, beyond


def nearest(sign, value, beyond, fmt, unsigned):
    """The magnitude, rounded to the nearest integer, ties to even, and the limit for its sign."""
    round_up = value[11] & (value[:11].any() | value[12])
    below, above = Mux(unsigned, 0, -fmt.lowest), Mux(unsigned, fmt.levels, fmt.highest)
    return sign, value[12:] + round_up, beyond, Mux(sign, below, above)


def clip(sign, magnitude, beyond, limit, fmt, unsigned):
    """The magnitude, clipped to its limit."""
    return sign, Mux(beyond | (magnitude > limit), limit, magnitude)[:fmt.bits]


def mantissa(sign, clipped, fmt, unsigned):
    """The mantissa of a sign and a magnitude."""
    return ((clipped ^ sign.replicate(fmt.bits)) + sign - Mux(unsigned, fmt.zero, 0))[:fmt.bits]


#: The six steps from a number to a mantissa, and to the code of an element with an exponent of its own.
_FIXED = _distance, _limited, align, nearest, clip, mantissa
_FLOATING = (elements.distance, elements.zeros, elements.normalise, elements.denormalise, elements.nearest,
             elements.clip)
