"""Networks of images and recurrent layers that a machine cannot run are refused, with the reason and what to do."""

import numpy as np
import pytest
from concord.campaigns.makers.mixed_networks import Mixed
from concord.compiler.network import compile_network
from concord.net.arithmetic.windows import TimeAxis
from concord.net.model import INPUT, Model
from concord.spec.machine.config import PRESETS
from concord.tests.small_networks import keyword_spotter

VISION = PRESETS["vision"]


def refused(model: Model, config=VISION) -> str:
    with pytest.raises(ValueError, match=r"\w") as caught:
        compile_network(model, config)
    return str(caught.value)


def mixed(block: bool = False, shape=(5, 1, 1), steps: int = 6) -> Mixed:
    return Mixed(np.random.default_rng(0), VISION, shape, block=block, steps=steps)


def test_a_machine_without_vector_rf():
    message = refused(keyword_spotter(np.random.default_rng(0), VISION, block=False), PRESETS["speech"])
    assert "layer 'conv1' (convolution, integer)" in message
    assert "(sequence as an image)" in message
    assert message.count("the machine has no VectorRf, which images need") == 1


def test_blocks_of_several_pixels():
    made = mixed(block=True, shape=(2, 6, 5), steps=0)
    made.recurrent(made.sequence(made.conv(INPUT, 5), TimeAxis.ROWS), 4)
    message = refused(made.model())
    assert "layer 'lstm2' (LSTM, block floating point): its blocks of 16 elements do not follow the pixels" in message
    assert "give the image a multiple of 16 channels" in message


def test_images_of_sequences_with_several_pixels():
    made = mixed(shape=(2, 6, 5), steps=0)
    at = made.sequence(made.conv(INPUT, 5))
    made.dense(made.image(at, 3), 4)
    assert "it reads 'sequence1', of which a time step has several pixels" in refused(made.model())


def test_the_last_step_of_what_no_recurrent_layer_makes():
    made = mixed(shape=(2, 3, 5), steps=0)
    made.dense(made.sequence(made.conv(INPUT, 5, (3, 3))), 4)
    assert "it reads only the last time step of 'sequence1', which no recurrent layer makes" in refused(made.model())


def test_a_network_that_only_puts_numbers_into_another_order():
    made = mixed(shape=(2, 3, 5), steps=0)
    made.sequence(made.conv(INPUT, 5, (3, 3)))
    assert "it only puts numbers into another order: put a layer that computes after it" in refused(made.model())


def test_too_large_a_network_says_which_memory_is_too_small():
    made = mixed(shape=(40, 1, 1), steps=900)
    made.dense(made.recurrent(INPUT, 32, reverse=True), 4)
    made.conv(made.image("lstm0", 900), 4, (1, 3))
    assert "AddSubVrf1 needs 4533 words and has 2048, 2485 too few (the largest part is maps" in refused(made.model())
