"""Scripts as ONNX graphs, which onnxruntime runs."""

from dataclasses import replace

import numpy as np
import pytest
from concord.golden.lib import float16
from concord.golden.mfu import activation
from concord.golden.mfu.reduction import running
from concord.golden.mfu.softmax import softmax
from concord.spec.isa.operations import Operation
from concord.spec.numbers.softmax import fractions, wholes
from concord.tests.twin.scripts import SCRIPTS, call, halves, routine, samples
from concord.tests.twin.test_vocabulary import pairs
from concord.twin.lib.run import run
from concord.twin.lib.script import Script, StoredTensor
from concord.twin.source.frameworks import CURVES
from concord.twin.vocabulary import numpy_functions

onnxruntime = pytest.importorskip("onnxruntime")


def results_of(script: Script, inputs: np.ndarray) -> np.ndarray:
    from concord.twin.source.onnx_graph import onnx_graph

    session = onnxruntime.InferenceSession(onnx_graph(script).SerializeToString())
    return session.run(None, {"inputs": inputs})[0].view(np.uint16)


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("batch", [1, 5])
def test_graphs_compute_what_the_script_says(name, batch):
    script = SCRIPTS[name]
    inputs = samples(script, batch)
    with np.errstate(all="ignore"):
        expected = run(script, inputs, numpy_functions).view(np.uint16)
    assert np.array_equal(results_of(script, inputs), expected)


@pytest.mark.parametrize("name", SCRIPTS)
def test_graphs_hold_only_what_they_read(name, capfd):
    """Otherwise onnxruntime warns of each tensor that it drops."""
    results_of(SCRIPTS[name], samples(SCRIPTS[name], 1))
    assert "Removing initializer" not in capfd.readouterr().err


def one(*body, tensors=None) -> Script:
    """A script of some lines on pairs of numbers."""
    return Script(name="t", machine="tiny", inputs=(2,), outputs=1, classes=(), routines=(),
                  main=routine("main", "Test", "x", "y", *body), tensors=tensors or {})


PARTS = call("a", "part", "x", first=0, last=1), call("b", "part", "x", first=1, last=2)


@pytest.mark.parametrize(("name", "golden"), [
    ("add", float16.add), ("subtract", float16.sub), ("multiply", float16.mul), ("maximum", float16.maximum)])
def test_operations_on_numbers_round_once(name, golden):
    a, b = pairs()
    wanted = golden(a, b)
    known = ~float16.is_nan(a) & ~float16.is_nan(b) & ~float16.is_nan(wanted)
    found = results_of(one(*PARTS, call("y", name, "a", "b")), np.stack([a, b], 1).view(np.float16))[:, 0]
    assert np.array_equal(found[known], wanted[known])


@pytest.mark.parametrize(("name", "golden"), [
    ("relu", float16.relu), *((name, getattr(activation, name)) for name in CURVES)])
def test_curves(name, golden):
    bits = np.arange(1 << 16, dtype=np.uint16)
    bits = bits[~float16.is_nan(bits)]
    found = results_of(one(PARTS[0], call("y", name, "a")), np.stack([bits, bits], 1).view(np.float16))[:, 0]
    defined = ~float16.is_nan(golden(bits))  # the bits of a NaN are the runtime's
    assert np.array_equal(found[defined], golden(bits)[defined])


def test_softmax():
    """Scores near each other, far apart, in all lanes of patterns, and elements that leave no result."""
    rng = np.random.default_rng(0)
    near = rng.normal(0, 3, (3000, 7)).astype(np.float16).view(np.uint16)
    far = rng.integers(0, 1 << 16, (20_000, 7)).astype(np.uint16)
    bits = np.concatenate([near, far, np.full((1, 7), 0xFC00, np.uint16)])
    tables = {name: StoredTensor(values=np.asarray(rows, np.int32))
              for name, rows in (("t.fractions", fractions()), ("t.wholes", wholes()))}
    script = replace(one(call("y", "softmax", "x", "t.fractions", "t.wholes"), tensors=tables), inputs=(7,), outputs=7)
    found, wanted = results_of(script, bits.view(np.float16)), softmax(bits)
    defined = ~float16.is_nan(wanted)
    assert np.array_equal(found[defined], wanted[defined])
    assert float16.is_nan(found[~defined]).all()
    assert 0 < (~defined).mean() < 1


@pytest.mark.parametrize("operation", [Operation.V_SUM, Operation.V_LARGEST])
def test_reductions(operation):
    """Numbers near each other, that cancel, of all magnitudes, and infinities."""
    rng = np.random.default_rng(0)
    near = rng.normal(0, 3, (3000, 7)).astype(np.float16)
    near[:1000, 4:] = -near[:1000, :3]
    far = rng.integers(0, 1 << 16, (20_000, 7)).astype(np.uint16)
    bits = np.concatenate([near.view(np.uint16), far, np.full((1, 7), 0x8000, np.uint16)])
    wanted = running(operation, bits[:, None])[0][:, 0, :1]
    found = results_of(replace(one(call("y", operation.function, "x")), inputs=(7,)), bits.view(np.float16))
    defined = ~float16.is_nan(bits).any(1) & ~float16.is_nan(wanted[:, 0])
    assert np.array_equal(found[defined], wanted[defined])
    assert 0.5 < defined.mean() < 1


def test_what_onnx_cannot_say_is_said():
    script = one(call("y", "accumulated", "x", "d.weights"), tensors={"d.weights": halves(np.random.default_rng(0), 2)})
    with pytest.raises(ValueError, match="needs accumulated, which has no form in ONNX"):
        results_of(script, np.zeros((1, 2), np.float16))
