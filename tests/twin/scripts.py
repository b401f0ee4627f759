"""Scripts made by hand, and what they compute in golden arithmetic."""

import numpy as np
from concord.twin.lib.script import Call, Routine, Script, SequenceLoop, Stored, StoredTensor

UNSIGNED = {"lowest": 0, "highest": 15}
SIGNED = {"lowest": -128, "highest": 127}
BLOCKS = {"size": 8, "bits": 8, "exponents": (-11, 4), "rule": "frexp", "symmetric": False}


def call(results: str, function: str, *arguments, note: str = "", **settings) -> Call:
    """A line; an argument with a dot in it is a stored tensor."""
    named = tuple(Stored(name=name) if "." in name else name for name in arguments)
    return Call(results=tuple(results.split()), function=function, arguments=named, settings=settings, note=note)


def routine(name: str, title: str, parameters: str, results: str, *body) -> Routine:
    return Routine(name=name, title=title, parameters=tuple(parameters.split()), results=tuple(results.split()),
                   body=body)


def halves(rng, *shape) -> StoredTensor:
    return StoredTensor(values=rng.normal(size=shape).astype(np.float16))


def integers(rng, *shape, bits: int = 4) -> StoredTensor:
    return StoredTensor(values=rng.integers(-(1 << bits - 1), 1 << bits - 1, shape), bits=bits)


def perceptron() -> Script:
    """Two dense layers, the first in block floating point and the second in integers."""
    rng = np.random.default_rng(0)
    hidden = routine("hidden1", "Dense layer of 12 neurons", "x", "y",
                     call("codes", "blocks", "x", **BLOCKS),
                     call("y", "dense", "codes", "hidden1.weights"),
                     call("y", "add", "y", "hidden1.bias"),
                     call("y", "relu", "y"))
    output = routine("output", "Dense layer of 3 neurons", "x", "y",
                     call("codes", "multiply", "x", "output.in_scale"),
                     call("codes", "integers", "codes", **UNSIGNED),
                     call("y", "dense", "codes", "output.weights", "output.start", scale=3),
                     call("y", "multiply", "y", "output.scale"))
    weights = rng.integers(-128, 128, (12, 10)) * 2.0 ** rng.integers(-9, -4, (12, 1))
    main = routine("main", "A perceptron", "x", "y", call("x", "hidden1", "x"), call("y", "output", "x"),
                   call("y", "canonical", "y"))
    return Script(name="digits", machine="tiny", inputs=(10,), outputs=3, classes=("a", "b", "c"), main=main,
                  routines=(hidden, output), tensors={
                      "hidden1.weights": StoredTensor(values=weights.astype(np.float32), bits=8),
                      "hidden1.bias": halves(rng, 12), "output.in_scale": halves(rng, 12),
                      "output.weights": integers(rng, 3, 12),
                      "output.start": StoredTensor(values=np.array([5, -300, 7])), "output.scale": halves(rng, 3)})


def recurrent() -> Script:
    """An LSTM of 6 cells in integers over sequences of any length, and a dense layer."""
    rng = np.random.default_rng(1)
    gates = []
    tensors = {"start.zeros": StoredTensor(values=np.zeros(6, np.float16)), "output.weights": integers(rng, 2, 6),
               "lstm1.h_scale": StoredTensor(values=np.full(6, 128, np.float16))}
    for gate, curve in (("i", "sigmoid"), ("f", "sigmoid"), ("o", "sigmoid"), ("j", "tanh")):
        tensors |= {f"lstm1.{gate}.weights": integers(rng, 6, 4), f"lstm1.{gate}.scale": halves(rng, 6),
                    f"lstm1.{gate}.recurrent": integers(rng, 6, 6), f"lstm1.{gate}.bias": halves(rng, 6)}
        gates += [call(gate, "dense", "codes", f"lstm1.{gate}.weights", scale=6),
                  call(gate, "multiply", gate, f"lstm1.{gate}.scale"),
                  call(gate, "add", gate, f"lstm1.{gate}.bias"),
                  call("g", "dense", "state", f"lstm1.{gate}.recurrent", scale=10),
                  call(gate, "add", "g", gate),
                  call(gate, curve, gate)]
    cell = routine("lstm1", "LSTM of 6 cells, one time step", "x h c", "h c",
                   call("codes", "integers", "x", note="the input", **SIGNED),
                   call("h", "multiply", "h", "lstm1.h_scale"),
                   call("state", "integers", "h", **SIGNED), *gates,
                   call("c", "multiply", "f", "c"), call("i", "multiply", "i", "j"), call("c", "add", "c", "i"),
                   call("g", "tanh", "c"), call("h", "multiply", "o", "g"))
    main = routine("main", "An LSTM", "x", "y",
                   call("zeros", "start", "x", "start.zeros"),
                   SequenceLoop(items=(("x_t", "x"),), carried=(("h", "zeros"), ("c", "zeros")),
                                body=(call("h c", "lstm1", "x_t", "h", "c"),)),
                   call("h", "multiply", "h", "lstm1.h_scale"),
                   call("codes", "integers", "h", **SIGNED),
                   call("y", "dense", "codes", "output.weights"))
    return Script(name="sounds", machine="tiny", inputs=(None, 4), outputs=2, classes=(), main=main, routines=(cell,),
                  tensors=tensors)


