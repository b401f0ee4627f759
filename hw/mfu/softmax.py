"""The softmax unit between the queue to the host and the host messages: golden.mfu.softmax in hardware."""

from amaranth import *
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib import message_payloads
from concord.hw.lib.binary16_rounder import Binary16Rounder
from concord.hw.lib.float16 import NAN, Binary16, significand
from concord.hw.lib.pipeline import delay
from concord.hw.mfu.exponential import SPAN_BITS, Exponential
from concord.spec.machine.config import Config
from concord.spec.numbers.softmax import QUOTIENT_BITS, sum_bits

_STEPS = (QUOTIENT_BITS + 1) // 2  # cycles of a division, which yields two bits of a quotient in each
_LOWEST = -1 << SPAN_BITS - 1  # what -inf becomes in units of 2**-16, below all finite numbers
_DROPPED = 8  # a subnormal counts units of 2**-24, the sums units of 2**-16
_BUFFER = 2  # cycles from the address of a word of the buffer to the word
_SCALED = 4  # cycles from a word to one of its elements in units of 2**-16


class Softmax(wiring.Component):
    """Replaces the elements of each message that asks for it by their softmax; other messages pass unchanged.

    A message is read into a buffer, and its largest element is found. Then its terms are added up, and at last each
    term is computed again and divided by the sum. One element is under way through each of these steps at a time, so
    that the unit has one exponential and one divider.

    Args:
        config: Configuration of the machine; its `softmax_words` is not 0.

    Members:
        i: In(stream `message_payloads.outgoing`). Words for the host. With `softmax`, all words of the message have it,
            and `tail` is the number of lanes of the last one that hold elements, 0 for all.
        o: Out(stream {word, remaining}). Words for the host; lanes without elements are +0.
        busy: Out(1). The unit holds words of a message that it has taken as a whole.

    Timing:
        A message without softmax passes in the same cycle. One with n elements in w words takes 16 n + 22 w + 13
        cycles, its first and last words included, if `o` is always taken. Reset discards the words that are held.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({"i": In(stream.Signature(message_payloads.outgoing(config))),
                          "o": Out(stream.Signature(message_payloads.output(config))), "busy": Out(1)})

    def elaborate(self, platform):
        m = Module()
        config, lanes = self.config, self.config.mfu_lanes
        depth = max(2, config.softmax_words)  # an index has at least a bit: Verilog has no signals without bits
        m.submodules.buffer = buffer = memory.Memory(shape=16 * lanes, depth=depth, init=[])
        write, read = buffer.write_port(), buffer.read_port()

        # The present element, and the last one of the message.
        index, lane = Signal(range(depth)), Signal(range(lanes))
        last_index, last_lane = Signal.like(index), Signal.like(lane)
        loading, adding, dividing = Signal(), Signal(), Signal()  # the element enters one of the three steps
        end_of_word = lane == Mux(index == last_index, last_lane, lanes - 1)
        m.d.comb += [read.addr.eq(index), write.addr.eq(index), write.data.eq(self.i.p.word)]

        # The buffer answers a cycle later, which the output of a block RAM takes alone.
        word = Mux(loading, self.i.p.word.as_value(), delay(m, read.data, 1))
        entering = Mux(loading, lane, delay(m, lane, _BUFFER))
        place, undefined, largest = self._scaled(m, word, entering, loading, (index == 0) & (lane == 0))
        term, (*_, nearly_added, added), divided = self._term(m, largest - place, adding, dividing)
        total = Signal(sum_bits(config.softmax_words * lanes))
        quotient, ready = self._divide(m, term, divided, total)
        with m.If(added):
            m.d.sync += total.eq(total + term)
        result, due = self._rounded(m, quotient, ready)

        pace, issued, filled = Signal(range(_STEPS + 1)), Signal(), Signal(range(lanes + 1))
        out, taken = Signal.like(self.o.p.word), self.o.valid & self.o.ready
        with m.FSM() as fsm:
            with m.State("LOAD"):
                m.d.comb += [self.o.valid.eq(self.i.valid & ~self.i.p.softmax), self.o.p.word.eq(self.i.p.word),
                             self.o.p.remaining.eq(self.i.p.remaining), loading.eq(self.i.valid & self.i.p.softmax)]
                last = self.i.p.remaining == 1
                end = lane == Mux(last & (self.i.p.tail != 0), self.i.p.tail - 1, lanes - 1)
                m.d.comb += [self.i.ready.eq(Mux(self.i.p.softmax, end, self.o.ready)), write.en.eq(loading & end)]
                m.d.sync += total.eq(0)
                with m.If(loading):
                    m.d.sync += lane.eq(Mux(end, 0, lane + 1))
                    with m.If(end):
                        m.d.sync += index.eq(Mux(last, 0, index + 1))
                        with m.If(last):
                            m.d.sync += [last_index.eq(index), last_lane.eq(lane)]
                            m.next = "ADD"
            with m.State("ADD"):
                m.d.comb += adding.eq(1)
                m.d.sync += lane.eq(Mux(end_of_word, 0, lane + 1))
                with m.If(end_of_word):
                    m.d.sync += index.eq(Mux(index == last_index, 0, index + 1))
                    with m.If(index == last_index):
                        m.next = "SETTLE"
            with m.State("SETTLE"):  # the last terms are on their way
                with m.If(added & ~nearly_added):
                    m.next = "DIVIDE"
            with m.State("DIVIDE"):
                m.d.comb += [dividing.eq((pace == 0) & ~issued), self.o.valid.eq(issued & (filled == lane + 1)),
                             self.o.p.word.eq(out), self.o.p.remaining.eq(last_index - index + 1)]
                m.d.sync += pace.eq(Mux(pace == _STEPS, 0, pace + 1))
                with m.If(dividing):
                    m.d.sync += issued.eq(end_of_word)
                    with m.If(~end_of_word):
                        m.d.sync += lane.eq(lane + 1)
                with m.If(due):
                    m.d.sync += [out[filled[:len(lane)]].eq(Mux(undefined, NAN, result)), filled.eq(filled + 1)]
                with m.If(taken):
                    m.d.sync += [lane.eq(0), issued.eq(0), filled.eq(0), out.eq(0), pace.eq(0),
                                 index.eq(Mux(index == last_index, 0, index + 1))]
                    with m.If(index == last_index):
                        m.next = "LOAD"
            m.d.comb += self.busy.eq(~fsm.ongoing("LOAD"))
        return m

    def _scaled(self, m, word, lane, loading, first):
        """The present element in units of 2**-16, `_SCALED` later; whether the result is a NaN; the largest one so far.

        The cycles choose the element, prepare its shift, shift it, and round it down.
        """
        element = Signal(Binary16, reset_less=True)
        m.d.sync += element.eq(word.word_select(lane, 16))
        field, digits = significand(element)
        shift, digits = delay(m, (field - 1)[:5], 1), delay(m, digits, 1)
        moved, sign = delay(m, (digits << shift)[:SPAN_BITS + _DROPPED], 1), delay(m, element.sign, 2)
        magnitude, lost = moved[_DROPPED:], moved[:_DROPPED].any()
        place, largest = Signal(signed(SPAN_BITS), reset_less=True), Signal(signed(SPAN_BITS), reset_less=True)
        floor = (Mux(sign, ~magnitude, magnitude) + (sign & ~lost))[:SPAN_BITS]
        m.d.sync += place.eq(floor.as_signed())

        strange = element.exponent.all() & (element.fraction.any() | ~element.sign)  # NaN or +inf
        undefined, (entered, *_, placed) = Signal(), _later(m, loading, _SCALED)
        first_entered, *_, first_placed = _later(m, loading & first, _SCALED)
        with m.If(entered):
            m.d.sync += undefined.eq(strange | (undefined & ~first_entered))
        with m.If(placed & (first_placed | (place > largest))):
            m.d.sync += largest.eq(place)
        return place, undefined | (largest == _LOWEST), largest

    #: Cycles from the address of an element to its term; one of them finds the distance.
    _term_latency = _BUFFER + _SCALED + 1 + Exponential.latency

    def _term(self, m, distance, adding, dividing):
        """The term of the element of `_term_latency` cycles ago, and whether it entered to be added, or divided.

        The second of these values is a list: of it, the term has the last element, and the next term the one before.
        """
        m.submodules.exponential = exponential = Exponential()
        late = Signal(SPAN_BITS, reset_less=True)
        m.d.sync += late.eq(distance)
        m.d.comb += exponential.distance.eq(late)
        return exponential.o, _later(m, adding, self._term_latency), _later(m, dividing, self._term_latency)[-1]

    def _divide(self, m, term, start, total):
        """The quotient of term and total, its remainder's sticky bit below it, and a pulse when both are complete."""
        rest, quotient = Signal(len(total) + 1), Signal(2 * _STEPS)
        three = delay(m, total + (total << 1), 1)  # the sum is complete long before the first quotient
        with m.If(start):
            m.d.sync += rest.eq(term)
        with m.Else():
            digit, left = _digit(Cat(Const(0, 1), rest), total, three)
            m.d.sync += [rest.eq(Cat(Const(0, 1), left)), quotient.eq(Cat(digit, quotient))]
        return Cat(rest.any(), quotient), _later(m, start, _STEPS + 1)[-1]

    def _rounded(self, m, quotient, ready):
        """The binary16 pattern of a quotient with its sticky bit, and `ready` when it comes."""
        m.submodules.rounder = rounder = Binary16Rounder(len(quotient) + 1, range(QUOTIENT_BITS + 1, QUOTIENT_BITS + 2))
        m.d.comb += [rounder.value.eq(quotient), rounder.scale.eq(QUOTIENT_BITS + 1)]
        return rounder.o, _later(m, ready, rounder.latency)[-1]


def _digit(twice, total, three):
    """The next two bits of a quotient, from twice the rest, which is below four times the total; and what is left.

    All three differences are computed at once, and their signs choose one of them.
    """
    one, two, over = ((twice - multiple).as_signed() for multiple in (total, total << 1, three))
    low, high = Mux(one < 0, twice, one), Mux(over < 0, two, over)
    return (Cat(Mux(two < 0, one >= 0, over >= 0), two >= 0), Mux(two < 0, low, high)[:len(total)])


def _later(m, signal, cycles):
    """`signal` in each of the cycles that follow, 1 to `cycles` later; unlike those of `delay`, registers are reset."""
    later = [signal]
    for _ in range(cycles):
        later.append(Signal.like(Value.cast(signal)))
        m.d.sync += later[-1].eq(later[-2])
    return later[1:]
