"""What goes between the units of a trainer: views, jobs of the engines, and accesses to memories.

The sequencer gives an engine a job, in which views have absolute addresses and exponents have become shifts. An engine
executes its jobs in their order, and says when one has ended.
"""

from amaranth.hdl import signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from concord.hw.lazy.lazy_step import change_shape, joint_shape
from concord.spec.numbers.lazy import ACCUMULATOR_BITS, LazyFormat
from concord.spec.trainer.config import LANES

ADDRESS = 28  #: Bits of the address of a word of any memory; addresses are taken modulo 2^28.
CHIP_ADDRESS = 16  #: Bits of the address of a word on the chip.
ROW = 9  #: Bits of the address of a row of the accumulators.
COUNT = 12  #: Bits of a count of a view.
STRIDE = 20  #: Bits of a stride of a view, sign included.
JUMP = STRIDE + 4  #: Bits of a stride times a step.
SHIFT = signed(7)  #: A shift to the right, rounded half away from zero; a negative one goes to the left.
LENGTH = range(ACCUMULATOR_BITS + 2)  #: 0 for zeros, else 1 + ceil(log2 of the largest magnitude).
MEASURED = ACCUMULATOR_BITS + 1  #: Bits of a number that is or-ed to find a length: |t| - 1, and above it "not 0".

#: The bytes of a word, column 0 in the low bits.
Word = data.ArrayLayout(8, LANES)
#: The sums of a row of the accumulators: 16 lanes and the plain lane.
Sums = data.ArrayLayout(signed(ACCUMULATOR_BITS), LANES + 1)


def _axis(number: int) -> dict:
    """Axis 1 or 2: its count, words from one row to the next, words of a tap, and what decides whether u is inside."""
    return {f"n{number}": COUNT, f"jump{number}": signed(JUMP), f"pitch{number}": signed(STRIDE), f"step{number}": 4,
            f"origin{number}": signed(8), f"limit{number}": COUNT}


#: A view with its base register: `first` is the word of plane 0, block 0 and row 0 with taps 0, origins included.
#: `jump` is pitch times step. All counts are at least 1; `limit` 0 is none.
View = data.StructLayout({
    "first": ADDRESS, "space": 2, "planes": 3, "plane": STRIDE, "blocks": COUNT, "block": signed(STRIDE), "n0": COUNT,
    "s0": signed(STRIDE), **_axis(1), **_axis(2)})

#: A view that may be missing.
Optional = data.StructLayout({"there": 1, "view": View})

#: `copy`, and the parts of a `sum`. Without `there`, zeros are written. `add` adds to the accumulators. With `patches`,
#: pitch2 does not count: `first` of the source is the word of column 0.
CopyJob = data.StructLayout({
    "to": View, "source": Optional, "add": 1, "patches": 1, "size": 4, "channels": 4})

#: `product`. With `y`, all rows are drained: t = acc + rs(bias, bias_right), or t = bias with `bias_only`; m = rs(t,
#: right), clipped to 8 bits for each plane of y. `right` is -32..63, and `bias_right` -39..9.
ProductJob = data.StructLayout({
    "a": View, "b": View, "y": Optional, "bias": Optional, "mask": Optional, "relu": 1, "mode": 1, "turned": 1,
    "keep": 1, "sum": 1, "acc": ROW, "outputs": COUNT, "n0": COUNT, "n1": 6, "n2": 6, "a_s0": signed(STRIDE),
    "right": SHIFT, "bias_right": SHIFT, "bias_only": 1})

#: `pool`, `pool_back` and `add` by `kind`. x is a of `add`, and other is b of `add`. `converts`: y are sums that are
#: measured and shifted by `right` (-32..63); otherwise they are mantissas. Sums of `add` are rs(x, x_right) + rs(b,
#: other_right), each shift in -24..17. `mean`: sums are multiplied by `reciprocal`.
POOL, POOL_BACK, ADD = range(3)
PoolingJob = data.StructLayout({
    "kind": 2, "y": View, "x": View, "other": View, "chosen": Optional, "mask": Optional, "size": 4, "stride": 4,
    "mean": 1, "relu": 1, "reciprocal": 16, "converts": 1, "right": SHIFT, "x_right": SHIFT, "other_right": SHIFT})

