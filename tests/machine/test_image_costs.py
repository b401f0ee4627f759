"""The measurements of `nox -s bench_images`, on a network that compiles for a small machine."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.golden.lib import float16
from concord.spec.host.registers import Counter
from concord.spec.machine.config import preset
from concord.verification.batches import Outcome
from rich.console import Console

pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")

from concord.benchmarks import image_costs
from concord.benchmarks.bench_images import GOALS, WAITS, Goal, layer_table, summary, summary_row
from concord.benchmarks.image_costs import differing, measure
from concord.benchmarks.tiny_models import MODELS

CONFIG = preset("ulx3s")
SIZES = (64, 128, 96, 10)


@pytest.fixture(scope="module")
def model():
    return networks.mlp(np.random.default_rng(1), CONFIG, list(SIZES), block=True)


@pytest.fixture(scope="module")
def measured(model):
    return measure(model, CONFIG, networks.inputs(np.random.default_rng(2), 3, SIZES[0]), "dense1")


def test_both_machines_and_golden_layers_agree(measured):
    assert measured.bits == 0


def test_products_are_those_of_the_layers(measured):
    named = {cost.layers: cost for cost in measured.costs}
    assert [measured.useful(cost) for cost in named.values()] == [64 * 128, 128 * 96, 96 * 10]
    assert named["dense2",].products(CONFIG) == 96 * 32
    assert measured.useful(measured.single) == 128 * 96
    assert measured.of_peak(1024, 2) == 0.5


def test_cycles_of_an_inference_cover_the_program_and_both_transfers(measured):
    program = sum(cost.cycles for cost in measured.costs)
    assert 0.9 * program < measured.cycles < program + 100
    assert measured.single.cycles < program


def test_a_difference_is_counted(model, monkeypatch):
    inputs = networks.inputs(np.random.default_rng(2), 1, SIZES[0])
    outputs = image_costs.network.outputs
    monkeypatch.setattr(image_costs.network, "outputs", lambda *args: outputs(*args) ^ np.uint16(1))
    assert measure(model, CONFIG, inputs).bits == SIZES[-1]


def test_differences_are_those_of_outputs_memories_and_events():
    one = float16.from_integer(np.arange(4), 0).reshape(1, 4)
    counters = dict.fromkeys(Counter, 1)
    run = Outcome(outputs=one, memories={0: ({0: one},)}, counters=(counters,))
    assert differing(run, run) == 0
    assert differing(run, replace(run, outputs=one ^ np.uint16(1))) == 4
    assert differing(run, replace(run, memories={0: ({0: one ^ np.uint16(3)},)})) == 8
    assert differing(run, replace(run, counters=(counters | {Counter.CHAINS: 2},))) == 1
    assert differing(run, replace(run, counters=(counters | {Counter.CYCLES: 2},))) == 0


def test_tables_have_every_layer_and_cause(measured):
    table = layer_table(measured, "title")
    assert len(table.columns) == 6 + len(WAITS)
    text = "".join(str(cell) for cell in table.columns[0].cells)
    assert all(name in text for name in ("dense0", "dense1", "dense2", "all", "alone"))
    rows = summary()
    rows.add_row(*summary_row(measured, "conv3x3-64", "ulx3s"))
    Console(quiet=True).print(rows)
    assert set(GOALS) == set(MODELS)


def test_goals(measured):
    assert Goal(cycles=measured.cycles).met(measured)
    assert not Goal(cycles=measured.cycles - 1).met(measured)
    share = measured.of_peak(128 * 96, measured.single.cycles)
    assert Goal(of_peak=share).met(measured)
    assert not Goal(of_peak=share + 0.01).met(measured)
