"""Attention on golden: the bits of the layers, for heads of any size; what is refused, and what is counted."""

import re
from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import image_networks, networks
from concord.compiler.explain import explain
from concord.compiler.lib.limits import CannotRun
from concord.compiler.network import compile_network
from concord.datasets.samples import Samples
from concord.net.float_network import separated
from concord.net.graph import INPUT, Graph
from concord.net.layers.attention import BlockAttention
from concord.net.model import Model
from concord.net.ops.attention import MASKED, Attention
from concord.net.ops.joins import Addition
from concord.net.ops.pooling import GlobalAverage
from concord.net.ops.reduction import FeatureNorm
from concord.net.ops.reshape import Flatten, Tokens
from concord.net.ops.scale import Offsets
from concord.net.quantize.choices import BlockFormats, BlockRecipe, Choices
from concord.net.quantize.recipe import Recipe
from concord.sim.machines.host import machine
from concord.spec.machine.config import PRESETS, Config
from concord.tests.compiled import agree_on_random, machines_agree
from concord.tests.float_networks import Chain
from concord.tests.net.quantize.test_quantized import quantized
from concord.tests.real_networks import assert_bits
from concord.verification.error_split import images_of, split_errors

VISION = replace(PRESETS["vision"], dram_words=1 << 21, dram_bus=16, more_functions=True, **image_networks.ROOM)
SMALL = replace(PRESETS["tiny_vector"], dram_words=1000, dram_bus=8)
TINY = replace(SMALL, **image_networks.ROOM)


def attention(heads: int, size: int, positions: tuple[int, int] = (1, 7), *, values: int = 0, masks: int = 0,
              causal: bool = False) -> Graph:
    """Attention between layers of one position each.

    Args:
        heads:     Number of heads.
        size:      Channels of a head.
        positions: Rows and columns of the image of positions.
        values:    Channels of values of a head, if these are others.
        masks:     Number of masks of random numbers.
        causal:    Whether there is a causal mask.
    """
    chain, count = Chain((5, *positions), seed=heads + size), positions[0] * positions[1]
    mask = np.where(np.tri(count, dtype=bool), 0, MASKED)[None].astype(np.float32) if causal else None
    if masks:
        mask = chain.weights(masks, count, count)
    for name, channels in (("q", heads * size), ("k", heads * size), ("v", heads * (values or size))):
        chain.conv(name, channels, 5, (1, 1), sources=(INPUT,))
    chain.add(Attention(heads=heads, mask=mask), "a", ("q", "k", "v"))
    return chain.conv("out", 6, heads * (values or size), (1, 1)).network("attention")


def block(positions: int = 12, width: int = 32) -> Graph:
    """Offsets of positions, normalisation ahead of causal attention, its sum, and a mean of all positions."""
    chain = Chain((width, 1, positions))
    chain.add(Offsets(offset=chain.weights(width, 1, positions)), "offsets")
    chain.add(FeatureNorm(weight=chain.weights(width), bias=chain.weights(width)), "norm")
    for name in "qkv":
        chain.conv(name, width, width, (1, 1), sources=("norm",))
    mask = np.where(np.tri(positions, dtype=bool), 0, MASKED)[None].astype(np.float32)
    chain.add(Attention(heads=4, mask=mask), "heads", ("q", "k", "v")).conv("o", width, width, (1, 1))
    chain.add(Addition(), "sum", ("offsets", "o"))
    return chain.add(GlobalAverage(), "mean").dense("scores", 4, width).network("block")


def model_of(network: Graph, config: Config, *, blocks: bool = True) -> Model:
    """A network after quantisation for a machine."""
    exponents = config.weights.e_min, config.weights.e_max
    products = BlockFormats(weights=config.weights, inputs=config.activations, block=config.native_dim)
    recipe = BlockRecipe(weights_bits=8, input_bits=8, block=config.native_dim, exponents=exponents)
    if blocks and recipe.formats("") != (config.weights, config.activations):
        recipe = products
    choices = Choices(recipe=recipe) if blocks else Choices(machine=products, recipe=Recipe(
        weights_bits=8, input_bits=8, symmetric=(config.weights.symmetric, config.activations.symmetric)))
    made, _ = quantized(network, choices)
    return networks.model(made.layers, sources=made.sources)


CASES = {
    "one head": {"heads": 1, "size": 5}, "heads in one native vector": {"heads": 2, "size": 8, "causal": True},
    "heads of whole native vectors": {"heads": 2, "size": 16, "positions": (1, 20)},
    "heads of two native vectors": {"heads": 2, "size": 32, "positions": (1, 16), "masks": 2},
    "heads across native vectors": {"heads": 3, "size": 24, "positions": (1, 33), "masks": 1},
    "other values": {"heads": 2, "size": 8, "values": 24}, "an image of positions": {
        "heads": 4, "size": 8, "positions": (5, 4), "masks": 4},
    "many rows": {"heads": 2, "size": 8, "positions": (9, 2)}}


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_golden_gives_the_bits_of_the_layers(name, blocks):
    model = model_of(attention(**CASES[name]), VISION, blocks=blocks)
    agree_on_random(VISION, model)


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize(("heads", "size"), [(1, 3), (3, 2), (2, 6), (2, 8)])
def test_on_words_of_two_numbers(heads, size, blocks):
    """N = 8 and M = 2: three heads of two channels, of six, and of a native vector."""
    agree_on_random(TINY, model_of(attention(heads, size, masks=1), TINY, blocks=blocks))


