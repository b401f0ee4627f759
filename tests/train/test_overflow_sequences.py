"""The overflow predictor of recurrent and mixed networks: it counts as golden does, until nothing overflows."""

import csv
from dataclasses import fields

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.compiler.network import compile_network
from concord.datasets.samples import DataSet, Samples, Task
from concord.firmware.session import Session
from concord.net import network as golden
from concord.net.cells import gru, lstm, peephole, rnn
from concord.net.layer_overflow import Widths, dry_run
from concord.net.quantize.choices import BlockRecipe, Choices
from concord.net.quantize.quantized import calibrate, prepared
from concord.net.quantize.recipe import Gates
from concord.net.quantize.source import source
from concord.nnp.lib.field_options import OVERFLOW
from concord.sim.machines.host import machine
from concord.spec.machine.config import preset
from concord.tests import float_networks
from concord.train.lib.export import patterns
from concord.train.lib.observer import CsvLog, Observer
from concord.train.lib.samples import SampleTensors
from concord.train.network.quantized_network import QuantizedNetwork
from concord.train.overflow.options import OverflowOptions
from concord.train.overflow.predictor import Predictor, kind
from concord.train.overflow.record import STEPS, Adjusted, NetworkKind, RangeSteps
from concord.train.runs.imported import train_imported

pytestmark = pytest.mark.usefixtures("seeded")
NETWORKS = {
    "lstm": lambda: float_networks.sequences(lstm.LSTM),
    "lstm both": lambda: float_networks.sequences(lstm.LSTM, both=True),
    "lstm peephole": lambda: float_networks.sequences(peephole.PEEPHOLE),
    "gru": lambda: float_networks.sequences(gru.AFTER, second=gru.BEFORE),
    "rnn": lambda: float_networks.sequences(rnn.RELU, both=True),
    "lstm mixed": float_networks.convolutions_before_and_after,
}


def data_of(network, count=24) -> DataSet:
    rng = np.random.default_rng(1)
    shape = (count, 6, *network.shape) if network.sequence else (count, np.prod(network.shape))
    x = rng.uniform(-1, 1, shape).astype(np.float16).view(np.uint16)
    lengths = rng.integers(2, 7, count) if network.sequence else None
    samples = Samples(inputs=x, lengths=lengths, labels=np.arange(count, dtype=np.uint8) % 3, classes=())
    return DataSet(name="random", task=Task.CLASSIFICATION, shape=network.shape, train=samples, test=samples.first(10),
                   calibration=None, description="data = \"random\"")


def behind(name: str, **gates) -> tuple[QuantizedNetwork, SampleTensors]:
    """A network with quantisers of 8 bits, and its calibration set."""
    network = NETWORKS[name]()
    found = source(network, data_of(network))
    arithmetic = prepared(network, Choices(gates=Gates(**gates)), found.steps)
    calibrate(arithmetic, found.numbers(found.calibration), found.calibration.lengths)
    return QuantizedNetwork(arithmetic), SampleTensors.of(found.calibration)


def uses_of(net, given: SampleTensors, widths: Widths):
    """Golden's counts by the name of the product, and golden's outputs."""
    layers, sources = net.lower()
    model, samples = networks.model(layers, sources=sources), given.samples
    return {use.product.name: use.count for use in dry_run(model, samples.inputs, samples.lengths, widths)}, (
        golden.outputs(model, samples.inputs, samples.lengths))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("share", [0.5])
def test_products_are_counted_as_golden_counts_until_none_overflows(name, share):
    net, given = behind(name)
    widths = Widths(sum_bits=13, product_bits=14, output_bits=12)
    made = Predictor(net, given.x, widths, RangeSteps(inputs=share), given.lengths)
    want, _ = uses_of(net, given, widths)
    assert list(made.factors) == list(want)
    for product, count in want.items():
        assert made.count(product, given.x, given.lengths).events == count.events
    assert sum(count.number for count in want.values()) > 0
    assert made.run().events == 0
    want, outputs = uses_of(net, given, widths)
    assert [count.number for count in want.values()] == [0] * len(want)
    assert [product.bits for product in made.record.products] == [count.bits for count in want.values()]
    assert np.array_equal(patterns(given.outputs(net, lowered=True)), outputs)
    assert (outputs != outputs[0]).any()
    assert kind(net) == name.split()[0]


@pytest.mark.parametrize("gates", [{"asymmetric": True}, {"shared": True}, {"biases": 20}])
def test_every_form_of_gates_follows(gates):
    net, given = behind("gru", **gates)
    made = Predictor(net, given.x, Widths(sum_bits=13), STEPS[NetworkKind.GRU], given.lengths)
    assert made.run().events == 0
    want, outputs = uses_of(net, given, Widths(sum_bits=13))
    assert not any(count.number for count in want.values())
    assert np.array_equal(patterns(given.outputs(net, lowered=True)), outputs)
    first = next(iter(made.products.values()))
    assert np.array_equal(first[0].grown, first[1].grown) is bool(gates.get("shared"))
    assert (first[0].start(first[0].integers()) != 0).any() is np.bool_("biases" in gates)


