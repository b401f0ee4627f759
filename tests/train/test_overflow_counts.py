"""The overflow counters of a machine count what numpy counts, and steer overflow-aware training."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from concord.campaigns.makers import networks
from concord.compiler.network import compile_network
from concord.firmware.overflow_counters import COUNTED, TOGETHER
from concord.firmware.session import Session
from concord.golden.mvm.overflow import Events
from concord.net.layer_overflow import Widths, count, dry_run
from concord.net.quantize.recipe import Recipe
from concord.nnp.main import app
from concord.sim.machines.host import machine
from concord.spec.machine.config import PRESETS, preset
from concord.tests.net.test_model_overflow import narrow
from concord.train.network.quantized_network import behind_quantizers
from concord.train.overflow.options import CountOn, OverflowOptions
from concord.train.overflow.predictor import settled
from concord.workflows.overflow_counts import MachineCounter, counted
from typer.testing import CliRunner

SERIAL = preset("serial")
ON_LIBRARY = OverflowOptions(count_on=CountOn.LIBRARY)


@pytest.fixture(scope="module")
def serial() -> MachineCounter:
    """The counters of the preset `serial` as a Verilated library."""
    return MachineCounter(SERIAL)


def dense(rng):
    return networks.mlp(rng, SERIAL, [13, 9, 5], block=False), networks.inputs(rng, 6, 13), None


def sequences(rng):
    model = networks.recurrent(rng, SERIAL, [3, 4], block=[False], outputs=3)
    return model, networks.inputs(rng, 3, 5, 3), np.array([5, 1, 3])


@pytest.mark.parametrize("made", [dense, sequences])
def test_the_library_counts_what_numpy_counts(serial, made):
    model, inputs, lengths = made(np.random.default_rng(3))
    widths = Widths.of(SERIAL)
    wanted, found = (dry_run(model, inputs, lengths, widths, counter) for counter in (count, serial))
    assert [use.count.events for use in found] == [use.count.events for use in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one.count.rows.tolist() == other.count.rows.tolist()
        assert one.count.additions == other.count.additions
        for name in "partial", "total", "product":
            assert (getattr(one.count, name) >= getattr(other.count, name)).all()
    # No sum wraps in 20 bits, so the compiled network multiplies the same codes, and counts the same events.
    with machine("library", SERIAL) as nnp:
        session = Session(nnp, compile_network(model, SERIAL).firmware)
        for sample, length in zip(inputs, lengths if lengths is not None else [None] * len(inputs), strict=True):
            session.infer(sample[:length])
        counters = session.counters()
    whole = sum((use.count.events for use in found), Events())
    assert whole == Events(**{name: counters[counter] for name, counter in COUNTED.items()})
    assert whole.product > 0
    assert whole.output > 0


@pytest.mark.parametrize("config", [
    narrow("serial", 8), narrow("tiny", 11), replace(narrow("tiny", 11), lanes=8, tile_engines=2)])
@pytest.mark.parametrize(("rows", "columns"), [(1, 3), (9, 17), (26, 20)])
def test_sums_that_wrap_count_row_by_row(config, rows, columns, monkeypatch):
    """With more rows than the machine holds, and more samples than one run takes."""
    monkeypatch.setattr("concord.firmware.overflow_counters.TOGETHER", 7)
    assert TOGETHER > 7
    rng, widths, counter = np.random.default_rng(rows), Widths.of(config), MachineCounter(config, "golden")
    weights = rng.integers(config.weights.lowest, config.weights.highest + 1, (rows, columns))
    weights[rows // 2 + 1:] = 0  # rows without an event
    codes = rng.integers(config.activations.lowest, config.activations.highest + 1, (11, columns))
    start = rng.integers(-100, 100, rows) * weights.any(1)
    found, wanted = (function(weights, codes, start, widths) for function in (counter, count))
    assert (found.events, found.additions) == (wanted.events, wanted.additions)
    assert found.rows.tolist() == wanted.rows.tolist()
    assert found.events.partial > 0
    # A magnitude that overflows has as many bits as were lacking; the others are bounded by what fits.
    over = wanted.product >= 1 << widths.product_bits - 1
    bits = np.array([int(value).bit_length() for value in wanted.product])
    assert found.product[over].tolist() == ((1 << bits[over]) - 1).tolist()
    assert (found.product[~over] == (1 << widths.product_bits - 1) - 1).all()


def test_the_counters_steer_training_until_nothing_overflows(serial):
    torch.manual_seed(0)
    x = torch.rand(40, 12)
    net = torch.nn.Sequential(torch.nn.Linear(12, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))
    behind = [behind_quantizers(net, x, Recipe(weights_bits=5, input_bits=6, symmetric=(True, False)))
              for _ in range(2)]
    options = replace(counted(ON_LIBRARY, "serial"), on_machine=serial)
    assert (options.accumulator, options.product_limit, options.output_limit) == (20, 9, 10)
    numbers = {name: getattr(options, name) for name in ("accumulator", "product_limit", "output_limit")}
    steered, other = settled(behind[0], x, options), settled(behind[1], x, OverflowOptions(**numbers))
    first, reference = steered.record.products[0], other.record.products[0]
    assert (first.before, first.excess) == (reference.before, reference.excess)
    assert first.before > 0
    assert first.rounds > 0
    assert steered.record.events == 0
    # Numpy finds no event in what the counters have steered.
    steered.counter = count
    assert [steered.count(name).events for name in steered.factors] == [Events()] * 2


@pytest.mark.parametrize(("options", "name", "words"), [
    ({}, "", "name one that has overflow counters with --preset, such as --preset serial"),
    ({}, "vision", "--preset vision: the machine has no overflow counters: take one with count_overflows"),
    ({}, "tiny_float", "multiplies elements with exponents of their own, not integers"),
    ({"accumulator": 16}, "serial", "--accumulator 16 is not what serial has, whose counters know 20 bits alone"),
    ({"output_limit": 11}, "serial", "--output-limit 11 is not what serial has, whose counters know 10 bits alone"),
])
def test_refusals_of_machines_are_sentences(options, name, words):
    with pytest.raises(ValueError, match=words):
        counted(replace(ON_LIBRARY, **options), name)


@pytest.mark.parametrize(("shape", "largest", "start", "words"), [
    ((2, 21), 15, 0, "a product has 21 columns, and the machine counts products of up to 20"),
    ((2, 20), 16, 0, "a weight of a product is 16, and the machine holds -15 to 15"),
    ((2, 20), 15, 1 << 15, "a start value of a product is 32768, and the machine holds -32768 to 32767"),
])
def test_refusals_of_products_are_sentences(shape, largest, start, words):
    counter = MachineCounter(SERIAL, "golden")
    codes = np.ones((3, shape[1]), np.int16)
    with pytest.raises(ValueError, match=words):
        counter(np.full(shape, largest), codes, np.full(shape[0], start), Widths.of(SERIAL))
    with pytest.raises(ValueError, match="a code of a product is -33"):
        counter(np.ones((2, 4), int), np.full((3, 4), -33), np.zeros(2, int), Widths.of(SERIAL))


def test_several_tiles_at_once_are_refused():
    with pytest.raises(ValueError, match="adds the lane groups of 4 tiles at once"):
        MachineCounter(replace(PRESETS["wide"], count_overflows=True))


def test_the_command_says_what_the_machine_lacks(tmp_path):
    done = CliRunner().invoke(app, ["train", "mlp", "--preset", "ulx3s", "--count-on", "library", "-o",
                                    str(tmp_path / "m.safetensors")])
    assert done.exit_code == 2
    assert "--count-on library with --preset ulx3s: the machine has no overflow counters" in done.output
