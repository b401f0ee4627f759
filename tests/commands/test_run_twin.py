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


def test_a_written_twin_is_told_from_a_program_that_reads_what_earlier_samples_left(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sum.txt").write_text("v_rd NetQ\nvv_add0 0\nv_wr AddSubVrf0, 0\nv_wr NetQ\nend_chain\nend\n")
    np.save("zeros.npy", np.zeros(8))
    done("asm", "sum.txt", "--preset", "tiny", "--image", "AddSubVrf0=zeros.npy", "-o", "sum")
    np.save("x.npy", np.ones((2, 8)))
    result = nnp("twin", "sum", "--to", "numpy", "--inputs", "x.npy")
    assert result.exit_code == 1
    assert "the program reads what earlier samples have left" in " ".join(result.stdout.split())


#: A loop whose state is entries of VectorRf, of which two words are read as numbers.
ENTRIES = """
s_wr Rows, 8
v_rd NetQ
v_wr AddSubVrf0, 0
end_chain
s_wr Base1, 0
loop 3
s_wr Rows, 2
set_iterations 2, 2
s_wr StrideX, 1
s_wr StrideOut, 4
v_rd_inc VectorRf, 0, integer
vv_add0 0 + Base1
v_wr_inc MultiplyVrf0, 0
end_chain
s_wr Rows, 8
set_iterations 8, 8
s_wr StrideX, 4
v_rd_inc MultiplyVrf0, 0
v_wr_inc VectorRf, 0, integer
end_chain
s_add Base1, 1
end_loop
s_wr Rows, 2
set_iterations 2, 2
v_rd_inc MultiplyVrf0, 0
v_wr NetQ
end_chain
end
"""
#: The larger of each input and 1, and then integers, of which a NaN becomes 0.
LARGER = """
s_wr Rows, 2
v_rd NetQ
vv_max0 0
v_wr NetQ
v_wr VectorRf, 0, integer
end_chain
v_rd VectorRf, 0, integer
v_wr NetQ
end_chain
end
"""


@pytest.mark.parametrize(("text", "machine", "images", "to", "inputs"), [
    (ENTRIES, "tiny_vector", {"VectorRf": (8, 8), "MultiplyVrf0": (64,)}, "numpy", 8),
    (LARGER, "tiny", {"AddSubVrf0": (2,)}, "onnx", 2)])
def test_twins_of_programs(tmp_path, monkeypatch, text, machine, images, to, inputs):
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text(text)
    rng, options = np.random.default_rng(0), []
    for name, shape in images.items():
        np.save(f"{name}.npy", rng.integers(0, 8, shape).astype(np.float16))
        options += ["--image", f"{name}={name}.npy"]
    done("asm", "text", "--preset", machine, *options, "-o", "made")
    samples = rng.integers(-4, 8, (1, inputs)).astype(np.float16)
    if to == "onnx":
        samples[0, 0] = np.uint16(0xfe00).view(np.float16)  # as processors write infinity minus infinity
    np.save("x.npy", samples)
    assert "0 differing bits" in done("twin", "made", "--to", to, "--inputs", "x.npy")


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
