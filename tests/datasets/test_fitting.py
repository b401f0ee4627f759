"""Data become what a network takes: the numbers of classes are those of its outputs."""

import numpy as np
import onnx
import pytest
from concord.campaigns.makers.onnx_graphs import OnnxGraph, written
from concord.datasets.fitting import fitted
from concord.datasets.interface import Interface
from concord.datasets.read import data_of, read_data
from concord.frontends.onnx.read import class_names
from concord.lib.input_axes import InputAxes, Order
from concord.net.graph_file import load, save
from concord.tests.command_line import done
from concord.workflows.imports import opened

X = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)


def takes(*classes: str, outputs: int = 3) -> Interface:
    return Interface(name="net", axes=InputAxes(shape=(4,)), sequence=False, outputs=outputs, classes=classes)


def labels_of(labels, interface: Interface) -> list[int]:
    data = fitted(data_of({"x_train": X, "y_train": np.array(labels), "x_test": X, "y_test": np.array(labels)}),
                  interface)
    assert data.train.labels.tolist() == data.test.labels.tolist()
    return data.test.labels.tolist()


def test_texts_find_the_output_of_their_name():
    assert labels_of(["bee", "cow"] * 6, takes("ant", "bee", "cow")) == [1, 2] * 6
    assert labels_of(["cow", "ant"] * 6, takes("cow", "bee", "ant")) == [0, 2] * 6
    # Without names, all classes must occur.
    assert labels_of(["ant", "bee", "cow"] * 4, takes()) == [0, 1, 2] * 4
    with pytest.raises(ValueError, match="the labels are 2 texts, bee, cow, but net has 3 outputs, whose cl"):
        labels_of(["bee", "cow"] * 6, takes())
    with pytest.raises(ValueError, match="the label 'dog' is none of the classes of net, ant, bee, cow; correct"):
        labels_of(["dog", "cow"] * 6, takes("ant", "bee", "cow"))


def test_texts_of_time_steps_find_the_output_of_their_name():
    """A network has outputs for each of the two time steps."""
    def labels_of_steps(labels, *classes):
        x, y = X.reshape(6, 2, 4), np.array(labels * 3)
        network = Interface(name="net", axes=InputAxes(shape=(4,)), sequence=True, outputs=6, classes=classes)
        x = np.concatenate([x, x])[:len(y)]
        return fitted(data_of({"x_train": x, "y_train": y, "x_test": x, "y_test": y}), network).test.labels[:2].tolist()

    texts = [["bee", "cow"], ["cow", "ant"]]
    assert labels_of_steps(texts) == [[1, 2], [2, 0]]
    assert labels_of_steps(texts, "cow", "bee", "ant") == [[1, 0], [0, 2]]
    assert labels_of_steps([["bee", "bee"], ["cow", "bee"]], "ant", "bee", "cow") == [[1, 1], [2, 1]]
    assert labels_of_steps([[1, 3], [2, -1]], "1", "2", "3") == [[0, 2], [1, -1]]
    with pytest.raises(ValueError, match="labels are 2 texts, bee, cow, but net has 3 outputs for each time step or p"):
        labels_of_steps([["bee", "bee"], ["cow", "bee"]])


def test_integers_are_outputs_or_the_network_s_own_numbers():
    assert labels_of([0, 2] * 6, takes()) == [0, 2] * 6
    assert labels_of([0, 2] * 6, takes("0", "1", "2")) == [0, 2] * 6
    assert labels_of([0, 2] * 6, takes("ant", "bee", "cow")) == [0, 2] * 6
    assert labels_of([1, 2] * 6, takes("1", "2", "3")) == [0, 1] * 6
    assert labels_of(["2", "0"] * 6, takes("0", "1", "2")) == [2, 0] * 6
    with pytest.raises(ValueError, match="the label '0' is none of the classes of net, 1, 2, 3"):
        labels_of([0, 2] * 6, takes("1", "2", "3"))


def test_the_description_of_fitted_data_reads_the_same_numbers(tmp_path):
    np.savez(tmp_path / "own.npz", x=X, y=np.array(["bee", "cow"] * 6))
    data = read_data(str(tmp_path / "own.npz"))
    made = fitted(data, takes("ant", "bee", "cow"))
    again = read_data(str(tmp_path / "own.npz"), made.description)
    assert again.test.labels.tolist() == made.test.labels.tolist()
    assert again.description.partition("[origin]")[2] == made.description.partition("[origin]")[2]


@pytest.mark.parametrize(("labels", "classes"), [([1, 2], ("1", "2", "3")), ([1, 3], ("1", "2", "3")), ([-1, 1], (
    "-1", "1")), ([1, 1], ("-1", "1")), ([0, 1], ("1", "0")), ([0, 2], ("ant", "bee", "cow"))])
