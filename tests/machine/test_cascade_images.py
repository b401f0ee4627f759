"""Images between machines: messages of many pixels, and the throughput that they give."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ROOM, ImageNetworkMaker
from concord.compiler.cascade import PartCompiler
from concord.compiler.cuts import parts
from concord.compiler.lib.neighbours import Neighbours
from concord.compiler.network import compile_network
from concord.firmware.cascade_session import CascadeSession, Streamed
from concord.net import network
from concord.net.model import Model
from concord.sim.machines.cascade import cascade
from concord.spec.machine.config import Config, preset

TINY = preset("tiny")
#: No vector memory has room for a row of the image, which takes 8 words.
CRAMPED = replace(TINY, initial_vrf=4, addsub_vrf=4, multiply_vrf=4)
PIXELS = 16  #: of the image that crosses


def image(block: bool) -> Model:
    """Two convolutions, between which an image crosses of 4 x 4 pixels with 4 channels."""
    made = ImageNetworkMaker(np.random.default_rng(4), TINY, (2, 4, 4), block=block)
    made.conv(made.conv("", 4, (1, 1)), 3, (2, 2))
    return made.model()


def stream(kind: str, config: Config, model: Model, firmware, **options) -> Streamed:
    """Samples on machines of a kind, with the bits of the network."""
    samples = networks.inputs(np.random.default_rng(5), 4, model.inputs)
    with cascade(kind, [config] * 2, **options) as machines:
        done = CascadeSession(machines, firmware).stream(list(samples))
    np.testing.assert_array_equal(done.outputs, network.forward(model, samples)[-1].outputs)
    return done


def messages(config: Config, model: Model, monkeypatch) -> int:
    """Number of messages from machine to machine for four samples."""
    found = []
    firmware = PartCompiler(model, [config] * 2).compiled(["conv0"]).cascade.parts
    monkeypatch.setattr("concord.sim.machines.cascade.routed", lambda sent: (
        found.extend(sent := list(sent)), ([], sent))[1])
    stream("golden", config, model, firmware)
    return len(found)


@pytest.mark.parametrize("block", [False, True])
def test_a_message_holds_many_pixels(block, monkeypatch):
    assert messages(TINY, image(block), monkeypatch) == 4


def test_without_room_each_pixel_is_a_message(monkeypatch):
    assert messages(CRAMPED, image(block=False), monkeypatch) == 4 * PIXELS


@pytest.mark.parametrize(("kind", "block"), [("library", False), ("library", True), ("cocotb", False)])
def test_simulated_machines_take_such_messages(kind, block):
    model = image(block)
    stream(kind, TINY, model, PartCompiler(model, [TINY] * 2).compiled(["conv0"]).cascade.parts, seed=5, gap=0.2,
           stall=0.2)


@pytest.mark.parametrize(("size", "concat"), [((1, 1), False), ((3, 3), True)])
def test_several_images_cross_on_simulated_machines(size, concat):
    """A skip connection crosses; the receiver stores both images, for a sum or for a concatenation."""
    made = ImageNetworkMaker(np.random.default_rng(7), TINY, (2, 3, 3), block=False)
    first = made.conv("", 4, (1, 1))
    second = made.conv(first, 4, size, padding=(size[0] // 2,) * 4)
    made.conv(made.concat(first, second) if concat else made.sum(first, second), 2, (2, 2))
    model = made.model()
    firmware = PartCompiler(model, [TINY] * 2).compiled([second]).cascade.parts
    stream("library", TINY, model, firmware, seed=5, gap=0.2, stall=0.2)


@pytest.mark.parametrize("block", [False, True])
def test_a_term_of_a_sum_crosses(block):
    """The first machine adds to it, too, in a chain of its own: what is sent is the term."""
    config = replace(TINY, **ROOM)
    made = ImageNetworkMaker(np.random.default_rng(1), config, (2, 3, 3), block=block)
    first = made.conv("", config.native_dim, (1, 1))
    term = made.conv(first, config.native_dim, (1, 1))
    third = made.conv(made.sum(first, term), config.native_dim, (1, 1))
    made.conv(made.concat(term, third), 3, (2, 2))
    model = made.model()
    stream("golden", config, model, PartCompiler(model, [config] * 2).compiled([third]).cascade.parts)


def test_headers_of_every_pixel_would_take_longer():
    model = image(block=False)
    first, second = PartCompiler(model, [TINY] * 2).compiled(["conv0"]).cascade.parts
    slow = compile_network(parts(model, ["conv0"])[0], TINY, Neighbours(images=True)).firmware
    together, apart = (stream("library", TINY, model, [one, second]).interval for one in (first, slow))
    assert together < 0.85 * apart
