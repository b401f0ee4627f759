"""Every recurrent cell on golden machines and in hardware, against the same network in golden arithmetic."""

from dataclasses import replace

import numpy as np
import pytest
from concord.compiler.network import compile_network
from concord.model import network
from concord.model.cells.registry import CELLS
from concord.model.model import Model
from concord.nnp.verify.session import Session
from concord.sim.machines.host import machine
from concord.spec.config import PRESETS, Config
from concord.spec.registers import EVENTS
from concord.tests import networks

#: Deeper memories than the presets have.
ROOM = {"initial_vrf": 512, "addsub_vrf": 512, "multiply_vrf": 1024, "matrix_tiles": 1024, "instructions": 2048}
#: All gates in one product, and pieces of gates, down to a word.
LIMITS = {
    "whole": {},
    "no queue": {"mvmq_words": 4},
    "two words": {"accumulator_rows": 8},
    "one word": {"accumulator_rows": 4, "mvmq_words": 1},
}


def random_network(name: str, seed: int, config: Config) -> tuple[Model, np.ndarray]:
    """One or two recurrent layers of a cell, with or without a dense layer, and two sequences."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, min(20, 2 * config.native_dim), rng.integers(2, 4)).tolist()
    block = rng.integers(2, size=len(sizes) - 1).astype(bool).tolist()
    outputs = int(rng.integers(1, 12)) if rng.integers(2) else None
    made = networks.recurrent(rng, config, sizes, block=block, outputs=outputs, cell=CELLS[name])
    return made, networks.inputs(rng, 2, 4, sizes[0])


def agree(config: Config, model: Model, samples: np.ndarray):
    """Run every sample on the golden machine; its bits are those of the network in golden arithmetic."""
    session = Session(machine("golden", config), compile_network(model, config).firmware)
    for sample, outputs in zip(samples, network.forward(model, samples)[-1].outputs, strict=True):
        np.testing.assert_array_equal(session.infer(sample), outputs)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("preset", ["tiny", "serial", "wide"])
@pytest.mark.parametrize("cell", CELLS)
def test_cells_on_machines(cell, preset, seed):
    config = replace(PRESETS[preset], **ROOM)
    agree(config, *random_network(cell, seed, config))


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("cell", CELLS)
def test_gates_in_pieces(cell, limits, block):
    config = replace(PRESETS["tiny"], **ROOM | LIMITS[limits])
    rng = np.random.default_rng(0)
    model = networks.recurrent(rng, config, [11, 13, 10], block=[block, block], outputs=9, cell=CELLS[cell])
    agree(config, model, networks.inputs(rng, 2, 3, 11))


@pytest.mark.parametrize("cell", CELLS)
def test_hardware_agrees(cell):
    config = PRESETS["tiny"]
    with machine("golden", config) as golden, machine("library", config) as library:
        for block in (False, True):
            rng = np.random.default_rng(block)
            model = networks.recurrent(rng, config, [3, 6], block=[block], outputs=3, cell=CELLS[cell])
            sessions = [Session(made, compile_network(model, config).firmware) for made in (golden, library)]
            samples = networks.inputs(rng, 2, 4, 3)
            for sample, outputs in zip(samples, network.forward(model, samples)[-1].outputs, strict=True):
                for session in sessions:
                    np.testing.assert_array_equal(session.infer(sample), outputs)
            wanted, got = (session.counters() for session in sessions)
            assert {event: got[event] for event in EVENTS} == {event: wanted[event] for event in EVENTS}
