"""Networks of images and recurrent layers on the golden machine against the same networks in golden arithmetic."""

import numpy as np
import pytest
from concord.model.cells.registry import CELLS
from concord.model.layers.sequences import TimeAxis
from concord.model.model import INPUT
from concord.spec.config import Config
from concord.tests.compiler import test_image_networks
from concord.tests.compiler.test_image_networks import NAMES
from concord.tests.mixed_networks import Mixed, agree, keyword_spotter

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
