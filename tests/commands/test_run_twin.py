"""`nnp run --twin`: firmware on machines against the software twin of firmware that is known to be right."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.twin_faults import two_layers, with_changed_weight
from concord.compiler.network import compile_network
from concord.firmware.firmware_file import save_firmware
from concord.firmware.session import Session
from concord.sim.machines.host import machine
from concord.spec.isa.assembler import assemble
from concord.spec.machine.config import preset
from concord.tests import small_networks
from concord.tests.command_line import done, nnp, refused
from concord.verification.twins import TwinSession

TINY = preset("tiny")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with two firmwares that differ in one bit, and inputs."""
    monkeypatch.chdir(tmp_path)
    firmware = two_layers()
    save_firmware(firmware, tmp_path / "right")
    save_firmware(with_changed_weight(firmware), tmp_path / "wrong")
    np.save("x.npy", np.random.default_rng(1).normal(size=(10, firmware.inputs)))
    return tmp_path


def test_right_firmware_differs_from_its_twin_in_nothing(folder):
    said = done("run", "right", "--twin", "right", "--inputs", "x.npy")
    assert "0 of 10 samples differ from the twin of right" in said


def test_a_changed_bit_is_named_beside_twin_and_golden(folder):
    result = nnp("run", "wrong", "--twin", "right", "--inputs", "x.npy", "-q")
    assert result.exit_code == 1
    assert "samples differ from the twin of right" in result.stdout
    assert "chain 1 of layer output" in result.stderr
    assert "`v_wr NetQ` at 13 wrote NetQ word 1 lane 1: twin 0x3422 (0.25830078125), golden 0x340a" in result.stderr


def test_a_changed_bit_is_named_beside_twin_rtl_and_golden(folder):
    result = nnp("run", "wrong", "--twin", "right", "--inputs", "x.npy", "-q", "--machine", "library")
    assert result.exit_code == 1
    assert "twin 0x3422 (0.25830078125), RTL 0x340a (0.25244140625), golden 0x340a" in result.stderr


def test_programs_must_be_equal(folder):
    firmware = two_layers()
    text = firmware.text.replace("v_sigm0", "v_tanh0")
    save_firmware(replace(firmware, text=text, instruction_words=np.array(assemble(text), np.uint64)), folder / "other")
    said = refused("run", "other", "--twin", "right", "--inputs", "x.npy")
    assert "differ at instruction 12: `v_tanh0` runs, and the twin has `v_sigm0`" in said
    assert "leave out --keep-state" in refused("run", "right", "--twin", "right", "--keep-state")


def test_programs_that_read_what_earlier_samples_left_are_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sum.txt").write_text("v_rd NetQ\nvv_add0 0\nv_wr AddSubVrf0, 0\nv_wr NetQ\nend_chain\nend\n")
    np.save("zeros.npy", np.zeros(8))
    done("asm", "sum.txt", "--preset", "tiny", "--image", "AddSubVrf0=zeros.npy", "-o", "sum")
    np.save("x.npy", np.ones((3, 8)))
    result = nnp("run", "sum", "--twin", "sum", "--inputs", "x.npy", "-q")
    assert result.exit_code == 1
    assert "2 of 3 samples differ" in result.stdout
    assert "the program reads what earlier samples have left" in result.stderr


@pytest.mark.parametrize("block", [False, True])
def test_twins_leave_in_memories_what_golden_leaves(block):
    rng = np.random.default_rng(4)
    for model, steps in ((networks.recurrent(rng, TINY, [3, 5], block=[block], outputs=4), 3),
                         (small_networks.small(rng, TINY, block=block), 4)):
        firmware = compile_network(model, TINY).firmware
        sample = networks.inputs(rng, steps, firmware.inputs)
        golden, twin = Session(machine("golden", TINY), firmware), TwinSession(firmware)
        np.testing.assert_array_equal(twin.infer(sample), golden.infer(sample))
        program = firmware.program(steps)
        left, right = golden.probe(program, sample), twin.probe(program, sample)
        assert left.keys() == right.keys()
        for mem in left:
            np.testing.assert_array_equal(left[mem], right[mem])
