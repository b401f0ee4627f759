"""Networks that are quantised already keep their integers and scales."""

from dataclasses import replace

import numpy as np
import pytest
from concord.net import graph_file as file
from concord.net.ops.grid import Quantize
from concord.net.ops.weighted import Linear

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from concord.campaigns.makers.onnx_graphs import OnnxGraph, equal, written
from concord.campaigns.zoo.quantized import ENTRIES, by_hand
from concord.campaigns.zoo.zoo import outcome
from concord.frontends.onnx.read import read
from concord.tests.float_networks import change_header


@pytest.mark.parametrize("name", sorted(name for name in ENTRIES if "brevitas" not in name))
def test_zoo(tmp_path, name):
    if name.startswith("qonnx_bipolar"):
        pytest.importorskip("qonnx")
    found = outcome(name, tmp_path)
    assert found.expected, found


def test_integers_of_weights(tmp_path):
    """The weights of QONNX's Quant are the integers that its scales give, after a transposition and in a file."""
    by_hand(tmp_path / "network.onnx")
    network = read(tmp_path / "network.onnx").network
    file.save(network, tmp_path / "network.safetensors")
    layer = next(node for node in file.load(tmp_path / "network.safetensors").nodes if isinstance(node.op, Linear)).op
    grid = layer.grid
    integers = grid.integers(layer.weight.astype(np.float64))
    assert np.allclose(grid.scale.reshape(-1), np.linspace(0.05, 0.2, 10))
    assert set(np.unique(integers)) <= set(range(-8, 8))
    assert np.allclose(integers * grid.scale, layer.weight, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_activations_round_half_to_even_and_clip(tmp_path, dtype):
    graph = OnnxGraph(("batch", 3))
    scale, zero = graph.constant(np.float32(0.5)), graph.constant(dtype(3))
    graph.add("QuantizeLinear", scale, zero)
    graph.add("DequantizeLinear", scale, zero)
    network = equal(written(tmp_path, graph.model(21))).network
    assert [type(node.op) for node in network.nodes] == [Quantize]
    lowest, highest = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.array([[0.25, 0.75, -0.25], [1e6, -1e6, 0.3]])
    expected = (np.array([[0, 2, 0], [highest - 3, lowest - 3, 1]])) * 0.5
    assert np.array_equal(network.run(x), expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16])
def test_an_attribute_gives_the_type_where_no_zero_point_does(tmp_path, dtype):
    graph = OnnxGraph(("batch", 4))
    graph.add("Gemm", graph.weight(4, 3))
    scale = graph.constant(np.float32(0.05))
    graph.add("QuantizeLinear", scale, output_dtype=onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    graph.add("DequantizeLinear", scale)
    (grid,) = [node.op.grid for node in equal(written(tmp_path, graph.model(21))).network.nodes
               if isinstance(node.op, Quantize)]
    assert (grid.lowest, grid.highest) == (np.iinfo(dtype).min, np.iinfo(dtype).max)


def test_scales_of_blocks_are_refused(tmp_path):
    graph = OnnxGraph(("batch", 4))
    integers = graph.constant(np.ones((4, 6), np.int8))
    weight = graph.add("DequantizeLinear", graph.weight(2, 6, above=0.1), first=integers, axis=0, block_size=2)
    graph.add("MatMul", weight, first="x")
    with pytest.raises(ValueError, match="it has scales of blocks .block_size., which are not supported; use one"):
        read(written(tmp_path, graph.model(21)))


@pytest.mark.parametrize(("change", "pattern"), [
    ({"bits": 40}, "integers of 40 bits"), ({"scale": 0.0}, "not above zero"), ({"zero_point": 300}, "zero point")])
def test_bad_grids_in_a_file(tmp_path, change, pattern):
    graph = OnnxGraph(("batch", 3))
    scale, zero = graph.constant(np.float32(0.5)), graph.constant(np.int8(3))
    graph.add("QuantizeLinear", scale, zero)
    graph.add("DequantizeLinear", scale, zero)
    network = read(written(tmp_path, graph)).network
    with pytest.raises(ValueError, match=f"node .*: .*{pattern}"):
        network.nodes[0].changed(grid=replace(network.nodes[0].op.grid, **change))
    file.save(network, tmp_path / "bad.safetensors")
    change_header(tmp_path / "bad.safetensors", lambda header: header["nodes"][0]["attributes"].update(change))
    with pytest.raises(ValueError, match=pattern):
        file.load(tmp_path / "bad.safetensors")


@pytest.mark.parametrize(("dtype", "limits"), [
    (np.int8, (-7, 7)), (np.int8, (-8, 7)), (np.uint8, (0, 15)), (np.uint8, (0, 14)), (np.int8, (0, 3))])
def test_a_clip_of_integers_leaves_fewer_bits(tmp_path, dtype, limits):
    """Brevitas writes QuantizeLinear, Clip and DequantizeLinear (QCDQ) for integers of fewer than 8 bits."""
    graph = OnnxGraph(("batch", 12))
    scale, zero = graph.constant(np.float32(0.5)), graph.constant(dtype(0))
    graph.add("QuantizeLinear", scale, zero)
    graph.add("Clip", *(graph.constant(dtype(limit)) for limit in limits))
    graph.add("DequantizeLinear", scale, zero)
    network = equal(written(tmp_path, graph.model(21))).network
    assert [type(node.op) for node in network.nodes] == [Quantize]
    lowest, highest = network.run(np.array([12 * [-1e6], 12 * [1e6]])) / 0.5
    assert (set(lowest), set(highest)) == ({limits[0]}, {limits[1]})


def test_a_clip_to_other_integers_is_refused(tmp_path):
    graph = OnnxGraph(("batch", 3))
    scale, zero = graph.constant(np.float32(0.5)), graph.constant(np.int8(0))
    graph.add("QuantizeLinear", scale, zero)
    graph.add("Clip", graph.constant(np.int8(-5)), graph.constant(np.int8(9)))
    graph.add("DequantizeLinear", scale, zero)
    with pytest.raises(ValueError, match=r"n1_Clip.*limits integers to -5\.\.9"):
        read(written(tmp_path, graph))


@pytest.mark.parametrize("flag", ["signed", "narrow"])
def test_a_flag_that_is_neither_0_nor_1(tmp_path, flag):
    by_hand(tmp_path / "network.onnx")
    model = onnx.load(tmp_path / "network.onnx")
    next(attribute for attribute in model.graph.node[0].attribute if attribute.name == flag).i = 2
    with pytest.raises(ValueError, match=f"its attribute {flag} is 2"):
        read(written(tmp_path, model))


def test_other_scale_behind(tmp_path):
    graph = OnnxGraph(("batch", 3))
    zero = graph.constant(np.int8(0))
    graph.add("QuantizeLinear", graph.constant(np.float32(0.5)), zero)
    graph.add("DequantizeLinear", graph.constant(np.float32(0.25)), zero)
    with pytest.raises(ValueError, match="n1_DequantizeLinear.*scale 0.5 .* for those of 0.25"):
        read(written(tmp_path, graph))
