"""Overflows of whole models: the machine's counters and wrapped results, bounds, and convolutions."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.compiler.network import compile_network
from concord.datasets.dataset import DATA
from concord.firmware.session import Session
from concord.golden.mvm.overflow import Events, wrap
from concord.golden.mvm.quantizer import quantize_integer
from concord.net import network
from concord.net.arithmetic.integer import largest_sum
from concord.net.layer_overflow import Count, Widths, count, dry_run, wrapped
from concord.net.model_file import load_model
from concord.sim.machines.host import machine
from concord.spec.host.registers import Counter
from concord.spec.machine.config import PRESETS
from concord.tests.net.test_images import conv, graph, halves
from concord.tests.net.test_layer_overflow import slow


def narrow(name: str, sum_bits: int):
    """A preset with a narrow accumulator; blocks have only one exponent, so that they need no further bits."""
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
    # After a sum has wrapped, the codes of the second layer differ from those of the model.
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
    room = {"matrix_tiles": 64, "multiply_vrf": 64, "addsub_vrf": 64, "bias_words": 64}
    config = replace(narrow("serial", 8), product_bits=4, output_bits=5, **room)
    widths = Widths(sum_bits=8, product_bits=config.product_bits, output_bits=config.output_bits)
    model = networks.recurrent(rng, config, [3, 4, 5], block=[False, False], outputs=3)
    inputs, lengths = networks.inputs(rng, 3, 7, 3), np.array([6, 1, 4])
    wide = replace(widths, sum_bits=30)
    uses = dry_run(model, inputs, lengths, wide)
    names = ["lstm0, input", "lstm0, recurrent", "lstm1, input", "lstm1, recurrent", "dense"]
    assert [use.product.name for use in uses] == names
    assert [use.count.additions for use in uses] == [11 * 16 * 4, 11 * 16 * 5, 11 * 20 * 5, 11 * 20 * 6, 3 * 3 * 6]
    # With wide sums, where only products can overflow, the machine counts the same products.
    roomy = replace(config, acc_int=30)
    session = Session(machine("golden", roomy), compile_network(model, roomy).firmware)
    for sample, length in zip(inputs, lengths, strict=True):
        session.infer(sample[:length])
    counters = session.counters()
    assert counters[Counter.OVERFLOW_PRODUCT] == sum(use.count.events.product for use in uses) > 0
    assert counters[Counter.OVERFLOW_OUTPUT] == sum(use.count.events.output for use in uses) > 0


def test_the_bound_proves_what_no_input_exceeds():
    rng = np.random.default_rng(4)
    (layer,) = networks.mlp(rng, PRESETS["serial"], [12, 8], block=False).layers
    (product,) = layer.products()
    bits = product.bits
    assert largest_sum(layer.weights, layer.start, -layer.input_format.lowest).bit_length() + 1 == bits
    lowest, highest = layer.input_format.lowest, layer.input_format.highest
    for codes in np.where(layer.weights < 0, lowest, highest), np.where(layer.weights < 0, highest, lowest):
        made = count(layer.weights, codes, layer.start, Widths(sum_bits=bits))
        assert made.events == Events()
    loud = replace(layer, start=np.full(8, 2**20 - 1))
    assert loud.product.bits == 22  # one bit more than the start itself
    recurrent = networks.recurrent(rng, PRESETS["serial"], [3, 4], block=[False]).layers[0]
    matrices = recurrent.input_weights, recurrent.recurrent_weights
    for product, weights in zip(recurrent.products(), matrices, strict=True):
        sums = np.abs(weights.astype(int)).sum(-1).max() * -recurrent.input_format.lowest
        assert product.bits == int(sums).bit_length() + 1


def patches(layer, image):
    """The codes [positions, columns] of each group's patches, position by position."""
    around = layer.bordered(image[None], np.uint16(layer.border))[0]
    (down, across), (rows, columns) = layer.stride, layer.size
    _, high, wide = layer.made
    each = layer.weights.shape[1]
    found = []
    for group in range(layer.groups):
        mine = around[group * each:(group + 1) * each]
        seen = [mine[:, i * down:i * down + rows, j * across:j * across + columns].ravel()
                for i in range(high) for j in range(wide)]
        found.append(quantize_integer(np.array(seen), layer.input_format, unsigned=layer.unsigned))
    return found


@pytest.mark.parametrize("options", [
    {}, {"groups": 1, "stride": (1, 1)}, {"groups": 4, "outputs": 8, "padding": (2, 2, 2, 2)}])
