"""Scripts made by hand, run without source text."""

import numpy as np
import pytest
from concord.golden.lib import float16
from concord.golden.mfu.activation import sigmoid, tanh
from concord.golden.mvm.quantizer import quantize_integer
from concord.spec.numbers.formats import Format
from concord.tests.twin.scripts import SCRIPTS, samples
from concord.twin.lib.run import run
from concord.twin.vocabulary import numpy_functions


def numpy_results(script, inputs):
    with np.errstate(all="ignore"):
        return run(script, inputs, numpy_functions)


@pytest.mark.parametrize("name", SCRIPTS)
def test_results_of_a_sample_do_not_depend_on_its_batch(name):
    script = SCRIPTS[name]
    inputs = samples(script, 7)
    together = numpy_results(script, inputs)
    assert together.shape == (7, script.outputs)
    assert len(np.unique(together, axis=0)) > 1
    for index in range(7):
        assert np.array_equal(numpy_results(script, inputs[index:][:1])[0], together[index])


def test_an_lstm_has_the_bits_of_golden():
    script = SCRIPTS["sounds"]
    inputs = samples(script, 5)
    bits = inputs.view(np.uint16)
    h = c = np.zeros((5, 6), np.uint16)
    scale = np.float16([128]).view(np.uint16)
    values = {name: each.values for name, each in script.tensors.items()}
    for t in range(9):
        codes, state = (quantize_integer(each, Format(bits=8), unsigned=False) for each in (
            bits[:, t], float16.mul(h, scale)))
        gate = {}
        for name in "ifoj":
            weights, recurrent, factor, bias = (values[f"lstm1.{name}.{each}"] for each in (
                "weights", "recurrent", "scale", "bias"))
            u = float16.mul(float16.from_integer(codes @ weights.T, 6), factor.view(np.uint16))
            u = float16.add(u, bias.view(np.uint16))
            u = float16.add(float16.from_integer(state @ recurrent.T, 10), u)
            gate[name] = tanh(u) if name == "j" else sigmoid(u)
        c = float16.add(float16.mul(gate["f"], c), float16.mul(gate["i"], gate["j"]))
        h = float16.mul(gate["o"], tanh(c))
    codes = quantize_integer(float16.mul(h, scale), Format(bits=8), unsigned=False)
    expected = float16.from_integer(codes @ values["output.weights"].T, 0)
    assert np.array_equal(numpy_results(script, inputs).view(np.uint16), expected)


def test_loops_take_and_keep_steps_in_either_order():
    script = SCRIPTS["echo"]
    inputs = samples(script, 4)
    sums = script.tensors["start.values"].values + np.zeros((4, 2), np.float16)
    expected = np.zeros((4, 3, 4), np.float16)
    for t in range(3):
        sums = sums + inputs[:, t]
        expected[:, t, :2] = sums
        expected[:, 2 - t, 2:] = sums - inputs[:, 2 - t]
    assert np.array_equal(numpy_results(script, inputs), expected.reshape(4, -1))
