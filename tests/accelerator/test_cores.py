"""Networks on several cores that share a memory give the bits of one machine, and the page's example runs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.compiler.network import compile_network
from concord.firmware.accelerator_session import RING_SIZE, AcceleratorSession, accelerator_of, accelerator_session
from concord.firmware.session import Session, Stopped
from concord.sim.machines.accelerators import accelerator_machine
from concord.sim.machines.host import machine
from concord.spec.accelerator.accelerator import Accelerator, dram_bytes
from concord.spec.accelerator.commands import BYTES
from concord.spec.host.registers import EVENTS, Counter
from concord.spec.isa.instructions import Instruction, Op, encode
from concord.spec.machine.config import preset
from concord.tests.command_line import done, refused

DRAM = replace(preset("tiny"), dram_words=1 << 14, dram_bus=8, matrix_tiles=8)
MODEL = "data/models/fashion-mlp-w4a4.safetensors"


@pytest.fixture(scope="module")
def mlp():
    """A perceptron whose tiles do not fit MatrixRf, and samples."""
    rng = np.random.default_rng(1)
    model = networks.mlp(rng, DRAM, [24, 40, 6], block=True)
    return compile_network(model, DRAM).firmware, list(networks.inputs(rng, 7, 24))


def test_cores_give_the_bits_of_one_machine(mlp):
    firmware, samples = mlp
    session = Session(machine("golden", DRAM), firmware)
    wanted = session.infer_all(samples)
    with accelerator_session(firmware, "golden", 3) as cores:
        cores.counters()
        np.testing.assert_array_equal(cores.infer_all(samples), wanted)
        counted = cores.counters()
        assert [counters[Counter.CHAINS] for counters in counted] == [3 * counted[2][Counter.CHAINS] // 2] + [
            counted[2][Counter.CHAINS]] * 2
        totals = session.counters()
        sums = [event for event in EVENTS if not event.name.startswith("EXCESS")]
        assert all(sum(one[event] for one in counted) == totals[event] for event in sums)
        for memories in cores.memories():
            assert memories.keys() == session.memories().keys()
        np.testing.assert_array_equal(cores.infer(samples[0]), wanted[0])
        assert cores.invalid == []


def test_sequences_of_any_length():
    """A core gets the program for another number of time steps when a sample needs it."""
    rng = np.random.default_rng(2)
    config = preset("tiny")
    model = networks.recurrent(rng, config, [5, 4], block=[False], outputs=3)
    firmware = compile_network(model, config).firmware
    samples = [networks.inputs(rng, steps, 5) for steps in (3, 3, 5, 2, 5)]
    with accelerator_session(firmware, "golden", 2) as cores:
        np.testing.assert_array_equal(
            cores.infer_all(samples), Session(machine("golden", config), firmware).infer_all(samples))
        with pytest.raises(ValueError, match="leave out --cores"):
            cores.infer(samples[0], keep_state=True)


def test_batches(mlp):
    firmware = compile_network(networks.mlp(np.random.default_rng(1), DRAM, [24, 40, 6], block=True), DRAM, batch=3)
    with accelerator_session(firmware.firmware, "golden", 2) as cores:
        np.testing.assert_array_equal(
            cores.infer_all(mlp[1]), Session(machine("golden", DRAM), mlp[0]).infer_all(mlp[1]))


def test_a_program_that_stops_is_named(mlp):
    firmware, samples = mlp
    words = firmware.instruction_words.copy()
    words[-1] = encode(Instruction(op=Op.END_LOOP))
    broken = object.__new__(type(firmware))
    for name in type(firmware).__slots__:
        object.__setattr__(broken, name, words if name == "instruction_words" else getattr(firmware, name))
    with accelerator_session(broken, "golden", 2) as cores, pytest.raises(Stopped, match="the program stopped at"):
        cores.infer_all(samples)


def test_memory_of_cores():
    assert accelerator_of(preset("vision_dram"), 4).memory_bytes == 1 << 28
    assert accelerator_of(preset("vision"), 15).bus == 16
    large = replace(preset("vision_dram"), dram_words=1 << 28)
    with pytest.raises(ValueError, match="take fewer cores"):
        accelerator_of(large, 3)


def test_firmware_that_the_memory_has_no_room_for(mlp):
    ends = 2 * dram_bytes(DRAM) + (BYTES << RING_SIZE)  # Dram of both cores and the ring take all of it
    small = Accelerator(cores=(DRAM,) * 2, memory_bytes=ends, bus=DRAM.dram_bus)
    with pytest.raises(ValueError, match="no room for the [0-9,]+ bytes of the firmware"):
        AcceleratorSession(accelerator_machine("golden", small), mlp[0])


def test_verify_prints_cores(tmp_path):
    text = done("verify", MODEL, "--cores", 2, "--machine", "golden", "--samples", 3, "--report", tmp_path)
    assert "2 cores, golden, preset ulx3s" in text
    assert "cycles of each core" in text


@pytest.mark.parametrize(("words", "sentence"), [
    (["--cores", 2, "--machine", "cocotb"], "golden or library, not on cocotb"), (["--cores", 16], "1 to 15 cores"),
    (["--cores", 2, "--machine", "serial:/dev/x"], "not on serial:/dev/x"),
    (["--cores", 2, "--machines", 2], "leave out one of them"), (["--cores", 2, "--layers"], "--layers is for one"),
    (["--cores", 2, "--errors"], "--errors is for one"), (["--cores", 2, "--keep-state"], "--keep-state is for one")])
def test_what_cores_do_not_take(words, sentence):
    assert sentence in refused("verify", MODEL, *words)


@pytest.mark.parametrize(("words", "sentence"), [
    (["--waves", "x.vcd"], "--waves is for one"), (["--twin", "FIRMWARE"], "--twin is for one"),
    (["--machine", "netlist"], "golden or library")])
def test_what_run_does_not_take(tmp_path, words, sentence):
    file = tmp_path / "firmware"
    done("compile", MODEL, "--preset", "ulx3s", "-o", file)
    words = [str(file) if word == "FIRMWARE" else word for word in words]
    if "--waves" in words:
        words += ["--machine", "library"]
    assert sentence in refused("run", file, "--cores", 2, *words)
    assert done("run", file, "--cores", 2, "--samples", 3, "-q") == done("run", file, "--samples", 3, "-q")


def test_the_example_of_the_page(capsys):
    exec((Path(__file__).parents[2] / "docs/templates/accelerator_example.py").read_text(), {})
    assert capsys.readouterr().out == "[9.0, 4.0]\n[81.0, 16.0]\n"
