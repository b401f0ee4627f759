"""Networks of images whose maps have no room on the chip: tensors lie in Dram, and the bits are the same."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ROOM, ImageNetworkMaker
from concord.compiler.lib.limits import CannotRun
from concord.compiler.network import compile_network, full_precision
from concord.firmware.session import outputs_of
from concord.firmware.unquantized import UnquantizedMachine
from concord.golden.lib.float16 import to_bits
from concord.net.lowering.full_precision import MemoryNumbers
from concord.net.model import INPUT, Model
from concord.net.model_file import load_model
from concord.sim.machines.host import machine as host
from concord.spec.isa.instructions import Op, decode
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config, preset
from concord.spec.numbers.activation import Activation
from concord.tests.compiled import agree_on_random, machines_agree
from concord.tests.twin import recovered

DRAM = {"dram_words": 1 << 18, "dram_bus": 8, "instructions": 8192, "mvmq_words": 128}


def machine(name: str, **changes) -> Config:
    """A preset with memory outside the chip, and few entries."""
    return replace(preset(name), **ROOM | DRAM | changes)


def written(firmware) -> bool:
    """Whether a program writes to Dram."""
    return any(one.op == Op.V_WR and one.mem == Mem.DRAM for one in map(decode, firmware.instruction_words.tolist()))


def chain(rng, config: Config, *, block: bool) -> Model:
    """Convolutions of large maps one after the other."""
    images = ImageNetworkMaker(rng, config, (3, 13, 11), block=block)
    at = images.conv(INPUT, 6, (3, 3), padding=(1, 1, 1, 1))
    at = images.conv(at, 6, (3, 3), groups=6, padding=(1, 1, 1, 1), offset=-0.5)
    at = images.conv(at, 11, (3, 3), stride=(2, 2), padding=(0, 1, 1, 0))
    images.dense(images.average(at, (2, 2), stride=(2, 2)), 7)
    return images.model()


def residual(rng, config: Config, *, block: bool) -> Model:
    """Sums of tensors that wait while others are computed, and a concatenation."""
    images = ImageNetworkMaker(rng, config, (2, 12, 9), block=block)
    at = images.conv(INPUT, 10, (3, 3), padding=(1, 1, 1, 1))
    for _ in range(2):
        body = images.conv(images.conv(at, 10, (3, 3), padding=(1, 1, 1, 1)), 10, (1, 1), activation=Activation.NONE)
        at = images.sum(body, at, Activation.RELU)
    both = images.concat(at, images.conv(at, 10, (1, 1)))
    images.dense(images.conv(both, 5, (3, 3), stride=(2, 2)), 4)
    return images.model()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("model", [chain, residual])
@pytest.mark.parametrize(("name", "entries"), [("tiny", 128), ("vision", 72), ("wide", 80)])
def test_maps_that_have_no_room(name, entries, model, block, seed):
    config = machine(name, vector_rf=entries)
    made = agree_on_random(config, model(np.random.default_rng(seed), config, block=block), seed=seed)
    assert written(made.firmware)
    assert made.usage["VectorRf"][0] <= entries


@pytest.mark.parametrize("block", [False, True])
def test_operands_of_sums_that_have_no_room(block):
    """Strips of them come to the memory of the operand, each before the chain that adds it."""
    config = machine("vision", addsub_vrf=128)
    made = agree_on_random(config, residual(np.random.default_rng(1), config, block=block))
    assert written(made.firmware)
    assert made.usage["AddSubVrf0"][0] <= 128


@pytest.mark.parametrize("block", [False, True])
def test_tiles_and_maps_share_dram(block):
    config = machine("tiny", vector_rf=96, matrix_tiles=24)
    made = agree_on_random(config, chain(np.random.default_rng(1), config, block=block))
    assert written(made.firmware)
    assert 0 < made.firmware.constant_words < made.usage["Dram"][0]


def two_sums(rng, config: Config) -> Model:
    """Tensors of which two wait for two sums, while others read each of them."""
    images, same = ImageNetworkMaker(rng, config, (2, 24, 24), block=False), {"padding": (1, 1, 1, 1)}
    plain = {"activation": Activation.NONE}
    a = images.conv(images.conv(INPUT, 8, **same), 8, (1, 1), **plain)
    b = images.conv(a, 8, **same, **plain)
    y = images.conv(b, 8, **same, **plain)
    z = images.sum(y, a)
    read = [images.conv(y, 4, (1, 1)), images.conv(z, 4, (1, 1)), images.conv(images.sum(z, b), 4, **same)]
    images.dense(images.concat(*(images.maximum(one, (6, 6), stride=(6, 6)) for one in read)), 4)
    return images.model()


@pytest.mark.parametrize("entries", [448, 1472, 1536])
def test_strips_are_no_longer_than_the_room_for_them(entries):
    config = machine("tiny", vector_rf=entries)
    agree_on_random(config, two_sums(np.random.default_rng(1), config), samples=1)


@pytest.mark.parametrize("block", [False, True])
def test_the_last_strip_lies_in_the_padding(block):
    """It needs no more rows of the network's input than there are."""
    config = machine("vision", vector_rf=96)
    images = ImageNetworkMaker(np.random.default_rng(0), config, (4, 4, 16), block=block)
    images.conv(images.conv(INPUT, 12, (5, 3), stride=(2, 1), padding=(4, 4, 1, 1)), 4, (3, 1))
    agree_on_random(config, images.model())