def echo() -> Script:
    """A loop over two sequences, one of them from its end, which keeps a result of each pass in either order."""
    rng = np.random.default_rng(5)
    main = routine("main", "Sums over time", "x", "y",
                   call("s", "start", "x", "start.values"),
                   SequenceLoop(items=(("a", "x"), ("b", "x")), carried=(("s", "s"),), backward=frozenset({"b"}),
                                body=(call("s", "add", "s", "a"), call("d", "subtract", "s", "b")),
                                collected=(("u", "s"), ("v", "d")), reversed=frozenset({"v"})),
                   call("y", "join", "u", "v"), call("y", "flatten", "y"))
    return Script(name="echo", machine="tiny", inputs=(3, 2), outputs=12, classes=(), main=main, routines=(),
                  tensors={"start.values": halves(rng, 2)})


def turned() -> Script:
    """A loop from the last time step to the first one, whose second state is the first one of the pass before."""
    rng = np.random.default_rng(6)
    main = routine("main", "Sums over time", "x", "y",
                   call("s", "start", "x", "start.values"),
                   SequenceLoop(items=(("a", "x"),), carried=(("s", "s"), ("last", "s")), backward=frozenset({"a"}),
                                body=(call("b", "multiply", "last", "loop.scale"), call("last", "maximum", "s", "s"),
                                      call("s", "add", "s", "a"), call("s", "subtract", "s", "b"))),
                   call("y", "join", "s", "last"))
    return Script(name="turned", machine="tiny", inputs=(None, 2), outputs=4, classes=(), main=main, routines=(),
                  tensors={"start.values": halves(rng, 2), "loop.scale": halves(rng, 2)})


def pictures() -> Script:
    """A convolution in integers with groups, pooling, and a dense layer on a selection of elements."""
    rng = np.random.default_rng(2)
    convolution = routine("convolution1", "Convolution, 4 channels to 8, windows of 3 x 3", "x", "y",
                          call("codes", "integers", "x", **UNSIGNED),
                          call("y", "convolution", "codes", "convolution1.weights", "convolution1.start", scale=4,
                               stride=(2, 1), padding=(1, 1, 0, 2), groups=2, fill=3),
                          call("y", "multiply", "y", "convolution1.scale"),
                          call("y", "relu", "y"))
    main = routine("main", "A convolutional network", "x", "y",
                   call("x", "image", "x", shape=(4, 7, 6)), call("x", "convolution1", "x"),
                   call("x", "max_pool", "x", window=(2, 2), stride=(2, 2)),
                   call("x", "take", "output.index", "x"),
                   call("codes", "integers", "x", **UNSIGNED),
                   call("y", "dense", "codes", "output.weights"))
    return Script(name="pictures", machine="tiny", inputs=(4, 7, 6), outputs=5, classes=(), main=main,
                  routines=(convolution,), tensors={
                      "convolution1.weights": integers(rng, 8, 3, 3, 2), "output.weights": integers(rng, 5, 20),
                      "convolution1.start": StoredTensor(values=rng.integers(-99, 99, 8)),
                      "convolution1.scale": halves(rng, 8),
                      "output.index": StoredTensor(values=rng.permutation(48)[:20].astype(np.int32))})


def elements() -> Script:
    """Three dense layers on floats that share no exponent, on powers of two that share one, and on whole numbers."""
    rng = np.random.default_rng(3)
    weights = rng.choice([-6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6], (12, 10))
    powers = np.ldexp(rng.choice([-1, 1], (9, 12)), rng.integers(-9, 2, (9, 12)))
    main = routine("main", "A perceptron of floats", "x", "y",
                   call("codes", "floats", "x", precision=4, lowest=-15.0, highest=15.0, fraction=14),
                   call("x", "dense", "codes", "hidden1.weights"), call("x", "relu", "x"),
                   call("codes", "float_blocks", "x", size=8, bits=8, exponents=(-11, 4), precision=1),
                   call("x", "dense", "codes", "hidden2.weights"),
                   call("codes", "floats", "x", precision=2, lowest=-12, highest=12),
                   call("y", "dense", "codes", "output.weights", scale=3))
    return Script(name="elements", machine="tiny", inputs=(10,), outputs=4, classes=(), main=main, routines=(),
                  tensors={"hidden1.weights": StoredTensor(values=weights.astype(np.float32), bits=5),
                           "hidden2.weights": StoredTensor(values=powers.astype(np.float32), bits=8),
                           "output.weights": integers(rng, 4, 9)})


SCRIPTS = {script.name: script for script in (perceptron(), recurrent(), echo(), turned(), pictures(), elements())}


def samples(script: Script, count: int) -> np.ndarray:
    """float16[count, ...], inputs of a script; sequences have 9 time steps."""
    rng = np.random.default_rng(8)
    shape = [9 if size is None else size for size in script.inputs]
    return (rng.normal(size=(count, *shape)) * 6).astype(np.float16)
