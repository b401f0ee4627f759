"""Overflow events of whole layers against a count in Python integers."""

import numpy as np
import pytest
from concord.golden.mvm.overflow import Events
from concord.net import layer_overflow
from concord.net.arithmetic.integer import largest_sum
from concord.net.layer_overflow import Widths, count


def slow(weights, codes, start, widths: Widths):
    """The results of `count`, computed one Python integer after another."""

    def misfit(value, bits):
        return not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)

    def excess(value, bits):
        return (value if value >= 0 else ~value).bit_length() + 1 - bits

    def wrap(value):
        half = 2 ** (widths.sum_bits - 1)
        return (value + half) % (2 * half) - half

    events, additions, largest = Events(), 0, 0
    for sample in codes.tolist():
        for row, first in zip(weights.tolist(), start.tolist(), strict=True):
            total, exact = 0, 0
            products = [w * x for w, x in zip(row, sample, strict=True)]
            for product in products:
                if misfit(product, widths.product_bits):
                    events += Events(product=1, excess_product=excess(product, widths.product_bits))
            beats = [sum(products[at : at + widths.lanes]) for at in range(0, len(products), widths.lanes)]
            for beat in [*beats, first]:
                additions += 1
                exact += beat
                largest = max(largest, exact if exact >= 0 else ~exact)
                if misfit(total + beat, widths.sum_bits):
                    events += Events(partial=1, excess_partial=excess(total + beat, widths.sum_bits))
                total = wrap(total + beat)
            if misfit(total, widths.output_bits):
                events += Events(output=1, excess_output=excess(total, widths.output_bits))
    return events, additions, largest.bit_length() + 1


@pytest.mark.parametrize("lanes", [1, 3, 8])
@pytest.mark.parametrize("sum_bits", [1, 5, 8, 9, 11, 16, 64])
def test_the_count_is_the_slow_one(lanes, sum_bits):
    rng = np.random.default_rng(sum_bits)
    widths = Widths(sum_bits=sum_bits, product_bits=min(7, sum_bits), output_bits=max(1, sum_bits - 1), lanes=lanes)
    weights, codes = rng.integers(-7, 8, (5, 13)), rng.integers(-8, 8, (9, 13))
    start = rng.integers(-100, 100, 5)
    made = count(weights, codes, start, widths)
    events, additions, bits = slow(weights, codes, start, widths)
    assert made.events == events
    assert (made.additions, made.bits) == (additions, bits)
    assert made.number == events.partial + events.product + events.output
    assert made.rows.sum() == events.partial
    assert (events.partial > 0) == (sum_bits < made.bits)


def test_chunks_and_word_sizes_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    weights, codes, start = rng.integers(-128, 128, (4, 30)), rng.integers(-128, 128, (20, 30)), np.arange(4) * 1000
    widths = Widths(sum_bits=16, product_bits=13, output_bits=15)
    whole = count(weights, codes, start, widths)
    monkeypatch.setattr(layer_overflow, "CHUNK", 300)
    chunked = count(weights, codes, start, widths)
    assert whole.events == chunked.events
    assert all(getattr(whole, name).tolist() == getattr(chunked, name).tolist() for name in
               ("rows", "partial", "total", "product"))
    wide = count(weights * 2**10, codes * 2**10, start * 2**20, Widths(sum_bits=36, product_bits=33, output_bits=35))
    assert (wide.events.partial, wide.events.output) == (whole.events.partial, whole.events.output)
    assert (wide.partial >> 20).tolist() == whole.partial.tolist()
    with pytest.raises(ValueError, match="a sum of this layer needs 66 bits; 62 can be counted"):
        count(np.full((1, 1), 2**32), np.full((1, 1), 2**32), start[:1], widths)


def test_the_two_magnitudes_of_a_row():
    made = count(np.array([[3, -3], [1, 1]]), np.array([[4, 4], [0, -1]]), np.array([-2, 0]), Widths(sum_bits=4))
    assert made.partial.tolist() == [12, 8]
    assert made.total.tolist() == [1, 8]  # 12 - 12 - 2 = -2
    assert made.product.tolist() == [12, 4]
    assert made.rows.tolist() == [2, 1]  # 12 wraps to -4; -4 - 12 = -16 wraps to 0, and 0 - 2 fits; 8 wraps


def test_the_bound_beside_the_count():
    """The bound sum|w| * max|x| + |start| of the widest row, and the width that it proves."""
    weights, start = np.array([[3, -5], [1, 2]]), np.array([-1, 10])
    assert largest_sum(weights, start, 4) == 33
    made = count(weights, np.array([[-4, 3], [4, -4]]), start, Widths(sum_bits=6))
    assert made.bits == 7  # 12 + 20 = 32 does not fit 6 bits
    assert made.events.partial == 2  # 32 wraps to -32, and -32 - 1 overflows again
    assert count(weights, np.array([[4, -4]]), start, Widths(sum_bits=7)).events == Events()


def test_counts_of_more_samples_and_of_more_rows():
    rng, widths = np.random.default_rng(1), Widths(sum_bits=9, product_bits=6, output_bits=8)
    weights, codes, start = rng.integers(-7, 8, (6, 20)), rng.integers(-8, 8, (10, 20)), rng.integers(-9, 9, 6)
    whole = count(weights, codes, start, widths)
    samples = count(weights, codes[:3], start, widths) + count(weights, codes[3:], start, widths)
    rows = count(weights[:2], codes, start[:2], widths).beside(count(weights[2:], codes, start[2:], widths))
    for made in samples, rows:
        assert (made.events, made.additions) == (whole.events, whole.additions)
        for name in "rows", "partial", "total", "product":
            assert np.array_equal(getattr(made, name), getattr(whole, name))


@pytest.mark.parametrize("width", ["sum_bits", "product_bits", "output_bits"])
def test_widths_out_of_range(width):
    for value in 0, 65:
        with pytest.raises(ValueError, match=f"{width} = {value} is out of range: it lies in 1..64"):
            Widths(**{"sum_bits": 16} | {width: value})
    with pytest.raises(ValueError, match="lanes = 0 must be at least 1"):
        Widths(sum_bits=16, lanes=0)
