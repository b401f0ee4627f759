"""Scripts without quantisers beside golden in float64."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ROOM
from concord.campaigns.twin_random import calls
from concord.compiler.network import compile_network, full_precision
from concord.firmware.firmware import Firmware
from concord.firmware.unquantized import UnquantizedMachine
from concord.net.cells.registry import CELLS
from concord.net.layers.joins import Softmax
from concord.spec.machine.config import PRESETS
from concord.spec.numbers.formats import Format
from concord.tests.real_networks import network, with_reals
from concord.twin.lib.run import run
from concord.twin.recovery.recover import recover, without_hints
from concord.twin.vocabulary import numpy_functions, unquantized
from concord.verification.twins import distance

FUNCTIONS = SimpleNamespace(**vars(numpy_functions) | vars(unquantized))
#: Rounding to float64, with room for sums in another order.
NONE = 1e-12
BLOCK = pytest.mark.parametrize("block", [False, True])


def carrying(model, config) -> Firmware:
    """The firmware of a model, with its numbers in full precision."""
    firmware = compile_network(model, config).firmware
    return replace(firmware, full_precision=full_precision(model, firmware))


def shuffled(rng: np.random.Generator, firmware: Firmware, *, states: bool) -> Firmware:
    """The firmware with all numbers in full precision moved a little, so that equal ones differ, and with many clips.

    With `states`, vectors stay: among them are initial states, which the program holds as several others need them.
    """
    images = firmware.full_precision
    vectors = {mem: each * rng.uniform(0.999, 1.001, each.shape) for mem, each in images.vectors.items()}
    ends = (-0.5, 0.75), (0.0, np.inf), (-0.25, np.inf)
    return replace(firmware, full_precision=replace(
        images, vectors=images.vectors if states else vectors,
        tiles=images.tiles * rng.uniform(0.999, 1.001, images.tiles.shape),
        biases=images.biases + rng.normal(size=images.biases.shape),
        clips={address: ends[address % 5] for address in range(len(firmware.instruction_words)) if address % 5 < 3}))


def error(firmware: Firmware, samples: np.ndarray, *, other: Firmware | None = None) -> float:
    """Distance of the script of firmware from golden in float64, which may run other firmware."""
    script = recover(firmware, unquantized=True)
    machine = UnquantizedMachine(other or firmware)
    wanted = np.stack([machine.infer(sample).reshape(-1) for sample in samples])
    shaped = samples.view(np.float16).astype(np.float64).reshape(len(samples), *(size or -1 for size in script.inputs))
    return distance(wanted, run(script, shaped, FUNCTIONS).reshape(len(samples), -1))


@pytest.mark.parametrize("kind", ["dense", "images", "mixed", *CELLS])
@BLOCK
def test_networks(kind, block):
    rng, config = np.random.default_rng(1), replace(PRESETS["tiny"], **ROOM, operand_columns=64)
    model, samples = network(kind, rng, config, block)
    firmware = carrying(with_reals(rng, model), config)
    assert error(firmware, samples) < NONE
    assert error(without_hints(firmware), samples) < NONE
    called, quantized = ([call.function for call in calls(recover(firmware, unquantized=switch))]
                         for switch in (True, False))
    assert not {"integers", "blocks", "numbers"} & set(called)
    assert called.count("take") <= quantized.count("take")
    moved = shuffled(rng, firmware, states=kind in CELLS)
    assert error(moved, samples) < NONE
    assert error(moved, samples, other=firmware) > NONE


@pytest.mark.parametrize(("kind", "block"), [("dense", False), ("images", True), ("lstm", True)])
def test_elements_with_exponents_of_their_own(kind, block):
    activations, weights = Format.floating(3, 1, e_min=-3, e_max=4), Format.floating(2, 1, e_min=-11, e_max=4)
    config = replace(PRESETS["tiny"], **ROOM, operand_columns=64, multipliers=0, activations=activations)
    config = replace(config, weights=weights) if block else config
    rng = np.random.default_rng(2)
    model, samples = network(kind, rng, config, block)
    firmware = carrying(with_reals(rng, model), config)
    assert error(firmware, samples) < NONE
    assert not {"floats", "float_blocks"} & {call.function for call in calls(recover(firmware, unquantized=True))}


def test_softmax():
    rng, config = np.random.default_rng(1), PRESETS["tiny_softmax"]
    model, samples = networks.mlp(rng, config, [9, 12, 7], block=False), networks.inputs(rng, 2, 9)
    model = with_reals(rng, replace(model, layers=(*model.layers, Softmax(name="softmax", inputs=7))))
    assert error(carrying(model, config), samples) < NONE


def test_distance():
    wanted = np.array([[1.0, -4.0, np.nan, np.inf]])
    assert distance(wanted, wanted.copy()) == 0
    assert distance(wanted, wanted + np.array([2.0, 0, 0, 0])) == 0.5
    assert distance(wanted, np.array([[1.0, np.nan, np.nan, np.inf]])) > 1
    assert distance(wanted, np.array([[1.0, -4.0, np.nan, -np.inf]])) > 1
    assert distance(np.zeros((1, 2)), np.zeros((1, 2))) == 0
