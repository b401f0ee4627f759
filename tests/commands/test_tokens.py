"""Networks that begin with an embedding, and samples of token numbers, whose vectors the host looks up."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
import concord
from concord.campaigns.makers.onnx_graphs import HIDDEN, OnnxGraph, equal, layer, written
from concord.datasets.read import data_of
from concord.tests.command_line import done, refused
from onnx import numpy_helper

RNG = np.random.default_rng(5)
ROWS, SIZE, STEPS = 70_000, 4, 6
PRESET = ("--preset", "vision")


def embedded(folder, kind: str):
    """The file of a network of token numbers [samples, steps], and its table."""
    graph = OnnxGraph(("n", STEPS) if kind == "Gemm" else ("t", "n"))
    table = graph.weight(ROWS, SIZE)
    if kind == "LSTM":
        graph.nodes.append(onnx.helper.make_node("Shape", ["x"], ["sizes"], start=-1))
    graph.nodes.append(onnx.helper.make_node("Gather", [table, "x"], ["vectors"], name="look"))
    graph.at = "vectors"
    if kind == "Gemm":
        graph.add("Flatten")
        graph.add("Gemm", graph.weight(STEPS * SIZE, 3), graph.weight(3))
    else:
        layer(graph, "LSTM", 1, SIZE)
        graph.at = graph.nodes[-1].output[1]
        graph.add("Squeeze", graph.constant(np.array([0])))
        graph.add("Gemm", graph.weight(HIDDEN, 3), graph.weight(3))
    model = graph.model()
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    return written(folder, model, "tokens.onnx"), numpy_helper.to_array(model.graph.initializer[0])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", ["Gemm", "LSTM"])
def test_token_numbers_give_what_their_vectors_give(tmp_path, kind):
    path, table = embedded(tmp_path, kind)
    network = equal(path).network
    np.testing.assert_array_equal(network.table, table)
    tokens = RNG.integers(0, ROWS, (30, STEPS))  # beyond what binary16 holds
    wanted = concord.run(str(path), table[tokens]).numbers
    np.testing.assert_array_equal(concord.run(str(path), tokens).numbers, wanted)
    labels = wanted.argmax(1)
    for name, x in ("tokens", tokens), ("vectors", table[tokens]):
        np.savez(f"{name}.npz", x_train=x, y_train=labels, x_test=x, y_test=labels)
    np.save("x.npy", tokens)
    said = done("quantize", path, "--data", "tokens.npz", *PRESET, "-o", "m.safetensors")
    assert said.startswith("onnxruntime: outputs for 30 samples differ by at most ")
    assert "accuracy 100.00%" in said.splitlines()[0]
    done("compile", "m.safetensors", *PRESET, "-o", "f.safetensors")
    found = []
    for number, words in enumerate((
            ("predict", "m.safetensors", "--data", "vectors.npz"), ("predict", "m.safetensors", "--data", "tokens.npz"),
            ("predict", "m.safetensors", "--inputs", "x.npy"), ("run", "f.safetensors", "--data", "tokens.npz"))):
        done(*words, "--samples", "all", "-o", f"{number}.npy")
        found.append(np.load(f"{number}.npy"))
    for one in found[1:]:
        np.testing.assert_array_equal(one, found[0])
    again = done("quantize", "m.safetensors", "--data", "tokens.npz", *PRESET, "-o", "again.safetensors")
    assert "golden" in again
    done("verify", path, "--data", "tokens.npz", "--machine", "golden", "--samples", "3", *PRESET)


def test_padding_and_a_table_of_commas(tmp_path):
    path, table = embedded(tmp_path, "LSTM")
    tokens, lengths = RNG.integers(0, ROWS, (12, STEPS)), RNG.integers(2, STEPS, 12)
    vectors, padded = table[tokens], tokens.copy()
    padded[np.arange(STEPS) >= lengths[:, None]] = -1
    given = {"y_test": np.arange(12) % 3, "lengths_test": lengths}
    one, other = (concord.run(str(path), {"x_test": x, **given}) for x in (padded, vectors))
    np.testing.assert_array_equal(one.numbers, other.numbers)
    with open("tokens.csv", "w") as file:
        np.savetxt(file, tokens, "%d", ",", header=",".join(map("t{}".format, range(STEPS))), comments="")
    np.testing.assert_allclose(concord.run(str(path), "tokens.csv").numbers, concord.run(str(path), tokens).numbers,
                               atol=1e-2)


@pytest.mark.parametrize("wrong", [ROWS, -1])
def test_a_number_outside_the_table(tmp_path, wrong):
    path, _ = embedded(tmp_path, "Gemm")
    tokens = RNG.integers(0, ROWS, (12, STEPS))
    tokens[7, 2] = wrong
    np.savez("wrong.npz", x_train=tokens, x_test=tokens)
    said = refused("quantize", path, "--data", "wrong.npz", *PRESET)
    assert f"sample 7, step 2: {wrong} is not in the table of tokens, which has 70,000 vectors, 0..69999" in said


def test_large_integers_are_refused_without_a_table(tmp_path):
    graph = OnnxGraph(("n", STEPS))
    graph.add("Gemm", graph.weight(STEPS, 3))
    path = written(tmp_path, graph)
    with pytest.raises(ValueError, match="70000 is too large for binary16"):
        concord.run(str(path), {"x_test": np.full((3, STEPS), 70_000)})


def test_integers_that_are_vectors_stay_vectors(tmp_path):
    path, _ = embedded(tmp_path, "Gemm")
    x = RNG.integers(0, 5, (4, STEPS, SIZE))
    np.testing.assert_array_equal(concord.run(str(path), x).numbers, concord.run(str(path), x.astype(float)).numbers)
    assert data_of({"x_test": x}).test.raw is not None


def test_a_module_of_token_numbers():
    torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
    module = torch.nn.Sequential(torch.nn.Embedding(20, 3), torch.nn.Flatten(), torch.nn.Linear(12, 2))
    tokens = torch.randint(20, (8, 4))
    network = concord.load(module, tokens[:2])
    wanted = module(tokens).detach().numpy()
    np.testing.assert_allclose(concord.run(network, tokens).numbers, wanted, atol=1e-6)
    assert network.original.by == "PyTorch"
    np.testing.assert_allclose(network.original.run(tokens.numpy(), None)[0], wanted, atol=1e-6)
