"""Every function of a vocabulary returns the bits of golden, in each of its frameworks."""

from dataclasses import replace

import numpy as np
import pytest
from concord.golden.lib import float16
from concord.golden.mfu import multifunction
from concord.golden.mfu.multifunction import compute
from concord.golden.mvm.accumulator import accumulate
from concord.golden.mvm.converter import convert
from concord.golden.mvm.overflow import wrap
from concord.golden.mvm.quantizer import quantize, quantize_block, quantize_integer
from concord.golden.mvm.vector_rf import numbers
from concord.spec.isa.operations import Operation
from concord.spec.machine.config import PRESETS
from concord.spec.numbers.formats import Format, Rule
from concord.tests.twin.vocabularies import VOCABULARIES, functions, imported

ALL = np.arange(1 << 16, dtype=np.uint16)
EDGES = np.array([0, 1, 0x3FF, 0x400, 0x3C00, 0x3C01, 0x4C80, 0x7BFF, 0x7C00, 0x7E00, 0x7E55], np.uint16)
EDGES = np.concatenate([EDGES, EDGES | 0x8000])


@pytest.fixture(params=VOCABULARIES)
def words(request):
    with np.errstate(all="ignore"):
        yield VOCABULARIES[request.param]()


def halves(bits):
    return np.asarray(bits, np.uint16).view(np.float16)


def pairs():
    """Two operands: all pairs of edge cases, and many random ones."""
    rng = np.random.default_rng(1)
    random = rng.integers(0, 1 << 16, (2, 50_000)).astype(np.uint16)
    near = random[0] ^ rng.integers(0, 1 << 12, 50_000).astype(np.uint16)
    a, b = np.repeat(EDGES, EDGES.size), np.tile(EDGES, EDGES.size)
    return np.concatenate([a, random[0], random[0]]), np.concatenate([b, random[1], near])


@pytest.mark.parametrize("operation", [each for each in Operation if not each.reduces])
def test_point_wise_operations(words, operation):
    """Pairs of edge cases and random numbers for two operands, every bit pattern for one."""
    operands = pairs() if operation.operand else (ALL,)
    result = getattr(words.functions, operation.function)(*(words.value(halves(each)) for each in operands))
    value, operand = (*operands[::-1], None)[:2] if operation.swapped else (*operands, None)[:2]
    assert np.array_equal(words.bits(result), compute(operation, value, operand))


@pytest.mark.parametrize("fmt", [Format(bits=8), Format(bits=8, symmetric=True), Format(bits=2), Format(bits=16)])
@pytest.mark.parametrize("unsigned", [False, True])
def test_integers(words, fmt, unsigned):
    low, high = (0, fmt.levels) if unsigned else (fmt.lowest, fmt.highest)
    codes = words.array(words.functions.integers(words.value(halves(ALL)), lowest=low, highest=high))
    assert np.array_equal(codes, quantize_integer(ALL, fmt, unsigned=unsigned) + fmt.zero * unsigned)


FORMATS = (
    Format(bits=8), Format(bits=8, symmetric=True, e_min=-5, e_max=2), Format(bits=2), Format(bits=16),
    Format(bits=5, rule=Rule.CEIL, e_min=-4, e_max=3), Format(bits=16, rule=Rule.CEIL))


def block_settings(fmt: Format) -> dict:
    return {"bits": fmt.bits, "exponents": (fmt.e_min, fmt.e_max), "rule": str(fmt.rule), "symmetric": fmt.symmetric}


def vectors(length: int):
    """Vectors uint16[..., length] of every size of number; some of them sparse, or of edge cases."""
    rng = np.random.default_rng(length)
    bits = rng.integers(0, 1 << 16, (3000, length))
    bits[::3] = bits[::3] & 0x83FF | rng.integers(0, 31, (1000, 1)) << 10
    bits[1::7] *= rng.integers(0, 2, bits[1::7].shape)
    bits[2::9] = rng.choice(EDGES, bits[2::9].shape)
    return bits.astype(np.uint16)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("length", [16, 10])
def test_blocks(words, fmt, length):
    bits = vectors(length)
    codes = words.array(words.functions.blocks(words.value(halves(bits)), size=8, **block_settings(fmt)))
    padded = np.pad(bits, ((0, 0), (0, -length % 8))).reshape(len(bits), -1, 8)
    mantissas, exponents = quantize_block(padded, fmt)
    values = mantissas * 2.0 ** (exponents - fmt.bits + 1)[..., None]
    assert np.array_equal(codes, values.reshape(len(bits), -1)[:, :length])


