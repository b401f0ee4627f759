"""The lazy update on streams: golden.lazy.lazy_update.one_pass in hardware."""

from operator import add, or_

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lazy.exponent_search import COUNT, COUNTS, ExponentSearch, pass_answer, pass_summary
from concord.hw.lazy.lazy_step import change_shape, control, joint, joint_shape, set_out, stages
from concord.hw.lib.arithmetic import greater, lesser, tree
from concord.hw.lib.pipeline import Registered, delay, delay_control, follow
from concord.hw.lib.queue import Queue
from concord.hw.lib.reserved_queue import ReservedQueue
from concord.spec.numbers.lazy import EXPONENT_BITS, MOST_LANES, LazyFormat

PASSES = 16  # largest number of passes that are taken and not answered yet
MARGIN = 4  # words held beyond the pipeline: latency of the queue, and a cycle in each direction
FLAGS = ("outside", "large", "holds", "updated")  # a pass has each flag that one of its elements has
_COUNTED = {"steps": "moved", "rounded": "rounded", "saturations": "limited"}  # and the flags that they count


def lazy_block(fmt: LazyFormat) -> data.StructLayout:
    """What one pass of a tensor needs: stored exponents E - E_MIN, and by how much its own is to change."""
    return data.StructLayout({
        "exponent": EXPONENT_BITS, "update_exponent": EXPONENT_BITS, "change": change_shape(fmt)})


def lazy_parameters(fmt: LazyFormat, lanes: int) -> data.StructLayout:
    """One word of parameters; `last` on the last one of a tensor."""
    return data.StructLayout({"mantissas": data.ArrayLayout(signed(fmt.bits), lanes),
                              "residuals": data.ArrayLayout(signed(fmt.residual), lanes), "last": 1})


def lazy_elements(fmt: LazyFormat, lanes: int) -> data.StructLayout:
    """One word of parameters and their updates. Lanes beyond the end of a tensor are zeros."""
    return data.StructLayout({"mantissas": data.ArrayLayout(signed(fmt.bits), lanes),
                              "residuals": data.ArrayLayout(signed(fmt.residual), lanes),
                              "updates": data.ArrayLayout(signed(fmt.update), lanes), "last": 1})


