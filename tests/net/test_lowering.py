"""net.lowering.lowering against exact fractions and plain loops."""

from fractions import Fraction

import numpy as np
import pytest
from concord.golden.lib import float16
from concord.golden.mvm import quantizer
from concord.net.arithmetic.integer import largest_sum
from concord.net.cells.lstm import LSTM
from concord.net.lowering import block_lowering, lowering
from concord.net.lowering.rounding import binary16
from concord.spec.numbers.formats import Format, Rule

FORMATS = [Format(bits=4, symmetric=True), Format(bits=8), Format(bits=2), Format(bits=8, symmetric=True)]


def layer(fmt, unsigned, seed=0, **more):
    rng = np.random.default_rng(seed)
    codes = rng.integers(fmt.lowest, fmt.highest + 1, (9, 37))
    units = {"s_in": 0.11, "m_in": 0.07 * unsigned, "s_out": 0.4, "m_out": 0.03}
    gain, constant = rng.uniform(0.001, 0.01, 9), rng.normal(size=9)
    formats = {"weights_format": fmt, "input_format": fmt, "unsigned": unsigned}
    return lowering.dense(name="layer", codes=codes, gain=gain, constant=constant, **formats, **{**units, **more})


def nearest(value: Fraction) -> int:
    """The binary16 pattern nearest to a fraction, ties to even, found among three neighbours."""
    guess = int(np.float16(float(value)).view(np.uint16))
    near = [p for p in (guess - 1, guess, guess + 1) if 0 <= p < 0x10000 and np.isfinite(np.uint16(p).view(np.float16))]
    exact = {p: abs(Fraction(float(np.uint16(p).view(np.float16))) - value) for p in near}
    return min(near, key=lambda p: (exact[p], p & 1))


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("unsigned", [False, True])
def test_start_makes_travelling_codes_sum_as_unsigned_ones(fmt, unsigned):
    dense = layer(fmt, unsigned)
    x = (np.arange(37) / 3 - 2).astype(np.float16).view(np.uint16)
    codes = quantizer.quantize_integer(x, fmt, unsigned=unsigned)
    real_codes = np.clip(np.rint(x.view(np.float16)), 0, fmt.levels) if unsigned else codes
    assert np.array_equal(dense.start + dense.weights @ codes, dense.weights @ real_codes)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("unsigned", [False, True])
def test_conversion_cannot_overflow_and_wastes_no_more_than_the_bound(fmt, unsigned):
    dense = layer(fmt, unsigned)
    largest = largest_sum(dense.weights, dense.start, lowering.largest_code(fmt, unsigned))
    assert not float16.is_nan(float16.from_integer(np.array([largest, -largest]), dense.p)).any()
    assert np.isfinite(float16.from_integer(np.array([largest, -largest]), dense.p).view(np.float16)).all()
    least = lowering.right_shift(dense.weights, dense.start, fmt, unsigned)
    assert 2**14 < largest * Fraction(2) ** -least <= 2**15
    # It is larger only where scales would be too small for all bits of binary16 otherwise.
    scales = np.abs(dense.scale.view(np.float16).astype(np.float64))
    assert dense.p == least or scales.min() / 2 < 2**-14 <= scales.min()
    signs = np.sign(dense.weights)
    extreme = (dense.weights * np.where(signs > 0, fmt.levels if unsigned else -fmt.lowest, fmt.lowest)).sum(1)
    assert np.abs(extreme).max() <= 2 * largest


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("unsigned", [False, True])
def test_scales_and_offsets_are_the_formulas_rounded_once(fmt, unsigned):
    dense = layer(fmt, unsigned, quantize_input=True)
    gain, constant = dense.real["gain"], dense.real["constant"]
    (s_in, m_in), (s_out, m_out) = ([Fraction(float(v)) for v in dense.real[k]] for k in ("input", "output"))
    for row in range(9):
        a, c, total = Fraction(gain[row]), Fraction(constant[row]), int(dense.weights[row].sum())
        assert abs(int(dense.scale[row]) - nearest(a * s_in / s_out * Fraction(2) ** dense.p)) == 0
        # float64 rounds four times here, but far below the precision of binary16, so that the pattern is exact.
        assert int(dense.offset[row]) == nearest((c + a * m_in * total - m_out) / s_out)
    assert set(dense.quant_scale.tolist()) == {nearest(1 / s_in)}
    if unsigned:
        assert set(dense.quant_offset.tolist()) == {nearest(-m_in / s_in)}
    else:
        assert dense.quant_offset is None


def test_right_shifts_follow_the_rule():
    fmt = Format(bits=4, symmetric=True)
    for total, expected in ((0, -15), (1, -15), (2, -14), (32768, 0), (32769, 1), (65536, 1), (65537, 2)):
        assert lowering.right_shift(np.zeros((1, 1), int), np.array([total]), fmt, unsigned=True) == expected


def test_a_value_outside_binary16_is_refused():
    with pytest.raises(ValueError, match=r"layer 'layer', scale: .* is outside binary16; rescale the layer"):
        layer(FORMATS[0], True, s_out=1e-9)
    assert binary16(np.array([-0.0, -1e-9])).tolist() == [0, 0]


def test_lstm_scales_restore_real_units():
    rng = np.random.default_rng(1)
    fmt = Format(bits=8, symmetric=True)
    w, r = (rng.integers(-127, 128, (4, 6, n)) for n in (5, 6))
    lstm = lowering.recurrent(
        cell=LSTM,
        name="lstm",
        input_codes=w,
        recurrent_codes=r,
        input_steps=np.arange(1, 5) / 100,
        recurrent_steps=np.arange(5, 9) / 100,
        bias=rng.normal(size=(4, 6)),
        weights_format=fmt,
        input_format=fmt,
        s_in=0.02,
    )
    for gate in range(4):
        scale = Fraction((gate + 1) / 100) * Fraction(0.02) * Fraction(2) ** lstm.input_p
        assert set(lstm.input_scale[gate].tolist()) == {nearest(scale)}
        scale = Fraction((gate + 5) / 100) / 128 * Fraction(2) ** lstm.recurrent_p
        assert set(lstm.recurrent_scale[gate].tolist()) == {nearest(scale)}
    assert (lstm.hidden_quant_scale.view(np.float16) == 128).all()


@pytest.mark.parametrize("rule", Rule)
def test_blocks_are_those_of_zero_padded_tiles(rule):
    fmt = Format(bits=5, e_min=-6, e_max=4, rule=rule)
    weights = np.random.default_rng(2).normal(size=(3, 4, 11)) * 2.0 ** np.arange(-5, 6)
    mantissas, exponents = block_lowering.blocks(weights, fmt, 4)
    for index in np.ndindex(3, 4):
        for block in range(3):
            part = np.zeros(4)
            part[: len(weights[index][4 * block :][:4])] = weights[index][4 * block :][:4]
            m, e = quantizer.quantize_block(part.astype(np.float16).view(np.uint16), fmt)
            assert exponents[index][block] == e
            assert mantissas[index][4 * block :][:4].tolist() == m[: len(mantissas[index][4 * block :][:4])].tolist()
