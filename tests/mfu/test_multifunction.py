# amaranth: UnusedElaboratable=no
"""The Verilated binary16 units and the multi-function unit against golden."""

import numpy as np
import pytest
from concord.golden.lib import float16
from concord.hw.lib.binary16_rounder import Binary16Rounder
from concord.hw.lib.payloads import control as control_shape
from concord.hw.mfu.activation import Activation
from concord.hw.mfu.adder import FloatAdder
from concord.hw.mfu.multifunction import MultiFunctionUnit
from concord.hw.mfu.multiplier import FloatMultiplier
from concord.sim.drivers.bench import assert_equal, pack_rows
from concord.sim.reference.multifunction import multifunction, stage
from concord.spec.isa.operations import BYPASS, TAPS, Operation, Stage, Tap, codes
from concord.tests.pipeline_harness import PipelineHarness

EVERY = np.arange(1 << 16, dtype=np.uint16)


def operands(seed: int, count: int):
    """Pairs of random patterns, pairs whose sum cancels, pairs whose product is tiny, and corner cases."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 1 << 16, (2, count), dtype=np.uint16)
    cancelling = (a ^ rng.choice(np.array([0, 0x8000], np.uint16), count)) + rng.integers(0, 4000, count, np.uint16)
    exponent = np.clip(rng.integers(3, 20, count) - (a >> 10 & 31).astype(int), 0, 31).astype(np.uint16)
    tiny = b & 0x83FF | exponent << 10
    b = np.choose(rng.integers(0, 3, count), [b, cancelling, tiny])
    corners = np.array([0, 1, 0x3FF, 0x400, 0x3C00, 0x7BFF, 0x7C00, 0x7C01, 0x7E00, 0x7FFF], np.uint16)
    corners = np.concatenate([corners, corners | 0x8000])
    grid = np.meshgrid(corners, corners)
    return np.concatenate([a, grid[0].ravel()]), np.concatenate([b, grid[1].ravel()])


#: Values of the attribute `mfu_registers`.
REGISTERS = pytest.mark.parametrize("registers", [0, 3])


@pytest.fixture(scope="module", params=[0, 3])
def adder(request):
    return PipelineHarness(FloatAdder(request.param), "adder")


@pytest.mark.parametrize("op", codes(Stage.ADD))
def test_adder(adder, op):
    a, b = operands(op, 2_000_000)
    ops = np.full(a.size, op)
    assert_equal("o", adder(a=a, b=b, op=ops)["o"], stage(Stage.ADD, ops, a, b), op=(ops, Stage.ADD), a=a, b=b)


def test_adder_changes_its_operation_every_cycle(adder):
    a, b = operands(9, 200_000)
    ops = np.random.default_rng(9).choice(codes(Stage.ADD), a.size)
    assert_equal("o", adder(a=a, b=b, op=ops)["o"], stage(Stage.ADD, ops, a, b), op=(ops, Stage.ADD), a=a, b=b)


@REGISTERS
def test_multiplier(registers):
    a, b = operands(5, 4_000_000)
    ops = np.where(np.random.default_rng(5).random(a.size) < 0.9, Operation.VV_MUL.code, BYPASS)
    got = PipelineHarness(FloatMultiplier(registers), "multiplier")(a=a, b=b, op=ops)["o"]
    assert_equal("o", got, stage(Stage.MUL, ops, a, b), op=(ops, Stage.MUL), a=a, b=b)


@pytest.mark.parametrize(("more", "registers"), [(False, 0), (False, 3), (True, 0)])
def test_activation_on_every_input(more, registers):
    every = np.tile(EVERY, len(codes(Stage.ACT, more=more)))
    ops = np.repeat(codes(Stage.ACT, more=more), EVERY.size)
    want = stage(Stage.ACT, ops, every)
    order = np.random.default_rng(0).permutation(every.size)
    got = PipelineHarness(Activation(more, registers), "activation")(a=every[order], op=ops[order])["o"]
    assert_equal("o", got, want[order], op=(ops[order], Stage.ACT), a=every[order])


@pytest.mark.parametrize(("width", "scales"), [(32, range(-32, 46)), (9, range(-32, 32)), (62, range(-64, 64))])
def test_binary16_rounder(width, scales):
    rng = np.random.default_rng(width)
    values = rng.integers(-(1 << width - 1), 1 << width - 1, 500_000) >> rng.integers(0, width, 500_000)
    values[:5] = 0, 1, -1, -(1 << width - 1), (1 << width - 1) - 1
    scale = rng.integers(scales[0], scales[-1] + 1, values.size)
    got = PipelineHarness(Binary16Rounder(width, scales), "binary16_rounder")(value=values, scale=scale)["o"]
    assert_equal("o", got, float16.from_integer(values, scale), value=values, scale=scale)


def test_binary16_rounder_at_ties():
    values = np.array([s * (2 * m + 1 << n) + d for m in (1024, 1025, 2046, 2047) for n in range(19)
                       for d in (-1, 0, 1) for s in (-1, 1)])
    values, scale = np.repeat(values, 78), np.tile(np.arange(-32, 46), values.size)
    got = PipelineHarness(Binary16Rounder(32, range(-32, 46)), "binary16_rounder")(value=values, scale=scale)["o"]
    assert_equal("o", got, float16.from_integer(values, scale), value=values, scale=scale)


def test_binary16_rounder_of_wide_sums():
    rng = np.random.default_rng(74)
    cuts = rng.integers(6, 80, 20_000).tolist()
    values = [int.from_bytes(rng.bytes(10), "little", signed=True) >> cut for cut in cuts]
    rows = np.frombuffer(b"".join(v.to_bytes(12, "little", signed=True) for v in values), np.uint32).reshape(-1, 3)
    scale = rng.integers(0, 64, len(values))
    got = PipelineHarness(Binary16Rounder(74, range(64)), "binary16_rounder")(value=rows, scale=scale)["o"]
    values = np.array(values, object)
    assert_equal("o", got, float16.from_integer(values, scale), value=values, scale=scale)


@pytest.mark.parametrize("scales", [range(-65, 0), range(0, 65)])
def test_binary16_rounder_refuses_scales_that_do_not_fit(scales):
    with pytest.raises(ValueError, match="7-bit"):
        Binary16Rounder(32, scales)


@pytest.mark.parametrize(("lanes", "registers"), [(2, 0), (4, 0), (2, 3)])
def test_multifunction_unit(lanes, registers):
    rng, count = np.random.default_rng(lanes), 100_000
    value, addend, factor = (rng.integers(0, 1 << 16, (count, lanes), np.uint16) for _ in range(3))
    # Half of the words hold numbers near one, as random patterns often lead to infinities.
    calm = rng.random(count) < 0.5
    for word in (value, addend, factor):
        word[calm] = word[calm] & 0x8FFF | 0x3000
    taps = rng.integers(0, 1 << 16, (count, TAPS, lanes), np.uint16)
    control = {each.name.lower(): rng.choice(codes(each), count) for each in Stage}
    control["tap"] = rng.integers(0, len(Tap), (count, TAPS))
    want, want_taps = multifunction(value, addend, factor, taps, **control)

    dut = MultiFunctionUnit(lanes, registers=registers)
    late = np.roll(factor, dut.factor_at, axis=0)
    got = PipelineHarness(dut, "multifunction")(
        value=value, addend=addend, factor=late, tap=taps, control=pack_rows(control_shape(more=False), control))
    done = np.arange(count) < count - dut.factor_at  # words whose factor came before the stream ended
    given = {"value": value, "addend": addend, "factor": factor, "tap": (control["tap"], Tap)}
    given |= {each.name.lower(): (control[each.name.lower()], each) for each in Stage}
    assert_equal("value_out", words(got["value_out"], lanes), want, where=done[:, None], **given)
    assert_equal("tap_out", words(got["tap_out"], TAPS * lanes).reshape(taps.shape), want_taps, **given)


def words(port, elements):
    """The uint16 elements of a port's records."""
    return np.ascontiguousarray(port).view(np.uint16).reshape(len(port), -1)[:, :elements]


def test_lanes_name_what_does_not_fit(adder):
    with pytest.raises(TypeError, match="adder has the inputs a, b, op, not a, b"):
        adder(a=EVERY, b=EVERY)
    with pytest.raises(ValueError, match="equally many records"):
        adder(a=EVERY, b=EVERY, op=[0])
