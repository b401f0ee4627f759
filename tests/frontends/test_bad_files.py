"""Files that cannot be imported: each is refused with a sentence, and nothing is written."""

import re
import zipfile

import numpy as np
import onnx
import pytest
from concord.nnp.main import app
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

pytest.importorskip("onnxruntime")
from concord.campaigns.makers.onnx_graphs import OnnxGraph, written


def dense(shape=("batch", 4)) -> OnnxGraph:
    graph = OnnxGraph(shape)
    graph.add("Gemm", graph.weight(3, 4), graph.weight(3), transB=1)
    graph.add("Relu")
    return graph


def refused(path, pattern: str, *options: str):
    """The command ends with code 2 and a sentence, and writes nothing."""
    before = sorted(path.parent.iterdir()) if path.parent.is_dir() else []
    result = CliRunner().invoke(app, ["import", str(path), "-o", str(path.parent / "out.safetensors"), *options])
    assert result.exit_code == 2, result.output
    said = " ".join(result.stderr.split())
    assert said.startswith("nnp: ")
    assert re.search(pattern, said), said
    assert "Traceback" not in said
    assert sorted(path.parent.iterdir()) == before


def test_no_such_file(tmp_path):
    refused(tmp_path / "none.onnx", "there is no such file")
    refused(tmp_path, "it is a folder")


def test_the_file_itself_is_not_written_over(tmp_path):
    path = written(tmp_path, dense())
    content = path.read_bytes()
    refused(path, "ending .safetensors", "-o", str(path))
    assert path.read_bytes() == content


@pytest.mark.parametrize("length", [0, 1, 40, 100, -1])
def test_truncated(tmp_path, length):
    path = written(tmp_path, dense())
    path.write_bytes(path.read_bytes()[:length])
    refused(path, "ONNX file")


def test_every_length_of_a_truncated_file_is_a_sentence(tmp_path):
    from concord.frontends.onnx.read import read

    path = written(tmp_path, dense())
    content = path.read_bytes()
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=re.escape(str(path))):
            read(path)


@pytest.mark.parametrize(("name", "pattern"), [
    ("a.pt2", "torch.export.load"), ("a.pth", "pickled"), ("a.h5", "--keras a.h5"), ("a.keras", "--keras"),
    ("a.tflite", "--tflite a.tflite"), ("a.pb", "--saved-model"), ("a.pkl", "skl2onnx"),
    ("a.npz", "not a network; name it with --data"), ("a.onnx.data", "name that file itself")])
def test_files_of_other_tools(tmp_path, name, pattern):
    (tmp_path / name).write_bytes(b"anything")
    refused(tmp_path / name, pattern)


def test_archives_are_not_opened(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.onnx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(10_000_000))
    refused(tmp_path / "bomb.onnx", "not a whole ONNX file|not an ONNX file")


def test_cycle(tmp_path):
    model = dense().model()
    model.graph.node[0].input[0] = model.graph.node[1].output[0]
    refused(written(tmp_path, model), "circle")


def test_a_tensor_given_twice(tmp_path):
    model = dense().model()
    model.graph.node[1].output[0] = model.graph.node[0].output[0]
    refused(written(tmp_path, model), "two nodes give|circle")


@pytest.mark.parametrize(("version", "pattern"), [(99, "knows those up to"), (0, "there is none before 1")])
def test_operator_set(tmp_path, version, pattern):
    model = dense().model()
    model.opset_import[0].version = version
    refused(written(tmp_path, model), pattern)


def test_nan_weights_are_named(tmp_path):
    model = dense().model()
    values = numpy_helper.to_array(model.graph.initializer[0]).copy()
    values[1, 2] = np.nan
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(values, "c0"))
    refused(written(tmp_path, model), "n0_Gemm.*'c0' holds 1 values of 12 that are infinite or not a number")


@pytest.mark.parametrize(("kind", "held"), [(0, "UNDEFINED"), (63, "the unknown type 63"), (8, "STRING")])
def test_inputs_that_are_no_numbers(tmp_path, kind, held):
    model = dense().model()
    model.graph.input[0].type.tensor_type.elem_type = kind
    refused(written(tmp_path, model), f"its input 'x' holds {held}; real|not a valid ONNX")


def test_constants_of_an_unknown_type(tmp_path):
    graph = dense()
    unused = graph.constant(np.float32([1, 2]))
    model = graph.model()
    next(tensor for tensor in model.graph.initializer if tensor.name == unused).data_type = 63
    refused(written(tmp_path, model), f"the constant '{unused}' is of the type 63, which is not known")


