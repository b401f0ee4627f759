"""Model files: a model is read back as it was written, and faulty files are refused in a sentence."""

import json
from dataclasses import fields, replace

import numpy as np
import pytest
from concord.datasets.dataset import DATA
from concord.datasets.samples import Task
from concord.firmware.firmware_file import load_firmware
from concord.net.cells.lstm import LSTM
from concord.net.layers.layer import Unknown
from concord.net.lowering import block_lowering, lowering
from concord.net.model import Model, Provenance
from concord.net.model_file import GROUPS, KIND, load_model, save_model
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format, Rule
from safetensors.numpy import load_file, save_file

FOUR = Format(bits=4, symmetric=True)
BLOCK = Format(bits=5, e_min=-7, e_max=4, rule=Rule.CEIL)
PROVENANCE = Provenance(
    command="none", method="random", seed=3, fp32_accuracy=0.5, quantized_accuracy=0.25, golden_accuracy=0.125
)


def random_layers(*kinds):
    """Random layers of 6 inputs and outputs, without a float network."""
    rng = np.random.default_rng(5)
    formats = {"weights_format": FOUR, "input_format": FOUR}
    blocks = {"weights_format": BLOCK, "input_format": FOUR, "block": 4}
    codes, bias = rng.integers(-7, 8, (9, 6, 6)), rng.normal(size=(4, 6))
    steps = np.full(4, 0.1)
    known = {
        "dense": lowering.dense(
            name="dense",
            codes=codes[0],
            gain=0.1,
            constant=bias[0],
            unsigned=True,
            s_in=0.2,
            m_in=0.1,
            quantize_input=True,
            activation=Activation.TANH,
            **formats,
        ),
        "plain": lowering.dense(
            name="plain", codes=codes[1], gain=0.1, constant=bias[0], unsigned=False, s_in=0.2, **formats
        ),
        "lstm": lowering.recurrent(
            cell=LSTM,
            name="lstm",
            input_codes=codes[:4],
            recurrent_codes=codes[4:8],
            input_steps=steps,
            recurrent_steps=steps,
            bias=bias,
            s_in=0.1,
            quantize_input=False,
            initial={"hidden": bias[0]},
            **formats,
        ),
        "block_dense": block_lowering.block_dense(name="block_dense", weights=codes[0] / 9, bias=bias[0], **blocks),
        "block_lstm": block_lowering.block_recurrent(
            cell=LSTM, name="block_lstm", input_weights=codes[:4] / 9, recurrent_weights=codes[4:8] / 7, bias=bias,
            **blocks,
        ),
    }
    return tuple(replace(known[kind], float_operator=None, ranges={"input": (-1.0, 2.0)}) for kind in kinds)


def model(*kinds) -> Model:
    return Model(
        name="test",
        data="fashion-mnist",
        preprocessing="none",
        classes=("a", "b"),
        layers=random_layers(*kinds),
        provenance=PROVENANCE,
        fp32_predictions=np.arange(3, dtype=np.uint8),
        quantized_predictions=np.arange(4, dtype=np.uint8),
    )


