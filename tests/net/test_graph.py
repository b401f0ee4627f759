"""The float graph: operators, shapes, readers, rewriting, files of earlier versions, and mixed networks."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from concord.net import graph_file
from concord.net.arithmetic.windows import TimeAxis, Window
from concord.net.cells.peephole import PEEPHOLE
from concord.net.cells.registry import CELLS
from concord.net.graph import INPUT, Graph, Node, topological
from concord.net.ops.joins import Addition, Concatenation
from concord.net.ops.pointwise import Relu, Tanh
from concord.net.ops.recurrent import Direction, Recurrence
from concord.net.ops.scale import Affine
from concord.net.ops.sequences import Last, ToImage, ToSequence
from concord.net.ops.weighted import Convolution, Linear

FILES = Path(__file__).parent / "files"
rng = np.random.default_rng(0)


def numbers(*shape: int) -> np.ndarray:
    return rng.normal(0, 0.5, shape).astype(np.float32)


def recurrence(cell, inputs: int, hidden: int, directions: int = 1) -> Recurrence:
    gates = len(cell.gates)
    return Recurrence(cell=cell, directions=tuple(Direction(
        input_weights=numbers(gates, hidden, inputs), recurrent_weights=numbers(gates, hidden, hidden),
        bias=numbers(gates, hidden), vectors={name: numbers(hidden) for name in cell.vectors})
        for _ in range(directions)))


def chain(shape, *ops, sequence: bool = False) -> Graph:
    nodes = [Node(name=f"n{index}", op=op, sources=(f"n{index - 1}" if index else INPUT,))
             for index, op in enumerate(ops)]
    return Graph(name="chain", shape=shape, sequence=sequence, axes=tuple(range(len(shape))), nodes=tuple(nodes))


def branched() -> Graph:
    nodes = (
        Node(name="a", op=Affine(scale=np.float32([2]), offset=np.float32([1])), sources=(INPUT,)),
        Node(name="b", op=Relu(), sources=("a",)), Node(name="c", op=Tanh(), sources=("a",)),
        Node(name="s", op=Addition(), sources=("b", "c")), Node(name="j", op=Concatenation(), sources=("s", "b")))
    return Graph(name="branched", shape=(3,), sequence=False, axes=(0,), nodes=nodes)


def test_readers_sources_and_shapes():
    graph = branched()
    assert [node.name for node in graph.readers("a")] == ["b", "c"]
    assert [node.name for node in graph.readers("b")] == ["s", "j"]
    assert not graph.readers("j")
    assert graph.node("c").sources == ("a",)
    assert graph.node(INPUT) is None
    assert graph.shapes == {INPUT: (3,), "a": (3,), "b": (3,), "c": (3,), "s": (3,), "j": (6,)}
    assert [node.name for node in graph.nodes if graph.alone(node)] == ["a"]


def test_nodes_are_left_out_replaced_and_ordered():
    graph, x = branched(), numbers(4, 3)
    bare = graph.without("a")
    assert np.allclose(bare.run(2 * x + 1), graph.run(x))
    assert len(bare.nodes) == 4
    assert [node.name for node in graph.ending_with("c").nodes] == ["a", "c"]
    assert [node.name for node in topological(graph.nodes[::-1])] == ["a", "c", "b", "s", "j"]
    with pytest.raises(ValueError, match="'b' depends on its own result"):
        topological((replace(graph.nodes[1], sources=("b",)),))


def test_recurrent_of_every_cell_is_the_cells_own_formula(tmp_path):
    lengths, x = np.array([3, 5, 1]), rng.normal(size=(3, 5, 4))
    for cell in CELLS.values():
        both = chain((4,), recurrence(cell, 4, 6, 2), Last(backward=6), sequence=True)
        graph_file.save(both, tmp_path / "net.safetensors")
        again = graph_file.load(tmp_path / "net.safetensors")
        assert np.array_equal(both.run(x, lengths), again.run(x, lengths))
        forward, reverse = (replace(both.nodes[0].op, directions=(one,)) for one in both.nodes[0].op.directions)
        for sample, length in enumerate(lengths):
            one = x[sample:sample + 1, :length]
            ends = [chain((4,), op, Last(), sequence=True).run(part)[0]
                    for op, part in ((forward, one), (reverse, one[:, ::-1]))]
            assert np.allclose(both.run(x, lengths)[sample], np.concatenate(ends), rtol=1e-12, atol=0)


def test_a_mixed_network_runs_and_is_read_again(tmp_path):
    conv = Convolution(weight=numbers(4, 2, 1, 3), bias=numbers(4), window=Window(size=(1, 3), padding=(0, 0, 1, 1)))
    after = Convolution(weight=numbers(3, 10, 1, 3), bias=numbers(3), window=Window(size=(1, 3), stride=(1, 2)))
    graph = chain((2, 9), conv, Relu(), ToSequence(time=TimeAxis.COLUMNS), recurrence(PEEPHOLE, 4, 5, 2),
                  Linear(weight=numbers(10, 10), bias=numbers(10)), Tanh(), ToImage(steps=9), after, ToSequence(),
                  recurrence(CELLS["gru"], 3, 6), Last())
    assert (graph.types["n4"].sequence, graph.types["n4"].steps) == (True, 9)
    assert graph.shapes["n7"] == (3, 1, 4)
    graph_file.save(graph, tmp_path / "net.safetensors")
    again, x = graph_file.load(tmp_path / "net.safetensors"), numbers(5, 2, 9)
    assert again.shapes == graph.shapes
    assert np.array_equal(again.run(x), graph.run(x))
    assert graph.run(x).shape == (5, 6)
    parts = graph.forward(x)
    linear = graph.node("n4").op
    step = parts["n3"][:, 7] @ linear.weight.astype(np.float64).T + linear.bias
    assert np.allclose(parts["n4"][:, 7], step), "a linear layer computes each time step alone"
    assert np.array_equal(parts["n6"][:, :, 0, 7], parts["n5"][:, 7])


@pytest.mark.parametrize(("ops", "shape", "sequence", "words"), [
    ((Last(),), (3,), False, "node 'n0': last takes something else than sequences"),
    ((ToImage(steps=4), ToSequence(), ToImage(steps=5)), (3,), True, "image of 5 time steps, but its sequence has 4"),
    ((recurrence(CELLS["rnn"], 3, 2),), (4,), True, "numbers for 3 channels or elements, and takes 4"),
    ((Linear(weight=numbers(2, 3), bias=numbers(2)),), (3, 1, 1), False, "takes a vector, but gets the image"),
    ((Convolution(weight=numbers(2, 1, 3, 3), bias=numbers(2), window=Window(size=(3, 3))),), (1, 2, 2), False,
     "window is larger than the image")])
def test_operators_that_do_not_fit_are_refused(ops, shape, sequence, words):
    with pytest.raises(ValueError, match=words):
        chain(shape, *ops, sequence=sequence)


def test_an_image_of_steps_needs_their_number():
    graph = chain((3,), ToImage(steps=4), sequence=True)
    assert graph.run(numbers(2, 4, 3)).shape == (2, 3, 1, 4)
    with pytest.raises(ValueError, match="image of 4 time steps, but a sequence has 5"):
        graph.run(numbers(2, 5, 3))
    with pytest.raises(ValueError, match="image of 4 time steps, but a sequence has 3"):
        graph.run(numbers(2, 4, 3), np.array([4, 3]))


def test_numbers_are_checked_where_they_are_made():
    with pytest.raises(ValueError, match="weight: it holds infinite values .*1 of 6"):
        Linear(weight=np.float32([[1, 2, np.inf], [0, 0, 0]]), bias=numbers(2))
    with pytest.raises(ValueError, match="bias: the shape .2. is needed, there is .3."):
        Linear(weight=numbers(2, 3), bias=numbers(3))
    with pytest.raises(ValueError, match="node 'n0': weight: numbers in float32 are needed, not float64"):
        chain((3,), Linear(weight=numbers(2, 3), bias=numbers(2))).nodes[0].changed(weight=np.ones((2, 3)))


#: Sums of outputs that version e5e5adb computed for the files, of the inputs below.
SUMS = {
    "images": [-3.303431851, -4.120840497, -4.886701754, -5.082337908, -5.133936068],
    "both": [-0.624759621, 0.086411182, -0.338332435, -0.127965409, -0.28689352],
    "quantize": [0.206540862, 0.916802055, 0.718903666, 0.461535683, 0.550647521]}


@pytest.mark.parametrize("name", SUMS)
def test_files_with_one_kind_for_each_cell_are_read(name):
    graph = graph_file.load(FILES / f"{name}.safetensors")
    x = np.random.default_rng(1).normal(size=(5, *((7,) if graph.sequence else ()), *graph.shape))
    lengths = np.array([7, 3, 5, 1, 6]) if graph.sequence else None
    assert np.allclose(graph.run(x, lengths).sum(axis=-1), SUMS[name], rtol=1e-6)
