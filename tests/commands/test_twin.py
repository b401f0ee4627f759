"""`nnp twin`: firmware as source text, compared with golden."""

import subprocess
import sys

import numpy as np
import pytest
from concord.firmware.firmware_file import load_firmware
from concord.tests.command_line import compiled, done, nnp, refused
from concord.verification.twins import differing

SHIPPED = {"fashion-mlp-bfp8": "trainer", "vowels-lstm-w8": "vision"}


@pytest.fixture(scope="module")
def firmware(tmp_path_factory):
    """Firmware files of shipped networks by name."""
    return compiled(tmp_path_factory.mktemp("firmware"), SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("plain", [False, True])
def test_twins_of_shipped_networks_have_the_bits_of_golden(firmware, tmp_path, name, plain):
    said = done("twin", firmware[name], "-o", tmp_path, "--samples", 5, *["--plain"] * plain)
    assert "0 differing bits over 5 samples" in said
    stem = f"{name.replace('-', '_')}_numpy"
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{stem}.py", f"{stem}.safetensors"]
    assert len((tmp_path / f"{stem}.py").read_text().splitlines()) <= 150


def test_the_command_that_it_prints_runs(firmware, tmp_path):
    said = done("twin", firmware["vowels-lstm-w8"], "-o", tmp_path / "new" / "folder")
    command = said.partition("Run it: cd ")[2].partition("\n")[0]
    ran = subprocess.run(["bash", "-c", f"cd {command.replace('python', sys.executable)}"], capture_output=True,
                         text=True, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("[[")


def test_torch_twins(firmware, tmp_path):
    pytest.importorskip("torch")
    assert "0 differing bits" in done("twin", firmware["vowels-lstm-w8"], "-o", tmp_path, "--to", "torch")


@pytest.mark.parametrize("name", SHIPPED)
def test_onnx_twins(firmware, tmp_path, name):
    """Also of networks in block floating point, and of loops over time steps."""
    pytest.importorskip("onnxruntime")
    assert "0 differing bits over 4 samples" in done("twin", firmware[name], "-o", tmp_path, "--to", "onnx",
                                                     "--samples", 4)
    assert [path.suffix for path in tmp_path.iterdir()] == [".onnx"]


def test_a_twin_of_other_weights_differs(firmware, tmp_path, monkeypatch):
    """The comparison is of the files that are written."""
    monkeypatch.setattr("concord.twin.source.writer.tensors", lambda script: {
        name: values + values.dtype.type(1) for name, values in tensors(script).items()})
    from concord.twin.source.writer import tensors

    result = nnp("twin", firmware["fashion-mlp-bfp8"], "-o", tmp_path)
    assert result.exit_code == 1
    assert " 0 differing bits" not in result.stdout


def test_bad_words_are_refused_in_a_sentence(firmware, tmp_path):
    path = firmware["fashion-mlp-bfp8"]
    assert "choose one of numpy, torch, tensorflow, onnx" in refused("twin", path, "--to", "jax")
    assert "there is no such firmware file" in refused("twin", tmp_path / "nothing.safetensors")
    assert "not a whole safetensors file" in refused("twin", __file__)
    assert "it is a file" in refused("twin", path, "-o", path)
    assert "neither 'all' nor a number" in refused("twin", path, "-o", tmp_path, "--samples", "none")
    assert not any(tmp_path.iterdir())


def test_counts_of_differing_bits():
    a, b = (np.array(bits, np.uint16) for bits in ([0x7E00, 0x3C00, 0xFFFF, 3], [0xFE01, 0x3C01, 0x7C00, 3]))
    assert differing(a, a) == 0
    assert differing(a, b) == 1 + np.bitwise_count(np.uint16(0xFFFF ^ 0x7C00))


def test_hints_are_left_out(firmware):
    from concord.twin.recovery.recover import without_hints

    loaded = load_firmware(firmware["vowels-lstm-w8"])
    assert loaded.sections
    assert not without_hints(loaded).sections


def test_programs_without_a_test_set_are_compared_on_random_numbers(tmp_path):
    (tmp_path / "relu.txt").write_text("s_wr Rows, 4\nv_rd NetQ\nv_relu0\nv_wr NetQ\nend_chain\nend\n")
    done("asm", tmp_path / "relu.txt", "--preset", "tiny")
    said = done("twin", tmp_path / "relu.safetensors", "-o", tmp_path / "a folder", "--samples", 7)
    assert "0 differing bits over 7 samples of random numbers" in said
    assert f"cd '{tmp_path / 'a folder'}'; python" in said
