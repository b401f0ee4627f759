"""The table of `nox -s twin_networks`: what it says of files, seeds, differences and of what does not run."""

import re

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
onnx = pytest.importorskip("onnx", reason="ONNX is in the dependency group `export`")

from concord.benchmarks.tiny_published import PUBLISHED, digest, onnx_file, published_file
from concord.campaigns import twin_comparison, twin_networks, twin_ways
from concord.campaigns.twin_made_cases import published_networks
from concord.campaigns.twin_networks import main
from concord.campaigns.twin_ways import FAILED, NOT_RUN, differs, lacking, results, text, tried
from concord.twin.source.frameworks import Framework
from concord.verification.twins import TwinSource

APP = typer.Typer()
APP.command()(main)
#: The published file of a small network replaces the autoencoder's.
FILE = "ad01_fp32.onnx"
QUICK = ["--samples", "3", "--rtl", "0", "--only", "published", "--eager"]


@pytest.fixture(autouse=True)
def _folders(tmp_path, monkeypatch):
    monkeypatch.setattr(twin_networks, "OUT", tmp_path / "out")


@pytest.fixture
def models(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    rng, helper = np.random.default_rng(0), onnx.helper
    sizes = {"W": (8, 12), "b": (8,), "V": (3, 8), "c": (3,)}
    stored = [onnx.numpy_helper.from_array(rng.normal(size=size).astype(np.float32), name)
              for name, size in sizes.items()]
    nodes = [helper.make_node("Gemm", ["x", "W", "b"], ["sums"], transB=1),
             helper.make_node("Relu", ["sums"], ["hidden"]),
             helper.make_node("Gemm", ["hidden", "V", "c"], ["y"], transB=1)]
    ends = [[helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, size])] for name, size in
            (("x", 12), ("y", 3))]
    graph = helper.make_graph(nodes, "net", *ends, stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
              folder / FILE)
    return folder


def only(monkeypatch, *frameworks: Framework):
    """Let just these frameworks be installed."""
    for module in twin_ways, twin_comparison, twin_networks:
        monkeypatch.setattr(module, "installed", lambda framework: framework in frameworks)


def called(*words) -> tuple[int, str]:
    """Exit code, and what the command prints, with one blank between words."""
    result = CliRunner().invoke(APP, [str(word) for word in words])
    return result.exit_code, " ".join(result.output.split())


def test_the_table_names_files_and_seeds_and_what_did_not_run(models, monkeypatch):
    only(monkeypatch, Framework.NUMPY, Framework.TORCH)
    code, said = called("--models", models, *QUICK)
    assert code == 0
    assert f"{FILE} ({digest(models / FILE)}), seed 1000, seed 2000, 3," in said
    assert "tensorflow is not installed, and its columns say 'not run': pip install --group tensorflow" in said
    assert said.count(": no file") == 6  # three networks, in their line and in the table
    # RTL; two of three frameworks, with hints and without; 7 cells of each of three networks without files.
    assert "4 networks, 4 comparisons, 0 of them with differing bits; 24 not run" in said
    assert "0, not run, not run, 0, 0, not run" not in said
    assert "not run, 0, 0, not run, 0, 0, not run" in said


def test_differing_bits_give_exit_code_1(models, monkeypatch):
    only(monkeypatch, Framework.NUMPY, Framework.TORCH)
    infer = TwinSource.infer
    monkeypatch.setattr(TwinSource, "infer", lambda self, samples: infer(self, samples) ^ np.uint16(1))
    code, said = called("--models", models, *QUICK, "--frameworks", "numpy")
    assert code == 1
    assert "2 comparisons, 2 of them with differing bits" in said
    assert "not run, 9, 9" in said


def test_a_run_that_fails_gives_exit_code_1(models, monkeypatch):
    only(monkeypatch, Framework.NUMPY, Framework.TORCH)

    def fail(self, samples):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(TwinSource, "infer", fail)
    code, said = called("--models", models, *QUICK, "--frameworks", "numpy")
    assert code == 1
    assert "anomaly detection, autoencoder, published: numpy failed: RuntimeError: no compiler" in said


