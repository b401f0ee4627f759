"""Small networks in float32 with random weights, as an import gives them."""

from collections.abc import Sequence

import numpy as np
from concord.model.floating.network import INPUT, RECURRENT, FloatNetwork, Node, Op
from concord.model.floating.shapes import GATES


class Chain:
    """Nodes, each of which reads the one before it unless it names others."""

    def __init__(self, shape: Sequence[int], *, sequence: bool = False, seed: int = 0):
        self.shape, self.sequence, self.nodes = tuple(shape), sequence, []
        self.rng = np.random.default_rng(seed)

    def weights(self, *shape: int) -> np.ndarray:
        """float32 numbers that keep the size of results."""
        return self.rng.normal(0, 1.5 * np.prod(shape[1:]) ** -0.5, shape).astype(np.float32)

    def add(self, op: Op, name: str, sources: Sequence[str] = (), tensors: dict | None = None, **attributes) -> "Chain":
        """A node of any operation."""
        before = (self.nodes[-1].name if self.nodes else INPUT,)
        attributes = ({"ceiling": None} if op is Op.RELU else {}) | attributes
        self.nodes.append(Node(name=name, op=op, sources=tuple(sources) or before, attributes=attributes,
                               tensors=tensors or {}))
        return self

    def conv(self, name: str, outputs: int, inputs: int, size: tuple[int, int] = (3, 3), *, stride=(1, 1),
             padding=(0, 0, 0, 0), dilation=(1, 1), groups: int = 1, sources=()) -> "Chain":
        tensors = {"weight": self.weights(outputs, inputs // groups, *size), "bias": 0.1 * self.weights(outputs)}
        return self.add(Op.CONV, name, sources, tensors, stride=stride, padding=padding, dilation=dilation,
                        groups=groups)

    def dense(self, name: str, outputs: int, inputs: int, sources=()) -> "Chain":
        tensors = {"weight": self.weights(outputs, inputs), "bias": 0.1 * self.weights(outputs)}
        return self.add(Op.DENSE, name, sources, tensors)

    def norm(self, name: str, channels: int) -> "Chain":
        tensors = {key: self.rng.uniform(0.5, 1.5, channels).astype(np.float32)
                   for key in ("weight", "bias", "mean", "variance")}
        return self.add(Op.BATCH_NORM, name, (), tensors, epsilon=1e-5)

    def affine(self, name: str, scale: Sequence[float], offset: Sequence[float]) -> "Chain":
        return self.add(Op.AFFINE, name, (), {"scale": np.float32(scale), "offset": np.float32(offset)})

    def pool(self, op: Op, name: str, size=(2, 2), *, stride=(2, 2), padding=(0, 0, 0, 0), dilation=(1, 1),
             **attributes) -> "Chain":
        return self.add(op, name, (), size=size, stride=stride, padding=padding, dilation=dilation, **attributes)

    def recurrent(self, op: Op, name: str, hidden: int, inputs: int, *, both: bool = False) -> "Chain":
        assert op in RECURRENT
        rows, tensors = GATES[op] * hidden, {}
        for end in ("", "_reverse")[:1 + both]:
            tensors |= {f"weight_ih{end}": self.weights(rows, inputs), f"weight_hh{end}": self.weights(rows, hidden),
                        f"bias_ih{end}": 0.1 * self.weights(rows), f"bias_hh{end}": 0.1 * self.weights(rows)}
        return self.add(op, name, (), tensors, **({"bidirectional": True} if both else {}))

    def network(self, name: str = "small") -> FloatNetwork:
        return FloatNetwork(name=name, shape=self.shape, sequence=self.sequence, axes=tuple(range(len(self.shape))),
                            nodes=tuple(self.nodes))


def images() -> FloatNetwork:
    """Every operation of images and vectors, with names as ONNX has them."""
    chain = Chain((2, 9, 8)).affine("norm", [2, 1.5], [0.5, -0.5])
    chain.conv("/first/Conv", 6, 2, padding=(0, 1, 1, 1), stride=(2, 1)).norm("/first/bn", 6).add(Op.RELU, "relu")
    chain.pool(Op.MAX_POOL, "pool", stride=(1, 1), padding=(0, 1, 0, 1))
    chain.conv("type", 6, 6, padding=(1, 1, 1, 1), groups=3).add(Op.TANH, "curve")
    chain.add(Op.ADD, "sum", ("curve", "pool", "pool")).conv("wide", 5, 6, (1, 1)).add(Op.SIGMOID, "gate")
    chain.add(Op.CONCAT, "both", ("gate", "sum")).pool(
        Op.AVERAGE_POOL, "average", (3, 2), padding=(1, 0, 0, 0), count_padding=True)
    chain.conv("last", 7, 11, (2, 2)).add(Op.HARD_SIGMOID, "hard", alpha=0.2, beta=0.5)
    chain.add(Op.FLATTEN, "flat").affine("moved", [1.5], [0.25]).dense("hidden", 8, 21).norm("bn", 8)
    return chain.add(Op.RELU, "r", ceiling=None).dense("out.put", 4, 8).network("images")


def residual() -> FloatNetwork:
    """A residual network with a global average."""
    chain = Chain((1, 8, 8)).conv("a", 4, 1, padding=(1, 1, 1, 1)).add(Op.RELU, "ra")
    chain.conv("b", 4, 4, padding=(1, 1, 1, 1)).add(Op.ADD, "s", ("b", "ra")).add(Op.RELU, "rs")
    return chain.add(Op.GLOBAL_AVERAGE, "mean").dense("fc", 3, 4).network("residual")


def before_layers() -> FloatNetwork:
    """Activation functions of results that others read without them, and of a concatenation: no layer carries them."""
    chain = Chain((1, 8, 8)).conv("a", 4, 1, padding=(1, 1, 1, 1)).norm("n1", 4).add(Op.RELU, "r1")
    chain.conv("b", 4, 4, padding=(1, 1, 1, 1)).add(Op.ADD, "s", ("b", "a")).add(Op.TANH, "t", ("s",))
    chain.add(Op.CONCAT, "c", ("t", "s")).norm("n2", 8).add(Op.RELU, "r2")
    return chain.conv("d", 5, 8, (1, 1)).add(Op.GLOBAL_AVERAGE, "mean").dense("fc", 4, 5).network("before")


def line() -> FloatNetwork:
    """One-dimensional layers."""
    chain = Chain((3, 24)).conv("a", 8, 3, (1, 5), stride=(1, 2), padding=(0, 0, 2, 2)).add(Op.RELU, "ra", ceiling=6.0)
    chain.conv("b", 8, 8, (1, 3), padding=(0, 0, 0, 2), dilation=(1, 2), groups=8).add(Op.RELU, "rb")
    return chain.pool(Op.MAX_POOL, "p", (1, 2), stride=(1, 2)).add(Op.FLATTEN, "f").dense("fc", 4, 40).network("line")


def perceptron(inputs: int = 12, outputs: int = 4) -> FloatNetwork:
    """Two dense layers."""
    return Chain((inputs,)).dense("one", 16, inputs).add(Op.RELU, "r").dense("two", outputs, 16).network("perceptron")


def sequences(op: Op = Op.LSTM, *, both: bool = False, second: Op | None = None) -> FloatNetwork:
    """Two recurrent layers of different sizes, and three dense layers with activation functions."""
    chain = Chain((5,), sequence=True).affine("scaled", [1, 2, 0.5, 1, 1], [0, 0.5, 0, 0, 0])
    chain.recurrent(op, "/rnn/one", 7, 5, both=both)
    chain.recurrent(second or op, "two", 6, 7 * (1 + both)).add(Op.LAST, "last")
    chain.dense("hidden", 9, 6).add(Op.RELU, "r").dense("more", 8, 9).add(Op.TANH, "t")
    return chain.dense("answer", 4, 8).network("sequences")
