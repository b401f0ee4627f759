"""The cost of each layer of a program, on golden and on the Verilated machine."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.compiler.network import compile_network
from concord.firmware.layer_costs import alone, layer_costs, parts
from concord.firmware.session import Session
from concord.sim.machines.host import machine
from concord.spec.host.registers import EVENTS, Counter
from concord.spec.machine.config import preset

CONFIG = preset("ulx3s")
SIZES = (64, 128, 96, 10)


def firmware(model):
    return compile_network(model, CONFIG).firmware


@pytest.fixture(scope="module")
def dense():
    return firmware(networks.mlp(np.random.default_rng(1), CONFIG, list(SIZES), block=True))


def tiles(inputs: int, outputs: int) -> int:
    return CONFIG.vectors_of(inputs) * CONFIG.vectors_of(outputs)


@pytest.mark.parametrize("kind", ["golden", "library"])
def test_the_costs_of_all_layers_are_those_of_the_program(kind, dense):
    sample = networks.inputs(np.random.default_rng(2), SIZES[0])
    with machine(kind, CONFIG) as nnp:
        session = Session(nnp, dense)
        before = session.infer(sample)
        costs = layer_costs(session, sample)
        whole = session.count(dense.program(), sample)
        assert np.array_equal(session.infer(sample), before)
    named = {cost.layers: cost for cost in costs if cost.layers}
    assert list(named) == [("dense0",), ("dense1",), ("dense2",)]
    for counter in (*EVENTS, Counter.CYCLES):
        assert sum(cost.counters[counter] for cost in costs) == whole[counter], counter
    for cost, *pair in zip(named.values(), SIZES, SIZES[1:], strict=False):
        assert cost.counters[Counter.TILES] == tiles(*pair)
        assert cost.products(CONFIG) == tiles(*pair) * CONFIG.native_dim ** 2
        assert (cost.cycles > tiles(*pair)) == (kind == "library")
        assert (0 < cost.busy(CONFIG) < 1) == (kind == "library")


def test_cycles_include_the_transfer_of_the_input():
    rng = np.random.default_rng(2)
    made, sample = firmware(networks.mlp(rng, CONFIG, [512, 32], block=True)), networks.inputs(rng, 512)
    with machine("library", CONFIG) as nnp:
        session = Session(nnp, made)
        session.infer(sample)
        loaded = session.counters()[Counter.CYCLES]
        counted = session.count(made.program(), sample)[Counter.CYCLES]
        assert counted == sum(cost.cycles for cost in layer_costs(session, sample))
    words = CONFIG.words_of(512)
    assert counted > words * CONFIG.mfu_lanes * 2 // CONFIG.message_bytes
    assert counted > loaded + words // 2  # a beat has half a word here


def test_a_layer_alone_counts_nothing_else(dense):
    sample = networks.inputs(np.random.default_rng(2), SIZES[0])
    with machine("golden", CONFIG) as nnp:
        session = Session(nnp, dense)
        session.infer(sample)
        cost = alone(session, "dense1")
        assert cost.counters[Counter.TILES] == tiles(*SIZES[1:3])
        assert cost.counters[Counter.CHAINS] == 1
        assert cost.counters[Counter.READ_NET_Q] == 0
        with pytest.raises(ValueError, match="no part of the program to itself"):
            alone(session, "dense7")


def test_layers_of_one_loop_are_one_part():
    rng = np.random.default_rng(3)
    made = firmware(networks.recurrent(rng, CONFIG, [8, 16, 16], block=[True, True], outputs=4))
    words = made.program(3)
    found = parts(made, words)
    assert [part.first for part in found] == [0, *(part.stop for part in found[:-1])]
    assert found[-1].stop == len(words) - 1
    assert {part.layers for part in found} >= {("lstm0", "lstm1"), ("dense",)}
    sample = networks.inputs(rng, 3, 8)
    with machine("golden", CONFIG) as nnp:
        session = Session(nnp, made)
        session.infer(sample)
        costs = layer_costs(session, sample)
        whole = session.count(words, sample)
    assert all(sum(cost.counters[counter] for cost in costs) == whole[counter] for counter in EVENTS)


def test_all_parts_of_a_layer_are_one_cost(dense):
    first, second, third = dense.sections
    apart = replace(dense, sections=(first, second, replace(third, layer=first.layer)))
    sample = networks.inputs(np.random.default_rng(2), SIZES[0])
    with machine("golden", CONFIG) as nnp:
        costs = {cost.layers: cost for cost in layer_costs(Session(nnp, apart), sample)}
    assert len(parts(apart, apart.program())) == 3
    assert costs["dense0",].counters[Counter.TILES] == tiles(*SIZES[:2]) + tiles(*SIZES[2:])
    assert costs["dense1",].counters[Counter.TILES] == tiles(*SIZES[1:3])