@pytest.fixture
def path(tmp_path):
    """The path of a correct file with two layers."""
    save_model(model("lstm", "dense"), tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def rewrite(path, change):
    """Rewrite the file after `change(header, tensors)`."""
    tensors, header = load_file(path), json.loads(raw_header(path))
    change(header, tensors)
    save_file(tensors, path, {KIND.key: json.dumps(header)})


def raw_header(path) -> str:
    content = path.read_bytes()
    return json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"][KIND.key]


def assert_same(one, other):
    for item in fields(one):
        a, b = getattr(one, item.name), getattr(other, item.name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype
            assert np.array_equal(a, b), item.name
        elif item.name in GROUPS:
            assert a.keys() == b.keys()
            assert all(np.array_equal(a[key], b[key]) and a[key].dtype == b[key].dtype for key in a)
        elif item.name != "layers":
            assert a == b, item.name


@pytest.mark.parametrize("kinds", [("dense", "plain"), ("lstm", "dense"), ("block_lstm", "lstm", "block_dense")])
def test_round_trip(kinds, tmp_path):
    one = model(*kinds)
    save_model(one, tmp_path / "new" / "m.safetensors")
    other = load_model(tmp_path / "new" / "m.safetensors")
    assert_same(one, other)
    for a, b in zip(one.layers, other.layers, strict=True):
        assert type(a) is type(b)
        assert_same(a, b)
    save_model(other, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "new" / "m.safetensors").read_bytes()


@pytest.mark.parametrize(("task", "predictions"), [
    (Task.REGRESSION, np.arange(6, dtype=np.float32).reshape(3, 2)),
    (Task.ANOMALY, np.zeros((2, 5), np.float32)),
    (Task.NONE, np.zeros(0, np.uint8)),
    (Task.CLASSIFICATION, np.arange(300, dtype=np.int32)),
])
def test_round_trip_of_tasks(task, predictions, tmp_path):
    one = replace(model("dense"), task=task, description="data = \"x.npz\"\n", fp32_predictions=predictions,
                  quantized_predictions=predictions)
    save_model(one, tmp_path / "m")
    assert_same(one, load_model(tmp_path / "m"))


def test_names_of_earlier_versions_are_read(path):
    wanted = load_model(path)

    def earlier(header, tensors):
        header["provenance"]["qat_accuracy"] = header["provenance"].pop("quantized_accuracy")
        tensors["predictions.qat"] = tensors.pop("predictions.quantized")

    rewrite(path, earlier)
    assert_same(wanted, load_model(path))


def test_the_header_of_shipped_models_stays_as_it_is(tmp_path):
    for path in (DATA / "models").glob("*.safetensors"):
        loaded = load_model(path)
        assert (loaded.task, loaded.description) == (Task.CLASSIFICATION, "")
        save_model(loaded, tmp_path / "m")
        written = json.loads(raw_header(tmp_path / "m")).keys()
        assert written == json.loads(raw_header(path)).keys() | {"float_network"}


def test_every_truncation_is_refused(path):
    content = path.read_bytes()
    for length in {*range(0, len(content), 97), len(content) - 1}:
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match="model.safetensors: not a whole safetensors file"):
            load_model(path)


def test_a_model_is_no_firmware(path):
    with pytest.raises(ValueError, match="it holds a (quantised )?model and no firmware; `nnp compile` makes one"):
        load_firmware(path)


def test_missing_garbage_and_foreign_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no such model file"):
        load_model(tmp_path / "none.safetensors")
    (tmp_path / "garbage").write_bytes(np.random.default_rng(0).bytes(5000))
    with pytest.raises(ValueError, match="not a whole safetensors file"):
        load_model(tmp_path / "garbage")
    save_file({"x": np.zeros(3)}, tmp_path / "foreign")
    with pytest.raises(ValueError, match="but no model"):
        load_model(tmp_path / "foreign")
    header = json.dumps({"x": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}).encode()  # numpy lacks bfloat16
    (tmp_path / "bfloat16").write_bytes(len(header).to_bytes(8, "little") + header + bytes(2))
    with pytest.raises(ValueError, match="a safetensors file, but no model"):
        load_model(tmp_path / "bfloat16")
    save_file({"x": np.zeros(3)}, tmp_path / "broken", {KIND.key: "{"})
    with pytest.raises(ValueError, match="JSON header cannot be read"):
        load_model(tmp_path / "broken")


def replaced(key, change):
    return lambda header, tensors: tensors.update({key: change(tensors[key])})


def spoil(array, value):
    array = array.copy()
    array.flat[0] = value
    return array


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h, t: t.pop("dense.scale"), "layer 'dense', scale: missing"),
        (lambda h, t: h["layers"][1].pop("p"), "layer 'dense', p: missing"),
        (lambda h, t: h["layers"][1].update(p=32), "layer 'dense', p: 32 does not fit 6 signed bits"),
        (lambda h, t: h["layers"][1].update(p="1"), "layer 'dense', p: '1' is of the wrong type"),
        (lambda h, t: h["layers"][1].update(activation="gelu"), "'gelu' is not a valid Activation"),
        (lambda h, t: h["layers"][1]["input_format"].update(bits=99), "a mantissa has 2 to 16 bits"),
        (lambda h, t: h["layers"][1]["ranges"].update(input=[2, 1]), "layer 'dense', ranges: input"),
        (lambda h, t: h.pop("classes"), "the header lacks 'classes'"),
        (lambda h, t: h.update(task="sorting"), "'sorting' is not a valid Task"),
        (lambda h, t: h.update(task="regression"), "predictions.fp32: float32\\[samples, outputs\\] is needed"),
        (lambda h, t: h.update(description=3), "description: 3 is of the wrong type"),
        (lambda h, t: h.update(version=99), "model file version 99"),
        (lambda h, t: h.update(layers=[]), "has no layers"),
        (lambda h, t: h.update(layers=h["layers"] * 2), "two layers of one name"),
        (lambda h, t: h["layers"].reverse(), "recurrent layer 'lstm' cannot follow layer 'dense'"),
        (lambda h, t: t.pop("predictions.fp32"), "predictions.fp32: uint8"),
        (replaced("dense.weights", lambda a: a.astype(np.float32)), r"weights: int16\[6, 6\] is needed, not float32"),
        (replaced("dense.weights", lambda a: spoil(a, -8)), r"codes lie in -8..7, outside -7..7"),
        (replaced("dense.weights", lambda a: a[:, :4].copy()), r"quant_scale: uint16\[4\] is needed, not uint16\[6\]"),
        (replaced("dense.weights", lambda a: a[0]), "weights: a matrix .* is needed"),
        (replaced("dense.scale", lambda a: spoil(a, np.nan)), "scale: infinity or NaN in binary16"),
        (replaced("dense.offset", lambda a: spoil(a, np.inf)), "offset: infinity or NaN in binary16"),
        (replaced("dense.real.gain", lambda a: spoil(a, np.nan)), "real.gain: finite"),
        (replaced("lstm.input_weights", lambda a: a[:3].copy()), r"input_weights: \[4, outputs, inputs\] is needed"),
        (replaced("lstm.bias", lambda a: a[:, :2].copy()), r"bias: uint16\[4, 6\] is needed, not uint16\[4, 2\]"),
    ],
)
def test_a_wrong_field_is_named(path, change, message):
    rewrite(path, change)
    with pytest.raises(ValueError, match=message) as error:
        load_model(path)
    assert str(error.value).startswith(str(path))


