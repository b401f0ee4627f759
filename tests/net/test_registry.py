"""The registry of layers: every kind is saved, loaded and run, and the compiler accepts or refuses it."""

from dataclasses import fields, replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.compiler.graph.wiring import IMAGES
from concord.compiler.support import KINDS as COMPILED
from concord.compiler.support import of_layer
from concord.golden.lib.float16 import to_bits
from concord.net import network
from concord.net.arithmetic.windows import TimeAxis
from concord.net.layers.attention import BlockAttention
from concord.net.layers.curves import ClippedLine, Curve, Leaky, Limited, TanhGelu
from concord.net.layers.enlarging import Enlarge
from concord.net.layers.joins import Add, Concat, GatedChannels, Multiply, SequenceConcat, Softmax
from concord.net.layers.layer import Layer, Unknown
from concord.net.layers.pooling import BlockQuantizedResult, MaxPool, QuantizedResult
from concord.net.layers.positions import ConstantPositions, PixelOffsets
from concord.net.layers.recurrent import BlockRecurrent, IntegerRecurrent
from concord.net.layers.reductions import VectorNorm, VectorSoftmax
from concord.net.layers.registry import KINDS, kind_of
from concord.net.layers.sequences import ImageToSequence, SequenceToImage
from concord.net.lowering import block_lowering, image_lowering
from concord.net.model import INPUT, Model
from concord.net.model_file import load_model, save_model
from concord.spec.machine.config import preset
from concord.spec.numbers.activation import Activation
from concord.tests.net import test_block_conv, test_images

CONFIG = preset("tiny")


def shallow(layer: Layer) -> dict:
    """The fields of a layer by name."""
    return {item.name: getattr(layer, item.name) for item in fields(layer)}


MAKERS = {
    "Dense": lambda rng: networks.dense(rng, CONFIG, "layer", 6, 4),
    "BlockDense": lambda rng: networks.block_dense(rng, CONFIG, "layer", 6, 4),
    "Conv": lambda rng: test_images.conv("layer"),
    "BlockConv": lambda rng: test_block_conv.conv(),
    "Average": lambda rng: image_lowering.average(
        name="layer", shape=(2, 4, 4), size=(2, 3), input_format=CONFIG.activations, unsigned=True, s_in=0.1),
    "BlockAverage": lambda rng: block_lowering.block_average(
        name="layer", shape=(2, 4, 4), size=(2, 3), weights_format=CONFIG.weights, input_format=CONFIG.activations,
        block=CONFIG.native_dim),
    "QuantizedResult": lambda rng: QuantizedResult(**shallow(image_lowering.average(
        name="layer", shape=(2, 4, 4), size=(1, 1), input_format=CONFIG.activations, unsigned=True, s_in=0.1))),
    "BlockQuantizedResult": lambda rng: block_lowering.block_average(
        name="layer", shape=(2, 4, 4), size=(1, 1), weights_format=CONFIG.weights, input_format=CONFIG.activations,
        block=CONFIG.native_dim, kind=BlockQuantizedResult),
    "MaxPool": lambda rng: MaxPool(name="layer", shape=(2, 4, 4), size=(2, 2), stride=(2, 2)),
    "Add": lambda rng: Add(name="layer", inputs=6),
    "Multiply": lambda rng: Multiply(name="layer", inputs=6),
    "Curve": lambda rng: Curve(name="layer", inputs=6, activation=Activation.TANH),
    "Leaky": lambda rng: Leaky(name="layer", inputs=6, slope=0.1),
    "ClippedLine": lambda rng: ClippedLine(name="layer", inputs=6, shift=3.0, slope=1 / 6, ceiling=1.0),
    "Limited": lambda rng: Limited(name="layer", inputs=6, lowest=-1.0),
    "TanhGelu": lambda rng: TanhGelu(name="layer", inputs=6),
    "Enlarge": lambda rng: Enlarge(name="layer", shape=(2, 4, 4), factor=(2, 3)),
    "VectorSoftmax": lambda rng: VectorSoftmax(name="layer", inputs=6),
    "VectorNorm": lambda rng: VectorNorm(name="layer", weight=to_bits(rng.normal(size=6)), centred=True,
                                               bias=to_bits(rng.normal(size=6)), epsilon=1e-5),
    "BlockAttention": lambda rng: BlockAttention(
        name="layer", queries=(4, 1, 4), keys=(4, 2, 2), values=(4, 2, 2), heads=2, weights_format=CONFIG.weights,
        input_format=CONFIG.activations, block=CONFIG.native_dim, mask=to_bits(rng.normal(size=(2, 4, 4)))),
    "ConstantPositions": lambda rng: ConstantPositions(
        name="layer", shape=(2, 3, 4), tokens=to_bits(rng.normal(size=(2, 2)))),
    "PixelOffsets": lambda rng: PixelOffsets(name="layer", offset=to_bits(rng.normal(size=(2, 3, 4)))),
    "GatedChannels": lambda rng: GatedChannels(name="layer", image=(6, 1, 1)),
    "Concat": lambda rng: Concat(name="layer", sizes=(6, 6)),
    "SequenceConcat": lambda rng: SequenceConcat(name="layer", sizes=(6, 6)),
    "ImageToSequence": lambda rng: ImageToSequence(name="layer", shape=(2, 3, 4), time=TimeAxis.ROWS),
    "Softmax": lambda rng: Softmax(name="layer", inputs=6),
    "SequenceToImage": lambda rng: SequenceToImage(name="layer", inputs=6, steps=4),
}


