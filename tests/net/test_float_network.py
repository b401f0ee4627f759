"""The float network beside a quantised model: from the layers of earlier files, and in model files."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.net.cells.registry import CELLS
from concord.net.float_network import float_network, forward, separated
from concord.net.layers.joins import Concat
from concord.net.layers.recurrent import IntegerRecurrent
from concord.net.model_file import load_model, save_model
from concord.spec.machine.config import PRESETS
from concord.tests import real_networks

#: A machine for networks of all kinds.
CONFIG = replace(PRESETS["tiny"], vector_rf=4096)


@pytest.mark.parametrize("block", [False, True], ids=["integers", "blocks"])
@pytest.mark.parametrize("kind", ["dense", "images", "mixed", "lstm", "gru"])
def test_model_files_keep_the_float_network_apart(kind, block, tmp_path):
    rng = np.random.default_rng(3)
    model, x = real_networks.network(kind, rng, CONFIG, block)
    model = real_networks.with_reals(rng, model)
    save_model(model, tmp_path / "m.safetensors")
    again = load_model(tmp_path / "m.safetensors")
    assert again.graph is not None
    assert not any(name.startswith("fp32_") for layer in again.layers for name in getattr(layer, "real", ()))
    for one, other in zip(forward(model, x), forward(again, x), strict=True):
        np.testing.assert_array_equal(one, other)
    assert separated(again).graph is again.graph


def recurrent(**fields) -> IntegerRecurrent:
    """A recurrent layer with the numbers of a float network."""
    rng = np.random.default_rng(0)
    layer = networks.recurrent_layer(rng, CONFIG, CELLS["lstm"], fields.pop("name", "layer"), 5, 6)
    return replace(real_networks.with_reals(rng, networks.model((layer,))).layers[0], **fields)


def test_a_layer_that_begins_at_the_end_reads_a_sequence_backward():
    ahead, behind = recurrent(), recurrent(name="behind", reverse=True)
    x = np.random.default_rng(1).uniform(-1, 1, (2, 4, 5)).astype(np.float16)
    (want,) = forward(networks.model((ahead,)), x[:, ::-1].view(np.uint16))
    (made,) = forward(networks.model((behind,)), x.view(np.uint16))
    np.testing.assert_array_equal(made, want)
    both = networks.model((ahead, behind, Concat(name="both", sizes=(6, 6))), sources={
        "behind": ("",), "both": ("layer", "behind")})
    np.testing.assert_array_equal(forward(both, x.view(np.uint16))[2][:, 6:], made)


def test_first_states_belong_to_the_float_network():
    first = np.full(6, 0.5, np.float16)
    zero, layer = recurrent(), recurrent()
    layer = replace(layer, initial={**layer.initial, "cell": first.view(np.uint16)})
    x = np.zeros((1, 1, 5), np.uint16)
    graph = float_network(networks.model((layer,)))
    np.testing.assert_array_equal(graph.node("layer").op.first["cell"], first)
    assert (forward(networks.model((layer,)), x)[0] != forward(networks.model((zero,)), x)[0]).all()


def test_layers_without_its_numbers_have_no_float_network():
    model = networks.mlp(np.random.default_rng(0), CONFIG, [5, 4], block=False)
    assert float_network(model) is None
    with pytest.raises(ValueError, match="carries no FP32 parameters, so it cannot be compared with them"):
        forward(model, np.zeros((1, 5), np.uint16))
