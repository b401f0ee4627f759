"""Small networks in float32 with random weights, as an import gives them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from concord.net.arithmetic.windows import Window
from concord.net.cells import gru, lstm, peephole, rnn
from concord.net.cells.cell import Cell
from concord.net.graph import INPUT, Graph, Node
from concord.net.graph_file import KIND
from concord.net.ops.grid import IntegerGrid, Quantize
from concord.net.ops.joins import Addition, ChannelGating, Concatenation, Multiplication
from concord.net.ops.operator import Operator
from concord.net.ops.pointwise import Exp, Gelu, HardSigmoid, LeakyRelu, Reciprocal, Relu, Rsqrt, Sigmoid, Sqrt, Tanh
from concord.net.ops.pooling import AveragePooling, GlobalAverage, MaxPooling
from concord.net.ops.recurrent import Direction, Recurrence
from concord.net.ops.reduction import FeatureNorm, SoftmaxInside
from concord.net.ops.reshape import Enlarging, Flatten, Tokens
from concord.net.ops.scale import Affine, BatchNorm, Offsets
from concord.net.ops.sequences import Last, ToImage, ToSequence
from concord.net.ops.weighted import Convolution, Linear
from safetensors import safe_open
from safetensors.numpy import load_file, save_file


def change_header(path: Path, change: Callable[[dict], object]):
    """Change the JSON header of a file of a float network in place."""
    with safe_open(path, framework="numpy") as opened:
        header = json.loads(opened.metadata()[KIND.key])
    change(header)
    save_file(load_file(path), path, {KIND.key: json.dumps(header)})


class Chain:
    """Nodes, each of which reads the one before it unless it names others."""

    def __init__(self, shape: Sequence[int], *, sequence: bool = False, seed: int = 0):
        self.shape, self.sequence, self.nodes = tuple(shape), sequence, []
        self.rng = np.random.default_rng(seed)

    def weights(self, *shape: int) -> np.ndarray:
        """float32 numbers that keep the size of results."""
        return self.rng.normal(0, 1.5 * np.prod(shape[1:]) ** -0.5, shape).astype(np.float32)

    def add(self, op: Operator, name: str, sources: Sequence[str] = ()) -> "Chain":
        """A node of any operator."""
        before = (self.nodes[-1].name if self.nodes else INPUT,)
        self.nodes.append(Node(name=name, op=op, sources=tuple(sources) or before))
        return self

    def conv(self, name: str, outputs: int, inputs: int, size: tuple[int, int] = (3, 3), *, groups: int = 1, sources=(),
             **window) -> "Chain":
        return self.add(Convolution(
            weight=self.weights(outputs, inputs // groups, *size), bias=0.1 * self.weights(outputs), groups=groups,
            window=Window(size=size, **window)), name, sources)

    def dense(self, name: str, outputs: int, inputs: int, sources=()) -> "Chain":
        return self.add(Linear(weight=self.weights(outputs, inputs), bias=0.1 * self.weights(outputs)), name, sources)

    def norm(self, name: str, channels: int) -> "Chain":
        return self.add(BatchNorm(**{key: self.rng.uniform(0.5, 1.5, channels).astype(np.float32)
                                     for key in ("weight", "bias", "mean", "variance")}), name)

    def affine(self, name: str, scale: Sequence[float], offset: Sequence[float]) -> "Chain":
        return self.add(Affine(scale=np.float32(scale), offset=np.float32(offset)), name)

    def max_pool(self, name: str, size=(2, 2), *, stride=(2, 2), **window) -> "Chain":
        return self.add(MaxPooling(window=Window(size=size, stride=stride, **window)), name)

    def average_pool(self, name: str, size=(2, 2), *, stride=(2, 2), count_padding: bool, **window) -> "Chain":
        return self.add(AveragePooling(window=Window(size=size, stride=stride, **window), count_padding=count_padding),
                        name)

    def quantizer(self, name: str, sources=(), *, scale: float, zero_point: int = 0, bits: int = 8, signed: bool = True,
                  narrow: bool = False) -> "Chain":
        return self.add(Quantize(grid=IntegerGrid(scale=scale, zero_point=zero_point, bits=bits, signed=signed,
                                           narrow=narrow)), name, sources)

    def recurrent(self, cell: Cell, name: str, hidden: int, inputs: int, *, both: bool = False) -> "Chain":
        """A recurrent layer whose gates are drawn in the order of PyTorch, with two biases."""
        names = cell.torch_gates or tuple(gate.name for gate in cell.gates)
        rows = len(names) * hidden
        return self.add(Recurrence(cell=cell, directions=tuple(Direction.of_gates(
            cell, names, self.weights(rows, inputs), self.weights(rows, hidden), 0.1 * self.weights(rows),
            0.1 * self.weights(rows), {vector: 0.5 * self.weights(hidden) for vector in cell.vectors})
            for _ in range(1 + both))), name)

    def last(self, name: str = "last") -> "Chain":
        """The last time step of the recurrent layer before."""
        op = self.nodes[-1].op
        return self.add(Last(backward=op.hidden if op.bidirectional else 0), name)

    def network(self, name: str = "small") -> Graph:
        return Graph(name=name, shape=self.shape, sequence=self.sequence, axes=tuple(range(len(self.shape))),
                     nodes=tuple(self.nodes))


def images() -> Graph:
    """Every operator of images and vectors, with names as ONNX has them."""
    chain = Chain((2, 9, 8)).affine("norm", [2, 1.5], [0.5, -0.5])
    chain.conv("/first/Conv", 6, 2, padding=(0, 1, 1, 1), stride=(2, 1)).norm("/first/bn", 6).add(Relu(), "relu")
    chain.max_pool("pool", stride=(1, 1), padding=(0, 1, 0, 1))
    chain.conv("type", 6, 6, padding=(1, 1, 1, 1), groups=3).add(Tanh(), "curve")
    chain.add(Addition(), "sum", ("curve", "pool", "pool")).conv("wide", 5, 6, (1, 1)).add(Sigmoid(), "gate")
    chain.add(Concatenation(), "both", ("gate", "sum")).average_pool(
        "average", (3, 2), padding=(1, 0, 0, 0), count_padding=True)
    chain.conv("last", 7, 11, (2, 2)).add(HardSigmoid(alpha=0.2, beta=0.5), "hard")
    chain.add(Flatten(), "flat").affine("moved", [1.5], [0.25]).dense("hidden", 8, 21).norm("bn", 8)
    return chain.add(Relu(), "r").dense("out.put", 4, 8).network("images")


def residual() -> Graph:
    """A residual network with a global average."""
    chain = Chain((1, 8, 8)).conv("a", 4, 1, padding=(1, 1, 1, 1)).add(Relu(), "ra")
    chain.conv("b", 4, 4, padding=(1, 1, 1, 1)).add(Addition(), "s", ("b", "ra")).add(Relu(), "rs")
    return chain.add(GlobalAverage(), "mean").dense("fc", 3, 4).network("residual")


def before_layers() -> Graph:
    """Activation functions of results that others read without them, and of a concatenation: no layer carries them."""
    chain = Chain((1, 8, 8)).conv("a", 4, 1, padding=(1, 1, 1, 1)).norm("n1", 4).add(Relu(), "r1")
    chain.conv("b", 4, 4, padding=(1, 1, 1, 1)).add(Addition(), "s", ("b", "a")).add(Tanh(), "t", ("s",))
    chain.add(Concatenation(), "c", ("t", "s")).norm("n2", 8).add(Relu(), "r2")
    return chain.conv("d", 5, 8, (1, 1)).add(GlobalAverage(), "mean").dense("fc", 4, 5).network("before")


def gated_images() -> Graph:
    """Products of images: SiLU, and a gate whose product has an activation function."""
    chain = Chain((2, 6, 7)).conv("a", 5, 2, padding=(1, 1, 1, 1)).add(Sigmoid(), "s").add(Multiplication(), "silu",
                                                                                         ("a", "s"))
    chain.conv("b", 6, 5).conv("c", 6, 5, sources=("silu",)).add(Tanh(), "t")
    chain.add(Multiplication(), "gated", ("b", "t")).add(Relu(), "r").add(GlobalAverage(), "mean")
    return chain.dense("fc", 4, 6).network("gated_images")


def excited() -> Graph:
    """Squeeze-and-excitation, whose gate is a vector, then an image of one pixel."""
    chain = Chain((2, 6, 7)).conv("a", 5, 2, padding=(1, 1, 1, 1)).add(Tanh(), "r").add(GlobalAverage(), "mean")
    chain.dense("squeezed", 3, 5).add(Relu(), "rs").dense("excited", 5, 3).add(Sigmoid(), "gate")
    chain.add(ChannelGating(), "gated", ("r", "gate")).add(Tanh(), "t").conv("b", 6, 5).max_pool("p")
    chain.average_pool("mean2", (2, 2), count_padding=True).conv("c", 6, 6, (1, 1)).add(Sigmoid(), "s")
    return chain.add(ChannelGating(), "again", ("p", "s")).add(Flatten(), "f").dense("fc", 4, 24).network("excited")


def enlarged() -> Graph:
    """Repeated pixels, and a transposed convolution as its phases, beside a tensor that skips them."""
    chain = Chain((2, 4, 6)).conv("a", 5, 2, padding=(1, 1, 1, 1)).add(Relu(), "ra").max_pool("p")
    chain.conv("b", 6, 5, (1, 1))
    chain.add(Enlarging(factor=(2, 2)), "repeated").add(Tanh(), "t").conv("left", 3, 6, (1, 1))
    chain.conv("right", 3, 6, (1, 2), sources=("t",), padding=(0, 0, 0, 1)).add(Concatenation(), "parts", (
        "left", "right")).add(Enlarging(factor=(1, 2), shuffled=True), "shuffled").norm("n", 3).add(Relu(), "rs")
    chain.max_pool("halves", (1, 2), stride=(1, 2)).add(Concatenation(), "skip", ("halves", "ra"))
    return chain.conv("c", 4, 8).add(GlobalAverage(), "mean").dense("fc", 4, 4).network("enlarged")


def leaky() -> Graph:
    """Leaky relus of images, and of a vector."""
    chain = Chain((2, 6, 7)).conv("a", 5, 2, padding=(1, 1, 1, 1)).add(LeakyRelu(slope=0.1), "la")
    chain.conv("b", 5, 5, padding=(1, 1, 1, 1)).add(Addition(), "s", ("b", "la")).add(LeakyRelu(slope=0.3), "ls")
    chain.add(GlobalAverage(), "mean").dense("fc", 6, 5).add(LeakyRelu(), "lf")
    return chain.dense("out", 4, 6).network("leaky")


def gelus() -> Graph:
    """GELU of images, of a sum, and of a vector."""
    chain = Chain((2, 6, 7)).conv("a", 5, 2, padding=(1, 1, 1, 1)).add(Gelu(), "ga")
    chain.conv("b", 5, 5, padding=(1, 1, 1, 1)).add(Addition(), "s", ("b", "ga")).add(Gelu(), "gs")
    chain.add(GlobalAverage(), "mean").dense("fc", 6, 5).add(Gelu(), "gf")
    return chain.dense("out", 4, 6).network("gelus")


def reductions() -> Graph:
    """Softmax, layer norm and RMS norm of vectors, whose results are added, multiplied, and go into curves."""
    rng = np.random.default_rng(11)
    weight, bias = rng.uniform(0.5, 2, 9).astype(np.float32), rng.normal(0, 0.3, 9).astype(np.float32)
    chain = Chain((7,)).dense("a", 9, 7).add(FeatureNorm(weight=weight, bias=bias), "layer").add(Relu(), "r")
    chain.dense("b", 9, 9).add(SoftmaxInside(), "soft").add(Multiplication(), "gated", ("r", "soft"))
    chain.add(FeatureNorm(weight=weight, bias=0 * bias, centred=False), "rms").add(Addition(), "sum", ("rms", "b"))
    return chain.dense("out", 4, 9).network("reductions")


def pixel_reductions() -> Graph:
    """Softmax and layer norm of the channels of each pixel."""
    rng = np.random.default_rng(12)
    weight, bias = rng.uniform(0.5, 2, 5).astype(np.float32), rng.normal(0, 0.3, 5).astype(np.float32)
    chain = Chain((2, 6, 7)).conv("a", 5, 2, padding=(1, 1, 1, 1)).add(FeatureNorm(weight=weight, bias=bias), "layer")
    chain.add(SoftmaxInside(), "soft", ("a",)).add(Multiplication(), "gated", ("layer", "soft"))
    return chain.conv("b", 4, 5).add(GlobalAverage(), "mean").dense("out", 3, 4).network("pixel_reductions")


def offsets() -> Graph:
    """Numbers for each channel of each pixel that are added to the input, and to a convolution; constant positions."""
    chain = Chain((2, 6, 7))
    chain.add(Offsets(offset=chain.weights(2, 6, 7)), "first").conv("a", 5, 2, padding=(1, 1, 1, 1))
    chain.add(Offsets(offset=chain.weights(5, 6, 7)), "places").add(Relu(), "r")
    chain.add(Tokens(tokens=chain.weights(5, 2)), "tokens").conv("b", 4, 5, (1, 1))
    return chain.add(GlobalAverage(), "mean").dense("out", 3, 4).network("offsets")


def gated_vectors() -> Graph:
    """Products of vectors: SiLU, a gate, a square, and three tensors."""
    chain = Chain((7,)).dense("a", 9, 7).add(Sigmoid(), "s").add(Multiplication(), "silu", ("a", "s"))
    chain.dense("b", 6, 9).dense("c", 6, 9, sources=("silu",)).add(Sigmoid(), "g")
    chain.add(Multiplication(), "gated", ("b", "g")).add(Multiplication(), "square", ("gated", "gated"))
    chain.add(Multiplication(), "three", ("square", "b", "g")).add(Tanh(), "t")
    return chain.dense("fc", 4, 6).network("gated_vectors")


def more_functions() -> Graph:
    """The functions of machines with `more_functions`, in layers, behind others, and in products."""
    chain = Chain((7,)).dense("a", 9, 7).add(Exp(), "e").dense("b", 6, 9).add(Exp(), "f").add(Sqrt(), "root")
    chain.add(Reciprocal(), "inverse", ("f",)).add(Addition(), "sum", ("root", "inverse")).add(Rsqrt(), "turned")
    return chain.dense("fc", 4, 6).network("more_functions")


def line() -> Graph:
    """One-dimensional layers."""
    chain = Chain((3, 24)).conv("a", 8, 3, (1, 5), stride=(1, 2), padding=(0, 0, 2, 2)).add(Relu(ceiling=6.0), "ra")
    chain.conv("b", 8, 8, (1, 3), padding=(0, 0, 0, 2), dilation=(1, 2), groups=8).add(Relu(), "rb")
    return chain.max_pool("p", (1, 2), stride=(1, 2)).add(Flatten(), "f").dense("fc", 4, 40).network("line")


def perceptron(inputs: int = 12, outputs: int = 4) -> Graph:
    """Two dense layers."""
    return Chain((inputs,)).dense("one", 16, inputs).add(Relu(), "r").dense("two", outputs, 16).network("perceptron")


def sequences(cell: Cell = lstm.LSTM, *, both: bool = False, second: Cell | None = None) -> Graph:
    """Two recurrent layers of different sizes, and three dense layers with activation functions."""
    chain = Chain((5,), sequence=True).affine("scaled", [1, 2, 0.5, 1, 1], [0, 0.5, 0, 0, 0])
    chain.recurrent(cell, "/rnn/one", 7, 5, both=both)
    chain.recurrent(second or cell, "two", 6, 7 * (1 + both)).last()
    chain.dense("hidden", 9, 6).add(Relu(), "r").dense("more", 8, 9).add(Tanh(), "t")
    return chain.dense("answer", 4, 8).network("sequences")


def convolutions_before_and_after() -> Graph:
    """Convolutions before, between and after recurrent layers, one with peepholes and one of both directions."""
    chain = Chain((3, 6, 8)).conv("first", 4, 3, stride=(2, 1), padding=(1, 1, 1, 1)).add(Relu(), "r")
    chain.conv("second", 5, 4, (3, 3), padding=(0, 0, 1, 1)).add(ToSequence(), "steps")
    chain.recurrent(peephole.PEEPHOLE, "cell", 6, 5).dense("each", 4, 6).add(Tanh(), "t")
    return chain.recurrent(gru.AFTER, "ends", 5, 4, both=True).last().dense("answer", 3, 10).network("before_and_after")


def linear_at_each_step() -> Graph:
    """Linear layers and a sum at each time step, then all hidden vectors as an image."""
    chain = Chain((5,), sequence=True).recurrent(lstm.LSTM, "one", 6, 5).dense("each", 6, 6).add(Relu(), "r")
    chain.dense("more", 6, 6).add(Addition(), "sum", ("more", "one")).recurrent(rnn.TANH, "two", 5, 6)
    chain.last().dense("hidden", 6, 5).add(Relu(), "r2")
    return chain.dense("answer", 3, 6).network("linear_at_each_step")


def both_directions_as_image() -> Graph:
    """A convolution over the hidden vectors of both directions, which are parts of a concatenation."""
    chain = Chain((2, 1, 8)).conv("c1", 6, 2, (1, 3), padding=(0, 0, 1, 1)).add(Relu(), "r").add(ToSequence(), "s")
    chain.recurrent(peephole.PEEPHOLE, "cell", 4, 6, both=True).add(ToImage(steps=8), "image")
    chain.conv("c2", 6, 8, (1, 3)).add(Relu(), "r2").add(Flatten(), "f")
    return chain.dense("answer", 3, 36).network("both_directions_as_image")