def test_open_axes(tmp_path):
    graph = OnnxGraph(("batch", 3, "rows", "columns"))
    graph.add("Conv", graph.weight(4, 3, 3, 3))
    path = written(tmp_path, graph)
    refused(path, r"\[\?, 3, \?, \?\].*--shape")
    refused(path, "has 3 where this has 4", "--shape", "4,8,8")
    refused(path, "3 sizes of 1 or more are needed", "--shape", "8,8")
    refused(path, "with commas", "--shape", "big")
    result = CliRunner().invoke(app, ["import", str(path), "-o", str(tmp_path / "o.safetensors"), "--shape", "3,8,7"])
    assert result.exit_code == 0, result.output


def test_several_inputs(tmp_path):
    graph = dense()
    graph.inputs.append(helper.make_tensor_value_info("h0", TensorProto.FLOAT, [1, 3]))
    graph.add("Add", "h0")
    refused(written(tmp_path, graph), "2 .'x', 'h0'.*states of zero")


def test_one_of_several_outputs(tmp_path):
    graph = dense()
    first = graph.at
    second = graph.add("MatMul", graph.weight(3, 2))
    path = written(tmp_path, graph.model(17, first, second))
    refused(path, "no output 'other'", "--output", "other")
    result = CliRunner().invoke(app, ["import", str(path), "-o", str(tmp_path / "o.safetensors"), "--output", second])
    assert result.exit_code == 0, result.output


def external(tmp_path, location: str) -> onnx.ModelProto:
    """A model whose first weights lie in another file."""
    model = dense().model()
    tensor = model.graph.initializer[0]
    values = tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", str(len(values)))):
        tensor.external_data.add(key=key, value=value)
    (tmp_path / "weights.bin").write_bytes(values)
    return model


def test_external_data(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    path = written(folder, external(folder, "weights.bin"))
    result = CliRunner().invoke(app, ["import", str(path), "-o", str(tmp_path / "o.safetensors")])
    assert result.exit_code == 0, result.output
    (folder / "weights.bin").write_bytes(b"short")
    refused(path, "it has only 5")
    (folder / "weights.bin").unlink()
    refused(path, "which is missing")


@pytest.mark.parametrize("location", ["../weights.bin", "/etc/passwd", "a/../../weights.bin", ""])
def test_external_data_outside_the_folder(tmp_path, location):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "weights.bin").write_bytes(bytes(48))
    refused(written(folder, external(folder, location)), "outside the folder")


def test_external_data_through_a_link(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    path = written(folder, external(folder, "link.bin"))
    (tmp_path / "weights.bin").write_bytes(bytes(48))
    (folder / "link.bin").symlink_to(tmp_path / "weights.bin")
    refused(path, "outside the folder")


@pytest.mark.parametrize("kind", ["Expand", "ConstantOfShape", "Tile"])
def test_results_that_are_too_large_are_not_computed(tmp_path, kind):
    graph = dense((1, 4))
    size = graph.constant(np.array([10**9, 3 if kind != "Tile" else 1]))
    if kind == "ConstantOfShape":
        graph.nodes.append(helper.make_node(kind, [size], ["large"]))
        graph.add("Add", "large")
    else:
        graph.add(kind, size)
    refused(written(tmp_path, graph), "elements, more than")


def test_huge_padding(tmp_path):
    graph = OnnxGraph((1, 1, 4, 4))
    graph.add("Conv", graph.weight(1, 1, 3, 3), pads=[0, 0, 10**9, 10**9])
    refused(written(tmp_path, graph), "elements, more than|not a valid ONNX")


def test_a_name_that_is_a_path(tmp_path):
    graph = OnnxGraph(("batch", 4))
    graph.inputs[0].name = "../../x"
    graph.at = "../../x"
    graph.add("Gemm", graph.weight(3, 4), graph.weight(3), transB=1)
    graph.nodes[0].name = "../../gemm"
    path = written(tmp_path, graph)
    result = CliRunner().invoke(app, ["import", str(path), "-o", str(tmp_path / "o.safetensors")])
    assert result.exit_code == 0, result.output
    assert sorted(one.name for one in tmp_path.iterdir()) == ["network.onnx", "o.safetensors"]


def test_every_refused_node_is_listed(tmp_path):
    graph = OnnxGraph(("batch", 4, 8, 8))
    graph.add("Conv", graph.weight(6, 4, 3, 3))
    graph.add("LeakyRelu", alpha=-0.1)
    graph.add("MaxPool", kernel_shape=[2, 2])
    graph.add("Erf")
    graph.add("Clip", graph.constant(np.float32(1)), graph.constant(np.float32(1)))
    graph.add("Flatten")
    path = written(tmp_path, graph)
    refused(path, "3 nodes of 6 cannot be computed n1_LeakyRelu .LeakyRelu.: its slope for negative numbers "
                  "is -0.1; use a slope of 0 to 1 and train on n3_Erf .Erf.: .* n4_Clip .Clip.: it "
                  "limits numbers to 1..1, which leaves one number")
