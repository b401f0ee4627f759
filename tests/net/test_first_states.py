"""The states of recurrent layers before the first time step: drawn, or given in a file."""

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.datasets.dataset import DATA
from concord.golden.lib.float16 import to_bits, to_real
from concord.net import float_network, network
from concord.net.first_states import InitialState, with_drawn, with_given
from concord.net.model_file import load_model, save_model
from concord.tests.command_line import done, refused


@pytest.fixture
def model():
    return load_model(DATA / "models" / "vowels-lstm-w8.safetensors")


@pytest.fixture
def sequences():
    return networks.inputs(np.random.default_rng(2), 3, 4, 12)


def test_drawn_states_enter_the_layers_and_the_float_network(model, sequences):
    made = with_drawn(model, InitialState.UNIFORM, 7)
    outputs = [network.outputs(one, sequences) for one in (model, made, with_drawn(model, InitialState.UNIFORM, 7))]
    assert not np.array_equal(outputs[0], outputs[1])
    np.testing.assert_array_equal(outputs[1], outputs[2])
    golden = to_real(outputs[1])
    before, after = (np.abs(float_network.forward(one, sequences)[-1] - golden).max() for one in (model, made))
    assert after < before / 2
    assert not np.array_equal(*made.layers[0].initial.values())


def test_given_states_replace_those_that_they_name(model):
    first = model.layers[0]
    values = np.linspace(-1, 1, first.outputs)
    made = with_given(model, {f"{first.name}.cell": values})
    assert np.array_equal(made.layers[0].initial["cell"], to_bits(values.astype(np.float16)))
    assert np.array_equal(made.layers[0].initial["hidden"], first.initial["hidden"])


@pytest.mark.parametrize(("arrays", "words"), [
    ({"nobody.cell": np.zeros(4)}, "has no state 'nobody.cell'; its states are "),
    ({"hidden": np.zeros(3)}, "32 finite numbers are needed, not float64\\[3\\]"),
    ({"hidden": np.full(32, np.nan)}, "32 finite numbers are needed"),
    ({"hidden": np.full(32, 1e6)}, "outside binary16"),
])
def test_states_that_do_not_fit_are_refused(model, arrays, words):
    named = {name if "." in name else f"{model.layers[0].name}.{name}": array for name, array in arrays.items()}
    with pytest.raises(ValueError, match=words):
        with_given(model, named)


def test_commands_start_from_them(model, sequences, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_model(model, tmp_path / "m.safetensors")
    np.save("x.npy", sequences.view(np.float16))
    np.savez("s.npz", **{f"{model.layers[0].name}.hidden": np.full(model.layers[0].outputs, 0.5)})
    for text in "uniform:7", "s.npz":
        given = ("--inputs", "x.npy", "-o")
        done("predict", "m.safetensors", "--first-state", text, *given, "golden.npy")
        done("compile", "m.safetensors", "--first-state", text, "-o", "f.safetensors")
        done("run", "f.safetensors", *given, "machine.npy")
        np.testing.assert_array_equal(*(np.load(name).view(np.uint16) for name in ("golden.npy", "machine.npy")))
    assert "no file, and none of zero, uniform, normal" in refused("predict", "m.safetensors", "--first-state", "x")
    assert "the seed is a number from 0" in refused("predict", "m.safetensors", "--first-state", "normal:x")