def test_integers_that_are_names_are_read_again_as_such(labels, classes, tmp_path):
    """And other integers as the numbers of the outputs, counted from 0."""
    np.savez(tmp_path / "own.npz", x=X, y=np.array(labels * 6))
    made = fitted(read_data(str(tmp_path / "own.npz")), takes(*classes, outputs=len(classes)))
    (tmp_path / "own.toml").write_text(f'data = "own.npz"\nclasses = {list(classes)}\n')
    wanted = [classes.index(str(label)) if str(label) in classes else label for label in labels]
    for again in read_data(str(tmp_path / "own.npz"), made.description), read_data(str(tmp_path / "own.toml")):
        assert again.test.labels.tolist() == made.test.labels.tolist()
        assert {*again.train.labels.tolist()} == {*wanted}
    if "1" in classes:  # columns of one-hot rows are counted
        np.savez(tmp_path / "own.npz", x=X, y=np.eye(len(classes))[[0, 1] * 6])
        assert {*read_data(str(tmp_path / "own.toml")).train.labels.tolist()} == {0, 1}


def test_files_tell_their_classes(tmp_path):
    graph = OnnxGraph(("n", 4))
    graph.add("Gemm", graph.weight(3, 4), transB=1)
    for text, wanted in (("{0: 'ant', 1: 'bee', 2: 'cow'}", ("ant", "bee", "cow")),
                         ('["a", "b", "c"]', ("a", "b", "c")), ("{1: 'ant'}", ()), ("ant", ()), ("{", ())):
        model = graph.model()
        model.metadata_props.append(onnx.StringStringEntryProto(key="names", value=text))
        assert class_names(model) == wanted
    graph = OnnxGraph(("n", 4))
    graph.add("LinearClassifier", domain="ai.onnx.ml", outputs=2, coefficients=X[:3].reshape(-1).tolist(),
              intercepts=[0.0] * 3, classlabels_strings=["ant", "bee", "cow"], post_transform="NONE")
    network, _ = opened(written(tmp_path, graph.model(17, graph.at.replace("_y", "_1"))))
    assert network.classes == ("ant", "bee", "cow")
    np.savez(tmp_path / "own.npz", x=X, y=np.array(["bee", "cow"] * 6))
    done("quantize", tmp_path / "network.onnx", "--for", "tiny", "--data", tmp_path / "own.npz", "-o", tmp_path / "m")
    said = done("predict", tmp_path / "m", "--data", tmp_path / "own.npz")
    assert all(line.split()[1] in ("0", "1", "2") and line.split()[2] in ("ant", "bee", "cow")
               for line in said.splitlines()[:2])


def test_axes_of_inputs():
    axes = InputAxes(shape=(3, 2, 4), axes=(2, 0, 1))
    assert axes.file == (2, 4, 3)
    x = np.arange(24).reshape(2, 4, 3)
    for given in (2, 4, 3), (24,), (1, 2, 4, 3):
        assert np.array_equal(x.reshape(-1)[axes.indices(given)], x.transpose(2, 0, 1).reshape(-1))
    assert np.array_equal(axes.indices((3, 2, 4), Order.MACHINE), np.arange(24))
    assert np.array_equal(axes.indices((3, 2, 4), image=True), np.arange(24))
    for given, order in ((3, 2, 4), Order.FILE), ((2, 4, 3), Order.MACHINE), ((23,), Order.FILE):
        with pytest.raises(ValueError, match="takes "):
            axes.indices(given, order)
    assert "rows x columns x channels, the order of the network's file" in axes.note((24,))
    assert not axes.note((2, 4, 3))
    assert InputAxes.from_record(axes.record) == axes
    assert InputAxes.from_record(None) is None
    for record in {}, [], {"shape": [2], "axes": [1], "file": [2]}, {"shape": ["2"], "axes": [0], "file": [2]}:
        with pytest.raises(ValueError, match="axes"):
            InputAxes.from_record(record)


def test_networks_keep_classes_and_axes_in_their_files(tmp_path):
    graph = OnnxGraph(("n", 4))
    graph.add("Gemm", graph.weight(3, 4), transB=1)
    model = graph.model()
    model.metadata_props.append(onnx.StringStringEntryProto(key="names", value="['a', 'b', 'c']"))
    done("import", written(tmp_path, model), "-o", tmp_path / "n.safetensors")
    network = load(tmp_path / "n.safetensors")
    assert network.classes == ("a", "b", "c")
    assert network.input_axes.file == (4,)
    save(network, tmp_path / "again.safetensors")
    assert load(tmp_path / "again.safetensors").classes == network.classes