def test_an_exponent_outside_its_format_is_named(tmp_path):
    save_model(model("block_dense"), tmp_path / "m")
    rewrite(tmp_path / "m", replaced("block_dense.exponents", lambda a: spoil(a, 9)))
    with pytest.raises(ValueError, match=r"block_dense', exponents: exponents lie in .*9, outside -7..4"):
        load_model(tmp_path / "m")


def test_layers_that_do_not_fit_each_other_are_named():
    dense, lstm = random_layers("dense", "lstm")
    narrow = replace(dense, name="narrow", weights=dense.weights[:, :3].copy(), quant_scale=None, quant_offset=None)
    with pytest.raises(ValueError, match="layer 'narrow' takes 3 inputs, but 'lstm' before it gives 6"):
        replace(model("lstm"), layers=(lstm, narrow))


def test_an_unknown_layer_is_kept_by_name(path):
    rewrite(path, lambda header, tensors: header["layers"].append({"kind": "Conv2d", "name": "conv"}))
    layers = load_model(path).layers
    assert layers[0].cell is LSTM
    assert isinstance(layers[2], Unknown)
    assert (layers[2].name, layers[2].kind) == ("conv", "Conv2d")
    with pytest.raises(ValueError, match="layer 'conv' is of the unknown kind 'Conv2d' and cannot be written"):
        save_model(load_model(path), path)
