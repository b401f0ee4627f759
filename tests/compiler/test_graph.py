"""Networks that are graphs: branches, sums, concatenations, several consumers, on the golden machine."""

import re

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.compiler.network import compile_network
from concord.net import network
from concord.net.cells.lstm import LSTM
from concord.net.layers.joins import Add, Concat
from concord.net.layers.pooling import MaxPool
from concord.net.lowering import block_lowering
from concord.net.model import INPUT, Model
from concord.spec.isa.operations import activations
from concord.spec.machine.config import preset
from concord.spec.numbers.activation import Activation
from concord.tests.compiled import agree
from concord.tests.compiler.test_compiler import refused, roomy

NAMES = ("tiny", "wide", "serial", "speech", "ulx3s", "trainer")


class Maker:
    """Makes random layers for a machine.

    Args:
        name:  Name of the machine's preset.
        block: Whether layers are in block floating point.
        seed:  Seed of all numbers.
    """

    def __init__(self, name: str, block: bool, seed: int = 0):
        self.rng, self.config, self.block = np.random.default_rng(seed), roomy(name, operand_columns=32), block

    def dense(self, name: str, inputs: int, outputs: int):
        """Make a dense layer."""
        make = networks.block_dense if self.block else networks.dense
        return make(self.rng, self.config, name, inputs, outputs)

    def recurrent(self, name: str, inputs: int, outputs: int, *, block: bool | None = None):
        """Make a recurrent layer."""
        make = networks.block_recurrent if (self.block if block is None else block) else networks.recurrent_layer
        return make(self.rng, self.config, LSTM, name, inputs, outputs)

    def agree(self, layers, sources: dict[str, tuple[str, ...]], *shape: int):
        """Assert that the golden machine gives the bits of the network in golden arithmetic."""
        model = networks.model(layers, sources=sources)
        return agree(self.config, model, networks.inputs(self.rng, *shape))


def straight_and_branched() -> tuple[Model, Model]:
    """Two models: three dense layers in a chain, and the same layers with the third one reading the first."""
    maker = Maker("tiny", block=True)
    layers = [maker.dense(name, 8, 8) for name in "abc"]
    return networks.model(layers), networks.model(layers, sources={"c": ("a",)})


def test_sources_change_the_program():
    straight, branched = straight_and_branched()
    config = roomy("tiny")
    samples = networks.inputs(np.random.default_rng(1), 3, 8)
    agree(config, branched, samples)
    words = [compile_network(model, config).firmware.instruction_words.tolist() for model in (straight, branched)]
    assert words[0] != words[1]
    outputs = [network.outputs(model, samples) for model in (straight, branched)]
    assert (outputs[0] != outputs[1]).any()


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_sum_round_a_layer(name, block):
    maker = Maker(name, block)
    size = maker.config.native_dim + 3
    layers = [maker.dense("a", 7, size), maker.dense("b", size, size),
              Add(name="sum", inputs=size, activation=Activation.RELU), maker.dense("c", size, 5)]
    compiled = maker.agree(layers, {"sum": ("a", "b")}, 3, 7)
    # The product is written directly to the words from which the sum reads it.
    assert not re.search(r"v_rd InitialVrf, \d+\nv_wr AddSubVrf0", compiled.firmware.text)


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a"), ("a", "a")])
@pytest.mark.parametrize("activation", activations())
def test_sums_of_any_two_results(order, activation):
    maker = Maker("tiny", block=True)
    layers = [maker.dense("a", 7, 11), maker.dense("b", 11, 11), Add(name="sum", inputs=11, activation=activation)]
    maker.agree(layers, {"sum": order}, 3, 7)


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_several_layers_read_the_input_and_one_result(name, block):
    maker = Maker(name, block)
    layers = [maker.dense("a", 7, 9), maker.dense("b", 7, 9), maker.dense("c", 9, 9), maker.dense("d", 9, 9),
              Add(name="one", inputs=9), Add(name="two", inputs=9), Add(name="all", inputs=9)]
    sources = {"b": (INPUT,), "c": ("a",), "d": ("a",), "one": ("b", "c"), "two": ("a", "d"), "all": ("one", "two")}
    maker.agree(layers, sources, 3, 7)


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_the_input_goes_round_a_layer(name, block):
    maker = Maker(name, block)
    layers = [maker.dense("a", 7, 7), Add(name="sum", inputs=7), maker.dense("b", 7, 3)]
    maker.agree(layers, {"sum": (INPUT, "a")}, 3, 7)
    maker.agree(layers[:2], {"sum": ("a", INPUT)}, 3, 7)