ELEMENTS = [Format.floating(*pair) for pair in ((3, 0), (5, 0), (1, 2), (2, 1), (4, 3), (4, 9))]


def float_settings(fmt: Format, scale: int) -> dict:
    """Settings of `floats` for mantissas in units of 2**-scale."""
    return {"precision": fmt.precision, "lowest": fmt.lowest * 2.0**-scale, "highest": fmt.highest * 2.0**-scale,
            "fraction": scale}


@pytest.mark.parametrize("fmt", ELEMENTS, ids=lambda fmt: fmt.element)
def test_floats(words, fmt):
    """All numbers at once: subnormal ones, those halfway between two codes, and those beyond the largest."""
    x = words.value(halves(ALL))
    for end in (-15, 4, 16):
        alone = replace(fmt, e_min=end, e_max=end)
        codes = words.array(words.functions.floats(x, **float_settings(fmt, fmt.bits - 1 - end)))
        mantissas, exponents = quantize_block(ALL[:, None], alone)
        assert np.array_equal(codes, np.ldexp(mantissas[:, 0], exponents - fmt.bits + 1))
    for low, unsigned in ((fmt.lowest, False), (0, True)):
        codes = words.array(words.functions.floats(x, **float_settings(fmt, 0) | {"lowest": low}))
        assert np.array_equal(codes, quantize_integer(ALL, fmt, unsigned=unsigned))


@pytest.mark.parametrize("fmt", ELEMENTS, ids=lambda fmt: fmt.element)
@pytest.mark.parametrize("ends", [(-15, 16), (-11, 4)], ids=str)
def test_float_blocks(words, fmt, ends):
    """All numbers as the largest of a block, and blocks of mixed numbers of which the last one is not whole."""
    fmt = replace(fmt, e_min=ends[0], e_max=ends[1])
    below = np.random.default_rng(5).integers(-3, 4, ALL.size)  # the other one is half as large, or eight times
    pairs = np.stack([ALL, ((ALL & 0x7FFF) + (below << 10)).clip(0, 0x7C00).astype(np.uint16)], 1)
    settings = {"bits": fmt.bits, "precision": fmt.precision, "exponents": ends}
    for bits, size in ((pairs, 2), (vectors(10), 8)):
        codes = words.array(words.functions.float_blocks(words.value(halves(bits)), size=size, **settings))
        padded = np.pad(bits, ((0, 0), (0, -bits.shape[1] % size))).reshape(len(bits), -1, size)
        mantissas, exponents = quantize_block(padded, fmt)
        values = np.ldexp(mantissas, (exponents - fmt.bits + 1)[..., None]).reshape(len(bits), -1)
        assert np.array_equal(codes, values[:, :bits.shape[1]])


@pytest.mark.parametrize("fmt", ELEMENTS, ids=lambda fmt: fmt.element)
def test_floats_are_read_as_numbers(words, fmt):
    fmt = replace(fmt, e_min=4, e_max=4)
    config = replace(PRESETS["tiny"], activations=fmt, weights=Format(bits=2), acc_int=20, acc_frac=60)
    bits = ALL.reshape(-1, config.native_dim)
    for integer in (False, True):
        scale = 0 if integer else fmt.bits - 5
        codes = words.functions.floats(words.value(halves(bits)), **float_settings(fmt, scale))
        mantissas, exponents = quantize(bits, fmt, integer=integer)
        assert np.array_equal(words.bits(words.functions.numbers(codes)),
                              numbers(config, mantissas, exponents, integer=integer))


@pytest.mark.parametrize("integer", [False, True])
def test_codes_are_read_as_numbers(words, integer):
    config = PRESETS["tiny"]
    bits = vectors(config.native_dim)
    functions, value = words.functions, words.value(halves(bits))
    fmt = config.activations
    if integer:
        codes = functions.integers(value, lowest=fmt.lowest, highest=fmt.highest)
    else:
        codes = functions.blocks(value, size=config.native_dim, **block_settings(fmt))
    mantissas, exponents = quantize(bits, fmt, integer=integer)
    assert np.array_equal(words.bits(functions.numbers(codes)), numbers(config, mantissas, exponents, integer=integer))


