"""Layers in forms that are easily missed: each has golden's bits, and is recovered without a table of elements."""

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ImageNetworkMaker
from concord.campaigns.makers.mixed_networks import Mixed
from concord.campaigns.twin_random import calls
from concord.net.arithmetic.windows import TimeAxis
from concord.net.cells.registry import CELLS
from concord.net.model import INPUT, Model
from concord.spec.machine.config import PRESETS, Config
from concord.tests.compiler.test_image_networks import roomy
from concord.tests.twin.recovered import agree
from concord.twin.lib.script import Call

BLOCK = pytest.mark.parametrize("block", [False, True], ids=["integers", "blocks"])
VISION = roomy("vision", operand_columns=64)


def recovered(config: Config, model: Model, steps: int = 4) -> list[Call]:
    """The calls of a model's twin, which has golden's bits and reads no stored table."""
    sequence = [model.steps or steps] * model.recurrent
    found = calls(agree(config, model, networks.inputs(np.random.default_rng(1), 2, *sequence, model.inputs)))
    assert "take" not in {call.function for call in found}
    return found


def test_blocks_along_windows_that_fill_all_columns_of_an_image():
    images = ImageNetworkMaker(np.random.default_rng(0), VISION, (3, 5, 2), block=True)
    images.dense(images.conv(INPUT, 32, (2, 2)), 3)
    assert "patches" in {call.function for call in recovered(VISION, images.model())}


@BLOCK
def test_pixels_that_a_stride_leaves_out_and_positions_outside_of_the_image(block):
    images = ImageNetworkMaker(np.random.default_rng(0), VISION, (2, 3, 10), block=block)
    at = images.conv(INPUT, 16, (3, 3), stride=(2, 2), padding=(1, 1, 1, 1))
    at = images.conv(at, 16, (1, 1), stride=(3, 2), padding=(0, 0, 2, 1))
    images.dense(images.average(at, (1, 4)), 4)
    functions = [call.function for call in recovered(VISION, images.model())]
    assert functions.count("convolution") == 3


@pytest.mark.parametrize("cell", ["gru", "gru-reset-before"])
def test_blocks_of_vectors_that_fill_no_word(cell):
    rng, config = np.random.default_rng(0), PRESETS["speech"]
    recovered(config, networks.recurrent(rng, config, [10, 7], block=[True], outputs=3, cell=CELLS[cell]))


@BLOCK
def test_both_directions_before_a_recurrent_layer(block):
    made = Mixed(np.random.default_rng(0), VISION, (5, 1, 1), block=block, steps=3)
    size = VISION.native_dim if block else VISION.mfu_lanes
    at = made.both(made.recurrent(INPUT, size), made.recurrent(INPUT, size, reverse=True))
    at = made.recurrent(at, 7, CELLS["gru"])
    made.dense(made.conv(made.image(at, 3), 16, (1, 2)), 3)
    recovered(VISION, made.model())


@pytest.mark.parametrize("name", ["tiny", "ulx3s"])
def test_a_sum_beside_one_of_its_terms(name):
    config = PRESETS[name]
    recovered(config, networks.branches(np.random.default_rng(0), config, 2 * config.mfu_lanes, block=True))


@BLOCK
def test_images_as_results_and_as_sequences_of_columns(block):
    made = Mixed(np.random.default_rng(0), VISION, (3, 4, 5), block=block)
    made.conv(INPUT, 16, (2, 2))
    assert "transpose" in {call.function for call in recovered(VISION, made.model())}
    made.dense(made.recurrent(made.sequence("conv0", TimeAxis.COLUMNS), 6, CELLS["rnn"]), 3)
    assert "transpose" in {call.function for call in recovered(VISION, made.model())}


@BLOCK
def test_maxima_whose_windows_at_the_border_have_one_pixel(block):
    images = ImageNetworkMaker(np.random.default_rng(0), VISION, (3, 8, 4), block=block)
    at = images.maximum(images.conv(INPUT, 16, padding=(1, 1, 1, 1)), (2, 1), stride=(2, 1), padding=(1, 1, 0, 0))
    images.dense(images.conv(at, 16, (3, 3)), 3)
    assert "max_pool" in {call.function for call in recovered(VISION, images.model())}
