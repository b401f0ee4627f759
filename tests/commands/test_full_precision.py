"""`nnp run --unquantized`, `nnp twin --unquantized`, `nnp compile --full-precision` and `nnp verify --errors`."""

import json
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.datasets.dataset import DATA
from concord.net.lowering.full_precision import MemoryNumbers
from concord.net.model_file import load_model, save_model
from concord.spec.isa.instructions import Op, decode
from concord.spec.machine.config import preset
from concord.tests.command_line import done, nnp, refused
from concord.verification.error_split import images_of

TWINS = {"fashion-mlp-bfp8": "trainer", "fashion-mlp-w4a4": "ulx3s", "fashion-resnet-w8": "vision",
         "vowels-lstm-w8": "vision"}
MODEL = DATA / "models" / "fashion-mlp-w4a4.safetensors"


@pytest.fixture(scope="module")
def firmware(tmp_path_factory):
    path = tmp_path_factory.mktemp("firmware") / "firmware.safetensors"
    done("compile", MODEL, "--full-precision", "-o", path)
    return path


def test_run(firmware, tmp_path):
    out = tmp_path / "outputs.npy"
    assert "of 4 right" in done("run", firmware, "--unquantised", "--samples", 4, "-o", out)
    found = np.load(out)
    assert found.dtype == np.float64
    assert found.shape == (4, 10)
    done("run", firmware, "--samples", 4, "-o", out)
    quantized = np.load(out)
    assert quantized.dtype == np.float16
    assert 0 < np.abs(found - quantized).max() < 0.5 * np.abs(found).max()


def test_run_without_the_numbers(tmp_path):
    done("compile", MODEL, "-o", tmp_path / "plain")
    assert "compile its model with --full-precision" in refused("run", tmp_path / "plain", "--unquantised")


@pytest.mark.parametrize("options", [["--machine", "library"], ["--keep-state"]])
def test_run_on_other_machines(firmware, options):
    assert "--unquantised runs on the numpy model" in refused("run", firmware, "--unquantised", *options)


def test_verify(tmp_path):
    words = ["verify", MODEL, "--errors", "--machine", "golden", "--samples", 3, "--report", tmp_path]
    shown = done(*words)
    line = next(line for line in shown.splitlines() if "network output" in line)
    assert "none" in line
    (record,) = json.loads((tmp_path / "verify.json").read_text())
    split = record["error_split"]
    assert split["samples"] == 3
    assert list(split["layers"]) == ["hidden1", "hidden2", "output", "network output"]
    assert all(0 < split["layers"][name]["alone"] < 0.5 for name in ("hidden1", "hidden2", "output"))
    for parts in split["layers"].values():
        assert parts["compiler"] < 1e-12
        assert 0 < parts["binary16"] < parts["activations"] < parts["weights"]
        assert abs(parts["weights"] - parts["together"]) <= parts["activations"] + parts["binary16"]
    assert "Parts of the error by layer" in (tmp_path / "verify.html").read_text()


def test_an_error_of_the_compiler_is_named_by_layer(tmp_path, monkeypatch):
    def wrong(model, firmware):
        found = images_of(model, firmware)
        real = found[MemoryNumbers.REAL]
        section = next(section for section in firmware.sections if section.layer == "hidden2")
        words = firmware.instruction_words[section.first:section.last].tolist()
        first = next(one.a for one in map(decode, words) if one.op == Op.MV_MUL)
        tiles = real.tiles.copy()
        tiles[[first, first + 1]] = tiles[[first + 1, first]]
        return found | {MemoryNumbers.REAL: replace(real, tiles=tiles)}

    monkeypatch.setattr("concord.verification.error_split.images_of", wrong)
    result = nnp("verify", MODEL, "--errors", "--machine", "golden", "--samples", 2, "--report", tmp_path)
    assert result.exit_code == 1
    assert "of its outputs, first at hidden2" in result.stderr
    (record,) = json.loads((tmp_path / "verify.json").read_text())
    parts = {name: layer["compiler"] for name, layer in record["error_split"]["layers"].items()}
    assert parts["hidden1"] < 1e-12 < 1e-3 < parts["hidden2"]
    assert parts["output"] == pytest.approx(parts["network output"])


def test_verify_without_a_float_network(tmp_path):
    rng, config = np.random.default_rng(0), preset("tiny")
    save_model(networks.mlp(rng, config, [5, 6, 3], block=False), tmp_path / "model.safetensors")
    np.save(tmp_path / "x.npy", rng.normal(size=(2, 5)))
    words = ["verify", tmp_path / "model.safetensors", "--inputs", tmp_path / "x.npy", "--preset", "tiny",
             "--machine", "golden", "--errors", "--report", tmp_path / "report"]
    result = nnp(*words)
    assert result.exit_code == 2
    assert "carries no FP32 parameters" in result.stderr
    assert load_model(tmp_path / "model.safetensors")


@pytest.mark.parametrize("name", TWINS)
def test_twins(tmp_path, name):
    path = tmp_path / "firmware"
    done("compile", DATA / "models" / f"{name}.safetensors", "--full-precision", "--preset", TWINS[name], "-o", path)
    stem = f"{name.replace('-', '_')}_unquantized"
    for framework in ("numpy", "torch"):
        if find_spec(framework):
            said = done("twin", path, "--unquantised", "--to", framework, "-o", tmp_path / "twin")
            assert float(said.partition("relative difference ")[2].partition(",")[0]) < 1e-12
            assert f"{stem}_{framework}.py" in said
    text = (tmp_path / "twin" / f"{stem}_numpy.py").read_text()
    assert "integers(" not in text
    assert "blocks(" not in text
    assert "float16" not in text.replace("np.float16, ", "")


def test_the_command_that_a_twin_prints_runs(firmware, tmp_path):
    said = done("twin", firmware, "--unquantised", "-o", tmp_path)
    command = said.partition("Run it: cd ")[2].partition("\n")[0]
    ran = subprocess.run(["bash", "-c", f"cd {command.replace('python', sys.executable)}"], capture_output=True,
                         text=True, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("[[")


def test_a_wrong_twin_shows(firmware, tmp_path, monkeypatch):
    from concord.twin.source.writer import tensors

    monkeypatch.setattr("concord.twin.source.writer.tensors", lambda script: {
        name: values * (1 + 1e-6) for name, values in tensors(script).items()})
    result = nnp("twin", firmware, "--unquantised", "-o", tmp_path)
    assert result.exit_code == 1
    assert "relative difference" in result.stdout


def test_twins_that_cannot_be(firmware, tmp_path):
    done("compile", MODEL, "-o", tmp_path / "plain")
    out = tmp_path / "twin"
    assert "compile its model with --full-precision" in refused("twin", tmp_path / "plain", "--unquantised", "-o", out)
    assert "--to numpy, torch or tensorflow" in refused("twin", firmware, "--unquantised", "--to", "onnx", "-o", out)
    assert not out.exists()
