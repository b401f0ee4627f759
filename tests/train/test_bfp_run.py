"""Training runs in block floating point: checkpoints, update rules, and several processes."""

import json
from dataclasses import replace

import numpy as np
import pytest
from concord.datasets import dataset
from concord.golden.lazy.tensor_network import AveragePool, Conv, Dense, MaxPool, Relu, Residual
from concord.golden.lazy.tensor_training import Rates
from concord.tests.command_line import done
from concord.tests.commands.test_data import write_images
from concord.train.bfp.options import CHECKPOINT, UpdateRule
from safetensors.numpy import load_file, save_file

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
networks = pytest.importorskip("concord.train.bfp.tensor_network")
fitting = pytest.importorskip("concord.train.bfp.tensor_fit")
checkpoint = pytest.importorskip("concord.train.bfp.tensor_checkpoint")
parameters = pytest.importorskip("concord.train.bfp.parameters")
parallel = pytest.importorskip("concord.train.bfp.parallel")

LAYERS = (Conv(1, 4, 3, 2, 1), Relu(), MaxPool(2, 2), Residual((Conv(4, 4, 3, padding=1),)), AveragePool(3, 2), Relu(),
          Dense(36, 10))
TENSOR_RULES = [rule for rule in UpdateRule if rule is not UpdateRule.FP32]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def samples():
    found = dataset.load("fashion-mnist").first(256)
    return networks.inputs(fitting.images(found)), found.labels


def begin(rule, rates=None, seed=1):
    rates = rates or Rates(learning_rate=0.05, momentum=0.9)
    state = checkpoint.Checkpoint(layers=LAYERS, rule=rule, rates=rates, seed=5)
    return networks.network(LAYERS, rule, rates, seed=seed), state


def train(net, samples, epochs, losses=()):
    return fitting.fit(net, *samples, epochs=epochs, batch_size=50, seed=5, losses=losses)


def content(net, state, path) -> bytes:
    checkpoint.save(net, state, path)
    return path.read_bytes()


@pytest.mark.parametrize("rule", TENSOR_RULES)
def test_training_resumes_to_the_bit(rule, samples, tmp_path):
    net, state = begin(rule)
    state = replace(state, losses=tuple(train(net, samples, 2)), shape=(1, 28, 28), names={"0": "first"}, data="d")
    checkpoint.save(net, state, tmp_path / "half")
    losses = train(net, samples, 4, state.losses)
    again, read = checkpoint.load(tmp_path / "half")
    assert read == state
    assert train(again, samples, 4, read.losses) == losses
    assert content(net, state, tmp_path / "one") == content(again, state, tmp_path / "other")
    assert net.counts == again.counts
    whole, _ = begin(rule)
    assert train(whole, samples, 4) == losses
    assert content(whole, state, tmp_path / "whole") == content(net, state, tmp_path / "one")


def test_a_checkpoint_holds_no_wider_copy_of_parameters(samples, tmp_path):
    net, state = begin(UpdateRule.LAZY)
    train(net, samples, 1)
    checkpoint.save(net, state, tmp_path / "file")
    kinds = {key.partition(":")[2]: value.dtype for key, value in load_file(tmp_path / "file").items()}
    assert kinds == {"mantissas": np.int8, "residuals": np.int16, "momentum": np.int16}


def test_wrong_checkpoints_are_clear_errors(samples, tmp_path):
    net, state = begin(UpdateRule.LAZY)
    path = tmp_path / "file"
    with pytest.raises(ValueError, match="there is no such checkpoint file"):
        checkpoint.load(path)
    checkpoint.save(net, state, path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="not a whole safetensors file"):
        checkpoint.load(path)
    checkpoint.save(net, state, path)
    header, arrays = checkpoint.tensor_file.read(CHECKPOINT, path)

    def written(header, arrays):
        text = json.dumps({"version": CHECKPOINT.version, **header})
        save_file(arrays, path, {CHECKPOINT.key: text})
        return path

    with pytest.raises(ValueError, match=r"it lacks '0.weight'; copy it again"):
        checkpoint.load(written(header | {"parameters": {}}, arrays))
    with pytest.raises(ValueError, match=r"0.weight, mantissas: \(3,\) where the layer has \(4, 1, 3, 3\)"):
        checkpoint.load(written(header, arrays | {"0.weight:mantissas": np.zeros(3, np.int8)}))
    with pytest.raises(ValueError, match="checkpoint file version 3, but this program reads version 4; copy it again"):
        checkpoint.load(written(header | {"version": 3}, arrays))
    with pytest.raises(ValueError, match="is not a valid UpdateRule"):
        checkpoint.load(written(header | {"arm": "other"}, arrays))