@pytest.mark.parametrize("blocks", [False, True])
def test_a_block_of_a_language_model(blocks):
    made = agree_on_random(VISION, model_of(block(), VISION, blocks=blocks))
    assert re.search(r"m_rd_inc InitialVrf, \d+\nm_wr MatrixRf, \d+\nend_chain", made.firmware.text)
    assert re.search(r"m_rd_inc MultiplyVrf1, \d+\nm_wr MatrixRf, \d+, transposed\nend_chain", made.firmware.text)
    assert "v_largest1" in made.firmware.text  # behind the mask, in one chain


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("rows", [1, 3])
def test_constant_positions(rows, blocks):
    chain = Chain((5, rows, 4)).conv("a", 24, 5, (1, 1))
    chain.add(Tokens(tokens=chain.weights(24, 2)), "tokens")
    chain.add(Offsets(offset=chain.weights(24, 1, 2 + 4 * rows)), "o")
    for name in "qkv":
        chain.conv(name, 24, 24, (1, 1), sources=("o",))
    chain.add(Attention(heads=3), "heads", ("q", "k", "v")).add(Addition(), "sum", ("heads", "tokens"))
    agree_on_random(VISION, model_of(chain.add(Flatten(), "f").dense("out", 3, 24 * (2 + 4 * rows)).network(), VISION,
                                     blocks=blocks))


@pytest.mark.parametrize("options", [
    {"heads": 2, "size": 4, "positions": (1, 5), "causal": True}, {"heads": 1, "size": 10, "positions": (2, 3)}])
def test_the_library_agrees(options):
    with machine("golden", SMALL) as golden, machine("library", SMALL) as library:
        for blocks in (False, True):
            model = model_of(attention(**options), SMALL, blocks=blocks)
            samples = networks.inputs(np.random.default_rng(1), 3, model.inputs)
            machines_agree(golden, library, SMALL, model, samples)


def test_beside_tiles_from_dram():
    model = model_of(block(), VISION)
    whole = compile_network(model, VISION).usage["MatrixRf"][0]
    small = replace(VISION, matrix_tiles=whole - 10)
    made = agree_on_random(small, model)
    assert re.search(r"m_rd(_inc)? Dram", made.firmware.text)


def test_the_explanation_counts_made_tiles():
    made = compile_network(model_of(attention(2, 16, (1, 20)), VISION), VISION)
    work = next(one for one in explain(made.firmware) if one.layer == "a")
    assert work.beats == 20 * 2 * (2 + 2)  # of each query and head, two tiles of keys and two of values
    assert work.copied == 2 * 2 * (20 * 2 + 2 * 16 * 2)  # words of keys and values, and those of their tiles


def test_bounds_name_both_products():
    made = compile_network(model_of(attention(2, 8), VISION), VISION)
    assert {"a, scores", "a, values"} <= {bound.product for bound in made.bounds}


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("network", [block(), attention(3, 24, (1, 17), masks=1)], ids=["block", "attention"])
def test_full_precision(network, blocks):
    """All roundings give the machine's bits; without them, the chains compute the float network."""
    model = separated(model_of(network, VISION, blocks=blocks))
    samples = networks.inputs(np.random.default_rng(3), 2, model.inputs)
    assert_bits(VISION, model, samples)
    firmware = compile_network(model, VISION).firmware
    split = split_errors(model, firmware, images_of(model, firmware), Samples(
        inputs=samples, lengths=None, labels=None, classes=()))
    assert split.compiled
    heads = next(layer.name for layer in model.layers if isinstance(layer, BlockAttention))
    assert split.layers[heads]["compiler"] < 1e-9 < split.layers[heads]["activations"]


def refused(network: Graph, config: Config) -> str:
    with pytest.raises(CannotRun) as error:
        compile_network(model_of(network, config), config)
    return str(error.value)


def test_machines_without_dram_are_refused():
    config = replace(PRESETS["vision"], more_functions=True)
    assert "layer 'a' (attention): it multiplies two computed tensors, and only machines with Dram make tiles" in (
        refused(attention(2, 8), config))


def test_machines_without_reductions_are_refused():
    found = refused(attention(2, 8), PRESETS["vision_dram"])
    assert "layer 'a' (attention): it needs the largest element or the sum of a vector" in found


def test_heads_inside_words_are_refused():
    assert ("each head has 4 channels of queries and keys, which is no whole number of words of 8: give each head a "
            "multiple of 8 channels") in refused(attention(2, 4), VISION)


def test_a_memory_that_is_too_small_is_named():
    assert "VectorRf needs" in refused(attention(2, 8, (1, 20)), replace(VISION, vector_rf=40))


def test_large_keys_lie_where_there_is_room():
    config = replace(VISION, initial_vrf=128, multiply_vrf=128, addsub_vrf=2048)
    made = agree_on_random(config, model_of(attention(2, 32, (1, 20)), config))
    assert "m_rd_inc AddSubVrf" in made.firmware.text
