"""`nnp import --steps`: the network as the file has it, and after each pass, in files that other commands read."""

import numpy as np
import pytest
from concord.campaigns.makers.onnx_graphs import OnnxGraph, written
from concord.net.graph_file import load
from concord.tests.command_line import done, refused

pytest.importorskip("onnxruntime")


@pytest.fixture
def network(tmp_path):
    graph = OnnxGraph(("batch", 2, 6, 6))
    graph.add("Conv", graph.weight(4, 2, 3, 3), graph.weight(4))
    graph.add("Mul", graph.constant(np.float32(0.5)))
    graph.add("Relu")
    graph.add("Clip", graph.constant(np.float32(0)), graph.constant(np.float32(6)))
    graph.add("Flatten")
    graph.add("MatMul", graph.weight(64, 3))
    graph.add("Add", graph.weight(3))
    return written(tmp_path, graph)


def test_every_step_is_a_network(network, tmp_path):
    done("import", network, "-o", tmp_path / "net.safetensors", "--steps", tmp_path / "steps")
    files = sorted((tmp_path / "steps").iterdir())
    assert [file.stem for file in files] == ["0_read", "1_fold_constants", "2_merge_clips"]
    graphs, x = [load(file) for file in files], np.random.default_rng(0).normal(size=(3, 2, 6, 6))
    assert [len(graph.nodes) for graph in graphs] == [7, 5, 4]
    for graph in graphs:
        assert np.allclose(graph.run(x), graphs[0].run(x), rtol=0, atol=1e-5)
    last = load(tmp_path / "net.safetensors")
    assert [node.name for node in last.nodes] == [node.name for node in graphs[-1].nodes]


def test_steps_need_a_folder_that_can_be_made(network, tmp_path):
    said = refused("import", network, "-o", tmp_path / "net.safetensors", "--steps", tmp_path / "none" / "steps")
    assert "there is no folder" in said