def test_starting_from_an_fp32_model(samples):
    real = networks.float_network(LAYERS)
    values = {name: value.detach().double().numpy() for name, value in real.named_parameters()}
    net = networks.network(LAYERS, UpdateRule.LAZY, Rates(learning_rate=0.01), values=values)
    for name, value in values.items():
        kept = net.parameters[name].kept.golden()
        unit = 2.0 ** (kept.exponent - 7 - 15)
        assert np.abs(kept.joint * unit - value).max() <= unit


def test_what_arms_lose():
    """Of many tiny updates, the lazy update keeps all; rounding them into mantissas loses all."""
    values = np.array([100.0, -100.0]) / 128
    update = parameters.ExactTensor(torch.tensor([1 << 24, -(1 << 24)]).double(), -40, 32)  # this is 1/128 of one unit
    ends = {}
    for rule in (UpdateRule.LAZY, UpdateRule.NONE, UpdateRule.FROZEN, UpdateRule.RESIDUAL8, UpdateRule.STOCHASTIC):
        kept = parameters.parameter(rule, values, Rates(learning_rate=1.0))
        for _ in range(1000):
            kept.subtract(update)
        ends[rule] = (kept.mantissas * 2.0**kept.lsb * 128).tolist()
    exact = 100 - 1000 * 2.0 ** (24 - 40) * 128
    assert ends[UpdateRule.NONE] == [100, -100]
    for rule in (UpdateRule.LAZY, UpdateRule.FROZEN):
        assert np.abs(np.abs(ends[rule]) - exact).max() <= 0.5
    assert np.abs(np.abs(ends[UpdateRule.STOCHASTIC]) - exact).max() < 6


@pytest.mark.parametrize("rule", [rule for rule in TENSOR_RULES if rule is not UpdateRule.NONE])
def test_rules_that_lose_no_updates_learn(rule, samples):
    """The mean of two seeds: single ones of `lazy` and `residual8` lie between 0.28 and 0.65."""
    found = []
    for seed in (1, 2):
        net, _ = begin(rule, seed=seed)
        train(net, samples, 12)
        found.append(fitting.accuracy(net, *samples))
    assert np.mean(found) > 0.4, found


def test_bytes_of_state():
    plain, momentum = Rates(learning_rate=0.1), Rates(learning_rate=0.1, momentum=0.9)
    state = {rule: tuple(parameters.state_bytes(rule, rates)["all"] for rates in (plain, momentum))
             for rule in UpdateRule}
    assert state == {"fp32": (4, 8), "master": (5, 9), "lazy": (3, 5), "none": (1, 3), "stochastic": (1, 3),
                     "frozen": (3, 5), "residual8": (2, 4)}


def test_fp32_is_refused_where_blocks_are_trained():
    with pytest.raises(ValueError, match="train it with torch's own layers"):
        networks.network(LAYERS, UpdateRule.FP32, Rates(learning_rate=0.1))


def test_too_small_a_batch_for_its_processes(samples):
    net, _ = begin(UpdateRule.LAZY)
    net.group = type("Seven", (parallel.Alone,), {"size": 7})
    with pytest.raises(ValueError, match="a batch of 6 samples for 7 processes: .*; use another number of samples, or"):
        train(net, samples, 1)
    assert not any(kept.momentum for kept in net.parameters.values()), "it is refused before the first step"
    with pytest.raises(RuntimeError, match="start under torchrun"):
        parallel.ProcessGroup()


def test_processes_train_to_the_bits_of_one(tmp_path):
    """Processes that `nnp train --processes` starts, as torchrun does, write the checkpoint of one process."""
    rng = np.random.default_rng(0)
    pixels, labels = rng.integers(0, 256, (77, 9, 9)).astype(np.uint8), np.arange(77, dtype=np.uint8) % 3
    for part in "train", "t10k":
        write_images(tmp_path, part, pixels, labels)
    words = [str(word) for word in ("train", "mlp", "--arithmetic", "bfp-lazy", "--data", tmp_path, "--epochs", 1)]

    def paths(count):
        return ["--checkpoint", str(tmp_path / f"c{count}"), "-o", str(tmp_path / f"model{count}")]

    # Batches of 50 and of 27, so that one process has more samples than the other.
    assert parallel.started(2, ["-m", "concord.nnp.main", *words, *paths(2)]) == 0
    done(*words, *paths(1))
    assert (tmp_path / "c1" / "checkpoint.safetensors").read_bytes() == (
        tmp_path / "c2" / "checkpoint.safetensors").read_bytes()


def test_a_process_that_fails_ends_the_others(tmp_path):
    program = "import os, sys, time; time.sleep(60 * (os.environ['RANK'] == '0')); sys.exit(3)"
    assert parallel.started(2, ["-c", program]) == 3
