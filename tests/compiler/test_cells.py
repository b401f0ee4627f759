"""Every recurrent cell on golden machines and in hardware, against the same network in golden arithmetic."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.compiler.network import compile_network
from concord.firmware.firmware import ReadDirection
from concord.firmware.firmware_file import load_firmware, save_firmware
from concord.firmware.session import Session
from concord.net import network
from concord.net.cells.registry import CELLS
from concord.net.layers.joins import SequenceConcat
from concord.net.model import INPUT, Model
from concord.sim.machines.host import machine
from concord.sim.machines.kinds import SOON
from concord.spec.host.registers import EVENTS
from concord.spec.machine.config import PRESETS, Config
from concord.tests.compiled import agree

#: Memory sizes larger than those of the presets.
ROOM = {"initial_vrf": 512, "addsub_vrf": 512, "multiply_vrf": 1024, "matrix_tiles": 1024, "instructions": 2048}
#: Limits under which all gates fit one product, or gates are cut into pieces, down to one word.
LIMITS = {
    "whole": {},
    "no queue": {"mvmq_words": 4},
    "two words": {"accumulator_rows": 8},
    "one word": {"accumulator_rows": 4, "mvmq_words": 1},
}


def random_network(name: str, seed: int, config: Config) -> tuple[Model, np.ndarray]:
    """A network of one or two recurrent layers of a cell, with or without a dense layer, and two sequences."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, min(20, 2 * config.native_dim), rng.integers(2, 4)).tolist()
    block = rng.integers(2, size=len(sizes) - 1).astype(bool).tolist()
    outputs = int(rng.integers(1, 12)) if rng.integers(2) else None
    made = networks.recurrent(rng, config, sizes, block=block, outputs=outputs, cell=CELLS[name])
    return made, networks.inputs(rng, 2, 4, sizes[0])


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


def in_parts(session: Session, sample: np.ndarray) -> np.ndarray:
    """The last output of a sequence of four steps that is run in three parts."""
    parts = [sample[:1], sample[1:3], sample[3:]]
    return [session.infer(part, keep_state=index > 0) for index, part in enumerate(parts)][-1]


@pytest.mark.parametrize("limits", ["whole", "one word"])
@pytest.mark.parametrize("cell", CELLS)
def test_states_that_are_kept_join_the_parts_of_a_sequence(cell, limits):
    config = replace(PRESETS["tiny"], **ROOM | LIMITS[limits])
    for seed in range(4):
        model, samples = random_network(cell, seed, config)
        session = Session(machine("golden", config), compile_network(model, config).firmware)
        wanted = network.forward(model, samples)[-1].outputs
        for sample, outputs in zip(samples, wanted, strict=True):
            np.testing.assert_array_equal(in_parts(session, sample), outputs)
        np.testing.assert_array_equal(session.infer(samples[0]), wanted[0])  # initial states again
        assert not np.array_equal(session.infer(samples[1], keep_state=True), wanted[1])


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("preset", ["tiny", "serial", "wide"])
@pytest.mark.parametrize("cell", CELLS)
def test_both_directions(cell, preset, block):
    config, rng = replace(PRESETS[preset], **ROOM), np.random.default_rng(0)
    model, samples = networks.both_directions(rng, config, block=block, cell=CELLS[cell]), networks.inputs(rng, 2, 4, 5)
    agree(config, model, samples)
    # One layer starts from the end of a sequence: reversing the sequence exchanges the two layers.
    turned = replace(model.layers[1], reverse=False).run([samples[:, ::-1]], None).hidden[:, ::-1]
    np.testing.assert_array_equal(model.layers[1].run([samples], None).hidden, turned)


def test_only_the_direction_from_the_end(tmp_path):
    config, rng = PRESETS["tiny"], np.random.default_rng(0)
    first, second = networks.recurrent(rng, config, [3, 4, 5], block=[True, True], cell=CELLS["rnn"]).layers
    model = networks.model([replace(layer, reverse=True) for layer in (first, second)])
    agree(config, model, networks.inputs(rng, 2, 4, 3))
    firmware = compile_network(model, config).firmware
    save_firmware(firmware, tmp_path / "firmware")
    assert load_firmware(tmp_path / "firmware").directions == firmware.directions == (ReadDirection.BACKWARD,)
    with pytest.raises(ValueError, match="reads a sequence from its end, too, so that it cannot go on"):
        firmware.program(2, keep_state=True)


def test_layers_that_begin_at_different_ends_are_refused():
    config, rng = PRESETS["tiny"], np.random.default_rng(0)
    first, second = networks.recurrent(rng, config, [3, 4, 5], block=[True, True], cell=CELLS["rnn"]).layers
    with pytest.raises(ValueError, match="'rnn1' .*it reads 'rnn0', which begins at the other end of a sequence"):
        compile_network(networks.model([first, replace(second, reverse=True)]), config)
    both = SequenceConcat(name="both", sizes=(4, 4))
    behind = networks.block_recurrent(rng, config, CELLS["rnn"], "behind", 8, 4)
    layers = [first, replace(first, name="back", reverse=True), both, behind]
    model = networks.model(layers, sources={"back": (INPUT,), "both": ("rnn0", "back")})
    with pytest.raises(ValueError, match="'both' .*the machine keeps no whole sequences, which a layer after two"):
        compile_network(model, config)


@pytest.mark.parametrize("kind", SOON)
def test_states_are_kept_on_every_machine(kind):
    config, rng = PRESETS["tiny"], np.random.default_rng(0)
    model = networks.recurrent(rng, config, [3, 4, 5], block=[False, True], outputs=2, cell=CELLS["gru"])
    (sample,) = networks.inputs(rng, 1, 4, 3)
    with machine(kind, config) as made:
        got = in_parts(Session(made, compile_network(model, config).firmware), sample)
    np.testing.assert_array_equal(got, network.forward(model, sample[None])[-1].outputs[0])


def test_an_error_behind_kept_states_has_its_own_address():
    config, rng = PRESETS["tiny"], np.random.default_rng(0)
    model = networks.recurrent(rng, config, [3, 4], block=[True], cell=CELLS["rnn"])
    session = Session(machine("golden", config), compile_network(model, config).firmware)
    (sample,) = networks.inputs(rng, 1, 4, 3)
    session.infer(sample)
    before = session.firmware.loop
    session.firmware.instruction_words[before + 2] = 0  # this word is no instruction
    stop = f"layer rnn0: the program stopped at instruction {before + 2}, .* erased memory"
    with pytest.raises(RuntimeError, match=stop):
        session.infer(sample, keep_state=True)


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
            both = networks.both_directions(rng, config, block=block, cell=CELLS[cell])
            turned, sample = Session(library, compile_network(both, config).firmware), networks.inputs(rng, 1, 4, 5)
            np.testing.assert_array_equal(turned.infer(sample[0]), network.forward(both, sample)[-1].outputs[0])
            sessions = [Session(made, compile_network(model, config).firmware) for made in (golden, library)]
            for session in sessions:
                np.testing.assert_array_equal(in_parts(session, samples[0]), session.infer(samples[0]))
            wanted, got = (session.counters() for session in sessions)
            assert {event: got[event] for event in EVENTS} == {event: wanted[event] for event in EVENTS}
