"""Overflow events of whole layers against a slow count and the machine's counters; accuracy under narrow sums."""

from dataclasses import replace

import numpy as np
import pytest

from compiler.network import compile_network
from golden import float16, layer_overflow, network
from golden.layer_overflow import Widths, count, dry_run, proven, required_bits, wrapped
from golden.overflow import Events
from nnp.session import Session
from sim.host import machine
from spec.config import PRESETS
from spec.registers import Counter
from tests import networks


def slow(weights, codes, start, widths: Widths):
    """What `count` finds, one Python integer after another."""

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


def narrow(name: str, sum_bits: int):
    """A preset whose accumulator has few bits: blocks of one exponent need no room."""
    config = PRESETS[name]
    weights, activations = (replace(fmt, e_min=16, e_max=16) for fmt in (config.weights, config.activations))
    return replace(config, weights=weights, activations=activations, acc_int=sum_bits, acc_frac=0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("name", "sum_bits"), [("serial", 8), ("tiny", 15)])
def test_events_and_wrapped_results_are_the_machines(name, sum_bits, seed):
    rng = np.random.default_rng(seed)
    config = narrow(name, sum_bits)
    widths = Widths(sum_bits=sum_bits, product_bits=config.product_bits, output_bits=config.output_bits - 1,
                    lanes=config.lanes)
    config = replace(config, output_bits=config.output_bits - 1)
    model, inputs = networks.mlp(rng, config, [13, 9, 5], block=False), networks.inputs(rng, 3, 13)
    for layers in model.layers[:1], model.layers:
        part = replace(model, layers=layers)
        session = Session(machine("golden", config), compile_network(part, config).firmware)
        outputs = [session.infer(sample) for sample in inputs]
        np.testing.assert_array_equal(wrapped(part, inputs, sum_bits), outputs)
    # Behind a sum that has wrapped, the codes of the second layer are not those of the model.
    one = replace(model, layers=model.layers[:1])
    session = Session(machine("golden", config), compile_network(one, config).firmware)
    for sample in inputs:
        session.infer(sample)
    counters, (use,) = session.counters(), dry_run(one, inputs, None, widths)
    for kind in "partial", "product", "output":
        assert counters[Counter[f"OVERFLOW_{kind.upper()}"]] == getattr(use.count.events, kind)
        assert counters[Counter[f"EXCESS_{kind.upper()}"]] == getattr(use.count.events, f"excess_{kind}")
    assert use.count.events.partial > 0


def test_a_recurrent_model_counts_both_products_of_every_time_step():
    rng = np.random.default_rng(3)
    config = replace(narrow("serial", 8), matrix_tiles=64, multiply_vrf=64, addsub_vrf=64, bias_words=64)
    widths = Widths(sum_bits=8, product_bits=config.product_bits, output_bits=config.output_bits)
    model = networks.recurrent(rng, config, [3, 4, 5], block=[False, False], outputs=3)
    inputs, lengths = networks.inputs(rng, 3, 6, 3), np.array([6, 1, 4])
    wide = replace(widths, sum_bits=30)
    uses = dry_run(model, inputs, lengths, wide)
    assert [use.name for use in uses] == ["lstm0, input", "lstm0, recurrent", "lstm1, input", "lstm1, recurrent",
                                          "dense"]
    assert [use.count.additions for use in uses] == [11 * 16 * 4, 11 * 16 * 5, 11 * 20 * 5, 11 * 20 * 6, 3 * 3 * 6]
    # The machine counts the same products with wide sums, where only products can overflow.
    roomy = replace(config, acc_int=30)
    session = Session(machine("golden", roomy), compile_network(model, roomy).firmware)
    for sample, length in zip(inputs, lengths, strict=True):
        session.infer(sample[:length])
    counters = session.counters()
    assert counters[Counter.OVERFLOW_PRODUCT] == sum(use.count.events.product for use in uses) > 0
    assert counters[Counter.OVERFLOW_OUTPUT] == sum(use.count.events.output for use in uses) > 0


def test_the_bound_proves_what_no_input_exceeds():
    rng = np.random.default_rng(4)
    model = networks.mlp(rng, PRESETS["serial"], [12, 8], block=False)
    (layer,) = model.layers
    bits = required_bits(layer)
    assert proven(layer.weights, layer.start, -layer.input_format.lowest).bit_length() + 1 == bits
    worst = np.where(layer.weights < 0, layer.input_format.lowest, layer.input_format.highest)
    for codes in worst, -worst.clip(-31, 31):
        made = count(layer.weights, codes, layer.start, Widths(sum_bits=bits))
        assert made.events == Events()
        assert made.bits <= bits
    made = count(np.array([[3, -5]]), np.array([[-4, 3], [4, -4]]), np.array([-1]), Widths(sum_bits=6))
    assert proven(np.array([[3, -5]]), np.array([-1]), 4) == 33
    assert made.bits == 7  # 12 + 20 = 32 needs 7 bits, which is what 33 needs
    assert made.events.partial == 2  # 32 wraps to -32, and -32 - 1 overflows again


def test_wide_sums_wrap_nothing():
    rng = np.random.default_rng(5)
    model, inputs = networks.mlp(rng, PRESETS["serial"], [12, 8, 4], block=False), networks.inputs(rng, 20, 12)
    outputs = network.forward(model, inputs)[-1].outputs
    np.testing.assert_array_equal(wrapped(model, inputs, 40), outputs)
    assert (wrapped(model, inputs, 6) != outputs).any()
    assert not float16.is_nan(outputs).any()


@pytest.mark.parametrize("block", ["mlp", "recurrent"])
def test_what_cannot_be_counted_is_named(block):
    rng, config = np.random.default_rng(6), PRESETS["tiny"]
    widths, inputs = Widths(sum_bits=16), networks.inputs(rng, 2, 3, 8)
    if block == "mlp":
        model, inputs = networks.mlp(rng, config, [8, 8], block=True), inputs[:, 0]
        with pytest.raises(ValueError, match="layer 'dense0' has no integer weights: overflow is counted in integer"):
            dry_run(model, inputs, None, widths)
        with pytest.raises(ValueError, match="layer 'dense0' has no integer weights"):
            required_bits(model.layers[0])
    else:
        model = networks.recurrent(rng, config, [8, 4], block=[False])
    with pytest.raises(ValueError, match="is no integer dense layer: what it wraps to is not defined here"):
        wrapped(model, inputs, 16)


@pytest.mark.parametrize("width", ["sum_bits", "product_bits", "output_bits"])
def test_widths_out_of_range(width):
    for value in 0, 65:
        with pytest.raises(ValueError, match=f"{width} = {value} is out of range: it lies in 1..64"):
            Widths(**{"sum_bits": 16} | {width: value})
    with pytest.raises(ValueError, match="lanes = 0 must be at least 1"):
        Widths(sum_bits=16, lanes=0)
