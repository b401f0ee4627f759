"""net.network against plain loops over exact numbers, and on the shipped models."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from concord.datasets import dataset
from concord.golden.lib import float16
from concord.golden.mfu import activation
from concord.golden.mvm import quantizer
from concord.net import float_network as reference
from concord.net import network
from concord.net.cells.lstm import LSTM
from concord.net.lowering import block_lowering, lowering
from concord.net.model_file import load_model
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format

FOLDER = Path(__file__).parents[2] / "data" / "models"
MODELS = sorted(FOLDER.rglob("*.safetensors"))
RNG = np.random.default_rng(11)


def patterns(*shape, scale=1.0):
    return (RNG.normal(size=shape) * scale).astype(np.float16).view(np.uint16)


def once(value: Fraction) -> int:
    """Round a fraction whose denominator is a power of two once, by float16.from_integer on Python integers."""
    fraction_bits = value.denominator.bit_length() - 1
    return int(float16.from_integer(np.array([value.numerator], object), fraction_bits)[0])


def one(function, *operands) -> int:
    return int(function(*(np.array([int(v)], np.uint16) for v in operands))[0])


def dot(mantissas, exponents, x, weights_format, input_format, block) -> Fraction:
    """The exact result of one row of a block floating point product."""
    total = Fraction(0)
    for index, low in enumerate(range(0, len(x), block)):
        part = np.zeros(block, np.uint16)
        part[: len(x[low : low + block])] = x[low : low + block]
        q, e = quantizer.quantize_block(part, input_format)
        d = sum(int(a) * int(b) for a, b in zip(mantissas[low : low + block], q, strict=False))
        exponent = int(e) + int(exponents[index]) - weights_format.bits - input_format.bits + 2
        total += d * Fraction(2) ** exponent
    return total


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("kind", Activation)
def test_integer_dense(unsigned, kind):
    fmt = Format(bits=5)
    layer = lowering.dense(
        name="layer",
        codes=RNG.integers(-16, 16, (5, 13)),
        gain=RNG.uniform(0.01, 0.1, 5),
        constant=RNG.normal(size=5),
        weights_format=fmt,
        input_format=fmt,
        unsigned=unsigned,
        s_in=0.13,
        m_in=0.2 * unsigned,
        quantize_input=True,
        activation=kind,
    )
    x = patterns(4, 13, scale=2)
    got = layer.run([x], None).outputs
    apply = {"relu": float16.relu, "none": lambda v: v}.get(kind) or getattr(activation, kind)
    for sample, row in np.ndindex(got.shape):
        total = int(layer.start[row])
        for column, value in enumerate(x[sample]):
            y = one(float16.mul, value, layer.quant_scale[column])
            y = one(float16.add, y, layer.quant_offset[column]) if unsigned else y
            code = quantizer.quantize_integer(np.array([y], np.uint16), fmt, unsigned=unsigned)[0]
            total += int(layer.weights[row, column]) * int(code)
        a = once(total * Fraction(2) ** -layer.p)
        y = one(float16.add, one(float16.mul, a, layer.scale[row]), layer.offset[row])
        assert int(got[sample, row]) == one(apply, y)


@pytest.mark.parametrize("fmt", [Format(bits=6, e_min=-7, e_max=4), Format(bits=16)], ids=["narrow", "big integers"])
def test_block_dense(fmt):
    weights = RNG.normal(size=(6, 11)) * 2.0 ** RNG.integers(-12, 3, 11)
    layer = block_lowering.block_dense(
        name="layer", weights=weights, bias=RNG.normal(size=6), weights_format=fmt, input_format=fmt, block=4
    )
    x = (RNG.normal(size=(5, 11)) * 2.0 ** RNG.integers(-12, 12, (5, 11))).astype(np.float16).view(np.uint16)
    got = layer.run([x], None).outputs
    for sample, row in np.ndindex(got.shape):
        exact = dot(layer.mantissas[row], layer.exponents[row], x[sample], fmt, fmt, 4)
        assert int(got[sample, row]) == one(float16.add, once(exact), layer.bias[row])


def lstm_oracle(layer, x, products):
    """An LSTM on one sequence, element by element; products(x, h) gives every gate before its activation."""
    h, c = (state.copy() for state in layer.first_states)
    for step in x:
        gates = products(step, h)
        for unit in range(layer.outputs):
            f, i, o = (one(activation.sigmoid, gates[gate][unit]) for gate in range(3))
            j = one(activation.tanh, gates[3][unit])
            c[unit] = one(float16.add, one(float16.mul, f, c[unit]), one(float16.mul, i, j))
            h[unit] = one(float16.mul, o, one(activation.tanh, c[unit]))
    return h, c


def test_integer_lstm_keeps_each_state_when_its_sequence_ends():
    fmt = Format(bits=8, symmetric=True)
    layer = lowering.recurrent(
        name="layer",
        cell=LSTM,
        input_codes=RNG.integers(-127, 128, (4, 3, 5)),
        recurrent_codes=RNG.integers(-127, 128, (4, 3, 3)),
        input_steps=RNG.uniform(0.001, 0.01, 4),
        recurrent_steps=RNG.uniform(0.001, 0.01, 4),
        bias=RNG.normal(size=(4, 3)),
        weights_format=fmt,
        input_format=fmt,
        s_in=0.02,
        initial={"hidden": RNG.uniform(-1, 1, 3), "cell": RNG.normal(size=3)},
    )

    def products(x, h):
        x_codes = quantizer.quantize_integer(float16.mul(x, layer.input_quant_scale), fmt, unsigned=False)
        h_codes = quantizer.quantize_integer(float16.mul(h, layer.hidden_quant_scale), fmt, unsigned=False)
        gates = np.zeros((4, 3), np.uint16)
        for gate, unit in np.ndindex(4, 3):
            w = once(int(layer.input_weights[gate, unit] @ x_codes) * Fraction(2) ** -layer.input_p)
            r = once(int(layer.recurrent_weights[gate, unit] @ h_codes) * Fraction(2) ** -layer.recurrent_p)
            u = one(float16.add, one(float16.mul, w, layer.input_scale[gate, unit]), layer.bias[gate, unit])
            gates[gate, unit] = one(float16.add, one(float16.mul, r, layer.recurrent_scale[gate, unit]), u)
        return gates

    x, lengths = patterns(3, 6, 5), np.array([6, 2, 4])
    trace = layer.run([x], lengths)
    for sample, length in enumerate(lengths):
        h, c = lstm_oracle(layer, x[sample, :length], products)
        assert np.array_equal(trace.outputs[sample], h)
        assert np.array_equal(trace.states[1][sample], c)
        assert np.array_equal(trace.hidden[sample, length - 1], h)
        assert not trace.hidden[sample, length:].any()


def test_block_lstm():
    fmt, inputs = Format(bits=6), Format(bits=5, symmetric=True)
    layer = block_lowering.block_recurrent(
        name="layer",
        cell=LSTM,
        input_weights=RNG.normal(size=(4, 3, 5)),
        recurrent_weights=RNG.normal(size=(4, 3, 3)),
        bias=RNG.normal(size=(4, 3)),
        weights_format=fmt,
        input_format=inputs,
        block=4,
    )

    def products(x, h):
        gates = np.zeros((4, 3), np.uint16)
        for gate, unit in np.ndindex(4, 3):
            w = dot(layer.input_mantissas[gate, unit], layer.input_exponents[gate, unit], x, fmt, inputs, 4)
            r = dot(layer.recurrent_mantissas[gate, unit], layer.recurrent_exponents[gate, unit], h, fmt, inputs, 4)
            gates[gate, unit] = one(float16.add, once(w + r), layer.bias[gate, unit])
        return gates

    x = patterns(2, 4, 5)
    trace = layer.run([x], np.array([4, 4]))
    for sample in range(2):
        h, c = lstm_oracle(layer, x[sample], products)
        assert np.array_equal(trace.outputs[sample], h)
        assert np.array_equal(trace.states[1][sample], c)


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_shipped_models_reach_what_they_record(path):
    model = load_model(path)
    samples, where = dataset.load(model.data), model.provenance
    outputs = network.outputs(model, samples.inputs, samples.lengths)
    assert np.mean(network.classes(outputs) == samples.labels) == where.golden_accuracy
    assert where.golden_accuracy >= where.quantized_accuracy - 0.005
    assert np.mean(model.fp32_predictions == samples.labels) == where.fp32_accuracy
    assert np.mean(model.quantized_predictions == samples.labels) == where.quantized_accuracy
    many = samples.first(2000)
    fp32 = reference.forward(model, many.inputs, many.lengths)[-1].argmax(1)
    if "no FP32 copy" in where.method:  # Its real numbers are the parameters themselves; FP32 was a separate training.
        assert np.mean(fp32 == model.quantized_predictions[:2000]) > 0.99
    else:
        assert np.mean(fp32 == model.fp32_predictions[:2000]) > 0.999
    traces = network.forward(model, many.inputs, many.lengths)
    assert all(0 < error < 0.5 for error in network.errors(model, traces, many.inputs, many.lengths))
    few = samples.first(5)
    alone = network.forward(model, few.inputs, few.lengths)[-1].outputs
    assert np.array_equal(alone, outputs[:5])


def test_models_are_shipped_and_as_good_as_promised():
    shipped, names = {path.stem: path for path in MODELS}, (
        "fashion-mlp-w4a4", "vowels-lstm-w8", "fashion-mlp-bfp8", "fashion-resnet-w8")
    assert shipped.keys() == set(names)
    mlp, lstm, lazy, resnet = (load_model(shipped[name]) for name in names)
    assert (mlp.data, mlp.layers[0].weights_format) == ("fashion-mnist", Format(bits=4, symmetric=True))
    assert mlp.provenance.golden_accuracy >= 0.88
    assert (lstm.data, lstm.layers[0].weights_format) == ("japanese-vowels", Format(bits=8, symmetric=True))
    assert lstm.provenance.golden_accuracy >= 0.96
    assert (lazy.data, lazy.layers[0].weights_format.bits) == ("fashion-mnist", 8)
    assert lazy.provenance.golden_accuracy >= 0.88
    assert (resnet.data, resnet.layers[0].input_format) == ("fashion-mnist", Format(bits=8, symmetric=True))
    assert resnet.provenance.golden_accuracy >= 0.90


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_shipped_layers_are_what_the_lowering_makes_of_their_recorded_scales(path):
    for layer in load_model(path).layers:
        if "gain" not in getattr(layer, "real", {}):
            continue
        (s_in, m_in), (s_out, m_out) = layer.real["input"], layer.real["output"]
        again = lowering.dense(
            name=layer.name,
            codes=layer.weights.reshape(len(layer.weights), -1),
            gain=layer.real["gain"],
            constant=layer.real["constant"],
            weights_format=layer.weights_format,
            input_format=layer.input_format,
            unsigned=layer.unsigned,
            s_in=s_in,
            m_in=m_in,
            s_out=s_out,
            m_out=m_out,
            quantize_input=layer.quant_scale is not None,
        )
        for name in "start", "p", "scale", "offset":
            assert np.array_equal(getattr(layer, name), getattr(again, name)), name
        if layer.quant_scale is not None:  # a convolution has one for each channel
            assert set(layer.quant_scale) == set(again.quant_scale)


def test_missing_data_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"t10k-images-idx3-ubyte.gz: no such file; Debian's package"):
        dataset.load("fashion-mnist", tmp_path)
    with pytest.raises(ValueError, match=r"test.safetensors: not a whole file of utterances"):
        dataset.load("japanese-vowels", tmp_path)
    with pytest.raises(ValueError, match="there is no data set 'mnist'"):
        dataset.load("mnist")
    (tmp_path / "fashion-mnist").mkdir()
    (tmp_path / "fashion-mnist" / "t10k-images-idx3-ubyte.gz").write_bytes(b"\x1f\x8b")
    with pytest.raises(ValueError, match="not a whole IDX file"):
        dataset.load("fashion-mnist", tmp_path)
