"""Networks that were trained by the lazy update are compiled without a change of any mantissa."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")

from concord.compiler.network import compile_network
from concord.datasets import dataset
from concord.frontends.torch.read import graph_of
from concord.golden.lazy import tensor_network, tensor_training
from concord.golden.lazy.lazy_update import Counts, Parameters
from concord.golden.lazy.tensor import to_training_tensor
from concord.golden.lazy.tensor_network import (
    AveragePool,
    Conv,
    Dense,
    MaxPool,
    Recurrent,
    Relu,
    Residual,
    named,
    shapes,
)
from concord.golden.lazy.tensor_training import Rates
from concord.net import network
from concord.net.cells.registry import CELLS
from concord.net.model_file import load_model
from concord.net.quantize.choices import BlockFormats
from concord.net.quantize.plan import Unsupported, plan
from concord.spec.machine.config import preset
from concord.spec.numbers.lazy import LazyFormat
from concord.tests.commands.test_data import write_images
from concord.train.bfp import tensor_fit
from concord.train.bfp.float_graph import drawn, planned
from concord.train.bfp.options import LazyOptions, UpdateRule, formats_of
from concord.train.bfp.tensor_checkpoint import Checkpoint, save
from concord.train.bfp.tensor_network import float_network, inputs
from concord.train.bfp.tensor_network import network as build
from concord.train.bfp.trained_blocks import exact_binary16, layers_of, trained_layers
from concord.train.lib import networks
from concord.train.lib.observer import CsvLog, Observer
from concord.train.runs import lazy
from concord.train.runs.lazy_checkpoint import checkpoint_model
from concord.workflows.imports import opened

TINY = preset("tiny")
TINY_FORMATS = BlockFormats(weights=TINY.weights, inputs=TINY.activations, block=TINY.native_dim)
RATES = Rates(learning_rate=0.05, momentum=0.9)
#: Everything that training has, on images of 8 x 8.
LAYERS = (Conv(1, 3, 3, 1, 1), Relu(), MaxPool(2, 2), Residual((Conv(3, 3, 3, 1, 1), Relu(), Conv(3, 3, 1)), ()),
          Relu(), Residual((Conv(3, 4, 3, 2, 1),), (Conv(3, 4, 1, 2),)), AveragePool(2, 2), Dense(4, 3))


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


def sequences(cell):
    return Recurrent(CELLS[cell], 5, (6, 4)), Dense(4, 3)


def trained(layers, shape, rule=UpdateRule.LAZY, epochs=2):
    """A network after some training on random numbers, and its checkpoint."""
    rng = np.random.default_rng(0)
    net = build(layers, rule, RATES, seed=1)
    x, labels = rng.random((60, *shape), np.float32), rng.integers(0, 3, 60)
    tensor_fit.fit(net, inputs(x), labels, epochs=epochs, batch_size=20, seed=0)
    names = {name: f"layer{index}" for index, (name, _) in enumerate(named(layers))}
    names |= {f"0.{index}": f"cell{index}" for index in range(2)} if isinstance(layers[0], Recurrent) else {}
    shape = shape[1:] if isinstance(layers[0], Recurrent) else shape
    return net, Checkpoint(layers=layers, rule=rule, rates=RATES, seed=1, shape=shape, names=names)


@pytest.mark.parametrize("rule", [UpdateRule.LAZY, UpdateRule.MASTER])
@pytest.mark.parametrize(("layers", "shape"), [(LAYERS, (1, 8, 8)), (lazy.perceptron((20, 9, 3))[0], (20,))])
def test_mantissas_of_training_are_those_of_the_model_and_of_its_firmware(layers, shape, rule, tmp_path):
    net, state = trained(layers, shape, rule)
    save(net, state, tmp_path / "kept")
    model = checkpoint_model(tmp_path / "kept", "tiny")
    made = {layer.name: layer for layer in model.layers}
    for name, title in state.names.items():
        weight, bias = (net.parameters[f"{name}.{part}"].golden() for part in ("weight", "bias"))
        assert (made[title].mantissas == weight.mantissas).all()
        assert (made[title].exponents == weight.exponent).all()
        assert (made[title].bias.view(np.float16) == bias.values).all()
    roomy = replace(TINY, matrix_tiles=256, vector_rf=512, bias_words=256, instructions=1024, initial_vrf=256,
                    addsub_vrf=256)
    tiles = compile_network(model, roomy).firmware.tiles.mantissas
    for layer in made.values():
        if layer.name in state.names.values():
            assert set(layer.mantissas.ravel()) <= set(tiles.ravel())


def test_a_checkpoint_is_a_network_in_float32(tmp_path):
    layers, _ = lazy.perceptron((20, 9, 3))
    net, state = trained(layers, (20,))
    save(net, state, tmp_path / lazy.CHECKPOINT)
    graph, imported = opened(tmp_path / lazy.CHECKPOINT)
    assert imported is None
    weights = [node.op.weight for node in graph.nodes if node.op.kind == "dense"]
    kept = [net.parameters[f"{name}.weight"].golden().values for name in state.names]
    assert all((one == other).all() for one, other in zip(weights, kept, strict=True))
    save(net, replace(state, shape=()), tmp_path / lazy.CHECKPOINT)
    with pytest.raises(ValueError, match="the checkpoint does not say what shape a sample has"):
        opened(tmp_path / lazy.CHECKPOINT)


@pytest.mark.parametrize("cell", ["lstm", "gru", "lstm-peephole"])
def test_recurrent_layers_of_the_model_have_the_mantissas_of_training(cell, tmp_path):
    net, state = trained(sequences(cell), (4, 5))
    save(net, state, tmp_path / "kept")
    model = checkpoint_model(tmp_path / "kept", "tiny")
    made = {layer.name: layer for layer in model.layers}
    for index in range(2):
        layer = made[f"cell{index}"]
        for at, gate in enumerate(layer.cell.gates):
            for kind in "input", "recurrent":
                kept = net.parameters[f"0.{index}.{gate.name}.{kind}"].golden()
                assert (getattr(layer, f"{kind}_mantissas")[at] == kept.mantissas).all()
                assert (getattr(layer, f"{kind}_exponents")[at] == kept.exponent).all()
            assert (layer.bias[at].view(np.float16) == net.parameters[f"0.{index}.{gate.name}.bias"].golden().values
                    ).all()
        for name in layer.cell.vectors:
            assert (layer.vectors[name].view(np.float16) == net.parameters[f"0.{index}.{name}"].golden().values).all()
    compile_network(model, replace(TINY, matrix_tiles=256, bias_words=256, addsub_vrf=256, multiply_vrf=256))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_steps_on_sequences_are_goldens(cell):
    layers, rng, lengths = sequences(cell), np.random.default_rng(2), np.array([4, 1, 3, 4, 2, 4])
    net, counts, momenta = build(layers, UpdateRule.LAZY, RATES, seed=3), Counts(), {}
    parameters = {name: kept.golden() for name, kept in net.parameters.items()}
    for _ in range(4):
        values, labels = rng.normal(size=(6, 4, 5)) * (np.arange(4) < lengths[:, None])[..., None], np.arange(6) % 3
        logits, tape = tensor_network.forward(layers, parameters, to_training_tensor(values, 8), lengths)
        loss, gradient = tensor_training.loss_gradient(logits.values, labels, 6)
        gradients = tensor_network.backward(parameters, tape, to_training_tensor(gradient, 16))
        tensor_training.train_step(parameters, momenta, gradients, RATES, counts)
        assert net.step(inputs(values, lengths=lengths), labels) == loss
        for name, want in parameters.items():
            got = net.parameters[name].golden()
            assert got.exponent == want.exponent, name
            assert np.array_equal(got.joint, want.joint), name
    assert net.counts == counts
    assert counts.steps


def test_the_way_to_a_float_network_and_back():
    values = {name: np.random.default_rng(0).normal(size=shape) for name, shape in shapes(LAYERS).items()}
    names = {name: f"layer{index}" for index, (name, _) in enumerate(named(LAYERS))}
    graph = drawn(LAYERS, (1, 8, 8), values, names)
    assert planned(plan(graph)) == (LAYERS, names)
    real = float_network(LAYERS)
    real.load_state_dict({name: torch.from_numpy(value).float() for name, value in values.items()})
    x = np.random.default_rng(1).random((4, 1, 8, 8), np.float32)
    assert np.allclose(graph.run(x), real(torch.from_numpy(x)).detach().numpy(), atol=1e-4)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_networks_of_sequences_in_fp32(cell):
    layers, rng = sequences(cell), np.random.default_rng(0)
    values = {name: rng.normal(size=shape) for name, shape in shapes(layers).items()}
    graph = drawn(layers, (5,), values, {"0.0": "first", "0.1": "second", "1": "output"})
    x, lengths = rng.random((3, 4, 5), np.float32), np.array([4, 1, 3])
    got = lazy.float_classifier(layers, values)(torch.from_numpy(x), torch.from_numpy(lengths))
    assert np.allclose(graph.run(x, lengths), got.detach().numpy(), atol=1e-4)


def test_residual_networks_of_pytorch():
    net = networks.build("resnet-small")
    layers, names = planned(plan(graph_of(net, networks.SHAPE)))
    assert [type(layer).__name__ for layer in layers] == [
        "Conv", "Relu", "Residual", "Relu", "Residual", "Relu", "Residual", "Relu", "AveragePool", "Dense"]
    assert layers[4].shortcut == ()
    assert names["2.shortcut.0"] == "1_around_0"
    assert list(names.values())[-1] == "4_2"


@pytest.mark.parametrize(("name", "sentence"), [
    ("mobilenet", "96 groups of channels, which training by lazy update does not have; use 1"),
    ("inception", "training by lazy update has no concat; it has convolutions, dense layers, pooling")])
def test_what_cannot_be_trained(name, sentence):
    with pytest.raises(Unsupported, match=sentence):
        planned(plan(graph_of(networks.build(name), networks.SHAPE)))


def test_training_ends_when_the_loss_has_converged():
    """At a rate that moves nothing, no loss of the one batch is smaller than the first one."""
    rng = np.random.default_rng(0)
    x, labels = inputs(rng.random((50, 20), np.float32)), rng.integers(0, 3, 50)
    for patience, rate, wanted in ((2, 2.0**-40, 3), (0, 2.0**-40, 5), (2, 0.05, 5)):
        net = build(lazy.perceptron((20, 9, 3))[0], UpdateRule.LAZY, Rates(learning_rate=rate, momentum=0.9), seed=1)
        losses = tensor_fit.fit(net, x, labels, epochs=5, batch_size=50, rate=rate, seed=0, patience=patience)
        assert len(losses) == wanted, (patience, rate)


def test_numbers_that_the_machine_lacks():
    def parameters(mantissas, exponent):
        return Parameters(np.asarray(mantissas), np.zeros_like(mantissas), exponent, LazyFormat())

    layers, names = lazy.perceptron((4, 3))
    graph = drawn(layers, (4,), {"0.weight": np.zeros((3, 4)), "0.bias": np.zeros(3)}, names)
    kept = {("output", "weight"): parameters([[0] * 4] * 3, 20), ("output", "bias"): parameters([0] * 3, 0)}
    with pytest.raises(ValueError, match="layer 'output': its weights ended with exponent 20"):
        trained_layers(graph, kept, formats_of())
    with pytest.raises(ValueError, match="layer 'output': its biases are too small for binary16"):
        exact_binary16(parameters([1, 1], -24), "output")


def test_from_images_to_firmware(tmp_path):
    """After training on few images, the tiles of the firmware hold the model's mantissas."""
    for part in ("images-idx3", "labels-idx1"):
        for name in "train", "t10k":
            shutil.copy(dataset.DATA / "fashion-mnist" / f"t10k-{part}-ubyte.gz", tmp_path / f"{name}-{part}-ubyte.gz")
    out = tmp_path / "model.safetensors"
    lazy.train_lazy(out, folder=tmp_path, samples=400, epochs=2)
    model = load_model(out)
    images = dataset.load("fashion-mnist").first(300)
    found = network.classes(network.forward(model, images.inputs, images.lengths)[-1].outputs)
    assert np.mean(found == images.labels) > 0.4
    tiles = compile_network(model, preset("trainer")).firmware.tiles.mantissas
    wanted = np.concatenate([layer.mantissas.ravel() for layer in model.layers])
    assert sorted(tiles[tiles != 0]) == sorted(wanted[wanted != 0])