def test_a_machine_runs_codes_of_which_each_layer_has_its_own_steps():
    net, given = behind("gru")
    Predictor(net, given.x, Widths(sum_bits=13), RangeSteps(inputs=0.5), given.lengths).run()
    layers, sources = net.lower()
    steps = {layer.hidden_quant_scale[0] for layer in layers if hasattr(layer, "hidden_quant_scale")}
    assert len(steps) > 1
    model, config, samples = networks.model(layers, sources=sources), preset("speech"), given.samples.first(3)
    session = Session(machine("golden", config), compile_network(model, config).firmware)
    made = [session.infer(x[:length]) for x, length in zip(samples.inputs, samples.lengths, strict=True)]
    assert np.array_equal(made, golden.outputs(model, samples.inputs, samples.lengths))


def test_training_ends_without_an_overflow_and_is_logged(tmp_path, monkeypatch):
    network = NETWORKS["lstm mixed"]()
    data = data_of(network)
    runs, run = [], Predictor.run
    monkeypatch.setattr(Predictor, "run", lambda predictor: runs.append(run(predictor)) or runs[-1])
    model = train_imported(tmp_path / "m", network=network, data=data, choices=Choices(), epochs=(2, 1),
                           overflow=OverflowOptions(accumulator=13, overflow_every=1), rate=0.02,
                           progress=Observer(log=CsvLog(tmp_path / "log.csv")))
    uses = dry_run(model, data.train.inputs, data.train.lengths, Widths(sum_bits=13))
    assert sum(use.count.number for use in uses) == 0
    assert str(runs[-1]) in model.provenance.method
    assert len(runs) == 1 + 3 * 2  # after PTQ, after each step and after each epoch; an epoch has one step
    with (tmp_path / "log-products.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(line["phase"], line["epoch"]) for line in lines[::len(uses)]] == [
        ("QAT", "1"), ("QAT", "2"), ("QAT, lowered", "1")]
    assert [line["product"] for line in lines[:len(uses)]] == [use.product.name for use in uses]
    for line, first, second in zip(lines, *([product for run in runs[1 + start::2] for product in run.products]
                                            for start in (0, 1)), strict=True):
        assert int(line["events"]) == first.before + second.before
        assert int(line["excess"]) == max(first.excess, second.excess)
        assert (int(line["left"]), int(line["bits"])) == (0, second.bits)
    assert any(int(line["events"]) > 0 < int(line["excess"]) for line in lines)


@pytest.mark.parametrize("name", ["lstm", "lstm mixed"])
def test_weights_that_overflow_are_replaced_by_smaller_ones(name):
    net, given = behind(name)
    options = OverflowOptions(accumulator=13, overflow_by=Adjusted.DATA)
    steps = {key: value.clone() for key, value in net.state_dict().items() if "step" in key or "scale" in key}
    made = Predictor(net, given.x, options.widths, options.steps(kind(net)), given.lengths)
    assert made.run().events == 0
    want, outputs = uses_of(net, given, options.widths)
    assert not any(count.number for count in want.values())
    assert np.array_equal(patterns(given.outputs(net, lowered=True)), outputs)
    assert steps
    assert all(net.state_dict()[key].equal(value) for key, value in steps.items())
    changed = [product for product in made.record.products if product.rounds]
    assert changed
    assert all(product.parameters[0] < 1 for product in changed)
    assert "parameters clipped to 0." in str(made.record)


def test_fixed_factors_are_those_of_every_round():
    net, given = behind("lstm")
    options = OverflowOptions(accumulator=14, overflow_weights=2.0, overflow_inputs=1.0, overflow_shrink=1.0)
    made = Predictor(net, given.x, options.widths, options.steps(NetworkKind.LSTM), given.lengths)
    factors = {factor for products in made.run() and made.products.values() for product in products
               for factor in product.grown}
    assert len(factors) > 1
    assert all(np.log2(factor) == round(np.log2(factor)) for factor in factors)
    assert {found.inputs for found in made.factors.values()} == {1.0}


def test_every_option_is_on_the_command_line_in_python_and_in_toml(tmp_path):
    assert {item.name for item in fields(OverflowOptions)} == OVERFLOW.keys()
    path = tmp_path / "o.toml"
    path.write_text('accumulator = 16\nproduct_limit = 20\noverflow_weights = "auto"\noverflow_inputs = 2\n')
    made = OverflowOptions.read(path)
    assert made == OverflowOptions(accumulator=16, product_limit=20, overflow_inputs=2.0)
    assert made.widths == Widths(sum_bits=16, product_bits=20)
    assert OverflowOptions(output_limit=9).widths == Widths(sum_bits=64, output_bits=9)


@pytest.mark.parametrize(("options", "said"), [
    ({"product_limit": 65}, "--product-limit 65 is no width"),
    ({"overflow_share": 0.5}, "--overflow-share needs a width that sums can overflow: add --accumulator"),
    ({"accumulator": 16, "overflow_by": Adjusted.DATA, "overflow_share": 0.5}, "leave out --overflow-share"),
    ({"accumulator": 16, "overflow_weights": 0.5}, "--overflow-weights = 0.5 must be at least 1"),
    ({"accumulator": 16, "overflow_weights": 1.0, "overflow_inputs": 1.0},
     "must be above 1 where --overflow-weights is 1"),
])
def test_options_that_contradict_each_other_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        OverflowOptions(**options).check()


def test_blocks_have_no_sums_that_wrap(tmp_path):
    network = NETWORKS["lstm"]()
    with pytest.raises(ValueError, match="--accumulator is for integers"):
        train_imported(tmp_path / "m", network=network, data=data_of(network), choices=Choices(recipe=BlockRecipe()),
                       overflow=OverflowOptions(accumulator=16))
