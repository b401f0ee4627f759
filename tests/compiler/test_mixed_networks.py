"""Networks of images and recurrent layers on the golden machine against the same networks in golden arithmetic."""

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.makers.mixed_networks import Mixed, anything
from concord.net.arithmetic.windows import TimeAxis
from concord.net.cells.registry import CELLS
from concord.net.model import INPUT
from concord.sim.machines.host import machine
from concord.spec.machine.config import PRESETS, Config
from concord.tests.compiled import agree_on_random as agree
from concord.tests.compiled import machines_agree
from concord.tests.compiler import test_image_networks
from concord.tests.compiler.test_image_networks import NAMES
from concord.tests.small_networks import keyword_spotter, small

BLOCK = pytest.mark.parametrize("block", [False, True])


def roomy(name: str, **changes) -> Config:
    """The preset with larger memories and wider products."""
    return test_image_networks.roomy(name, operand_columns=64, **changes)


@pytest.mark.parametrize("seed", range(3))
@BLOCK
@pytest.mark.parametrize("name", NAMES)
def test_recurrent_layers_behind_a_convolution_over_time(name, block, seed):
    rng = np.random.default_rng(seed)
    cell = list(CELLS.values())[seed % len(CELLS)]
    agree(roomy(name), keyword_spotter(rng, roomy(name), block=block, cell=cell, steps=int(rng.integers(1, 9))))


@pytest.mark.parametrize("seed", range(3))
@BLOCK
@pytest.mark.parametrize("name", NAMES)
def test_convolutions_over_hidden_vectors(name, block, seed):
    rng = np.random.default_rng(seed)
    config, steps = roomy(name), int(rng.integers(4, 9))
    made = Mixed(rng, config, (int(rng.integers(1, 20)), 1, 1), block=block, steps=steps)
    at = INPUT
    for _ in range(rng.integers(1, 3)):
        at = made.recurrent(at, int(rng.integers(1, 20)), reverse=bool(seed % 2))
    at = made.conv(made.image(at, steps), 7, (1, 3), padding=(0, 0, 1, 1))
    at = made.maximum(at, (1, 2), stride=(1, 2)) if rng.integers(2) else made.average(at, (1, 2))
    made.dense(at, 3)
    agree(config, made.model())


@pytest.mark.parametrize("time", list(TimeAxis))
@BLOCK
@pytest.mark.parametrize("name", NAMES)
def test_rows_and_columns_of_an_image_as_time_steps(name, block, time):
    rng = np.random.default_rng(1)
    config = roomy(name)
    channels = config.native_dim if block else 5
    made = Mixed(rng, config, (2, 6, 5), block=block)
    at = made.sequence(made.conv(INPUT, channels, (3, 3)), time)
    at = made.recurrent(at, 7, CELLS["gru"])
    made.dense(at, 3)
    agree(config, made.model())


@BLOCK
@pytest.mark.parametrize("name", NAMES)
def test_two_directions_twice(name, block):
    rng = np.random.default_rng(2)
    config, steps = roomy(name), 5
    made = Mixed(rng, config, (3, 1, steps), block=block)
    at = made.sequence(made.conv(made.image(INPUT, steps), config.native_dim, (1, 2)))
    for _ in range(2):
        size = config.native_dim if block else 5
        at = made.both(made.recurrent(at, size), made.recurrent(at, size, reverse=True))
    made.conv(made.image(at, steps - 1), 4, (1, 2), stride=(1, 2))
    agree(config, made.model())


@pytest.mark.parametrize("reverse", [False, True])
@BLOCK
@pytest.mark.parametrize("name", NAMES)
def test_hidden_vectors_of_all_steps_go_to_the_host(name, block, reverse):
    rng = np.random.default_rng(3)
    config, steps = roomy(name), 4
    made = Mixed(rng, config, (6, 1, 1), block=block, steps=steps)
    a = made.recurrent(INPUT, 6, reverse=reverse)
    b = made.recurrent(a, 6, reverse=reverse)
    made.sum(made.image(a, steps), made.image(b, steps))
    agree(config, made.model())
    assert made.shapes[made.layers[-1].name] == (6, 1, steps)


@BLOCK
def test_directions_may_change_from_layer_to_layer(block):
    config, steps = roomy("vision"), 6
    made = Mixed(np.random.default_rng(4), config, (5, 1, 1), block=block, steps=steps)
    a = made.recurrent(INPUT, 7)
    b = made.recurrent(made.recurrent(a, 7, reverse=True), 6)
    made.dense(made.concat(b, made.dense(made.image(b, steps), 16), a), 4)
    agree(config, made.model())


@BLOCK
def test_a_layer_reads_both_all_steps_and_the_last_one(block):
    config, steps = roomy("vision"), 6
    made = Mixed(np.random.default_rng(4), config, (5, 1, 1), block=block, steps=steps)
    a = made.recurrent(INPUT, 16)
    b = made.maximum(made.conv(made.image(a, steps), 16, (1, 3)), (1, 4), stride=(1, 1))
    made.dense(made.concat(a, b), 4)
    agree(config, made.model())


@pytest.mark.parametrize("seed", range(12))
@BLOCK
def test_random_graphs(block, seed):
    rng = np.random.default_rng(seed)
    config = roomy(["tiny", "serial", "wide", "vision", "vision_large"][seed % 5], initial_vrf=4096, addsub_vrf=4096,
                   multiply_vrf=4096, bias_words=2048, vector_rf=16384, matrix_tiles=16384, instructions=8192)
    agree(config, anything(rng, config, block=block), samples=1)


@pytest.mark.parametrize("name", ["tiny", "serial", "wide"])
def test_hardware_agrees(name):
    config = PRESETS[name]
    with machine("golden", config) as golden, machine("library", config) as library:
        for block in (False, True):
            model = small(np.random.default_rng(0), config, block=block)
            samples = networks.inputs(np.random.default_rng(1), 3, model.steps, model.inputs)
            machines_agree(golden, library, config, model, samples)