class LazyUpdate(wiring.Component):
    """Subtract updates from parameters, one tensor after another, each in as many passes as it asks for.

    A pass streams a tensor through once. Its answer says whether what came out stands, or whether the tensor must pass
    once more from where it began: with its exponent changed, or with the exponent of its update.

    Args:
        fmt:   Widths of parameters and updates.
        lanes: Number of parameters in a word.

    Members:
        block: In(stream {exponent, update_exponent, change}). One for each pass.
        i: In(stream {mantissas, residuals, updates, last}). Parameters and updates; lanes after the end are zeros.
        o: Out(stream {mantissas, residuals, last}). Words of new parameters.
        answer: Out(stream {repeat, change, steps, rounded, saturations}). One for each pass, after its last word.
        clear: In(1). Set the totals to 0.
        totals: Out({steps, rounded, saturations, changes}). Sums over the answers taken that ask for nothing, of 32
            bits, saturating.

    Timing:
        One word a cycle in and out, from tensor to tensor too: where passes have fewer than four words, or fewer than
        `search` and their values leave their range, answers may hold back the words of later ones. The first word comes
        out `latency` cycles after it went in.

    Raises:
        ValueError: `lanes` is out of its range.
    """

    def __init__(self, fmt: LazyFormat, lanes: int):
        if not 1 <= lanes <= MOST_LANES:
            raise ValueError(f"a lazy update has 1 to {MOST_LANES} lanes, not {lanes}")
        self.fmt, self.lanes = fmt, lanes
        self.stages = stages(fmt)
        totals = data.StructLayout(dict.fromkeys((*COUNTS, "changes"), COUNT))
        super().__init__({
            "block": In(stream.Signature(lazy_block(fmt))), "i": In(stream.Signature(lazy_elements(fmt, lanes))),
            "o": Out(stream.Signature(lazy_parameters(fmt, lanes))), "answer": Out(stream.Signature(pass_answer(fmt))),
            "clear": In(1), "totals": Out(totals)})

    @property
    def depth(self) -> int:
        """Cycles from a word at `i` to its computed parameters."""
        return 1 + len(self.stages)

    @property
    def latency(self) -> int:
        """Cycles from a word at `i` to its parameters at `o`."""
        return self.depth + 2

    @property
    def search(self) -> int:
        """Largest number of cycles from one answer to the next."""
        return self.fmt.changes[-1] + 3

    def elaborate(self, platform):
        m = Module()
        # Nothing stalls between a word taken and the queue of those made: a word is taken when there is room for it
        # and for the summary of its pass.
        m.submodules.blocks = blocks = Queue(lazy_block(self.fmt), 3)
        m.submodules.words = words = ReservedQueue(lazy_parameters(self.fmt, self.lanes), self.depth + MARGIN)
        m.submodules.passes = passes = ReservedQueue(pass_summary(self.fmt), PASSES)
        m.submodules.exponent_search = exponent_search = ExponentSearch(self.fmt)
        wiring.connect(m, wiring.flipped(self.block), blocks.i)
        wiring.connect(m, words.o, wiring.flipped(self.o))
        wiring.connect(m, passes.o, exponent_search.i)
        taken, first = Signal(), Signal(init=1)
        inside, unanswered = Signal(range(words.depth + 1)), Signal(range(PASSES + 1))
        ends, answered = taken & self.i.p.last, self.answer.valid & self.answer.ready
        m.d.comb += [
            self.i.ready.eq(blocks.o.valid & (inside != words.depth) & (unanswered != PASSES)),
            taken.eq(self.i.valid & self.i.ready), blocks.o.ready.eq(ends)]
        m.d.sync += [inside.eq(inside + taken - (self.o.valid & self.o.ready)),
                     unanswered.eq(unanswered + ends - answered)]
        with m.If(taken):
            m.d.sync += first.eq(self.i.p.last)

        shared = control(blocks.o.p, self.fmt) | {"first": first, "last": self.i.p.last}
        lanes, shared, extremes = self._pipeline(m, shared)
        made = delay_control(m, taken, self.depth)
        m.d.comb += [words.i.valid.eq(made), words.i.p.last.eq(shared["last"])]
        for k, lane in enumerate(lanes):
            m.d.comb += [words.i.p.mantissas[k].eq(lane["mantissa"]), words.i.p.residuals[k].eq(lane["residual"])]
        self._summarise(m, made, lanes, Registered(m, shared), extremes, passes.i)
        self._reply(m, exponent_search, answered)
        return m

    def _pipeline(self, m, shared):
        """The elements of a word after all stages, and their control; one cycle later, the extremes of their falls."""
        words = zip(self.i.p.mantissas, self.i.p.residuals, self.i.p.updates, strict=True)
        lanes = [Registered(m, dict(zip(("mantissa", "residual", "update"), word, strict=True))) for word in words]
        shared, ends = Registered(m, shared), None
        for index, stage in enumerate(self.stages):
            lanes = [Registered(m, follow(lane, stage(lane, shared))) for lane in lanes]
            shared = Registered(m, follow(shared, {} if index else set_out(shared, self.fmt)))
            if stage.func is joint:
                ends = index, [lane["fall"] for lane in lanes]
        index, falls = ends
        levels = (self.lanes - 1).bit_length()
        return lanes, shared, [
            delay(m, tree(falls, function, lambda value: delay(m, value, 1)), len(self.stages) - index - levels)
            for function in (lesser, greater)]

    def _summarise(self, m, made, lanes, shared, extremes, summary):
        """Reduce the elements of a pass to one summary; `shared` and `extremes` come one cycle after `lanes`."""
        word, first = delay_control(m, made, 1), shared["first"]

        def total(value, function, shape):
            """A value reduced over all words of a pass."""
            kept = Signal(shape)
            with m.If(word):
                m.d.sync += kept.eq(Mux(first, value, function(kept, value)))
            return kept

        found = {name: total(value, function, joint_shape(self.fmt)) for name, value, function in
                 zip(("lowest", "highest"), extremes, (lesser, greater), strict=True)}
        for name in FLAGS:
            found[name] = total(delay(m, Cat(lane[name] for lane in lanes).any(), 1), or_, 1)
        for name, flag in _COUNTED.items():
            number = delay(m, tree([lane[flag] for lane in lanes], add), 1)
            found[name] = _saturated(total(number, _grown, COUNT + 1))
        for name in ("exponent", "update_exponent", "changes"):
            found[name] = total(shared[name], lambda _, value: value, shared[name].shape())
        m.d.comb += [summary.p[name].eq(value) for name, value in found.items()]
        m.d.comb += summary.valid.eq(delay_control(m, word & shared["last"], 1))

    def _reply(self, m, exponent_search, answered):
        """Hold an answer until the last word of its pass has left, and add up the counts of final passes."""
        answer, left = exponent_search.o, Signal(range(PASSES + 1))
        leaves = self.o.valid & self.o.ready & self.o.p.last
        m.d.sync += left.eq(left + leaves - answered)
        m.d.comb += [self.answer.valid.eq(answer.valid & (left != 0)), self.answer.payload.eq(answer.payload),
                     answer.ready.eq(self.answer.ready & (left != 0))]
        stands = {name: answer.p[name] for name in COUNTS} | {"changes": exponent_search.changed}
        for name, number in stands.items():
            with m.If(self.clear):
                m.d.sync += self.totals[name].eq(0)
            with m.Elif(answered & (answer.p.repeat == 0)):
                m.d.sync += self.totals[name].eq(_saturated(self.totals[name] + number))


def _grown(count, number):
    """A count of 33 bits, whose highest bit is sticky."""
    total = count[:COUNT] + number
    return Cat(total[:COUNT], total[COUNT] | count[COUNT])


def _saturated(value):
    """A sum that saturates at 32 bits."""
    return value[:COUNT] | value[COUNT].replicate(COUNT)
