"""Networks of images on the golden machine against the same networks in golden arithmetic."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ROOM, ImageNetworkMaker, geometry
from concord.compiler.network import compile_network
from concord.net.model import INPUT, Model
from concord.sim.machines.host import machine
from concord.spec.machine.config import PRESETS, Config
from concord.spec.numbers.activation import Activation
from concord.tests.compiled import agree_on_random as agree
from concord.tests.compiled import machines_agree
from concord.tests.machines import bits
from concord.tests.small_networks import without_scale

NAMES = ("tiny", "serial", "wide", "ulx3s", "vision", "vision_large")


def roomy(name: str, **changes) -> Config:
    """The preset with larger memories."""
    return replace(PRESETS[name], **ROOM | changes)


def shape_for(rng, config: Config) -> tuple[int, int, int]:
    """A random shape of an image."""
    return int(rng.integers(1, 2 * config.native_dim + 2)), *(int(n) for n in rng.integers(1, 8, 2))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_convolutions(name, block, seed):
    rng = np.random.default_rng(seed)
    config = roomy(name)
    images = ImageNetworkMaker(rng, config, shape_for(rng, config), block=block)
    at = INPUT
    for _ in range(2):
        shape = images.shapes[at]
        groups = int(rng.choice([n for n in range(1, shape[0] + 1) if shape[0] % n == 0]))
        outputs = groups * int(rng.integers(1, max(2, 20 // groups)))
        size, options = geometry(rng, shape)
        at = images.conv(at, outputs, size, groups=groups, activation=Activation(rng.choice(["none", "relu", "tanh"])),
                         offset=float(rng.choice([0.0, -0.5])), **options)
    agree(config, images.model(), seed=seed)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_pooling_behind_and_before_convolutions(name, block, seed):
    rng = np.random.default_rng(seed)
    config = roomy(name)
    images = ImageNetworkMaker(rng, config, (int(rng.integers(1, 20)), 6, 7), block=block)
    at = images.conv(INPUT, int(rng.integers(1, 20)), (3, 3), padding=(1, 1, 1, 1))
    size, options = geometry(rng, images.shapes[at])
    if rng.integers(2):
        options["padding"] = tuple(min(p, s - 1) for p, s in zip(options["padding"], (*size[:1] * 2, *size[1:] * 2),
                                                                  strict=True))
        options["dilation"] = (1, 1)
        at = images.maximum(at, size, **options)
    else:
        at = images.average(at, size, stride=options["stride"], padding=options["padding"])
    if rng.integers(4):
        at = images.conv(at, 5, (1, 1))
    if rng.integers(2):
        at = images.dense(at, 6)
    agree(config, images.model(), seed=seed)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_enlarged_images(name, block, seed):
    """Repeated pixels or those of the parts of a concatenation, read by a sum, a concatenation, and other layers."""
    rng = np.random.default_rng(seed)
    config = roomy(name)
    images = ImageNetworkMaker(rng, config, (int(rng.integers(1, 20)), 3, 4), block=block)
    channels, factor = int(rng.integers(1, 20)), tuple(int(n) for n in rng.integers(1, 4, 2))
    at = images.conv(INPUT, channels, (3, 3), padding=(1, 1, 1, 1))
    options = {"activation": Activation(rng.choice(["none", "relu", "tanh"])), "shuffled": bool(seed % 2)}
    if options["shuffled"] and prod(factor) > 1:
        at = images.concat(at, *(images.conv(at, channels, (1, 1)) for _ in range(prod(factor) - 1)))
    at = images.enlarge(at, factor, **options)
    if seed % 3 == 0:
        at = images.concat(images.sum(at, images.conv(at, channels, (1, 1))), at)
    images.conv(at, 5, (3, 3), padding=(1, 1, 1, 1), activation=Activation.NONE)
    agree(config, images.model(), seed=seed)


def test_parts_of_pixels_that_begin_no_native_vector_are_refused():
    images = ImageNetworkMaker(np.random.default_rng(0), roomy("tiny"), (2, 3, 3), block=False)
    images.enlarge(images.conv(INPUT, 12, (1, 1)), (2, 2), shuffled=True)
    with pytest.raises(ValueError, match="'large1' .enlargement.: the 3 channels .* let it read a concatenation of 4"):
        compile_network(images.model(), roomy("tiny"))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_residual_networks(name, block, seed):
    rng = np.random.default_rng(seed)
    config = roomy(name)
    relu = Activation(rng.choice(["none", "relu"]))
    images = ImageNetworkMaker(rng, config, (3, 8, 8), block=block)
    channels = int(rng.integers(1, 20))
    at = images.conv(INPUT, channels, (3, 3), padding=(1, 1, 1, 1))
    for stride in (1, 2):
        body = images.conv(at, channels, (3, 3), padding=(1, 1, 1, 1), stride=(stride, stride))
        body = images.conv(body, channels, (3, 3), padding=(1, 1, 1, 1), activation=Activation.NONE)
        around = at if stride == 1 else images.conv(at, channels, (1, 1), stride=(2, 2), activation=Activation.NONE)
        at = images.sum(*((body, around) if rng.integers(2) else (around, body)), relu)
    at = images.average(at, images.shapes[at][1:])
    images.dense(at, 10)
    agree(config, images.model(), seed=seed)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_concatenations(name, block, seed):
    rng = np.random.default_rng(seed)
    config = roomy(name)
    images = ImageNetworkMaker(rng, config, (2, 6, 5), block=block)
    at = images.conv(INPUT, int(rng.integers(1, 20)), (3, 3), padding=(1, 1, 1, 1))
    for _ in range(2):
        one, two, four = (int(n) for n in rng.integers(1, 12, 3))
        pooled = images.maximum(at, (3, 3), stride=(1, 1), padding=(1, 1, 1, 1))
        parts = [images.conv(at, one, (1, 1)), images.conv(images.conv(at, two, (1, 1)), two, (3, 3), padding=(1,) * 4),
                 pooled, images.conv(pooled, four, (1, 1))]
        at = images.concat(*(parts[k] for k in rng.permutation(4)))
    at = images.average(at, images.shapes[at][1:]) if rng.integers(2) else at
    images.dense(at, 10) if rng.integers(2) else images.conv(at, 7, (1, 1))
    agree(config, images.model(), seed=seed)


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_images_of_different_sizes_are_joined_flat(name, block):
    rng = np.random.default_rng(1)
    config = roomy(name)
    images = ImageNetworkMaker(rng, config, (2, 6, 5), block=block)
    a = images.conv(INPUT, 9, (3, 3))
    b = images.conv(a, 3, (2, 2))
    c = images.maximum(a, (2, 2), stride=(2, 2))
    images.dense(images.concat(a, images.dense(b, 7), b, c), 11)
    agree(config, images.model())


@pytest.mark.parametrize("block", [False, True])
def test_a_sum_of_a_tensor_with_itself_and_of_concatenations(block):
    rng = np.random.default_rng(1)
    config = roomy("vision")
    images = ImageNetworkMaker(rng, config, (2, 6, 5), block=block)
    a = images.conv(INPUT, 16, (3, 3))
    twice = images.sum(a, a)
    b = images.concat(a, twice)
    c = images.concat(twice, images.conv(b, 16, (1, 1)))
    images.conv(images.sum(b, c), 5, (2, 2))
    agree(config, images.model())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("block", [False, True])
def test_a_sum_of_a_concatenation_with_gaps_and_a_convolution(name, block):
    rng = np.random.default_rng(1)
    config = roomy(name)
    images = ImageNetworkMaker(rng, config, (2, 6, 5), block=block)
    joined = images.concat(*(images.conv(INPUT, count, (2, 2)) for count in (config.native_dim + 1, 3)))
    image = images.conv(joined, config.native_dim + 4, (1, 1))
    images.places[image] = images.places[joined]
    at = images.sum(*((image, joined) if block else (joined, image)))
    images.conv(images.sum(at, images.maximum(at, (1, 1), stride=(1, 1))), 5, (2, 2))
    agree(config, images.model())


def tight(config: Config, model: Model, attribute: str, memory: str, factor: float = 0.95) -> int:
    """Shrink a memory until the network no longer fits; assert that the results stay the same, and return the size."""
    size, smallest = compile_network(model, config).usage[memory][0], 0
    while size := int(size * factor) // config.tile_engines * config.tile_engines:
        small = replace(config, **{attribute: size})
        try:
            compile_network(model, small)
        except ValueError:
            break
        agree(small, model)
        smallest = size
    with pytest.raises(ValueError, match="too few|left"):
        compile_network(model, replace(config, **{attribute: size}))
    return smallest


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["vision", "wide"])
def test_maps_take_turns_in_a_small_vector_rf(name, seed):
    """Borders are written again where maps share entries, and passes write over their source."""
    rng = np.random.default_rng(seed)
    config = roomy(name)
    images = ImageNetworkMaker(rng, config, (3, 12, 9), block=bool(seed % 2))
    at, around = images.conv(INPUT, 20, (3, 3), padding=(1, 1, 1, 1)), None
    for channels, stride in ((18, 1), (18, 1), (30, 2), (5, 1)):
        at = images.conv(at, channels, (3, 3), padding=(1, 1, 1, 1), stride=(stride, stride))
        if stride == 1 and around is not None and images.shapes[at] == images.shapes[around]:
            at = images.sum(at, around)
        around = at
    images.dense(at, 10)
    whole = compile_network(images.model(), config).usage["VectorRf"][0]
    assert 0 < tight(config, images.model(), "vector_rf", "VectorRf") <= 0.95 * whole


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", NAMES)
def test_numbers_that_are_codes_already(name, seed):
    rng = np.random.default_rng(seed)
    config = roomy(name)
    images = ImageNetworkMaker(rng, config, (int(rng.integers(1, 20)), 6, 7), block=False)
    at = images.conv(INPUT, 9, (3, 3), padding=(1, 1, 1, 1), activation=Activation.NONE)
    at = images.maximum(at, (2, 2), stride=(1, 1), padding=(1, 0, 1, 0))
    at = images.sum(images.conv(at, 9, (1, 1), activation=Activation.NONE), at)
    images.dense(images.average(at, (2, 3), stride=(2, 3)), 10)
    agree(config, without_scale(images.model()), seed=seed)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", ["tiny", "serial", "vision"])
def test_borders_that_differ_from_channel_to_channel_take_turns(name, seed):
    """Borders with equal first channels are different all the same, also where a pixel is one native vector."""
    rng = np.random.default_rng(seed)
    config = roomy(name)
    images = ImageNetworkMaker(rng, config, (3, 9, 8), block=False)
    at = INPUT
    for channels in (-1, -1, -2, -1, -1):
        at = images.conv(at, config.native_dim + channels, (3, 3), padding=(1, 1, 1, 1), offset=-0.5,
                         activation=Activation.NONE)
    images.layers[:] = [replace(layer, quant_offset=bits([1, *rng.integers(0, 3, layer.shape[0] - 1)]))
                        for layer in images.layers]
    tight(config, images.model(), "vector_rf", "VectorRf")


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("name", ["vision", "vision_large", "tiny"])
def test_strips_of_maps_that_are_too_large(name, block):
    """An inverted bottleneck is wide inside: rows of the wide maps are held in strips, some computed twice."""
    rng = np.random.default_rng(3)
    config = roomy(name, instructions=4096, addsub_vrf=4096)
    images = ImageNetworkMaker(rng, config, (9, 14, 6), block=block)
    at = images.conv(INPUT, 8, (1, 1))
    for stride in (1, 2):
        wide = images.conv(at, 40, (1, 1))
        inside = images.conv(wide, 40, (3, 3), groups=40, stride=(stride, stride), padding=(1, 2, 1, 0))
        pooled = images.maximum(inside, (2, 3), stride=(1, 1), padding=(1, 0, 1, 1))
        at = images.conv(pooled, 8, (1, 1), activation=Activation.NONE)
    images.dense(at, 10)
    whole = compile_network(images.model(), config).usage["VectorRf"][0]
    assert 0 < tight(config, images.model(), "vector_rf", "VectorRf", factor=0.8) < 0.55 * whole


@pytest.mark.parametrize("attribute", ["initial_vrf", "addsub_vrf"])
def test_numbers_share_small_vector_memories(attribute):
    rng = np.random.default_rng(0)
    config = roomy("vision")
    images = ImageNetworkMaker(rng, config, (3, 12, 9), block=False)
    at = images.conv(INPUT, 20, (3, 3), padding=(1, 1, 1, 1))
    for _ in range(2):
        body = images.conv(images.conv(at, 20, (3, 3), padding=(1, 1, 1, 1)), 20, (1, 1), activation=Activation.NONE)
        at = images.sum(body, at, Activation.RELU)
    images.dense(images.maximum(at, (3, 3), stride=(2, 2), padding=(1, 0, 1, 0)), 10)
    memory = {"initial_vrf": "InitialVrf", "addsub_vrf": "AddSubVrf0"}[attribute]
    tight(config, images.model(), attribute, memory, factor=0.9)


@pytest.mark.parametrize("name", ["vision", "wide", "tiny"])
def test_words_between_parts_are_zero_wherever_they_were_reused(name):
    """Parts that fill no whole native vectors leave words between them, which count in a block's exponent."""
    rng = np.random.default_rng(0)
    config = roomy(name, initial_vrf=16, addsub_vrf=1536)
    images = ImageNetworkMaker(rng, config, (2, 9, 8), block=True)
    at = images.maximum(images.conv(INPUT, 30, (3, 3), padding=(1, 1, 1, 1)), (2, 2), stride=(1, 1))
    for _ in range(2):
        parts = [images.conv(at, count, (1, 1)) for count in (3, config.mfu_lanes + 1, config.native_dim + 1, 2)]
        at = images.maximum(images.concat(*parts), (3, 3), stride=(1, 1), padding=(1, 1, 1, 1))
    images.conv(at, 5, (1, 1))
    agree(config, images.model(), samples=3)


