"""Attention of ONNX files against onnxruntime: the operator, its nodes spelled out, and what is refused."""

import numpy as np
import pytest
from concord.net.ops.attention import MASKED, Attention
from concord.net.ops.reshape import Tokens
from concord.net.ops.scale import Offsets
from concord.net.ops.weighted import Convolution

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from concord.campaigns.makers.onnx_graphs import OnnxGraph, equal, written
from concord.frontends.onnx.read import read
from onnx import TensorProto, helper

POSITIONS, WIDTH, HEADS = 6, 8, 2


def parts(graph: OnnxGraph, source: str = "x", *, width: int = WIDTH, heads: int = HEADS) -> list[str]:
    """Queries, keys and values [samples, heads, positions, channels], each from a layer of its own."""
    made = []
    for _ in range(3):
        graph.add("MatMul", graph.weight(WIDTH, width), first=source)
        graph.add("Add", graph.weight(width))
        graph.add("Reshape", graph.constant(np.array([0, 0, heads, width // heads])))
        made.append(graph.add("Transpose", perm=[0, 2, 1, 3]))
    return made


def ended(graph: OnnxGraph) -> OnnxGraph:
    graph.add("Transpose", perm=[0, 2, 1, 3])
    graph.add("Reshape", graph.constant(np.array([0, 0, -1])))
    return graph


def spelled(mask: np.ndarray | None = None, scale: float = 0.5, *, before: bool = False) -> OnnxGraph:
    """Attention spelled out; its mask comes before the scale or after it."""
    graph = OnnxGraph(("batch", POSITIONS, WIDTH))
    queries, keys, values = parts(graph)
    graph.add("Transpose", first=keys, perm=[0, 1, 3, 2])
    graph.add("MatMul", graph.at, first=queries)
    for kind in ("Add", "Mul") if before else ("Mul", "Add"):
        if kind == "Mul":
            graph.add("Mul", graph.constant(np.float32(scale)))
        elif mask is not None:
            graph.add("Add", graph.constant(mask.astype(np.float32)))
    graph.add("Softmax", axis=-1)
    graph.add("MatMul", values)
    return ended(graph)


def the_attention(imported) -> Attention:
    (found,) = [node.op for node in imported.network.nodes if isinstance(node.op, Attention)]
    return found


def test_the_scale_becomes_part_of_the_queries(tmp_path):
    plain, scaled = (equal(written(tmp_path, spelled(scale=scale))) for scale in (1.0, 0.5))
    assert [type(node.op) for node in scaled.network.nodes] == [*[Convolution] * 3, Attention]
    assert the_attention(scaled).heads == HEADS
    assert the_attention(scaled).mask is None
    first, half = (max(np.abs(node.op.weight).max() for node in found.network.nodes if node.name.endswith("queries"))
                   if found is scaled else np.abs(found.network.nodes[0].op.weight).max() for found in (plain, scaled))
    assert half == first / 2


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("own", [1, HEADS])
def test_masks(tmp_path, own, before):
    mask = np.random.default_rng(1).normal(size=(own, POSITIONS, POSITIONS))
    mask[:, 1, 2:] = -np.inf
    imported = equal(written(tmp_path, spelled(mask, before=before)))
    found = the_attention(imported)
    assert found.mask.shape == (own, POSITIONS, POSITIONS)
    assert (found.mask[:, 1, 2:] == MASKED).all()
    assert (found.mask.max(axis=-1) == 0).all()
    assert not found.causal


def test_a_causal_mask_is_named(tmp_path):
    mask = np.where(np.tri(POSITIONS, dtype=bool), 0, -1e9)
    assert the_attention(equal(written(tmp_path, spelled(mask)))).label == "causal attention"


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("mask", ["", "added", "chosen", "causal"])
@pytest.mark.parametrize("flat", [False, True])
def test_the_operator(tmp_path, flat, mask, shared):
    """The operator Attention of opset 23, whose heads may share keys and values."""
    graph = OnnxGraph(("batch", POSITIONS, WIDTH))
    made = parts(graph, width=16, heads=4)
    few = parts(graph, width=8, heads=2) if shared else made
    names = [made[0], few[1], few[2]]
    rng, options = np.random.default_rng(2), {"is_causal": 1} if mask == "causal" else {}
    if mask in ("added", "chosen"):
        numbers = rng.normal(size=(POSITIONS, POSITIONS)).astype(np.float32)
        names.append(graph.constant(numbers if mask == "added" else (numbers > 0) | np.eye(POSITIONS, dtype=bool)))
    if flat:
        for index in range(3):
            graph.at = names[index]
            names[index] = ended(graph).at
        options |= {"q_num_heads": 4, "kv_num_heads": 2 if shared else 4}
    graph.add("Attention", *names[1:], first=names[0], scale=0.3, **options)
    if not flat:
        ended(graph)
    model = graph.model(23)
    model.ir_version = 10
    imported = equal(written(tmp_path, model))
    assert the_attention(imported).heads == 4


def test_offsets_of_positions_ahead_of_all_layers(tmp_path):
    graph = OnnxGraph(("batch", POSITIONS, WIDTH))
    graph.add("Add", graph.weight(1, POSITIONS, WIDTH))
    graph.add("LayerNormalization", graph.weight(WIDTH), graph.weight(WIDTH))
    graph.add("MatMul", graph.weight(WIDTH, 3))
    imported = equal(written(tmp_path, graph))
    assert isinstance(imported.network.nodes[0].op, Offsets)
    assert imported.network.shape == (WIDTH, POSITIONS)


@pytest.mark.parametrize("count", [1, 2])
def test_constant_positions_ahead_of_all_others(tmp_path, count):
    graph = OnnxGraph((2, 3, 4, 2))
    graph.add("Conv", graph.weight(WIDTH, 3, 2, 2), strides=[2, 2])
    graph.add("Reshape", graph.constant(np.array([0, 0, -1])))
    image = graph.add("Transpose", perm=[0, 2, 1])
    tokens = graph.constant(np.repeat(np.random.default_rng(1).normal(size=(1, count, WIDTH)), 2, 0).astype(np.float32))
    graph.nodes.append(helper.make_node("Concat", [tokens, image], ["joined"], "n_joined", axis=1))
    graph.at = "joined"
    graph.add("Add", graph.weight(1, 2 + count, WIDTH))
    graph.add("Gather", graph.constant(np.array(0)), axis=1)
    graph.add("MatMul", graph.weight(WIDTH, 4))
    imported = equal(written(tmp_path, graph))
    assert [type(node.op) for node in imported.network.nodes][1:3] == [Tokens, Offsets]


@pytest.mark.parametrize("change", ["behind", "by sample", "channels"])
def test_other_constants_are_not_joined(tmp_path, change):
    graph = OnnxGraph((2, POSITIONS, WIDTH))
    image = graph.add("MatMul", graph.weight(WIDTH, WIDTH))
    axis = 2 if change == "channels" else 1
    constant = graph.weight(2, *((POSITIONS, 1) if axis == 2 else (1, WIDTH))) if change == "by sample" else (
        graph.constant(np.ones((2, *((POSITIONS, 1) if axis == 2 else (1, WIDTH))), np.float32)))
    names = [image, constant] if change == "behind" else [constant, image]
    graph.nodes.append(helper.make_node("Concat", names, ["joined"], "n_joined", axis=axis))
    graph.at = "joined"
    with pytest.raises(ValueError, match="it joins a constant to what it computes; leave the constant out"):
        read(written(tmp_path, graph))


def test_positions_ahead_of_samples(tmp_path):
    """As PyTorch's attention has them without batch_first."""
    graph = OnnxGraph((POSITIONS, 2, WIDTH))
    graph.inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, POSITIONS, WIDTH))]
    graph.add("Transpose", perm=[1, 0, 2])
    graph.add("MatMul", graph.weight(WIDTH, WIDTH))
    whole = graph.add("Reshape", graph.constant(np.array([POSITIONS, 2 * HEADS, WIDTH // HEADS])))
    queries = graph.add("Transpose", first=whole, perm=[1, 0, 2])
    graph.add("Transpose", first=whole, perm=[1, 2, 0])
    graph.add("MatMul", graph.at, first=queries)
    graph.add("Softmax", axis=-1)
    graph.add("MatMul", queries)
    graph.add("Transpose", perm=[1, 0, 2])
    graph.add("Reshape", graph.constant(np.array([POSITIONS, 2, WIDTH])))
    graph.add("Transpose", perm=[1, 0, 2])
    assert the_attention(equal(written(tmp_path, graph))).heads == HEADS


def refused(tmp_path, change) -> str:
    """The refusal of scores [samples, heads, positions, positions] after which `change` goes on."""
    graph = OnnxGraph((2, POSITIONS, WIDTH))
    queries, keys, values = parts(graph)
    graph.add("Transpose", first=keys, perm=[0, 1, 3, 2])
    graph.add("MatMul", graph.at, first=queries)
    change(graph, values)
    with pytest.raises(ValueError, match="cannot be computed") as error:
        read(written(tmp_path, ended(graph)))
    return str(error.value)


@pytest.mark.parametrize(("change", "message"), [
    (lambda graph, values: graph.add("MatMul", values), "are imported as an attention only"),
    (lambda graph, values: graph.add("Relu"), "are imported as an attention only"),
    (lambda graph, values: graph.add("Mul", graph.weight(POSITIONS)), "by more than one number"),
    (lambda graph, values: graph.add("Transpose", perm=[0, 1, 3, 2]), "are imported as an attention only"),
    (lambda graph, values: (graph.add("Softmax", axis=-1), graph.add("Mul", graph.constant(np.float32(2)))),
     "with the softmax of the products"),
    (lambda graph, values: (graph.add("Add", graph.weight(2, 1, POSITIONS, POSITIONS)), graph.add("Softmax", axis=-1),
                            graph.add("MatMul", values)), "its mask differs from sample to sample"),
    (lambda graph, values: graph.add("Softmax", axis=1), "are imported as an attention only"),
    (lambda graph, values: (graph.add("Add", graph.constant(np.float32([-1e9]))), graph.add("Mul", graph.constant(
        np.float32(-1)))), "behind their mask by a number that is not above zero; add the mask behind the scale"),
    (lambda graph, values: (graph.add("Softmax", axis=-1), graph.add("Dropout", graph.constant(np.float32(0.5)),
                                                                     graph.constant(np.bool_(True)))),
     "drops elements at random, as in training; export the network for inference"),
    (lambda graph, values: (graph.add("Cast", to=TensorProto.INT32), graph.add("Cast", to=TensorProto.FLOAT)),
     "makes whole numbers or conditions of products of two computed tensors; write softmax")])
def test_other_products_of_computed_tensors_are_refused(tmp_path, change, message):
    found = refused(tmp_path, change)
    assert message in found
    assert "; " in found


@pytest.mark.parametrize("number", [-np.inf, np.inf, -1e9, 1e9, -40000])
@pytest.mark.parametrize("rows", [slice(0, 1), slice(None)])
def test_masks_that_leave_no_scores(tmp_path, number, rows):
    """A query that sees no key has no weights; beside large numbers its scores are lost in float32."""
    mask = np.zeros((POSITIONS, POSITIONS), np.float32)
    mask[rows] = number
    with pytest.raises(ValueError, match="its mask hides all keys from a query, or adds .*; let each query see a key"):
        read(written(tmp_path, spelled(mask)))


def test_lengths_of_keys_are_refused(tmp_path):
    graph = OnnxGraph((2, POSITIONS, WIDTH))
    queries, keys, values = parts(graph)
    lengths = graph.constant(np.array([3, POSITIONS]))
    graph.add("Attention", keys, values, "", "", "", lengths, first=queries)
    model = ended(graph).model(24)
    model.ir_version = 11
    with pytest.raises(ValueError, match="lengths of its own for the keys .nonpad_kv_seqlen.; leave them out"):
        read(written(tmp_path, model))


def test_scores_at_the_end_are_refused(tmp_path):
    graph = OnnxGraph(("batch", POSITIONS, WIDTH))
    queries, keys, _ = parts(graph)
    graph.add("Transpose", first=keys, perm=[0, 1, 3, 2])
    graph.add("MatMul", graph.at, first=queries)
    with pytest.raises(ValueError, match="its output holds products of two computed tensors"):
        read(written(tmp_path, graph))