#: `update`: docs/trainer.md has the steps. Shifts are those of rs, of S to g, of momentum times v_old and of g to T, of
#: T to v, and of P to a; each is clamped to where it no longer changes a bit.
UpdateJob = data.StructLayout({
    "old": View, "new": View, "acc": ROW, "bias": 1, "decay": signed(16), "rate": signed(16),
    "change": change_shape(LazyFormat()),
    "g_right": SHIFT, "kept_right": SHIFT, "gradient_right": SHIFT, "v_right": SHIFT, "p_right": SHIFT})

#: The end of a job: what it wrote is seen by all that begins later. `length` is that of the exact sums that it has
#: measured, 0 if it measured none. For an update it is that of S, for X[eg]; the engine tells that of T, for X[ev],
#: beside it, as `momentum`.
Ended = data.StructLayout({"valid": 1, "length": LENGTH})


def engine(job) -> dict:
    """The wires that each engine has to the sequencer.

    Members:
        job: In(stream of a job). Jobs, which are taken when the engine has room; one may be taken while the one before
            is under way.
        ended: Out(Ended). Pulse for each job, in their order.
    """
    return {"job": In(stream.Signature(job)), "ended": Out(Ended)}


#: A read of the chip. A row: the 16 bytes of `word`. A column: byte `lane` of `word` + j in lane j, where `word` is a
#: multiple of 16. With `zeros` nothing is read, and the answer is zeros.
ChipRead = data.StructLayout({"word": CHIP_ADDRESS, "column": 1, "lane": 4, "zeros": 1})
#: The answer, CHIP_LATENCY cycles after the read was taken; it does not wait.
ChipAnswer = data.StructLayout({"valid": 1, "bytes": Word})
CHIP_LATENCY = 6
#: A write of a whole word of the chip. Reads that are taken in a later cycle see it.
ChipWrite = data.StructLayout({"word": CHIP_ADDRESS, "bytes": Word})


def chip_reader() -> dict:
    """The wires of an engine that reads the chip: a read is taken when it is granted, and is answered in order."""
    return {"read": Out(stream.Signature(ChipRead)), "answer": In(ChipAnswer)}


def chip_writer() -> dict:
    """The wires of an engine that writes the chip: a write is taken when it is granted."""
    return {"write": Out(stream.Signature(ChipWrite))}


#: A read of a row of the accumulators, answered ROW_LATENCY cycles after it was taken.
RowAnswer = data.StructLayout({"valid": 1, "sums": Sums})
ROW_LATENCY = 3
#: Adds to a row, modulo 2^48, or writes it with `fresh`; `lanes` and `plain` say which lanes it touches. Reads that are
#: taken ROW_ADDS cycles later see it, and the same row must not come again within ROW_ADDS cycles.
RowAdd = data.StructLayout({"row": ROW, "sums": Sums, "fresh": 1, "lanes": 1, "plain": 1})
ROW_ADDS = 8


def row_reader() -> dict:
    """The wires of an engine that reads the accumulators."""
    return {"row": Out(stream.Signature(ROW)), "sums": In(RowAnswer)}


def row_adder() -> dict:
    """The wires of an engine that writes the accumulators."""
    return {"row_add": Out(stream.Signature(RowAdd))}


#: A write of a word of exponents: byte k is E + 126 of X[16 word + k].
ExponentWrite = data.StructLayout({"word": 2, "bytes": Word})


def exponent_reader() -> dict:
    """The wires of an engine that reads exponents: `exponents` is the word that `exponent` named one cycle before."""
    return {"exponent": Out(2), "exponents": In(Word)}


def exponent_writer() -> dict:
    """The wires of an engine that writes exponents: a write is taken when it is granted."""
    return {"exponent_write": Out(stream.Signature(ExponentWrite))}


#: What updates have met since the summary was cleared: the length of P, extremes of the NEGATIVE joint values and of 0,
#: flags, and counts. `large`: not all mantissas are small; `outside`: a mantissa left its range; `holds`: an old
#: mantissa or residual is not 0. Lengths of S and T are those of one job and come with its end, so that X[eg] and X[ev]
#: have them at once: a `measure` of another kind may take them before the update's own does.
Summary = data.StructLayout({
    "length": LENGTH, "lowest": joint_shape(LazyFormat()), "highest": joint_shape(LazyFormat()),
    "large": 1, "outside": 1, "holds": 1, "steps": 32, "rounded": 32, "saturations": 32})
