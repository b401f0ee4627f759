"""Networks of images that a machine cannot run are refused, with the layer, the reason and what to do."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ImageNetworkMaker
from concord.compiler.network import compile_network
from concord.net.layers.convolution import Along
from concord.net.layers.joins import Softmax
from concord.net.layers.layer import Unknown
from concord.net.model import INPUT, Model
from concord.spec.machine.config import Config, preset

VISION = preset("vision")


def refused(model: Model, config: Config = VISION) -> str:
    with pytest.raises(ValueError, match=r"\w") as caught:
        compile_network(model, config)
    return str(caught.value)


def images(block: bool = False, shape=(3, 6, 6)) -> ImageNetworkMaker:
    return ImageNetworkMaker(np.random.default_rng(0), VISION, shape, block=block)


def test_a_machine_without_vector_rf():
    made = images()
    made.conv(INPUT, 4)
    message = refused(made.model(), replace(VISION, vector_rf=0))
    assert "layer 'conv0' (convolution, integer): the machine has no VectorRf, which images need" in message


def test_every_layer_is_named():
    made = images()
    made.conv(INPUT, 4)
    layers = [*made.layers, Unknown(name="odd", kind="Attention"), replace(made.layers[0], name="wide")]
    message = refused(networks.model(layers), replace(VISION, weights=replace(VISION.weights, bits=4)))
    assert "layer 'conv0' (convolution, integer), layer 'wide' (convolution, integer): its weights lie in" in message
    assert "layer 'odd' (Attention): there is no such layer on this machine" in message


def test_a_vector_is_no_image():
    made = images()
    made.dense(INPUT, 48)
    made.shapes["dense0"] = (3, 4, 4)
    made.conv("dense0", 4)
    message = refused(made.model())
    assert "'conv1' (convolution, integer): it takes an image of 3 x 4 x 4, but its source is one of 48 x 1" in message


def test_blocks_along_patches_inside_a_network():
    made = images(block=True)
    first = made.conv(INPUT, 4)
    made.conv(first, 4, along=Along.PATCH)
    message = refused(made.model())
    assert "its blocks lie along patches, which only the sender of the network's input can make" in message


def test_blocks_that_do_not_follow_the_pixels():
    made = images(block=True)
    parts = [made.conv(INPUT, 5), made.conv(INPUT, 5)]
    joined = made.concat(*parts)
    made.places[joined] = np.arange(10)
    made.conv(joined, 4)
    assert "its blocks do not follow the pixels of its input: quantise the network again" in refused(made.model())


def test_images_behind_sequences_of_any_length():
    made = images()
    made.conv(INPUT, 4)
    recurrent = networks.recurrent(np.random.default_rng(0), VISION, [108, 4], block=[False]).layers[0]
    layers = [recurrent, replace(made.layers[0], name="image", shape=(4, 1, 1), weights=made.layers[0].weights[
        :, :1, :1, :1].repeat(4, 1), quant_scale=None, quant_offset=None)]
    message = refused(networks.model(layers))
    assert "its sequence has any number of time steps, and a network with images stores all of a fixed" in message


def test_sums_of_images_in_different_order():
    made = images()
    a = made.concat(made.conv(INPUT, 5), made.conv(INPUT, 7))
    b = made.concat(made.conv(INPUT, 7), made.conv(INPUT, 5))
    made.dense(made.sum(a, b), 3)
    assert "lie in different order: add images of one shape" in refused(made.model())


def test_pixels_of_a_flattened_part_with_scales_of_their_own():
    made = images()
    a = made.conv(INPUT, 4)
    made.dense(made.concat(made.dense(a, 5), made.conv(a, 3, (2, 2))), 2)
    scales = made.layers[-1].quant_scale.copy()
    scales[-1] += 1
    made.layers[-1] = replace(made.layers[-1], quant_scale=scales)
    assert ("layer 'concat3' (concatenation): a layer after it scales the pixels of a channel of 'conv2' by different "
            "factors") in refused(made.model())


def test_a_ragged_result_for_a_softmax_unit():
    made = images()
    made.concat(made.dense(INPUT, 5), made.dense(INPUT, 7))
    made.layers.append(Softmax(name="last", inputs=12))
    made.sources["last"] = (made.layers[-2].name,)
    message = refused(made.model(), replace(VISION, softmax_words=8))
    assert "its parts are no multiples of 16 channels, so that there are gaps between them: put a dense" in message


@pytest.mark.parametrize(("attribute", "size", "sentence"), [
    ("vector_rf", 40, "VectorRf needs"), ("matrix_tiles", 4, "MatrixRf needs"), ("bias_words", 1, "BiasRf needs"),
    ("instructions", 20, "the instruction buffer needs"), ("multiply_vrf", 1, "MultiplyVrf0 needs"),
    ("addsub_vrf", 1, "AddSubVrf")])
def test_memories_that_are_too_small(attribute, size, sentence):
    made = images()
    at = made.conv(INPUT, 20, padding=(1, 1, 1, 1))
    made.dense(made.sum(made.conv(at, 20, padding=(1, 1, 1, 1)), at), 10)
    message = refused(made.model(), replace(VISION, **{attribute: size}))
    assert "is too large for this machine" in message
    assert sentence in message
    assert "too few" in message
