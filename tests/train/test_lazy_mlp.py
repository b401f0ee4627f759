"""A network that was trained by the lazy update is compiled without a change of any mantissa."""

import shutil

import numpy as np
import pytest
import torch
from concord.compiler.network import compile_network
from concord.datasets import dataset
from concord.golden.lazy.lazy_update import Parameters
from concord.golden.lazy.tensor_training import Rates
from concord.net import network
from concord.net.model_file import load_model
from concord.spec.machine.config import preset
from concord.spec.numbers.lazy import LazyFormat
from concord.train.bfp.parameters import UpdateRule
from concord.train.bfp.tensor_network import network as build
from concord.train.runs import lazy_mlp

TRAINER = preset("trainer")
FORMATS = lazy_mlp.EIGHT_BITS, lazy_mlp.EIGHT_BITS, TRAINER.native_dim


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


def test_mantissas_of_training_are_those_of_the_model():
    rng, plan = np.random.default_rng(0), lazy_mlp.layers((20, 9, 3))
    net = build(plan, UpdateRule.LAZY, Rates(learning_rate=0.05, momentum=0.9), seed=1)
    images, labels = torch.from_numpy(rng.random((60, 20), np.float32)), rng.integers(0, 3, 60)
    lazy_mlp.train_network(net, images, labels, epochs=3, rate=0.05, seed=0, progress=lambda *_: None)
    assert net.counts().steps > 0
    trained = {name: kept.kept.golden() for name, kept in net.parameters.items()}
    made = lazy_mlp.model_layers(plan, trained, *FORMATS)
    for layer, name in zip(made, ("0", "2"), strict=True):
        weight, bias = trained[f"{name}.weight"], trained[f"{name}.bias"]
        assert (layer.mantissas == weight.mantissas).all()
        assert (layer.exponents == weight.exponent).all()
        assert (layer.bias.view(np.float16) == bias.values).all()


def test_training_ends_when_the_loss_has_converged():
    """At a rate that moves nothing, no loss of the one batch is smaller than the first one."""
    rng = np.random.default_rng(0)
    images, labels = torch.from_numpy(rng.random((50, 20), np.float32)), rng.integers(0, 3, 50)
    for patience, rate, wanted in ((2, 2.0**-40, 3), (0, 2.0**-40, 5), (2, 0.05, 5)):
        net = build(lazy_mlp.layers((20, 9, 3)), UpdateRule.LAZY, Rates(learning_rate=rate, momentum=0.9), seed=1)
        done = lazy_mlp.train_network(net, images, labels, epochs=5, rate=rate, seed=0, progress=lambda *_: None,
                                      patience=patience)
        assert done == wanted, (patience, rate)


def test_an_exponent_that_the_machine_lacks():
    zeros = Parameters(np.zeros((3, 4), np.int64), np.zeros((3, 4), np.int64), 20, LazyFormat())
    bias = Parameters(np.zeros(3, np.int64), np.zeros(3, np.int64), 0, LazyFormat())
    with pytest.raises(ValueError, match="layer 'output': its weights ended with exponent 20"):
        lazy_mlp.block_dense("output", zeros, bias, *FORMATS, "none")


def test_from_images_to_firmware(tmp_path):
    """After training on few images, the tiles of the firmware hold the model's mantissas."""
    for part in ("images-idx3", "labels-idx1"):
        for name in "train", "t10k":
            shutil.copy(dataset.DATA / "fashion-mnist" / f"t10k-{part}-ubyte.gz", tmp_path / f"{name}-{part}-ubyte.gz")
    out = tmp_path / "model.safetensors"
    lazy_mlp.train_lazy_mlp(out, folder=tmp_path, samples=400, epochs=2)
    model = load_model(out)
    images = dataset.load("fashion-mnist").first(300)
    found = network.classes(network.forward(model, images.inputs, images.lengths)[-1].outputs)
    assert np.mean(found == images.labels) > 0.4
    tiles = compile_network(model, TRAINER).firmware.tiles.mantissas
    wanted = np.concatenate([layer.mantissas.ravel() for layer in model.layers])
    assert sorted(tiles[tiles != 0]) == sorted(wanted[wanted != 0])