def test_a_convolution_is_a_product_over_patches(options):
    layer, widths = conv(real=False, **options), Widths(sum_bits=7, product_bits=6, output_bits=5)
    model, x = networks.model([layer]), halves(20, layer.inputs)
    (use,) = dry_run(model, x, None, widths)
    rows = len(layer.weights) // layer.groups
    events, totals = Events(), []
    for image in x:
        sums = []
        for group, codes in enumerate(patches(layer, image)):
            mine = slice(group * rows, (group + 1) * rows)
            weights, start = layer.weights[mine].reshape(rows, -1), layer.start[mine]
            events += slow(weights, codes, start, widths)[0]
            sums.append((weights @ codes.T) + start[:, None])
        totals.append(np.concatenate(sums))
    assert use.count.events == events
    assert len(use.count.rows) == len(layer.weights)
    np.testing.assert_array_equal(wrapped(model, x, 40), network.forward(model, x)[-1].outputs)
    # A layer with wrapped sums equals a layer whose start values are lower by the lost amount.
    once = replace(layer, weights=np.zeros_like(layer.weights))
    for image, made in zip(x[:5], totals, strict=False):
        got = wrapped(model, image[None], 7)[0].reshape(len(made), -1)
        for position in range(made.shape[1]):
            alone = networks.model([replace(once, start=wrap(made[:, position], 7), unsigned=False)])
            want = network.forward(alone, image[None])[-1].outputs[0].reshape(len(made), -1)[:, 0]
            np.testing.assert_array_equal(got[:, position], want)


def test_a_graph_runs_through(monkeypatch):
    model, x = graph(), halves(7, 144)
    widths = Widths(sum_bits=8)
    whole = dry_run(model, x, None, widths)
    assert [use.product.name for use in whole] == ["first", "second", "average", "last"]
    assert whole[0].count.number > 0
    np.testing.assert_array_equal(wrapped(model, x, 40), network.forward(model, x)[-1].outputs)
    assert (wrapped(model, x, 6) != wrapped(model, x, 40)).any()
    assert [model.layers[index].products() for index in (2, 3, 5)] == [()] * 3
    monkeypatch.setattr("concord.net.layer_overflow.TOGETHER", 2)
    for one, other in zip(whole, dry_run(model, x, None, widths), strict=True):
        assert isinstance(other.count, Count)
        assert (one.count.events, one.count.bits) == (other.count.events, other.count.bits)


def test_a_recurrent_model_with_sums_that_wrap_is_the_machine():
    rng = np.random.default_rng(5)
    room = {"matrix_tiles": 64, "multiply_vrf": 64, "addsub_vrf": 64, "bias_words": 64}
    config = replace(narrow("serial", 7), **room)
    model = networks.recurrent(rng, config, [3, 4, 5], block=[False, False], outputs=3)
    inputs, lengths = networks.inputs(rng, 6, 9, 3), np.array([5, 1, 4, 5, 2, 3])  # no sample has all time steps
    session = Session(machine("golden", config), compile_network(model, config).firmware)
    outputs = [session.infer(sample[:length]) for sample, length in zip(inputs, lengths, strict=True)]
    np.testing.assert_array_equal(wrapped(model, inputs, 7, lengths), outputs)
    assert (network.outputs(model, inputs, lengths) != outputs).any()


@pytest.mark.parametrize("block", ["mlp", "recurrent"])
def test_what_cannot_be_counted_is_named(block):
    rng, config, widths = np.random.default_rng(6), PRESETS["tiny"], Widths(sum_bits=16)
    if block == "mlp":
        model, inputs = networks.mlp(rng, config, [8, 8], block=True), networks.inputs(rng, 2, 8)
    else:
        model, inputs = networks.recurrent(rng, config, [8, 4], block=[True]), networks.inputs(rng, 2, 3, 8)
    name = model.layers[0].name
    with pytest.raises(ValueError, match=f"layer '{name}' has no integer weights: overflow is counted in integer"):
        dry_run(model, inputs, None, widths)
    with pytest.raises(ValueError, match=f"layer '{name}' has no integer weights"):
        model.layers[0].products()
    with pytest.raises(ValueError, match=f"layer '{name}' has no integer weights"):
        wrapped(model, inputs, 16)


@pytest.mark.parametrize(("name", "preset", "bits"), [
    ("fashion-mlp-w4a4", "ulx3s", [16, 13, 12]), ("vowels-lstm-w8", "speech", [18, 19, 20])])
def test_compiler_and_dry_run_prove_the_same_widths(name, preset, bits):
    model = load_model(DATA / "models" / f"{name}.safetensors")
    bounds = {bound.product: bound.bits for bound in compile_network(model, PRESETS[preset]).bounds}
    products = {product.name: product.bits for layer in model.layers for product in layer.products()}
    assert bounds == products
    assert list(bounds.values()) == bits