def test_programs_without_room_for_instructions_have_loops():
    config = machine("vision", vector_rf=72)
    model = chain(np.random.default_rng(1), config, block=False)
    long = len(compile_network(model, config).firmware.instruction_words)
    made = agree_on_random(replace(config, instructions=long - 1), model)
    assert len(made.firmware.instruction_words) < long


def test_tensors_that_fit_stay_on_the_chip():
    config = machine("vision")
    made = compile_network(chain(np.random.default_rng(1), config, block=False), config)
    assert not written(made.firmware)
    assert "Dram" not in made.usage


def test_what_has_no_room_in_dram_either():
    config = machine("tiny", vector_rf=96, dram_words=128)
    with pytest.raises(CannotRun, match="Dram needs"):
        compile_network(chain(np.random.default_rng(1), config, block=False), config)


@pytest.mark.parametrize("block", [False, True])
def test_hardware_agrees(block):
    config, rng = replace(preset("tiny"), dram_words=1 << 20, dram_bus=8), np.random.default_rng(2)
    images = ImageNetworkMaker(rng, config, (2, 10, 7), block=block)
    at = images.conv(INPUT, 4, (3, 3), padding=(1, 1, 1, 1))
    at = images.sum(images.conv(at, 4, (3, 3), padding=(1, 1, 1, 1), activation=Activation.NONE), at, Activation.RELU)
    images.dense(images.average(images.conv(at, 3, (1, 1), stride=(2, 2)), (5, 4), stride=(5, 4)), 2)
    model = images.model()
    with host("golden", config) as golden, host("library", config) as library:
        machines_agree(golden, library, config, model, networks.inputs(np.random.default_rng(0), 2, model.inputs))
    assert written(compile_network(model, config).firmware)


@pytest.mark.parametrize("instructions", [8192, 297])
def test_words_beyond_the_reach_of_an_address(instructions):
    """A base register comes near them, also where strips are passes of a loop."""
    config = machine("tiny", vector_rf=1600, dram_words=1 << 20, instructions=instructions)
    images = ImageNetworkMaker(np.random.default_rng(4), config, (2, 80, 80), block=False)
    at = images.conv(images.conv(INPUT, 24, (1, 1)), 24, (3, 3), groups=24, padding=(1, 1, 1, 1))
    images.dense(images.average(images.conv(at, 4, (1, 1), stride=(20, 20)), (4, 4), stride=(4, 4)), 2)
    made = agree_on_random(config, images.model(), samples=1)
    assert made.usage["Dram"][0] > 1 << 16


@pytest.mark.parametrize("block", [False, True])
def test_twins(block):
    """They are the layers of the network: that tiles and tensors come from Dram leaves no trace."""
    config = machine("tiny", vector_rf=96, matrix_tiles=24)
    model = chain(np.random.default_rng(1), config, block=block)
    assert written(compile_network(model, config).firmware)
    recovered.agree(config, model, networks.inputs(np.random.default_rng(1), 2, model.inputs))


def test_full_precision_with_all_roundings_is_the_machine():
    """Dram holds real numbers in full precision, as vector memories do."""
    model = load_model(Path("data/models/fashion-resnet-w8.safetensors"))
    firmware = compile_network(model, replace(preset("vision_dram"), vector_rf=400, instructions=8192)).firmware
    assert written(firmware)
    sample = networks.inputs(np.random.default_rng(1), 1, model.inputs)[0]
    stored = full_precision(model, firmware, MemoryNumbers.STORED)
    rounded = UnquantizedMachine(firmware, stored, activations=True, binary16=True).infer(sample)
    assert np.array_equal(to_bits(rounded), outputs_of("golden", firmware, [sample])[0])
