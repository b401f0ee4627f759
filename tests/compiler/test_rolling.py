"""Strips of rows become loops over base registers where a program is longer than the instruction buffer."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ImageNetworkMaker
from concord.compiler import network as compiler
from concord.compiler.compilation import Compilation
from concord.compiler.network import compile_network
from concord.net.model import INPUT, Model
from concord.sim.machines.host import machine
from concord.spec.isa.instructions import Op, decode
from concord.spec.machine.config import PRESETS, Config
from concord.spec.numbers.activation import Activation
from concord.tests.compiled import agree_on_random as agree
from concord.tests.compiled import machines_agree
from concord.tests.compiler.test_image_networks import NAMES, roomy

emit = Compilation._emit_stream


def residual(rng: np.random.Generator, config: Config, *, block: bool, rows: int = 24, size: int = 5) -> Model:
    """Passes of several chains, which run strip by strip: a sum waits for its term, and is read in two ways."""
    images = ImageNetworkMaker(rng, config, (2, rows, 1), block=block)
    at = images.conv(INPUT, size, (2, 1), unsigned=True)
    at = images.sum(images.conv(at, size, (1, 1), unsigned=False), at)
    images.conv(images.concat(at, images.conv(at, size, (1, 1), unsigned=True)), 2, (2, 1), stride=(2, 1))
    return images.model()


def loops(config: Config, model: Model) -> list[int]:
    """The number of passes of each loop of a program."""
    words = map(decode, compile_network(model, config).firmware.instruction_words.tolist())
    return [instruction.a for instruction in words if instruction.op == Op.LOOP]


def shortest(config: Config, model: Model) -> Config:
    """The machine with an instruction buffer that just holds the program with loops."""
    with pytest.raises(ValueError, match="the instruction buffer needs") as caught:
        compile_network(model, replace(config, instructions=16))
    return replace(config, instructions=int(str(caught.value).split("instruction buffer needs ")[1].split()[0]))


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_short_program_gives_the_same_bits(name, block):
    config = roomy(name, addsub_vrf=4096, matrix_tiles=8192)
    model = residual(np.random.default_rng(0), config, block=block)
    short, whole = shortest(config, model), compile_network(model, config).usage["instructions"][0]
    assert short.instructions < whole
    assert not loops(config, model)
    assert loops(short, model)
    assert compile_network(model, short).usage["instructions"][0] == short.instructions
    agree(short, model)


def smallest(config: Config, model: Model) -> Config:
    """The machine with about the smallest VectorRf that holds a network."""
    size = compile_network(model, config).usage["VectorRf"][0]
    while size := int(size * 0.9) // config.tile_engines * config.tile_engines:
        try:
            compile_network(model, small := replace(config, vector_rf=size))
        except ValueError:
            return config
        config = small
    return config


@pytest.mark.parametrize("name", ["tiny", "wide", "vision"])
def test_streams_in_loops_give_the_same_bits(name, monkeypatch):
    """Several passes run strip by strip together, each strip but the first and the last in the same way."""
    streams = []
    monkeypatch.setattr(Compilation, "_emit_stream", lambda self, one: (streams.append(one), emit(self, one)))
    config = roomy(name, matrix_tiles=8192, addsub_vrf=4096)
    images, at = ImageNetworkMaker(np.random.default_rng(0), config, (3, 40, 4), block=True), INPUT
    for _ in range(3):
        at = images.conv(at, 6, (3, 3), padding=(1, 1, 1, 1))
    images.conv(at, 2, (1, 1), activation=Activation.NONE)
    short = shortest(smallest(config, images.model()), images.model())
    assert loops(short, images.model())
    assert streams
    agree(short, images.model(), samples=2)


@pytest.mark.parametrize("block", [False, True])
def test_hardware_agrees(block, monkeypatch):
    config = PRESETS["tiny"]
    model = residual(np.random.default_rng(0), config, block=block, rows=9, size=2)
    monkeypatch.setattr(compiler, "_emitted", partial(compiler._emitted, short=True))
    assert loops(config, model)
    with machine("golden", config) as golden, machine("library", config) as library:
        machines_agree(golden, library, config, model, networks.inputs(np.random.default_rng(0), 2, model.inputs))