def test_a_network_of_nothing_but_a_sum():
    maker = Maker("tiny", block=False)
    maker.agree([Add(name="sum", inputs=7, activation=Activation.TANH)], {"sum": (INPUT, INPUT)}, 3, 7)


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_concatenations(name, block):
    maker = Maker(name, block)
    lanes = maker.config.mfu_lanes
    sizes = 3 * lanes, lanes, 5
    layers = [*(maker.dense(part, 7, size) for part, size in zip("abc", sizes, strict=True)),
              Concat(name="joined", sizes=sizes), maker.dense("d", sum(sizes), 6)]
    sources = {"b": (INPUT,), "c": (INPUT,), "joined": ("a", "b", "c")}
    compiled = maker.agree(layers, sources, 3, 7)
    # Each layer writes its part of the concatenation directly.
    assert not any(section.layer == "joined" for section in compiled.firmware.sections)
    assert "joined" not in compiled.firmware.text
    maker.agree(layers[:4], sources, 3, 7)


@pytest.mark.parametrize("name", NAMES)
def test_parts_that_others_read_too(name):
    maker = Maker(name, block=True)
    size = 3 * maker.config.mfu_lanes
    layers = [maker.dense("a", size, size), Concat(name="joined", sizes=(size, size, size)),
              Add(name="sum", inputs=3 * size), maker.dense("b", 3 * size, size), maker.dense("c", size, size),
              Add(name="one", inputs=size), Add(name="last", inputs=size)]
    sources = {"joined": ("a", INPUT, "a"), "sum": ("joined", "joined"), "c": ("a",), "one": ("b", "c"),
               "last": ("one", "a")}
    maker.agree(layers, sources, 3, size)


def test_a_concatenation_in_a_concatenation():
    maker = Maker("tiny", block=False)
    layers = [maker.dense("a", 7, 4), maker.dense("b", 7, 4), Concat(name="two", sizes=(4, 4)), maker.dense("c", 7, 3),
              Concat(name="three", sizes=(8, 3)), maker.dense("d", 11, 5)]
    maker.agree(layers, {"b": (INPUT,), "two": ("a", "b"), "c": (INPUT,), "three": ("two", "c")}, 3, 7)


@pytest.mark.parametrize("blocks", [(False, False), (True, True), (True, False), (False, True)])
@pytest.mark.parametrize("name", NAMES)
def test_recurrent_layers_side_by_side(name, blocks):
    maker = Maker(name, blocks[0])
    size = 2 * maker.config.mfu_lanes
    a, b = (maker.recurrent(part, 5, size, block=block) for part, block in zip("ab", blocks, strict=True))
    sources = {"b": (INPUT,), "sum": ("a", "b"), "joined": ("sum", "a")}
    layers = [a, b, Add(name="sum", inputs=size), Concat(name="joined", sizes=(size, size)),
              maker.dense("c", 2 * size, 3)]
    maker.agree(layers, sources, 2, 4, 5)
    c = maker.recurrent("c", size, 5, block=blocks[1])
    maker.agree([a, b, c], {"b": (INPUT,), "c": ("a",)}, 2, 4, 5)
    maker.agree([a, c, b, Add(name="sum", inputs=size)], {"b": (INPUT,), "sum": ("a", "b")}, 2, 4, 5)


def test_layers_that_would_read_parts_that_fill_no_words():
    """The host can take them, a layer cannot."""
    maker = Maker("tiny", block=True)
    layers = [maker.dense("a", 7, 3), maker.dense("b", 7, 4), Concat(name="joined", sizes=(3, 4))]
    sources = {"b": (INPUT,), "joined": ("a", "b")}
    maker.agree(layers, sources, 3, 7)
    model = networks.model([*layers, maker.dense("c", 7, 3)], sources=sources)
    assert ("layer 'joined' (concatenation): its part of 3 elements is no whole number of words of 2, so that 'c' "
            "would read gaps: give that part a multiple of 2 elements, or put it last") in refused(model, maker.config)


def test_blocks_that_begin_inside_a_native_vector_are_refused():
    maker = Maker("tiny", block=True)
    layer = block_lowering.block_dense(
        name="dense", weights=np.ones((2, 4)), bias=np.zeros(2), weights_format=maker.config.weights,
        input_format=maker.config.activations, block=8, places=np.array([0, 1, 8, 9], np.int32))
    assert ("layer 'dense' (dense, block floating point): its blocks begin anew with each part of a concatenation or "
            "each pixel of an image, but parts lie in adjacent words: give each part a multiple of 8 elements"
            ) in refused(networks.model([layer]), maker.config)


def test_images_need_a_vector_rf():
    layers = [MaxPool(name="pool", shape=(1, 4, 4), size=(2, 2), stride=(2, 2))]
    assert ("layer 'pool' (maximum pooling): the machine has no VectorRf, which images need: choose a preset that has "
            "one") in refused(networks.model(layers), preset("speech"))


def test_one_input_has_one_shape():
    maker = Maker("tiny", block=False)
    with pytest.raises(ValueError, match="layer 'b' takes 6 elements of the network's input, but layer 'a' takes 7"):
        networks.model([maker.dense("a", 7, 3), maker.dense("b", 6, 3)], sources={"b": (INPUT,)})
    with pytest.raises(ValueError, match="layer 'b' takes 7 elements of .* 'a' takes 7 elements at each time step"):
        networks.model([maker.recurrent("a", 7, 3), maker.dense("b", 7, 3)], sources={"b": (INPUT,)})