def test_without_quantizers(models, monkeypatch):
    only(monkeypatch, Framework.NUMPY, Framework.TORCH)
    code, said = called("--models", models, *QUICK, "--unquantised")
    assert code == 0
    assert "2 comparisons, 0 of them that are too far apart; 10 not run" in said


def test_without_pytorch_the_shipped_networks_run(monkeypatch):
    only(monkeypatch, Framework.NUMPY)
    code, said = called("--samples", "2", "--rtl", "0", "--only", "w4a4", "--eager", "--models", "anywhere")
    assert code == 0
    assert "networks that PyTorch quantises are not run: pip install --group train" in said
    assert "1 networks, 2 comparisons, 0 of them with differing bits; 5 not run" in said


@pytest.mark.parametrize(("words", "sentence"), [
    (["--models", "{}/nowhere"], "nowhere: there is no such folder; the files are in https://github.com/mlcommons"),
    (["--models", "{}"], "none of the files kws_ref_model_float32, .* lies in it or below it; they are in benchmark"),
    (["--data", "{}"], "--data holds inputs of a published network: give --models, too"),
    (["--frameworks", "jax"], "there is no framework 'jax': choose of numpy, torch, tensorflow, onnx"),
    (["--frameworks", "tensorflow"], "no twin can run here: tensorflow is not installed"),
    (["--only", "nothing"], "no network has 'nothing' in its name")])
def test_options_that_do_not_fit_are_refused_in_a_sentence(words, sentence, tmp_path, monkeypatch):
    only(monkeypatch, Framework.NUMPY, Framework.TORCH)
    code, said = called(*(word.format(tmp_path) for word in words))
    assert code == 2
    assert re.search(sentence, said), said


def test_a_missing_file_has_a_row_of_its_own(models, tmp_path):
    found = published_networks(models, None, tmp_path, "/bin/false")
    assert [network.make is None for network in found] == [True, True, True, False]
    assert found[0].weights == "kws_ref_model_float32: no file"


def test_a_changed_file_is_converted_again(tmp_path):
    """It may be older than the file that was converted before."""
    network = PUBLISHED["ad"]
    converter, folder = tmp_path / "converter", tmp_path / "models"
    converter.write_text('#!/bin/sh\n[ "$1" = -c ] || cp "$4" "$6"\n')
    converter.chmod(0o755)
    folder.mkdir()
    for content in b"first", b"second":
        (folder / "ad01_fp32.tflite").write_bytes(content)
        assert onnx_file(network, folder, tmp_path / "out", str(converter)).read_bytes() == content
    assert published_file(network, folder) == folder / "ad01_fp32.tflite"


def test_cells():
    assert [differs(cell) for cell in (0, 3, 1e-16, 1e-3, float("nan"), NOT_RUN, FAILED)] == [
        False, True, False, True, True, False, True]
    assert [text(cell) for cell in (12345, 2.5e-16, NOT_RUN)] == ["12,345", "2.5e-16", "not run"]
    assert tried("a run", lambda: 1 // 0, lambda said: None) == FAILED


def test_outputs_of_another_shape_are_no_results():
    samples, like = [np.zeros(4, np.uint16)] * 3, np.zeros((3, 2), np.uint16)
    assert results(lambda batch: np.zeros((len(batch), 2), np.uint16), samples, like).shape == (3, 2)
    with pytest.raises(ValueError, match=r"shape \(1, 1\) instead of \(1, 2\)"):
        results(lambda batch: np.zeros((len(batch), 1), np.uint16), samples, like)


def test_every_framework_says_how_to_install_it(monkeypatch):
    only(monkeypatch, Framework.NUMPY)
    assert len(lacking(list(Framework))) == 3