def test_training_goes_on_from_its_checkpoint_alone(tmp_path):
    layers, names = lazy.perceptron((20, 9, 3))
    net, state = trained(layers, (20,))
    save(net, state, tmp_path / lazy.CHECKPOINT)
    begun = replace(state, names=names, losses=())
    with pytest.raises(ValueError, match="the checkpoint is of another training, with other layers, data, seed"):
        lazy.trained(None, begun, LazyOptions(), tmp_path)
    assert layers_of(net, state, TINY_FORMATS)[0][0].name == "layer0"


def own_images(folder, count=60):
    """A folder of a few images of 9 x 9 pixels in three classes."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(count)
    for part in "train", "t10k":
        write_images(folder, part, rng.integers(0, 256, (count, 9, 9)).astype(np.uint8),
                     np.arange(count, dtype=np.uint8) % 3)
    return folder


def test_a_checkpoint_of_other_training_samples_is_refused(tmp_path):
    """Fewer samples, or others in the same folder, are another training."""
    def train(samples):
        return lazy.train_lazy(tmp_path / "m", folder=tmp_path / "own", samples=samples, hidden=(5,), epochs=2,
                               kept=tmp_path / "kept")

    own_images(tmp_path / "own")
    train(50)
    train(50)
    with pytest.raises(ValueError, match="rates, epochs or training samples; name another folder"):
        train(40)
    own_images(tmp_path / "own", 70)
    with pytest.raises(ValueError, match="the checkpoint is of another training"):
        train(50)


def test_a_log_is_whole_after_going_on(tmp_path):
    """The second of two runs, which goes on from a checkpoint, logs the epochs of the first one, too."""
    def train(folder, log, stop=0):
        def progress(phase, step, steps, note):
            if stop and (phase, step) == (tensor_fit.PHASE, stop):
                raise KeyboardInterrupt

        lazy.train_lazy(tmp_path / "m", folder=tmp_path / "own", hidden=(5,), epochs=4, kept=tmp_path / folder,
                        progress=Observer(progress, CsvLog(tmp_path / log)))

    own_images(tmp_path / "own")
    train("through", "wanted.csv")
    with pytest.raises(KeyboardInterrupt):
        train("parts", "parts.csv", 3)
    train("parts", "parts.csv")
    assert (tmp_path / "parts.csv").read_text() == (tmp_path / "wanted.csv").read_text()
    assert len((tmp_path / "parts.csv").read_text().splitlines()) == 5
