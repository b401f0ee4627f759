"""Networks whose weights or inputs have exponents of their own: training against golden, and the golden machine."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ROOM
from concord.golden.mvm.elements import representable
from concord.net import graph_file as file
from concord.net.model_file import load_model, save_model
from concord.nnp.main import app
from concord.spec.machine.config import preset
from concord.spec.machine.machine_file import find_config
from concord.spec.numbers.formats import Format
from concord.tests import float_networks
from concord.tests.command_line import done
from concord.tests.compiled import agree_on_random as agree
from typer.testing import CliRunner

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")

from concord.net.quantize.choices import BlockRecipe
from concord.net.quantize.options import QuantizationOptions
from concord.net.quantize.widths import NetworkArithmetic
from concord.tests.train.test_bfp_networks import NETWORKS, assert_golden, small
from concord.tests.train.test_image_networks import IN_BLOCKS, made
from concord.train.lib.fit import cross_entropy
from concord.train.network.quantized_network import behind_quantizers
from concord.train.qat.block_quantizer import BlocksFunction

RECIPES = {
    "powers of two": BlockRecipe(weights_element=(3, 0), input_bits=8),
    "floats": BlockRecipe(weights_element=(4, 3), exponents=(4, 4), input_bits=8, input_exponents=(-11, 4)),
    "both": BlockRecipe(weights_element=(2, 1), input_element=(3, 2))}
MACHINES = {
    "powers of two": "weights = { precision = 1 }\n",
    "floats": "weights = { bits = 19, precision = 4, e_min = 4, e_max = 4 }\n",
    "both": "weights = { bits = 5, precision = 2 }\nactivations = { bits = 10, precision = 3 }\n"}


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)
    torch.manual_seed(3)


@pytest.mark.parametrize("kind", RECIPES)
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_golden_before_and_after_a_step(name, kind):
    net, x = small(name)
    quantized = behind_quantizers(net, x, RECIPES[kind])
    assert_golden(quantized, x)
    optimiser = torch.optim.SGD(quantized.groups(0.1), momentum=0.9)
    before = [p.detach().clone() for p in quantized.parameters()]
    cross_entropy(quantized(x), torch.arange(len(x)) % 10).backward()
    optimiser.step()
    assert all((p != q).any() == p.requires_grad for p, q in zip(quantized.parameters(), before, strict=True))
    assert_golden(quantized, x)


@pytest.mark.parametrize("kind", MACHINES)
@pytest.mark.parametrize("name", ["resnet", "mobilenet"])
def test_the_golden_machine_has_the_bits_of_the_network(name, kind, tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(f'based_on = "vision"\nmultipliers = 0\nacc_frac = 46\n{MACHINES[kind]}')
    recipe = QuantizationOptions(preset=str(path), arithmetic=NetworkArithmetic.BFP).recipe()
    net, x = made(name, IN_BLOCKS)
    layers, sources = behind_quantizers(net, x, recipe).lower()
    model = networks.model(layers, sources=sources)
    save_model(model, tmp_path / "model.safetensors")
    read = load_model(tmp_path / "model.safetensors")
    weights = [layer for layer in read.layers if hasattr(layer, "mantissas")]
    assert all(representable(layer.mantissas, find_config(str(path)).weights) for layer in weights)
    agree(replace(find_config(str(path)), **ROOM), read)


def test_gradients_stop_where_weights_clip_and_not_where_they_round():
    fmt = Format.floating(3, 0, e_min=1, e_max=1)  # powers of two up to 1
    x = torch.tensor([[1.0, 1.4, 1.6, 0.3, 2.0]], requires_grad=True)
    y = BlocksFunction.apply(x, fmt, 5, 1)
    assert y.tolist() == [[1.0, 1.0, 1.0, 0.25, 1.0]]
    y.sum().backward()
    assert x.grad.tolist() == [[1, 1, 0, 1, 0]]


def test_codes_outside_a_format_are_refused(tmp_path):
    net, x = made("resnet", IN_BLOCKS)
    layers, _ = behind_quantizers(net, x, RECIPES["powers of two"]).lower()
    with pytest.raises(ValueError, match="more than the 1 significant bits of E3M0"):
        replace(layers[0], mantissas=np.full_like(layers[0].mantissas, 3))


@pytest.mark.parametrize(("text", "sentence"), [
    ("image mlp --weights-float E3M0", "weights of E3M0: integers have no exponents of their own"),
    ("image mlp --input-float E2M1", "inputs of E2M1: integers have no exponents of their own"),
    ("image mlp --arithmetic bfp --weights-float 3", "--weights-float 3: bits of exponent and fraction are needed"),
    ("image mlp --arithmetic bfp --weights-float E9M1", "an exponent field has 1 to 5 bits"),
    ("image mlp --arithmetic bfp --weights-float E3M0 --weights-bits 3", "decides --weights-bits: leave one out"),
    ("image mlp --preset vision --arithmetic bfp --weights-float E3M0", "--preset vision decides"),
])
def test_options_that_do_not_go_together(text, sentence):
    result = CliRunner().invoke(app, ["train", *text.split()])
    assert result.exit_code == 2
    assert sentence in " ".join(result.output.split())


@pytest.mark.parametrize("command", ["quantize", "train"])
def test_imported_networks(command, tmp_path, monkeypatch):
    file.save(float_networks.perceptron(), tmp_path / "net.safetensors")
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", x_train=rng.normal(size=(30, 12)), y_train=np.arange(30) % 3)
    monkeypatch.chdir(tmp_path)
    done(command, "net.safetensors", "--data", "data.npz", "--arithmetic", "bfp", "--weights-float", "E3M0",
         "--input-bits", "8", "-o", "m.safetensors")
    formats = {layer.weights_format for layer in load_model("m.safetensors").layers}
    assert formats == {Format.floating(3, 0, e_min=-11, e_max=4)}


def test_a_model_is_quantised_again_from_its_float_network(tmp_path, monkeypatch):
    file.save(float_networks.perceptron(), tmp_path / "net.safetensors")
    np.savez(tmp_path / "data.npz", x_train=np.random.default_rng(0).normal(size=(30, 12)), y_train=np.arange(30) % 3)
    monkeypatch.chdir(tmp_path)
    common = ("--data", "data.npz", "--arithmetic", "bfp")
    done("quantize", "net.safetensors", *common, "--weights-bits", "3", "--input-bits", "3", "-o", "m.safetensors")
    made = []
    for source in ("net.safetensors", "m.safetensors"):
        done("quantize", source, *common, "--weights-float", "E4M3", "--input-float", "E4M3", "-o", "f.safetensors")
        made.append([layer.mantissas for layer in load_model("f.safetensors").layers])
    for left, right in zip(*made, strict=True):
        np.testing.assert_array_equal(left, right)


def test_a_model_without_float_network_is_refused(tmp_path):
    model = networks.mlp(np.random.default_rng(0), preset("speech"), [9, 7], block=True)
    model = replace(model, layers=tuple(replace(layer, float_operator=None, real={}) for layer in model.layers))
    save_model(model, tmp_path / "m.safetensors")
    result = CliRunner().invoke(app, ["quantize", str(tmp_path / "m.safetensors"), "--arithmetic", "bfp",
                                      "--preset", "speech"])
    assert result.exit_code == 2
    assert "the model does not hold the network that it was quantised from" in " ".join(result.output.split())


def test_a_machine_of_wide_floats_is_refused_by_verilog(tmp_path):
    path = tmp_path / "floats.toml"
    path.write_text('based_on = "tiny"\nmultipliers = 0\nacc_frac = 48\n'
                     'weights = { bits = 12, symmetric = true, precision = 9 }\n')
    result = CliRunner().invoke(app, ["verilog", "--preset", str(path), "-o", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "such a machine runs on the golden model only" in " ".join(result.output.split())
    assert preset("tiny").digest != find_config(str(path)).digest
