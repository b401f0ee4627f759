"""Passes from graph to graph: each computes the same as before, on the networks that it is for."""

import numpy as np
import pytest
from concord.net.cells.gru import AFTER
from concord.net.graph import Graph
from concord.net.ops.grid import IntegerGrid, Quantize
from concord.net.ops.joins import Concatenation
from concord.net.ops.pointwise import HardSwish, Relu, Sigmoid
from concord.net.ops.reshape import Flatten
from concord.net.ops.scale import Affine, BatchNorm
from concord.net.ops.sequences import Last
from concord.net.ops.weighted import Linear
from concord.net.passes import simplify
from concord.net.passes.clips import with_clips
from concord.net.passes.fold import fold_constants, fold_scales
from concord.net.passes.simplify import is_quantized, without_quantizers
from concord.tests import float_networks
from concord.tests.float_networks import Chain

NETWORKS = {
    "images": float_networks.images, "residual": float_networks.residual, "before": float_networks.before_layers,
    "line": float_networks.line, "sequences": float_networks.sequences,
    "both": lambda: float_networks.sequences(AFTER, both=True)}


def kinds(graph: Graph) -> list[str]:
    return [node.op.kind for node in graph.nodes]


def same(graph: Graph, made: Graph) -> bool:
    """Whether two networks agree on random inputs, within the rounding of weights to float32."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, *(6,) * graph.sequence, *graph.shape))
    lengths = np.array([6, 2, 5, 1]) if graph.sequence else None
    want = graph.run(x, lengths)
    return np.allclose(made.run(x, lengths), want, rtol=0, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("name", NETWORKS)
def test_every_pass_computes_the_same(name):
    graph = NETWORKS[name]()
    lines = with_clips(graph)
    assert not lines.has(HardSwish)
    assert same(graph, lines)
    assert same(graph, with_clips(graph, integers=False))
    assert same(graph, simplify.simplified(graph))
    folded, bare = fold_scales(lines), fold_scales(lines, batch_norm=True)
    assert not folded.has(Affine)
    assert not bare.has(Affine, BatchNorm)
    assert same(graph, folded)
    assert same(graph, bare)


def test_the_scale_of_the_input_stays_and_others_are_folded():
    chain = Chain((4, 3, 3)).affine("in", [2, 1, 1, 1], [1, 0, 0, 0]).conv("c", 4, 4, (2, 2), groups=2)
    chain.affine("after", [0.5], [3]).add(Relu(), "r").affine("before", [1, 2, 3, 4], [0, 0, 1, 0])
    graph = chain.add(Flatten(), "f").dense("d", 3, 16).network()
    made = fold_constants(graph)
    assert kinds(made) == ["affine", "conv", "relu", "flatten", "dense"]
    assert same(graph, made)
    assert kinds(fold_scales(graph)) == ["conv", "relu", "flatten", "dense"]


def test_a_scale_that_somebody_else_reads_becomes_a_layer():
    chain = Chain((1, 4, 4)).conv("c", 3, 1, (2, 2)).affine("a", [1, 2, 3], [1, 1, 1])
    graph = chain.add(Concatenation(), "both", ("c", "a")).network()
    made = fold_scales(graph)
    assert [(node.name, node.op.kind) for node in made.nodes] == [("c", "conv"), ("a", "conv"), ("both", "concat")]
    assert made.node("a").op.groups == 3
    assert same(graph, made)
    wide = Chain((2000,)).affine("a", np.full(2000, 2), np.zeros(2000)).add(Relu(), "r").network()
    with pytest.raises(ValueError, match="'a': a scale of 2000 elements of a vector, which no layer beside it takes"):
        fold_scales(wide)


def test_integers_of_quantized_weights_stay():
    chain = Chain((3,))
    weight = np.float32([[0.5, -1, 1.5], [1, 1, 0]])
    linear = Linear(weight=weight, bias=np.zeros(2, np.float32),
                    grid=IntegerGrid.of_outputs(np.full(2, 0.5), np.zeros(2), weight, bits=4, signed=True))
    graph = chain.quantizer("q", scale=0.25).add(linear, "d").affine("a", [3], [0]).network()
    assert fold_constants(graph) is graph
    bare = without_quantizers(graph)
    assert is_quantized(graph)
    assert not is_quantized(bare)
    assert kinds(fold_constants(bare)) == ["dense"]
    assert np.array_equal(fold_constants(bare).output.op.weight, 3 * weight)
    with pytest.raises(ValueError, match="only rounds its input"):
        without_quantizers(Chain((3,)).quantizer("q", scale=0.25).network())


def test_clips_are_merged():
    graph = Chain((3,)).add(Relu(ceiling=6.0), "a").add(Relu(ceiling=2.0), "b").add(Relu(), "c").network()
    assert [node.op.ceiling for node in simplify.merge_clips(graph).nodes] == [2.0]
    graph = Chain((3,)).quantizer("a", scale=0.5).quantizer("b", scale=0.5, bits=4).quantizer("c", scale=0.25).network()
    assert [node.op.grid.bits for node in simplify.merge_clips(graph).nodes if isinstance(node.op, Quantize)] == [4, 8]


def test_the_last_step_is_taken_first_but_not_before_a_layer_that_mixes_both_ends():
    def layer() -> Chain:
        return Chain((3,), sequence=True).recurrent(AFTER, "g", 4, 3, both=True)

    graph = layer().add(Relu(), "r").add(Last(backward=4), "l").network()
    made = simplify.last_step_first(graph)
    assert kinds(made) == ["recurrent", "last", "relu"]
    assert same(graph, made)
    graph = layer().dense("d", 8, 8).add(Last(), "l").network()
    assert kinds(simplify.last_step_first(graph)) == ["recurrent", "last", "dense"]
    assert same(graph, simplify.last_step_first(graph))
    graph = layer().dense("d", 8, 8).add(Last(backward=4), "l").network()
    assert simplify.last_step_first(graph) is graph


def test_two_classes_and_unread_parts():
    chain = Chain((3,)).dense("z", 1, 3).add(Sigmoid(), "s").affine("rest", [-1], [1])
    graph = chain.add(Concatenation(), "p", ("rest", "s")).network()
    made = simplify.merge_two_classes(graph)
    assert kinds(made) == ["dense", "sigmoid"]
    assert same(graph, made)
    chain = Chain((3,)).dense("a", 2, 3).dense("b", 4, 3, ("",)).add(Concatenation(), "c", ("a", "b", "a"))
    weight = chain.weights(2, 8)
    weight[:, 2:6] = 0
    graph = chain.add(Linear(weight=weight, bias=np.zeros(2, np.float32)), "d").network()
    made = simplify.drop_unread_parts(graph)
    assert [node.name for node in made.nodes] == ["a", "c", "d"]
    assert same(graph, made)