@pytest.mark.parametrize("scale", [-3, 0, 5, 31])
@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_integer_products(words, scale, real):
    rng = np.random.default_rng(scale + 5)
    codes = rng.integers(-15, 16, (200, 40))
    weights = rng.integers(-127, 128, (30, 40))
    start = rng.integers(-5000, 5000, 30)
    codes[0] = weights[0] = start[0] = 0
    functions = words.functions
    result = functions.dense(words.value(codes.astype(np.float32)), words.value(weights.astype(real)),
                             words.value(start.astype(real)), scale=scale)
    assert np.array_equal(words.bits(result), float16.from_integer(codes @ weights.T + start, scale))


def test_sums_near_rounding_points_are_rounded_once(words):
    """Sums whose float32 lies in the middle of two binary16 numbers, though the sum itself does not."""
    middle = np.array([(2 * k + 1) << 30 for k in range(1024, 1100)])
    sums = np.concatenate([middle - 1, middle, middle + 1, -middle - 1, -middle, 1 - middle])
    functions = words.functions
    codes = words.value(np.ones((1, 1)))
    for scale in (26, 60):
        result = functions.dense(codes, words.value(sums[:, None].astype(float)), scale=scale)
        assert np.array_equal(words.bits(result)[0], float16.from_integer(sums, scale))


def test_sums_of_zeros_are_positive(words):
    functions = words.functions
    codes, weights = words.value(np.zeros((1, 1))), words.value(np.array([[-3.0]]))
    assert words.bits(functions.dense(codes, weights)) == 0
    assert words.bits(functions.numbers(words.value(np.array([[-0.0]])))) == 0


def test_accumulators_wrap(words):
    rng = np.random.default_rng(4)
    codes, weights = rng.integers(-128, 128, (50, 64)), rng.integers(-128, 128, (20, 64))
    functions = words.functions
    result = functions.dense(words.value(codes.astype(float)), words.value(weights.astype(float)), scale=4, wrap=16)
    assert np.array_equal(words.bits(result), float16.from_integer(wrap(codes @ weights.T, 16), 4))


@pytest.mark.parametrize("preset", ["ulx3s", "trainer"])
def test_block_products(words, preset):
    config = PRESETS[preset]
    rng = np.random.default_rng(7)
    n, fmt = config.native_dim, config.weights
    mantissas = rng.integers(fmt.lowest, fmt.highest + 1, (2, 3, n, n))
    stored = rng.integers(0, fmt.e_max - fmt.e_min + 1, (2, 3, n))
    bits = vectors(3 * n)[:300]
    left, exponents = quantize(bits.reshape(-1, 3, n), config.activations, integer=False)
    totals, _ = accumulate(config, mantissas.astype(float), stored, left, exponents, rows=2 * n, integer=False)
    weights = mantissas * 2.0 ** (stored + fmt.e_min - fmt.bits + 1)[..., None]
    weights = weights.transpose(0, 2, 1, 3).reshape(2 * n, 3 * n).astype(np.float32)
    functions = words.functions
    codes = functions.blocks(words.value(halves(bits)), size=n, **block_settings(config.activations))
    result = functions.dense(codes, words.value(weights.astype(float)), wrap=config.sum_bits,
                             fraction=config.acc_frac)
    assert np.array_equal(words.bits(result), convert(config, totals, integer=False))


GEOMETRIES = [
    {},
    {"stride": (2, 1), "padding": (1, 0, 2, 1), "fill": 3},
    {"dilation": (2, 2), "padding": (1, 1, 1, 1)},
    {"groups": 2, "padding": (0, 1, 0, 1), "fill": -2},
    {"groups": 4, "stride": (1, 2)},
]


