"""Compiled networks on the golden machine against the same networks in golden arithmetic."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.compiler.network import compile_network
from concord.firmware.session import Session
from concord.net import network
from concord.net.layers.layer import Unknown
from concord.net.model import Model
from concord.sim.machines.host import machine
from concord.spec.machine.config import PRESETS, Config, preset
from concord.spec.numbers.formats import Format
from concord.tests.compiled import agree, machines_agree

#: Memory sizes larger than those of the presets; formats, dimensions and limits are those of the presets.
ROOM = {
    "initial_vrf": 512,
    "addsub_vrf": 512,
    "multiply_vrf": 1024,
    "matrix_tiles": 1024,
    "bias_words": 256,
    "instructions": 2048,
    "net_in": 1024,
}
NAMES = ("tiny", "wide", "serial", "speech", "ulx3s")


def roomy(name: str, **changes) -> Config:
    """The preset with larger memories."""
    return replace(PRESETS[name], **ROOM | changes)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_mlp(name, block, seed):
    rng = np.random.default_rng(seed)
    config = roomy(name)
    largest = min(3 * config.native_dim, config.operand_columns * config.native_dim)
    sizes = rng.integers(1, largest, rng.integers(2, 5)).tolist()
    agree(config, networks.mlp(rng, config, sizes, block=block), networks.inputs(rng, 3, sizes[0]))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", NAMES)
def test_lstm(name, seed):
    rng = np.random.default_rng(seed)
    config = roomy(name)
    sizes = rng.integers(1, min(20, 2 * config.native_dim), rng.integers(2, 4)).tolist()
    block = rng.integers(2, size=len(sizes) - 1).astype(bool).tolist()
    outputs = int(rng.integers(1, 12)) if rng.integers(2) else None
    model = networks.recurrent(rng, config, sizes, block=block, outputs=outputs)
    agree(config, model, networks.inputs(rng, 2, 4, sizes[0]))


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize(
    "limits", [{"mvmq_words": 4}, {"accumulator_rows": 8}, {"accumulator_rows": 4, "mvmq_words": 1}]
)
def test_products_are_split(limits, block):
    rng = np.random.default_rng(0)
    config = roomy("tiny", **limits)
    model = networks.recurrent(rng, config, [11, 13, 10], block=[block, block], outputs=21)
    agree(config, model, networks.inputs(rng, 2, 3, 11))
    agree(config, networks.mlp(rng, config, [9, 30, 21], block=block), networks.inputs(rng, 2, 9))


def test_the_large_preset_runs_on_golden():
    rng = np.random.default_rng(11)
    config = preset("brainwave_s10")
    agree(config, networks.mlp(rng, config, [450, 410, 10], block=True), networks.inputs(rng, 1, 450))


def test_sequences_of_different_lengths_share_firmware():
    rng = np.random.default_rng(1)
    config = preset("speech")
    model = networks.recurrent(rng, config, [12, 16], block=[False], outputs=9)
    session = Session(machine("golden", config), compile_network(model, config).firmware)
    samples, lengths = networks.inputs(rng, 5, 7, 12), np.array([7, 1, 4, 4, 2])
    wanted = network.forward(model, samples, lengths)[-1].outputs
    for sample, length, outputs in zip(samples, lengths, wanted, strict=True):
        np.testing.assert_array_equal(session.infer(sample[:length]), outputs)


def test_neighbouring_block_layers_share_the_hidden_vector():
    rng = np.random.default_rng(2)
    config = roomy("tiny")
    model = networks.recurrent(rng, config, [5, 6, 7], block=[True, True])
    text = compile_network(model, config).firmware.text
    assert text.count("v_rd NetQ\nv_wr InitialVrf, 0\n") == 1
    assert text.count("mv_mul") == 2


@pytest.mark.parametrize("name", ["tiny", "wide", "serial"])
def test_hardware_agrees(name):
    rng = np.random.default_rng(12)
    config = preset(name)
    with machine("golden", config) as golden, machine("library", config) as library:
        for block in (False, True):
            for model, shape in (
                (networks.mlp(rng, config, [13, 9, 5], block=block), (3, 13)),
                (networks.recurrent(rng, config, [3, 4], block=[block], outputs=3), (3, 5, 3)),
                (networks.branches(rng, config, 4, block=block), (3, 5)),
            ):
                machines_agree(golden, library, config, model, networks.inputs(rng, *shape))


def refused(model: Model, config: Config) -> str:
    with pytest.raises(ValueError, match=r"\w") as caught:
        compile_network(model, config)
    return str(caught.value)


def test_every_unsupported_layer_is_named_with_what_to_do():
    rng = np.random.default_rng(3)
    config = preset("tiny")
    layers = [
        Unknown(name="front", kind="Conv2d"),
        *networks.mlp(rng, preset("ulx3s"), [8, 8], block=False).layers,
        *(replace(layer, name="blocks") for layer in networks.mlp(rng, preset("wide"), [8, 8], block=True).layers),
        Unknown(name="back", kind="Attention"),
    ]
    lines = refused(networks.model(layers), config).splitlines()
    assert lines[1].startswith("layer 'front' (Conv2d), layer 'back' (Attention): there is no such layer on this "
                               "machine: use other layers")
    assert (
        "layer 'dense0' (dense, integer): its input codes are symmetric 4-bit, the machine's operands full 8"
        in lines[2]
    )
    assert "layer 'blocks' (dense, block floating point): its weights are full 3-bit with exponents -6..9" in lines[3]
    assert "its blocks have 16 elements, native vectors 8" in lines[5]
    assert len(lines) == 6


def test_weights_wider_than_the_machine():
    model = networks.mlp(np.random.default_rng(4), preset("tiny"), [8, 8], block=False)
    narrow = replace(preset("tiny"), weights=Format(bits=4))
    assert "the machine's mantissas in -8..7: quantise them to 4 bits" in refused(model, narrow)


def test_start_values_wider_than_the_bias():
    rng = np.random.default_rng(5)
    narrow = replace(preset("tiny"), bias_bits=6)
    layer = networks.mlp(rng, narrow, [8, 8], block=False).layers[0]
    model = networks.model([replace(layer, start=np.full(8, 32))])
    assert "its start values need 7 bits, BiasRf has 6" in refused(model, narrow)


def test_too_many_columns():
    model = networks.mlp(np.random.default_rng(6), preset("tiny"), [65, 4], block=True)
    assert "one product needs 9 native vectors, operand_columns is 8" in refused(model, preset("tiny"))
    assert "use at most 64 inputs" in refused(model, preset("tiny"))


def test_too_large_says_by_how_much():
    model = networks.mlp(np.random.default_rng(7), preset("tiny"), [64, 64, 64], block=True)
    message = refused(model, preset("tiny"))
    assert ("MatrixRf needs 128 tiles and has 32, 96 too few (the largest part is dense0, weights, 64); the machine "
            "needs `matrix_tiles = 128` at least") in message
    assert "is too large for this machine" in message


def test_too_long_a_program():
    model = networks.mlp(np.random.default_rng(8), roomy("tiny"), [8] * 100, block=True)
    assert "the instruction buffer needs" in refused(model, preset("tiny"))


def test_bounds_hold_and_are_tight():
    rng = np.random.default_rng(9)
    config = roomy("serial")
    model = networks.mlp(rng, config, [12, 8], block=False)
    layer, bound = model.layers[0], compile_network(model, config).bounds[0]
    codes = np.where(layer.weights < 0, config.activations.lowest, config.activations.highest)
    reached = int(np.abs((codes * layer.weights).sum(axis=1) + layer.start).max())
    assert reached.bit_length() + 1 <= bound.bits <= reached.bit_length() + 2
    assert bound.proven


def test_a_sum_that_may_wrap_is_reported():
    model = networks.mlp(np.random.default_rng(10), roomy("serial"), [13, 9], block=True)
    bound = compile_network(model, roomy("serial")).bounds[0]
    assert not bound.proven
    assert "a sum may wrap" in str(bound)
