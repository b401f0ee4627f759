"""Images read as sequences, sequences read as images, and the number of time steps that they fix."""

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.makers.mixed_networks import Mixed
from concord.net import float_network as reference
from concord.net import network
from concord.net.arithmetic.windows import TimeAxis
from concord.net.cells.lstm import LSTM
from concord.net.layers.sequences import ImageToSequence, SequenceToImage
from concord.net.model import INPUT
from concord.net.model_file import load_model, save_model
from concord.spec.machine.config import PRESETS
from concord.tests.small_networks import keyword_spotter

TINY = PRESETS["tiny"]


@pytest.mark.parametrize("time", list(TimeAxis))
def test_each_time_step_holds_its_pixels_with_all_their_channels(time):
    images = np.arange(2 * 24).reshape(2, 24).astype(np.uint16)
    layer = ImageToSequence(name="layer", shape=(2, 3, 4), time=time)
    trace = layer.run([images], None)
    whole = images.reshape(2, 2, 3, 4)
    sides = np.moveaxis(whole, 2, 0) if time is TimeAxis.ROWS else np.moveaxis(whole, 3, 0)
    assert trace.hidden.shape == (2, layer.steps, layer.outputs)
    for step, side in enumerate(sides):  # [samples, channels, pixels]
        np.testing.assert_array_equal(trace.hidden[:, step], side.transpose(0, 2, 1).reshape(2, -1))
    np.testing.assert_array_equal(trace.outputs, trace.hidden[:, -1])


def test_an_image_of_a_sequence_has_a_column_for_each_time_step():
    hidden = networks.inputs(np.random.default_rng(0), 3, 4, 5)
    layer = SequenceToImage(name="layer", inputs=5, steps=4)
    made = layer.run([hidden], None).outputs
    np.testing.assert_array_equal(made.reshape(3, *layer.made)[:, :, 0], hidden.swapaxes(1, 2))
    again = ImageToSequence(name="again", shape=layer.made)
    np.testing.assert_array_equal(again.run([made], None).hidden, hidden)


def test_a_network_computes_the_same_layer_by_layer():
    rng = np.random.default_rng(1)
    model = keyword_spotter(rng, TINY, block=False, steps=6)
    assert (model.recurrent, model.steps, model.inputs, model.image) == (True, 6, 5, None)
    x = networks.inputs(rng, 3, 6, 5)
    image, conv, sequence, lstm, dense = model.layers
    seen = conv.run([x.swapaxes(1, 2).reshape(3, -1)], None).outputs.reshape(3, conv.channels, 6).swapaxes(1, 2)
    hidden = lstm.run([seen], None)
    np.testing.assert_array_equal(network.outputs(model, x), dense.run([hidden.outputs], None).outputs)
    assert reference.float_network(model) is None


def test_such_a_network_is_written_and_read_back(tmp_path):
    model = keyword_spotter(np.random.default_rng(2), TINY, block=True)
    save_model(model, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    x = networks.inputs(np.random.default_rng(3), 2, 9, 5)
    np.testing.assert_array_equal(network.outputs(again, x), network.outputs(model, x))


def test_sequences_of_another_length_are_refused():
    model = keyword_spotter(np.random.default_rng(1), TINY, block=False, steps=6)
    x = networks.inputs(np.random.default_rng(1), 3, 7, 5)
    for run in (network.forward, reference.forward):
        with pytest.raises(ValueError, match="random takes sequences of 6 time steps, not of 7: cut or pad them"):
            run(model, x)
        with pytest.raises(ValueError, match="takes sequences of 6 time steps, not of 5"):
            run(model, x[:, :6], np.array([6, 5, 6]))


def test_images_of_a_sequence_agree_on_its_length():
    made = Mixed(np.random.default_rng(0), TINY, (5, 1, 1), block=False, steps=6)
    at = made.recurrent(INPUT, 4)
    made.image(at, 6)
    made.conv(made.image(at, 5), 3, (1, 3))
    with pytest.raises(ValueError, match="layer 'image2' makes an image of 5 time steps, but its sequence has 6; make"):
        made.model()


def test_a_recurrent_layer_takes_no_image():
    made = Mixed(np.random.default_rng(0), TINY, (4, 1, 6), block=False)
    conv = made.conv(INPUT, 4, (1, 3))
    made.shapes[conv] = (16, 1, 1)
    made.recurrent(conv, 3, LSTM)
    with pytest.raises(ValueError, match="put recurrent layers first, or an ImageToSequence between them"):
        made.model()
    with pytest.raises(ValueError, match="elements and time steps are 1 or more, not 5 and 0"):
        SequenceToImage(name="layer", inputs=5, steps=0)
