"""Training that goes on from a quantised model, and layers of another network that start from one."""

import csv
from dataclasses import replace
from pathlib import Path

import concord
import numpy as np
import pytest
from concord.datasets.samples import DataSet, Samples, Task
from concord.lib.input_axes import Order
from concord.net import network as golden
from concord.net.float_network import float_network
from concord.net.graph import Graph
from concord.net.model_file import load_model
from concord.net.quantize.options import QuantizationOptions
from concord.net.quantize.recipe import ActivationTraining, WeightTraining
from concord.net.quantize.widths import NetworkArithmetic
from concord.tests import float_networks
from concord.tests.command_line import done
from concord.tests.float_networks import Chain
from concord.workflows import imports

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
from concord.net.model import Model
from concord.net.ops.pointwise import Relu
from concord.net.ops.reshape import Flatten
from concord.net.quantize.quantized import calibrate, prepared
from concord.net.quantize.started import Begun, StartedIntegers
from concord.train.lib.export import floats, patterns
from concord.train.lib.observer import CsvLog, Observer
from concord.train.network.quantized_network import QuantizedNetwork
from concord.train.runs.imported import train_imported

pytestmark = pytest.mark.usefixtures("seeded")
OWN = QuantizationOptions(weights_bits=4, input_bits=5)


def data_for(network: Graph) -> DataSet:
    rng = np.random.default_rng(3)
    samples = Samples(inputs=rng.normal(0, 1, (40, np.prod(network.shape))).astype(np.float16).view(np.uint16),
                      labels=np.arange(40) % 3)
    return DataSet(name="own", task=Task.CLASSIFICATION, shape=network.shape, description="", order=Order.MACHINE,
                   calibration=None, train=samples, test=samples)


def scaled() -> Graph:
    chain = Chain((3, 5, 5)).affine("a", (0.5, 30.0, 4.0), (0.1, -2.0, 0.0)).conv("c", 4, 3).add(Relu(), "r")
    return chain.add(Flatten(), "f").dense("d", 4, 36).network()


def trained(network: Graph, out, options: QuantizationOptions = OWN, **others) -> Model:
    return train_imported(out, network=network, data=data_for(network), choices=options.choices(), **others)


@pytest.mark.parametrize(("network", "options"), [
    (float_networks.images(), OWN), (float_networks.residual(), replace(OWN, activations=ActivationTraining.PACT)),
    (float_networks.perceptron(), replace(OWN, weights=WeightTraining.DOREFA, symmetric=True)), (scaled(), OWN),
    (float_networks.images(), replace(OWN, input_parts=3)), (scaled(), replace(OWN, input_parts=3))],
    ids=["images", "residual", "perceptron", "scaled", "parts", "scaled parts"])
def test_training_goes_on_with_the_bits_of_the_model(network, options, tmp_path):
    model = trained(network, tmp_path / "model.safetensors", options)
    graph, begun, data = float_network(model), Begun(model=model, whole=True), data_for(network)
    arithmetic = StartedIntegers(prepared(graph, OWN.choices(), scales_apart=True).plan, OWN.choices(), begun)
    x = data.train.inputs
    calibrate(arithmetic, floats(x).numpy().reshape(-1, *graph.shape))
    net = QuantizedNetwork(arithmetic)
    assert np.array_equal(patterns(net(floats(x), lowered=True).detach()), golden.forward(model, x)[-1].outputs)
    again = trained(graph, tmp_path / "more.safetensors", begun=begun, epochs=(1, 1),
                    progress=Observer(log=CsvLog(tmp_path / "log.csv")))
    with (tmp_path / "log.csv").open(newline="") as file:
        first, second, *_ = csv.DictReader(file)
    assert (first["phase"].split(",")[0], first["epoch"]) == ("start", "0")
    assert float(first["accuracy"]) == model.provenance.golden_accuracy
    assert second["phase"] == "QAT"
    assert any((mine.offset != own.offset).any() for mine, own in zip(again.layers, model.layers, strict=True)
               if hasattr(own, "weights"))


def test_layers_of_a_name_and_shape_start_from_the_model(tmp_path):
    """The layers of another network; one of another shape is quantised anew."""
    model, other = trained(scaled(), tmp_path / "model.safetensors"), wider()
    made = trained(other, tmp_path / "other.safetensors", OWN, begun=Begun(model=model, whole=False), epochs=(0, 0))
    (first, last), (own, _) = made.layers, model.layers
    assert made.provenance.method.startswith("small: 1 layers start from model (c), d from the network")
    assert np.array_equal(first.weights, own.weights)
    for key in "gain", "constant", "input":
        assert np.array_equal(first.real[key], own.real[key])
    assert last.weights.shape == (5, 36)


def wider() -> Graph:
    """The network `scaled` with other weights, and one output more."""
    chain = Chain((3, 5, 5), seed=5).affine("a", (0.5, 30.0, 4.0), (0.1, -2.0, 0.0)).conv("c", 4, 3).add(Relu(), "r")
    return chain.add(Flatten(), "f").dense("d", 5, 36).network()


def test_what_no_training_goes_on_from_is_refused(tmp_path):
    network = float_networks.perceptron()
    model = trained(network, tmp_path / "model.safetensors")
    blocks = replace(OWN, arithmetic=NetworkArithmetic.BFP, input_bits=4)
    begun = Begun(model=model, whole=True)
    with pytest.raises(ValueError, match="it decides where quantisers start: leave out --stages"):
        begun.check(replace(OWN, stages="weights+saturations+offsets:1").recipe())
    with pytest.raises(ValueError, match="leave out --arithmetic bfp"):
        begun.check(blocks.recipe())
    with pytest.raises(ValueError, match="layers in block floating point cannot be trained on from a model"):
        assert Begun(model=trained(network, tmp_path / "blocks.safetensors", blocks), whole=True).layers
    with pytest.raises(ValueError, match="a model keeps its widths under training"):
        imports.begun(model, None, OWN)
    with pytest.raises(ValueError, match="trained on from its own numbers"):
        imports.begun(model, model, QuantizationOptions())
    bare = replace(model, layers=tuple(replace(layer, real={}) for layer in model.layers))
    with pytest.raises(ValueError, match="layer 'one' does not hold the real numbers"):
        assert Begun(model=bare, whole=True).layers


def test_the_command_goes_on_from_a_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    network = float_networks.perceptron()
    model, rng = trained(network, tmp_path / "model.safetensors"), np.random.default_rng(0)
    np.savez("d.npz", x_train=rng.normal(0, 1, (30, 12)).astype(np.float32), y_train=np.arange(30) % 4,
             x_test=rng.normal(0, 1, (30, 12)).astype(np.float32), y_test=np.arange(30) % 4)
    done("train", "model.safetensors", "--data", "d.npz", "--epochs", "1,0", "--log", "log.csv", "-o",
         "on.safetensors")
    layers = load_model(Path("on.safetensors")).layers
    widths = [(layer.weights_format.bits, layer.input_format.bits) for layer in layers]
    assert widths == [(4, 5)] * len(model.layers)
    assert f'"start, {len(model.layers)} layers start from model",0,' in Path("log.csv").read_text()
    again = concord.finetune("on.safetensors", "d.npz", epochs=(0, 0)).measures["quantised"]
    assert again == load_model(Path("on.safetensors")).provenance.quantized_accuracy
