"""Machines for networks that are quantised already, whose integers no preset has."""

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from concord.campaigns.makers.onnx_graphs import OnnxGraph, network, written
from concord.campaigns.zoo.quantized import by_hand
from concord.frontends.onnx.read import read_network
from concord.net.qdq.formats import formats
from concord.nnp.main import app
from concord.spec.machine.config import PRESETS
from concord.spec.machine.machine_file import find_config
from concord.spec.numbers.formats import Format
from concord.workflows import presets
from concord.workflows.own_machine import base_for
from concord.workflows.presets import golden_only, smallest_first
from typer import Context
from typer.main import get_command
from typer.testing import CliRunner

FULL4 = Format(bits=4)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """An ONNX file whose weights and operands are integers -8..7 or 0..15."""
    folder = tmp_path_factory.mktemp("file")
    by_hand(folder / "four.onnx", after=4)
    np.save(folder / "x.npy", np.random.default_rng(0).normal(size=(5, 12)).astype(np.float32))
    return folder / "four.onnx"


def run(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, " ".join(result.output.split())


def test_verify_makes_a_machine_where_no_preset_keeps_the_integers(file, tmp_path):
    report = tmp_path / "report"
    code, said = run("verify", file, "--inputs", file.with_name("x.npy"), "--machine", "golden", "--report", report)
    assert code == 0, said
    assert said.count("no preset keeps the integers of four") == 1
    assert "was made from ulx3s: weights of 4 bits (-8..7), operands of 4 bits (-8..7)" in said
    made = find_config(str(report / "four.toml"))
    assert [(one.bits, one.symmetric) for one in (made.weights, made.activations)] == [(4, False)] * 2


def test_fit_takes_a_file_that_is_quantized_already(file, tmp_path):
    code, said = run("presets", "--fit", file, "-o", tmp_path / "my.toml")
    assert code == 0, said
    made = find_config(str(tmp_path / "my.toml"))
    assert made.lanes == PRESETS["ulx3s"].lanes
    code, said = run("quantize", file, "-o", tmp_path / "m.safetensors")
    assert code == 0, said
    code, said = run("compile", tmp_path / "m.safetensors", "--preset", tmp_path / "my.toml", "-o", tmp_path / "f")
    assert code == 0, said


def test_a_preset_that_clips_elsewhere_names_the_command_that_makes_a_machine(file, tmp_path):
    code, said = run("quantize", file, "--for", "vision", "-o", tmp_path / "m.safetensors")
    assert code == 2
    assert "its integers, without the zero point, are -8..7, and the machine clips at -127..127" in said
    assert said.endswith("A machine that keeps its integers: `nnp presets --fit four.onnx -o my.toml`")


def test_fit_refuses_a_network_that_is_not_quantized(tmp_path):
    path = written(tmp_path, network("dense"))
    code, said = run("presets", "--fit", path, "-o", tmp_path / "my.toml")
    assert code == 2
    assert f"{path}: not a quantised model; `nnp quantize {path} --preset MACHINE" in said


def test_every_product_of_numbers_that_are_not_quantized_is_named(tmp_path):
    """Weights by DequantizeLinear, and no quantiser between the layers."""
    graph, at = OnnxGraph(("batch", 12)), "x"
    for size, inputs in ((10, 12), (8, 10), (3, 8)):
        weights = graph.constant(graph.random.integers(-100, 100, size=(inputs, size)).astype(np.int8))
        scale, zero = graph.constant(np.float32(0.01)), graph.constant(np.int8(0))
        weights = graph.add("DequantizeLinear", scale, zero, first=weights)
        graph.add("MatMul", weights, first=at)
        at = graph.add("Relu")
    path = written(tmp_path, graph)
    for words in (("quantize", path, "--preset", "vision", "-o", tmp_path / "m.safetensors"),
                  ("presets", "--fit", path, "-o", tmp_path / "my.toml")):
        code, said = run(*words)
        assert code == 2
        assert "cannot compute 3 nodes as the file says" in said
        for name in "n1_MatMul", "n4_MatMul", "n7_MatMul":
            assert f"{name}: its input is not quantised; put a quantiser ahead of it" in said


@pytest.mark.parametrize("command", ["asm", "compare", "compile", "handover", "import", "predict", "presets",
                                     "quantize", "run", "twin", "verilog"])
def test_every_command_that_writes_takes_both_spellings_of_the_option(command):
    group = get_command(app)
    options = {name for one in group.get_command(Context(group), command).params for name in one.opts}
    assert {"--out", "-o"} <= options


def test_formats_are_the_narrowest(file, tmp_path):
    assert formats(read_network(file)) == (FULL4, FULL4)
    by_hand(tmp_path / "both.onnx", after=6)
    with pytest.raises(ValueError, match="both: there is no machine for it; the nearest one cannot compute 1 node"):
        formats(read_network(tmp_path / "both.onnx"))


@pytest.mark.parametrize(("bits", "name"), [(2, "ulx3s"), (4, "ulx3s"), (5, "vision"), (8, "vision"), (12, "vision")])
def test_a_machine_is_made_from_the_narrowest_preset(bits, name):
    assert base_for(Format(bits=bits), Format(bits=bits)) == name


def test_machines_that_cannot_be_built_come_last():
    assert smallest_first()[-1] == "brainwave_s10"
    assert "brainwave_s10" not in smallest_first(hardware=True)
    assert golden_only("vision") == ""
    assert golden_only("brainwave_s10").startswith("; brainwave_s10 cannot be built: hardware needs native_dim")


def test_a_choice_of_a_machine_that_cannot_be_built_says_so(monkeypatch, file):
    network = read_network(file)
    monkeypatch.setattr(presets, "smallest_first", lambda hardware: ["brainwave_s10"])
    monkeypatch.setattr(presets, "compile_for", lambda model, name: None)
    assert "; brainwave_s10 cannot be built: " in presets.smallest(network, lambda name: None, "integer", False)[1]


def test_equal_reasons_are_printed_once(file):
    def refuse(name):
        raise ValueError(f"{name} cannot do it")

    with pytest.raises(presets.NoPreset) as caught:
        presets.smallest(read_network(file), refuse, "integer", True)
    names = ", ".join(smallest_first(hardware=True))
    assert str(caught.value).splitlines()[1:] == [f"{names}: the machine cannot do it"]