def made(kind: str) -> Layer:
    """Make a random layer of a kind."""
    rng, entry = np.random.default_rng(3), KINDS[kind]
    if "cell" not in entry.fixed:
        return MAKERS[kind](rng)
    make = {IntegerRecurrent: networks.recurrent_layer, BlockRecurrent: networks.block_recurrent}[entry.layer]
    return make(rng, CONFIG, entry.fixed["cell"], "layer", 5, 4)


def model_of(layer: Layer) -> Model:
    """A model of one layer."""
    return networks.model([layer], sources={layer.name: (INPUT,) * len(layer.takes)})


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_written_and_read_back(kind, tmp_path):
    layer = made(kind)
    assert kind_of(layer) == kind
    save_model(model_of(layer), tmp_path / "one.safetensors")
    again = load_model(tmp_path / "one.safetensors")
    assert kind_of(again.layers[0]) == kind
    save_model(again, tmp_path / "two.safetensors")
    assert (tmp_path / "one.safetensors").read_bytes() == (tmp_path / "two.safetensors").read_bytes()
    shape = (3, 4, again.inputs) if layer.sequence else (3, again.inputs)
    x = networks.inputs(np.random.default_rng(4), *shape)
    np.testing.assert_array_equal(network.outputs(again, x), network.outputs(model_of(layer), x))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_title_and_becomes_chains_or_is_refused(kind):
    layer = made(kind)
    assert layer.title
    assert type(layer) in COMPILED
    # The machine has neither a softmax unit nor reductions, and keeps no sequences.
    refused = isinstance(layer, Softmax | SequenceConcat | VectorSoftmax | VectorNorm)
    assert isinstance(layer, IMAGES) or bool(of_layer(layer, CONFIG, images=False)) == refused


def test_what_no_registry_knows():
    unknown = Unknown(name="layer", kind="Attention")
    assert "there is no such layer on this machine" in str(of_layer(unknown, CONFIG, images=False)[0])
    with pytest.raises(ValueError, match="layer 'layer' is of the unknown kind 'Attention' and cannot be written"):
        kind_of(unknown)
    with pytest.raises(ValueError, match="layer 'layer' is of the unknown kind 'Attention'; golden cannot run it"):
        unknown.run([], None)


@pytest.mark.parametrize(("kind", "change", "message"), [
    ("LSTM", {"initial": {}}, "layer 'layer', initial: hidden, cell is needed, not nothing; export the model again"),
    ("BlockGRU", {"initial": {"hidden": np.zeros(3, np.uint16)}}, r"initial hidden: uint16\[4\] is needed, not uint16"),
    ("GRU", {"vectors": {}}, "layer 'layer', vectors: hidden_bias is needed, not nothing"),
    ("RNN", {"vectors": {"peephole": np.zeros(4, np.uint16)}}, "vectors: nothing is needed, not peephole"),
    ("BlockLSTM", {"initial": {name: np.full(4, 0x7C00, np.uint16) for name in ("hidden", "cell")}},
     "initial hidden: infinity or NaN in binary16")])
def test_wrong_states_and_vectors_are_named(kind, change, message):
    with pytest.raises(ValueError, match=message):
        replace(made(kind), **change)
