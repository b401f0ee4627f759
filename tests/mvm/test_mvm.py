"""golden.mvm.mvm and its parts against slow loops over Python integers and fractions."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from amaranth.sim import Simulator
from concord.golden.mvm.accumulator import accumulate
from concord.golden.mvm.converter import convert
from concord.golden.mvm.elements import marks, pack_entries, pack_tiles, unpack_entries, unpack_tiles
from concord.golden.mvm.mvm import multiply, multiply_entries, multiply_groups
from concord.golden.mvm.overflow import Events, misfits
from concord.golden.mvm.tile_engine import alignment, dot_products, exact_sums, lane_sums
from concord.golden.mvm.vector_rf import VectorRf
from concord.hw.mvm.overflow import OverflowCounter
from concord.spec.host.messages import MessageKind, item_bytes
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import preset
from concord.spec.numbers.formats import Format

NARROW = replace(preset("tiny"), acc_int=2, acc_frac=9, weights=Format(bits=4, e_min=0, e_max=3), product_bits=7,
                 activations=Format(bits=5, e_min=-2, e_max=2), tile_engines=2, bias_bits=14, output_bits=8)
CONFIGS = {
    "tiny": preset("tiny"), "serial": preset("serial"), "wide": preset("wide"), "narrow": NARROW,
    "engines": replace(preset("tiny"), tile_engines=2), **{
        f"{bits} bits": replace(preset("tiny"), tile_engines=4, acc_int=bits - 44) for bits in (62, 63, 64, 65)}}


def wrap(value: int, bits: int) -> int:
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def lacking(value: int, bits: int) -> int:
    """Number of bits that are missing if a value must fit `bits` bits."""
    excess = 0
    while not -(1 << bits + excess - 1) <= value < 1 << bits + excess - 1:
        excess += 1
    return excess


class Loop:
    """The definition of the accumulation, one product at a time."""

    def __init__(self, config):
        self.config, self.counts, self.excess = config, [0, 0], [0, 0]

    def note(self, kind, value, bits):
        excess = lacking(value, bits)
        self.counts[kind] += excess > 0
        self.excess[kind] = max(self.excess[kind], excess)

    def row(self, weights, exponents, operand, operand_exponents, start, integer):
        """The total of one row with weights [columns, N] and exponents [columns]."""
        config, total = self.config, 0
        for first in range(0, len(weights), config.tile_engines):
            for group in range(config.groups):
                beat = 0
                for c in range(first, min(first + config.tile_engines, len(weights))):
                    shift = 0 if integer else config.alignment + int(exponents[c]) + int(operand_exponents[c])
                    for j in range(group * config.lanes, (group + 1) * config.lanes):
                        product = int(weights[c, j]) * int(operand[c, j])
                        self.note(0, product, config.product_bits)
                        beat += product << shift
                total = self.add(total, beat)
        return total if start is None else self.add(total, int(start))

    def add(self, total, value):
        self.note(1, total + value, self.config.sum_bits)
        return wrap(total + value, self.config.sum_bits)

    def events(self):
        if not self.config.count_overflows:
            return Events()
        return Events(product=self.counts[0], partial=self.counts[1], excess_product=self.excess[0],
                      excess_partial=self.excess[1])


def case(config, rng, row_tiles, columns, *, low, integer):
    """Random mantissas and stored exponents; with `low`, both are small."""
    n, w, x = config.native_dim, config.weights, config.activations
    weights = rng.integers(w.lowest, w.highest + 1, (row_tiles, columns, n, n))
    operand = rng.integers(x.lowest, x.highest + 1, (columns, n))
    if low:
        weights, operand = weights // 4, operand // 4
    spans = [1 if low or integer else fmt.e_max - fmt.e_min + 1 for fmt in (w, x)]
    return weights, rng.integers(0, spans[0], (row_tiles, columns, n)), operand, rng.integers(0, spans[1], columns)


@pytest.mark.parametrize("name", CONFIGS)
def test_accumulate(name):
    config, rng = CONFIGS[name], np.random.default_rng(3)
    for trial in range(12):
        integer, low = bool(trial & 1), bool(trial & 2)
        tiles, columns = rng.integers(1, 4), rng.integers(1, config.operand_columns + 1)
        rows = int(rng.integers(1, tiles * config.native_dim + 1))
        weights, exponents, operand, operand_exponents = case(config, rng, tiles, columns, low=low, integer=integer)
        span = 1 << config.bias_bits - 1
        start = rng.integers(-span, span, rows) if integer and trial & 4 else None
        totals, events = accumulate(config, weights, exponents, operand, operand_exponents, start, rows=rows,
                                    integer=integer)
        loop, n = Loop(config), config.native_dim
        want = [loop.row(weights[r // n, :, r % n], exponents[r // n, :, r % n], operand, operand_exponents,
                         None if start is None else start[r], integer) for r in range(rows)]
        assert totals.tolist() == want
        assert events == loop.events()


def one_row(config, weights, operand, shifts, start=None):
    """Total and events of one row, in whose native vectors all weights are equal, and all operands.

    Args:
        weights: Weight in each column, [columns].
        operand: Operand in each column, [columns].
        shifts:  Left shift of each column; None in integer mode.
        start:   Start value, or None.
    """
    n, columns = config.native_dim, len(weights)
    matrix = np.zeros((1, columns, n, n), np.int64)
    matrix[0, :, 0] = np.asarray(weights).reshape(columns, -1)
    vectors = np.broadcast_to(np.asarray(operand).reshape(columns, -1), (columns, n))
    stored = np.zeros(columns, np.int64) if shifts is None else np.array(shifts) - config.alignment
    exponents = np.minimum(stored, 31)
    totals, events = accumulate(
        config, matrix, np.broadcast_to(exponents[:, None], (1, columns, n)), vectors, stored - exponents,
        None if start is None else np.array([start]), rows=1, integer=shifts is None)
    return totals.tolist()[0], events


def single(config, values):
    """Native vectors in which only the first element is not zero."""
    return [[value] + [0] * (config.native_dim - 1) for value in values]


@pytest.mark.parametrize(("weights", "operand", "start"), [
    ([-8], [-16], None),  # 2 beats of 512
    ([-8, -8], [-8, -8], None),  # 2 columns with 2 beats of 256 each
    ([-8], [-15], 64),  # 960, and a start value
])
def test_a_sum_at_the_end_of_the_range_is_an_event(weights, operand, start):
    total, events = one_row(replace(NARROW, product_bits=16), weights, operand, None, start)
    assert (total, events) == (-1024, Events(partial=1, excess_partial=1))


def test_a_sum_before_it_wraps_may_need_65_bits():
    # 2**61 + 3 * 2**61 = 2**63, for which an accumulator of 63 bits lacks two bits.
    config = replace(preset("tiny"), acc_int=19)
    assert one_row(config, single(config, [1, 3]), [1, 1], [61, 61]) == (0, Events(partial=1, excess_partial=2))


@pytest.mark.parametrize("acc_int", [0, 19, 20])
def test_a_beat_of_two_engines_may_need_65_bits(acc_int):
    config = replace(preset("tiny"), acc_int=acc_int, tile_engines=2)
    total, events = one_row(config, single(config, [1, 1]), [1, 1], [62, 62])
    assert (total, events) == (wrap(1 << 63, 44 + acc_int), Events(partial=1, excess_partial=21 - acc_int))


@pytest.mark.parametrize("acc_int", [21, 22, 36])
def test_a_sum_of_more_than_64_bits(acc_int):
    config = replace(preset("tiny"), acc_int=acc_int)
    assert one_row(config, single(config, [1, 1]), [1, 1], [62, 62]) == (1 << 63, Events())
    assert one_row(config, single(config, [-1, -1]), [1, 1], [62, 62]) == (-1 << 63, Events())


def test_an_alignment_may_move_everything_beyond_the_accumulator():
    wide = Format(bits=2, e_min=16, e_max=16)
    config = replace(preset("tiny"), weights=wide, activations=wide, acc_int=0, acc_frac=63, count_overflows=False)
    assert config.alignment == 93
    assert one_row(config, [1], [1], [93])[0] == 0


def test_a_product_of_the_two_lowest_mantissas_counts():
    config = replace(NARROW, product_bits=8)  # 8 * 16 does not fit, 8 * 15 and 7 * 16 do
    _, events = one_row(config, single(config, [-8]), [-16], None)
    assert events == Events(product=1, excess_product=1)


def test_iterations_add_up():
    config, rng = CONFIGS["serial"], np.random.default_rng(4)
    weights, exponents, *_ = case(config, rng, 2, 3, low=False, integer=False)
    operands = [case(config, rng, 1, 3, low=False, integer=False)[2:] for _ in range(5)]
    operand, operand_exponents = (np.stack(parts) for parts in zip(*operands, strict=True))
    totals, events = accumulate(config, weights, exponents, operand, operand_exponents, rows=7, integer=False)
    singles = [accumulate(config, weights, exponents, *one, rows=7, integer=False) for one in operands]
    assert totals.tolist() == [single.tolist() for single, _ in singles]
    assert events == sum((each for _, each in singles), Events())
    assert events.partial > 0


def test_lane_sums_add_up_to_dot_products():
    config, rng = CONFIGS["wide"], np.random.default_rng(5)
    weights, _, operand, _ = case(config, rng, 2, 3, low=False, integer=False)
    assert (lane_sums(weights, operand, config.lanes).sum(-1) == dot_products(weights, operand)).all()


def rounded(value: Fraction) -> int:
    """The binary16 pattern of a fraction, found by search over all finite numbers."""
    finite = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    at = int(np.searchsorted(finite, float(abs(value))))
    nearby = [k for k in range(max(at - 2, 0), at + 3) if k <= 0x7C00]
    numbers = {k: Fraction(65536) if k == 0x7C00 else Fraction(float(finite[k])) for k in nearby}
    return min(nearby, key=lambda k: (abs(numbers[k] - abs(value)), k & 1)) | (0x8000 if value < 0 else 0)


def test_convert():
    config, rng = CONFIGS["wide"], np.random.default_rng(6)
    totals = np.array([0, *(int(v) << int(s) for v, s in zip(rng.integers(-4096, 4096, 300), rng.integers(0, 62, 300),
                                                             strict=True))], object)
    block = convert(config, totals, integer=False)
    assert block.tolist() == [rounded(Fraction(total, 1 << config.acc_frac)) for total in totals]
    for out_scale in (-32, -3, 0, 31):
        got = convert(config, totals, integer=True, out_scale=out_scale)
        assert got.tolist() == [rounded(total / Fraction(2) ** out_scale) for total in totals]


def test_multiply_blocks_by_fractions():
    """Quantisation, product and rounding of one row, against exact fractions."""
    config, rng = preset("tiny"), np.random.default_rng(7)
    weights, exponents, *_ = case(config, rng, 1, 2, low=False, integer=False)
    exponents = exponents // 4 + 10
    operand = rng.normal(size=(2, config.native_dim)).astype(np.float16)
    bits, events = multiply(config, weights, exponents, operand.view(np.uint16), rows=3)
    for row in range(3):
        total = Fraction(0)
        for c in range(2):
            largest = max(abs(operand[c]))
            scale = next(e for e in range(-15, 17) if Fraction(2) ** e > Fraction(float(largest)))
            grid = Fraction(2) ** (scale - 7)
            for j in range(config.native_dim):
                mantissa = max(-128, min(127, round(Fraction(float(operand[c, j])) / grid)))
                total += mantissa * grid * int(weights[0, c, row, j]) * Fraction(2) ** (int(exponents[0, c, row]) - 22)
        assert bits[row] == rounded(total)
    assert events.output == 0


def test_misfits_of_every_pair():
    for bits in (1, 2, 4):
        for a in range(-20, 20):
            for b in range(-20, 20):
                lacks = [lacking(value, bits) for value in (a, b)]
                assert misfits(np.array([a, b]), bits) == (sum(lack > 0 for lack in lacks), max(lacks))


def test_output_events():
    config = replace(preset("tiny"), output_bits=6)
    n = config.native_dim
    weights = np.full((1, 1, n, n), 3)
    operand = np.ones((1, n), np.float16).view(np.uint16)
    start = np.arange(n) * 16
    _, events = multiply(config, weights, np.zeros((1, 1, n), np.int64), operand, start, rows=n, integer=True)
    assert (events.output, events.excess_output) == (7, 3)  # 24 + 16 r, of which only r = 0 fits six bits
    _, events = multiply(config, weights, np.full((1, 1, n), 31), np.full((2, 1, n), 0x7BFF, np.uint16), rows=2)
    assert (events.output, events.excess_output) == (4, 1)


@pytest.mark.parametrize("name", CONFIGS)
def test_packing(name):
    config, rng = CONFIGS[name], np.random.default_rng(8)
    n = config.native_dim
    weights, exponents, *_ = case(config, rng, 2, 3, low=False, integer=False)
    weights, exponents = weights.reshape(-1, n, n), exponents.reshape(-1, n)
    weights[1, :, config.lanes:] = 0
    weights[2] = 0
    weights[3] = 0
    weights[3, n - 1, n - 1] = -1
    data = pack_tiles(config, weights, exponents)
    assert len(data) == len(weights) * item_bytes(config, MessageKind.PACKED)
    back = unpack_tiles(config, data)
    assert (back[0] == weights).all()
    assert (back[1] == exponents).all()
    assert marks(config, weights)[1:4].tolist() == [1, 0, config.groups]


def test_sums_over_all_columns_are_those_of_aligned_tiles():
    config, rng = preset("trainer"), np.random.default_rng(9)
    weights, exponents, *_ = case(config, rng, 3, 4, low=False, integer=False)
    operands = [case(config, rng, 1, 4, low=False, integer=False)[2:] for _ in range(5)]
    operand, operand_exponents = (np.stack(parts) for parts in zip(*operands, strict=True))
    for integer in (False, True):
        shift = alignment(config, exponents, operand_exponents[:, None], integer=integer)
        want = (dot_products(weights, operand) << shift).sum(-2).reshape(5, -1)
        assert (exact_sums(config, weights, exponents, operand, operand_exponents, integer=integer) == want).all()


@pytest.mark.parametrize("sign", [1, -1])
def test_odd_sums_that_float32_does_not_hold_are_exact(sign):
    config = preset("tiny")
    n, none = config.native_dim, np.zeros(0)
    weights, operand = np.full((1, 1, n, n), sign * 1449), np.full((1, 1, n), 1449)
    operand[..., 0] = 1448
    want = sign * 1449 * (8 * 1449 - 1)  # of the magnitudes from 2**24 up, float32 holds the even ones
    assert (exact_sums(config, weights, none, operand, none, integer=True) == want).all()


def test_the_lowest_number_of_16_bits_is_the_largest_operand():
    """Codes of 0 without sign, as VectorRf keeps them; their number has no negative in 16 bits."""
    config, rng = preset("tiny"), np.random.default_rng(3)
    n, none = config.native_dim, np.zeros(0)
    weights, operand = rng.integers(-127, 128, (1, 1, n, n)), np.full((1, 1, n), -32768, np.int16)
    operand[..., 0] = 32767
    want = (weights[0, 0] @ operand[0, 0].astype(int))[None]
    assert (exact_sums(config, weights, none, operand, none, integer=True) == want).all()


def test_many_integers_are_counted_in_one_cycle():
    """As by a machine with 1,024 multipliers and `count_overflows`."""
    counter = OverflowCounter(1024, 4, 3)
    values = np.random.default_rng(2).integers(-8, 8, 1024)

    async def bench(ctx):
        ctx.set(counter.values, values.tolist())
        ctx.set(counter.used, 1000)
        ctx.set(counter.valid, 1)
        await ctx.tick().repeat(counter.latency)
        assert (ctx.get(counter.misfits), ctx.get(counter.excess)) == misfits(values[:1000], 3)
    simulator = Simulator(counter)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def test_sums_that_a_float_cannot_hold_are_left_to_aligned_tiles():
    config, rng = preset("tiny"), np.random.default_rng(9)
    weights, exponents, operand, operand_exponents = case(config, rng, 2, 3, low=False, integer=False)
    assert exact_sums(config, weights, exponents, operand[None], operand_exponents[None], integer=False) is None


def test_row_tiles_with_operands_of_their_own():
    config, rng = NARROW, np.random.default_rng(4)
    weights, exponents, *_ = case(config, rng, 3, 2, low=False, integer=False)
    operands = [case(config, rng, 1, 2, low=False, integer=False)[2:] for _ in range(6)]
    mantissas = np.stack([m for m, _ in operands]).reshape(2, 3, 2, -1)
    stored = np.stack([e for _, e in operands]).reshape(2, 3, 2)
    bits, events = multiply_groups(config, weights, exponents, mantissas, stored, rows=19)
    total = Events()
    for tile in range(3):
        rows = min(8, 19 - 8 * tile)
        want, counted = multiply_entries(config, weights[tile:tile + 1], exponents[tile:tile + 1], mantissas[:, tile],
                                         stored[:, tile], rows=rows)
        assert (bits[:, 8 * tile:8 * tile + rows] == want).all()
        total += counted
    assert events == total


def test_entries_pack_into_messages():
    for config in CONFIGS.values():
        rng, fmt = np.random.default_rng(2), config.activations
        mantissas = rng.integers(fmt.lowest, fmt.highest + 1, (7, config.native_dim))
        stored = rng.integers(0, fmt.e_max - fmt.e_min + 1, 7)
        data = pack_entries(config, mantissas, stored)
        assert len(data) == 7 * item_bytes(config, MessageKind.WRITE, Mem.VECTOR_RF)
        first = int.from_bytes(data[:len(data) // 7], "little")
        for k, mantissa in enumerate(mantissas[0]):
            assert first >> k * fmt.bits & (1 << fmt.bits) - 1 == int(mantissa) & (1 << fmt.bits) - 1
        assert first >> config.native_dim * fmt.bits == stored[0]
        for got, want in zip(unpack_entries(config, data), (mantissas, stored), strict=True):
            assert (got == want).all()


@pytest.mark.parametrize("name", CONFIGS)
def test_entries_as_numbers(name):
    config, rng = CONFIGS[name], np.random.default_rng(6)
    fmt, entries = config.activations, VectorRf(config)
    size = len(entries.mantissas)
    entries.mantissas[:] = rng.integers(fmt.lowest, fmt.highest + 1, entries.mantissas.shape)
    entries.mantissas[0] = 0
    entries.exponents[:] = rng.integers(0, fmt.e_max - fmt.e_min + 1, size)
    for mode in ({}, {"integer": True}, {"integer": True, "unsigned": True}):
        words = rng.permutation(size * config.vector_words)
        for word, bits in zip(words.tolist(), entries.numbers(words, **mode).tolist(), strict=True):
            entry, first = word // config.vector_words, word % config.vector_words * config.mfu_lanes
            exponent = int(entries.exponents[entry]) + fmt.e_min - (fmt.bits - 1)
            for lane, got in enumerate(bits):
                mantissa = int(entries.mantissas[entry, first + lane])
                value = mantissa + fmt.zero * bool(mode.get("unsigned")) if mode else Fraction(mantissa) * Fraction(
                    2) ** exponent
                with np.errstate(over="ignore"):
                    want = np.float16(float(value))  # a mantissa has far fewer bits than a float64
                assert got == int(want.view(np.uint16))