@pytest.mark.parametrize("name", ["tiny", "serial", "wide"])
def test_hardware_agrees(name):
    config = PRESETS[name]
    with machine("golden", config) as golden, machine("library", config) as library:
        for block in (False, True):
            model = small(config, block)
            samples = networks.inputs(np.random.default_rng(0), 3, model.inputs)
            machines_agree(golden, library, config, model, samples)


def small(config: Config, block: bool) -> Model:
    """A network of every kind of layer that fits the presets for tests."""
    images = ImageNetworkMaker(np.random.default_rng(0), config, (2, 3, 3), block=block)
    at = images.conv(INPUT, 3, (2, 2), padding=(1, 0, 0, 1))
    at = images.sum(images.conv(at, 3, (1, 1), groups=3), at)
    at = images.maximum(at, (2, 2), stride=(1, 1), padding=(0, 0, 1, 1))
    at = images.maximum(images.enlarge(at, (1, 2)), (1, 2), stride=(1, 2))
    images.dense(images.concat(images.average(at, (2, 2), stride=(2, 2)), images.conv(at, 2, (1, 1), stride=(2, 2))), 2)
    return images.model()


@pytest.mark.parametrize("block", [False, True])
def test_images_go_to_the_host(block):
    rng = np.random.default_rng(1)
    config = roomy("vision")
    for last in ("concat", "sum", "maximum", "conv"):
        images = ImageNetworkMaker(rng, config, (2, 6, 5), block=block)
        a, b = images.conv(INPUT, 9, (3, 3)), images.conv(INPUT, 9, (3, 3))
        if last == "concat":
            images.concat(images.conv(a, 16, (1, 1)), b)
        elif last == "sum":
            images.sum(a, b)
        elif last == "maximum":
            images.maximum(b, (2, 2), stride=(1, 1), padding=(0, 1, 1, 0))
        else:
            images.conv(b, 40, (1, 1))
        assert prod(images.shapes[images.layers[-1].name]) == images.layers[-1].outputs
        agree(config, images.model())


def test_a_large_average_says_what_fills_the_matrix_memory():
    images = ImageNetworkMaker(np.random.default_rng(5), PRESETS["tiny"], (4, 6, 6), block=False)
    images.average(images.conv(INPUT, 4, (1, 1)), (6, 6))
    with pytest.raises(ValueError, match="average1, one identity tile for each pixel of the average, 36"):
        compile_network(images.model(), PRESETS["tiny"])
