"""Upsampling and transposed convolutions of ONNX files against onnxruntime, and of PyTorch against the module."""

import numpy as np
import pytest
from concord.net.ops.reshape import Enlarging

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from concord.campaigns.makers.onnx_graphs import OnnxGraph, equal, written
from concord.frontends.onnx.read import read


@pytest.mark.parametrize("options", [
    {"strides": [2, 2]}, {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
    {"strides": [3, 1], "pads": [0, 2, 0, 1]}, {"strides": [1, 1], "pads": [2, 0, 1, 1]},
    {"strides": [4, 3], "output_padding": [1, 0], "group": 2}, {"strides": [2, 2], "pads": [2, 1, 1, 2]}])
def test_transposed_convolutions(tmp_path, options):
    """A window that is smaller than the stride, one that is cut off at its ends, and groups."""
    graph = OnnxGraph(("batch", 4, 3, 5))
    size = {1: (2, 2), 3: (3, 3), 4: (3, 3)}.get(options["strides"][0], (4, 2) if "pads" not in options else (
        (3, 3) if "output_padding" in options else (5, 3)))
    graph.add("ConvTranspose", graph.weight(4, 6 // options.get("group", 1), *size), graph.weight(6), **options)
    graph.add("Conv", graph.weight(3, 6, 1, 1))
    equal(written(tmp_path, graph))


def test_one_dimension(tmp_path):
    graph = OnnxGraph(("batch", 4, 7))
    graph.add("ConvTranspose", graph.weight(4, 3, 4), strides=[2], pads=[1, 1])
    graph.add("Resize", graph.constant(np.float32([])), graph.constant(np.float32([1, 1, 3])), mode="nearest",
              coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    assert equal(written(tmp_path, graph)).network.shapes[""] == (4, 1, 7)


@pytest.mark.parametrize(("coordinates", "rounding"), [
    ("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil")])
def test_upsampling(tmp_path, coordinates, rounding):
    graph = OnnxGraph((1, 4, 3, 5))
    empty = graph.constant(np.float32([]))
    graph.add("Resize", empty, empty, graph.constant(np.array([1, 4, 9, 10])), mode="nearest",
              coordinate_transformation_mode=coordinates, nearest_mode=rounding)
    assert equal(written(tmp_path, graph)).network.nodes[0].op.factor == (3, 2)


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_sizes_that_are_limits(tmp_path, policy):
    """Where both factors must be equal, the result has other sizes than the file names."""
    graph = OnnxGraph((1, 4, 3, 5))
    empty = graph.constant(np.float32([]))
    graph.add("Resize", empty, empty, graph.constant(np.array([1, 4, 9, 10])), mode="nearest",
              coordinate_transformation_mode="asymmetric", nearest_mode="floor", keep_aspect_ratio_policy=policy)
    path = written(tmp_path, graph.model(18))
    if policy == "stretch":
        equal(path)
        return
    with pytest.raises(ValueError, match=f"keep_aspect_ratio_policy {policy}.; use the policy stretch"):
        read(path)


@pytest.mark.parametrize(("kind", "attributes", "sentence"), [
    ("Resize", {"mode": "linear"}, "it interpolates between pixels .mode linear.; use the mode"),
    ("Resize", {"coordinate_transformation_mode": "align_corners"}, "it takes other pixels .* use the coordinates"),
    ("Resize", {"scales": [1, 1, 1.5, 2]}, "its factors are .*; enlarge rows and columns only"),
    ("ConvTranspose", {"pads": [0, 0, 1, 0]}, "5 x 10 pixels is no multiple of its stride .2, 2.; choose"),
    ("ConvTranspose", {"auto_pad": "SAME_UPPER"}, "sets its padding; use the attributes")])
def test_what_is_refused(tmp_path, kind, attributes, sentence):
    graph = OnnxGraph(("batch", 4, 3, 5))
    if kind == "Resize":
        scales = np.float32(attributes.pop("scales", [1, 1, 2, 2]))
        graph.add(kind, graph.constant(np.float32([])), graph.constant(scales), **{"mode": "nearest"} | attributes)
    else:
        graph.add(kind, graph.weight(4, 3, 2, 2), strides=[2, 2], **attributes)
    with pytest.raises(ValueError, match=sentence):
        read(written(tmp_path, graph))


def test_modules_of_pytorch():
    torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
    from concord.frontends.torch.read import graph_of
    nn = torch.nn

    class Large(nn.Module):
        def __init__(self):
            super().__init__()
            self.same, self.twice = nn.ConvTranspose2d(3, 4, 3, padding=1), nn.Upsample(scale_factor=2)
            self.large = nn.ConvTranspose2d(4, 2, 3, stride=(2, 3), padding=(1, 0), output_padding=(1, 0), groups=2)

        def forward(self, x):
            return nn.functional.interpolate(self.large(self.twice(self.same(x))), size=(36, 30))

    x = torch.randn(2, 3, 3, 5)
    for net, given in ((Large(), x), (nn.Sequential(nn.ConvTranspose1d(3, 2, 2, stride=2), nn.Upsample(30)), x[:, 0])):
        with torch.no_grad():
            wanted = net(given).numpy()
        found = graph_of(net, given.shape[1:])
        np.testing.assert_allclose(found.run(given.numpy()).reshape(wanted.shape), wanted, atol=1e-6)
        assert any(isinstance(node.op, Enlarging) for node in found.nodes)
