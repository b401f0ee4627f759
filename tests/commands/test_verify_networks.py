"""`nnp verify FILE --data DATA`: a network in float32 goes to the machine in one command."""

import json
import re
from dataclasses import fields

import numpy as np
import pytest
from concord.net.graph_file import save
from concord.net.model_file import load_model
from concord.net.ops.reshape import Flatten
from concord.spec.machine.config import PRESETS
from concord.tests.command_line import nnp
from concord.tests.float_networks import Chain
from concord.tests.own_digits import arrays, perceptron, written


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return written(tmp_path_factory.mktemp("own"))


def verify(report, *words):
    return nnp("verify", *words, "--report", report, "--jobs", "1")


def test_a_network_goes_to_the_hardware_in_one_command(files, tmp_path):
    network, data = files
    result = verify(tmp_path, network, "--data", data, "--preset", "tiny", "--samples", 3)
    assert result.exit_code == 0, result.output
    steps = [line.split(" ")[0] for line in result.output.splitlines() if "/11 " in line and "..." not in line]
    assert steps == [f"{number}/11" for number in range(1, 12)]
    (record,) = json.loads((tmp_path / "verify.json").read_text())
    assert record["equal"]
    assert record["machine"] == "library"
    assert record["preset"] == "tiny"
    assert record["accuracy"].keys() == {"FP32", "quantised", "golden", "RTL"}
    kept = tmp_path / "net.safetensors"
    assert f"quantised model: {kept}\n" in result.output
    assert record["commands"][0].split() == ["nnp", "quantize", network, "--preset", "tiny", "--data", data, "-o",
                                             str(kept)]


def test_the_recorded_command_makes_the_same_model(files, tmp_path):
    network, data = files
    verify(tmp_path, network, "--data", data, "--machine", "golden", "--samples", 2)
    kept = load_model(tmp_path / "net.safetensors")
    assert nnp(*kept.provenance.command.replace("net.safetensors", "again.safetensors", 2).replace(
        "again.safetensors", "net.safetensors", 1).split()[1:]).exit_code == 0
    again = load_model(tmp_path / "again.safetensors")
    for one, other in zip(kept.layers, again.layers, strict=True):
        for item in fields(one):
            np.testing.assert_equal(getattr(one, item.name), getattr(other, item.name))
    assert kept.provenance.golden_accuracy == again.provenance.golden_accuracy
    assert kept.provenance.method == again.provenance.method


@pytest.mark.parametrize("words", [(), ("--arithmetic", "bfp")])
def test_without_a_preset_the_smallest_machine_of_8_bits_is_taken_and_said(files, tmp_path, words):
    network, data = files
    result = verify(tmp_path, network, "--data", data, "--machine", "golden", "--samples", 2, *words)
    assert result.exit_code == 0, result.output
    assert "vision is the smallest machine of 8 bits that takes it" in " ".join(result.output.split())
    kept = load_model(tmp_path / "net.safetensors")
    assert all(layer.title.endswith("block floating point" if words else "integer") for layer in kept.layers)


def test_numbers_without_labels_calibrate_and_run(files, tmp_path):
    np.save(tmp_path / "x.npy", arrays()["x_test"])
    result = verify(tmp_path, files[0], "--inputs", tmp_path / "x.npy", "--preset", "tiny", "--machine", "golden")
    assert result.exit_code == 0, result.output
    assert "no labels" in result.output
    assert f"--calibration {tmp_path / 'x.npy'}" in load_model(tmp_path / "net.safetensors").provenance.command


def test_a_network_in_the_report_folder_is_not_replaced(tmp_path):
    save(perceptron(), tmp_path / "net.safetensors")
    before = (tmp_path / "net.safetensors").read_bytes()
    np.savez(tmp_path / "d.npz", **arrays())
    result = verify(tmp_path, tmp_path / "net.safetensors", "--data", tmp_path / "d.npz", "--machine", "golden",
                    "--samples", 1)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "net.safetensors").read_bytes() == before
    assert (tmp_path / "net-2.safetensors").exists()


def refused(report, *words) -> str:
    """What a verification that must be refused says; it leaves no file."""
    result = verify(report, *words)
    assert result.exit_code == 2, result.output
    assert not report.exists()
    return " ".join(result.output.split())


def test_without_data_it_says_what_can_be_given(files, tmp_path):
    said = refused(tmp_path / "report", files[0])
    assert "give --data LOCATION" in said
    assert ".npz" in said
    assert "--inputs FILE.npy" in said


def test_all_operations_that_cannot_be_computed_are_listed(files, tmp_path):
    chain = Chain((1, 8, 8)).average_pool("one", padding=(1, 0, 0, 0), count_padding=False)
    chain.average_pool("two", dilation=(2, 2), count_padding=True).add(Flatten(), "flat")
    save(chain.dense("three", 10, 1).network(), tmp_path / "hard.safetensors")
    found = np.load(files[1])
    np.savez(tmp_path / "images.npz", **{name: found[name].reshape(-1, 1, 8, 8) if name.startswith("x") else found[name]
                                         for name in found})
    said = refused(tmp_path / "report", tmp_path / "hard.safetensors", "--data", tmp_path / "images.npz")
    assert "'one'" in said
    assert "'two'" in said


def test_a_network_that_no_machine_stores_is_refused_before_it_is_quantized(files, tmp_path):
    save(perceptron(20_000), tmp_path / "large.safetensors")
    said = refused(tmp_path / "report", tmp_path / "large.safetensors", "--data", files[1])
    needed = 64 * 20_000 + 20_000 * 10
    for name in "vision", "speech", "ulx3s", "tiny":
        stored = PRESETS[name].matrix_tiles * PRESETS[name].native_dim ** 2
        reason = f": the network has {needed:,} weights, and MatrixRf holds {stored:,}"
        assert said.count(reason) == 1
        assert re.search(rf"\b{name}\b[a-z0-9_, ]*{reason}", said)
    assert "nnp presets --fit" in said


def test_data_of_another_shape_and_too_many_samples_are_refused(files, tmp_path):
    small = {"x_test": np.zeros((20, 5, 5)), "x_train": np.zeros((60, 5, 5))}
    np.savez(tmp_path / "other.npz", **arrays() | small)
    assert "5 x 5" in refused(tmp_path / "report", files[0], "--data", tmp_path / "other.npz")
    assert "1..20" in refused(tmp_path / "report", files[0], "--data", files[1], "--samples", 21)


def test_a_machine_that_does_not_exist_is_refused_before_anything_is_read(files, tmp_path):
    said = refused(tmp_path / "report", files[0], "--data", tmp_path / "nix.npz", "--preset", "tinyy")
    assert "there is no preset 'tinyy'" in said


def test_a_quantized_model_has_its_own_arithmetic(files, tmp_path):
    verify(tmp_path / "first", files[0], "--data", files[1], "--machine", "golden", "--samples", 1)
    said = refused(tmp_path / "report", tmp_path / "first" / "net.safetensors", "--arithmetic", "bfp")
    assert "--arithmetic is for networks in float32" in said