def slow_windows(images, window, *, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), fill=0):
    """The windows of images, pixel by pixel."""
    top, bottom, left, right = padding
    images = np.pad(images, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill)
    rows, columns = (size - (count - 1) * step for size, count, step in zip(
        images.shape[1:3], window, dilation, strict=True))
    return np.array([[[[[image[r + i * dilation[0], c + j * dilation[1]] for j in range(window[1])]
                        for i in range(window[0])] for c in range(0, columns, stride[1])]
                      for r in range(0, rows, stride[0])] for image in images])


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_convolutions(words, geometry):
    rng = np.random.default_rng(2)
    images = rng.integers(-8, 8, (2, 6, 7, 4))
    groups = geometry.get("groups", 1)
    weights = rng.integers(-8, 8, (8, 3, 2, 4 // groups))
    start = rng.integers(-99, 99, 8)
    seen = slow_windows(images, (3, 2), **{key: value for key, value in geometry.items() if key != "groups"})
    seen = seen.reshape(*seen.shape[:-1], groups, -1)
    sums = [(seen[:, :, :, None, :, :, row * groups // 8] * weights[row]).sum((-1, -2, -3))[..., 0] for row in range(8)]
    operands = [words.value(images.astype(np.float32)), *(words.value(each.astype(float)) for each in (weights, start))]
    sums = np.stack(sums, -1) + start
    for settings, totals in ({}, sums), ({"wrap": 10}, wrap(sums, 10)):
        result = words.functions.convolution(*operands, scale=2, **settings, **geometry)
        assert np.array_equal(words.bits(result), float16.from_integer(totals, 2))


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_accelerators_sum_the_products_of_windows(geometry):
    """What PyTorch computes on other devices than a CPU."""
    torch = imported("torch")
    found = functions("torch")
    rng = np.random.default_rng(2)
    words = VOCABULARIES["torch"]()
    images = words.value(rng.integers(-8, 8, (2, 6, 7, 4)).astype(np.float32))
    weights = words.value(rng.integers(-8, 8, (8, 3, 2, 4 // geometry.get("groups", 1))).astype(np.float32))
    settings = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1, "fill": 0} | geometry
    sums = found.window_sums(images, weights, **settings)
    assert torch.equal(sums, found.convolution(images, weights, **settings))


def test_pooling_and_patches(words):
    rng = np.random.default_rng(3)
    bits = rng.choice(np.concatenate([EDGES, ALL[::999]]), (2, 6, 6, 3))
    images, functions = words.value(halves(bits)), words.functions
    for geometry, fill in ({}, 0), ({"stride": (2, 2), "padding": (1, 0, 0, 1), "fill": 1.0}, 0x3C00):
        seen = slow_windows(bits, (3, 2), **geometry | {"fill": fill}).astype(np.uint16)
        flat = seen.reshape(*seen.shape[:3], -1)
        canonical = np.where(float16.is_nan(flat), np.uint16(float16.NAN), flat)
        assert np.array_equal(words.bits(functions.patches(images, window=(3, 2), **geometry)), canonical)
        largest = multifunction.pool_max(seen.reshape(*seen.shape[:3], 6, 3))
        assert np.array_equal(words.bits(functions.max_pool(images, window=(3, 2), **geometry)), largest)


def test_layout(words):
    functions = words.functions
    x = np.arange(48, dtype=np.float16).reshape(2, 24)
    value = words.value(x)
    images = functions.image(value, shape=(2, 3, 4))
    index = np.array([[3, 0], [25, 24]], np.int32)
    expected = {
        "image": (images, x.reshape(2, 2, 3, 4).transpose(0, 2, 3, 1)),
        "image of an image": (functions.image(functions.reshape(value, shape=(2, 3, 4)), shape=(2, 3, 4)),
                              x.reshape(2, 2, 3, 4).transpose(0, 2, 3, 1)),
        "flatten": (functions.flatten(images), x.reshape(2, 2, 3, 4).transpose(0, 2, 3, 1).reshape(2, -1)),
        "transpose": (functions.transpose(images, axes=(3, 1, 2)), x.reshape(2, 2, 3, 4)),
        "part": (functions.part(value, first=3, last=9), x[:, 3:9]),
        "join": (functions.join(value, functions.part(value, first=0, last=2)), np.concatenate([x, x[:, :2]], 1)),
        "take": (functions.take(words.value(index), value, functions.part(value, first=5, last=7)),
                 np.concatenate([x, x[:, 5:7]], 1)[:, index]),
        "start": (functions.start(value, words.value(x[0])), x[[0, 0]]),
        "step": (functions.step(functions.reshape(value, shape=(4, 6)), 1), x.reshape(2, 4, 6)[:, 1]),
        "sequence": (functions.sequence([value, value]), np.stack([x, x], 1)),
    }
    for name, (result, array) in expected.items():
        assert np.array_equal(words.array(result), array), name
