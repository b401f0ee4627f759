"""Training that was stopped resumes to the same bits; its epochs are logged."""

import csv
import sys

import numpy as np
import pytest
from concord.datasets import dataset
from safetensors.numpy import save_file

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
from concord.train.lib import data
from concord.train.lib.checkpoints import Checkpoints
from concord.train.lib.fit import fit, reproducible
from concord.train.lib.observer import CsvLog, EpochRecord, Observer, TensorBoardLog, opened
from concord.train.overflow.options import OverflowOptions
from concord.train.runs import image, mlp, recurrent
from torch import nn

PHASES = ("FP32 training", "QAT", "QAT, lowered")


class Stopped(Exception):
    """Simulates a sudden end of the process."""


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Make training and test sets so small that training takes a moment."""
    images, vowels = dataset.load("fashion-mnist").first(150), dataset.load("japanese-vowels").first(60)
    monkeypatch.setattr(data, "fashion_mnist", lambda folder: images)
    monkeypatch.setattr(data, "japanese_vowels", lambda folder: vowels)
    monkeypatch.setattr(dataset, "load", lambda name: images if name == "fashion-mnist" else vowels)


def train_image(out, **options):
    return image.train_image(out, network="mlp", epochs=(3, 3, 3), samples=150, **options)


def train_mlp(out, **options):
    return mlp.train_mlp(out, hidden=(12,), epochs=(3, 3, 3), overflow=OverflowOptions(accumulator=10), **options)


def train_lstm(out, **options):
    return recurrent.train_recurrent(out, hidden=(6,), epochs=(3, 3, 3), **options)


def stopping(phase: str, number: int):
    """A progress function that stops training at call number `number` of a phase."""
    calls = []

    def progress(now, step, steps, note):
        calls.extend([now] * (now == phase))
        if len(calls) == number:
            raise Stopped

    return progress


@pytest.mark.parametrize("train", [train_image, train_mlp, train_lstm])
def test_stopped_training_ends_with_the_same_bytes(train, tmp_path):
    settings = {"network": train.__name__}
    train(tmp_path / "through" / "m")
    wanted = (tmp_path / "through" / "m").read_bytes()
    for phase in PHASES:
        folder = tmp_path / phase
        with pytest.raises(Stopped):
            train(folder / "m", progress=Observer(stopping(phase, 2), checkpoints=Checkpoints(folder, settings)))
        assert not (folder / "m").exists()
        told = []
        again = Observer(lambda *call, told=told: told.append(call), checkpoints=Checkpoints(folder, settings))
        train(folder / "m", progress=again)
        assert (folder / "m").read_bytes() == wanted
        steps = {call[1] for call in told if call[0] == phase}
        assert min(steps) == max(steps) * 2 // 3  # the first two epochs are not run again


class Noisy(nn.Module):
    """A network with dropout, which uses PyTorch's random numbers, and normalisation, which has scalar tensors."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Linear(6, 2))

    def forward(self, x):
        return self.layers(x)


def run(progress, optimiser=torch.optim.Adam, epochs=4, size=6, **options) -> dict:
    """Train `Noisy`, and return its state and that of the optimiser."""
    torch.manual_seed(1)
    x = torch.rand(120, 4)
    noise, net = torch.Generator().manual_seed(3), Noisy()
    chosen = optimiser(net.parameters(), lr=0.01)

    def loss(index):
        drawn = torch.randn(x[index].shape, generator=noise)
        return (net(x[index] + drawn) ** 2).mean()

    fit(phase="phase", net=net, loss=loss, optimiser=chosen, count=len(x), batch=2, epochs=epochs, seed=0,
        progress=progress, noise=noise, **options)
    return {**net.state_dict(), "rate": torch.tensor(chosen.param_groups[0]["lr"], dtype=torch.float64)}


@pytest.mark.parametrize("number", range(1, 8))
def test_every_call_to_stop(number, tmp_path):
    """Training resumes after a stop in the middle of an epoch, and after one at its end."""
    wanted = run(lambda *call: None)
    with pytest.raises(Stopped):
        run(Observer(stopping("phase", number), checkpoints=Checkpoints(tmp_path, {})))
    got = run(Observer(checkpoints=Checkpoints(tmp_path, {})))
    assert wanted.keys() == got.keys()
    assert all(torch.equal(wanted[name], got[name]) for name in wanted)
    assert [path.name for path in tmp_path.iterdir()] == ["phase.checkpoint"]


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    run(Observer(checkpoints=Checkpoints(tmp_path, {"seed": "0", "network": "mlp"})))
    with pytest.raises(ValueError, match=r"it is of another training, with seed 0, not 1; give the same command, or"):
        Checkpoints(tmp_path, {"seed": "1", "network": "mlp"})
    with pytest.raises(ValueError, match="of another training, with network mlp, not None"):
        Checkpoints(tmp_path, {"seed": "0"})
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="not a whole safetensors file"):
        Checkpoints(tmp_path, {"seed": "0", "network": "mlp"})
    save_file({"a": np.zeros(1)}, path)
    with pytest.raises(ValueError, match="a safetensors file, but no checkpoint"):
        Checkpoints(tmp_path, {})


def test_a_checkpoint_of_another_network_is_refused(tmp_path):
    run(Observer(checkpoints=Checkpoints(tmp_path, {})))
    net = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"phase.checkpoint: it does not fit the network \(.*Missing key"):
        fit(phase="phase", net=net, loss=lambda index: net(torch.ones(1, 2)).sum(), count=2, batch=1, epochs=1, seed=0,
            optimiser=torch.optim.SGD(net.parameters(), lr=1), progress=Observer(checkpoints=Checkpoints(tmp_path, {})))


def test_a_log_is_whole_after_going_on(tmp_path):
    def logged(name, progress=lambda *call: None):
        run(Observer(progress, log=CsvLog(tmp_path / name), checkpoints=Checkpoints(tmp_path / "kept", {})),
            accuracy=lambda: 0.5)

    with pytest.raises(Stopped):
        logged("first.csv", stopping("phase", 3))
    logged("second.csv")
    with (tmp_path / "second.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(record["phase"], record["epoch"], record["step"]) for record in rows] == [
        ("phase", str(epoch), str(60 * epoch)) for epoch in (1, 2, 3, 4)]
    assert all(float(record["accuracy"]) == 0.5 and float(record["loss"]) > 0 for record in rows)
    rates = [float(record["learning rate"]) for record in rows]
    assert rates == sorted(rates, reverse=True)
    assert 0 < rates[-1] < rates[0] < 0.01
    assert (tmp_path / "first.csv").read_text() in (tmp_path / "second.csv").read_text()


def test_measuring_changes_no_bit(tmp_path):
    """Measuring accuracy in evaluation mode between epochs does not change the training of an image network."""
    images = image.Images.load(100)
    plain = image.trained("mobilenet", images, 0, 2, None).state_dict()
    observer = Observer(log=CsvLog(tmp_path / "a.csv"))
    logged = image.trained("mobilenet", images, 0, 2, None, observer).state_dict()
    assert all(torch.equal(plain[name], logged[name]) for name in plain)
    train_image(tmp_path / "a" / "m")
    train_image(tmp_path / "b" / "m", progress=Observer(log=CsvLog(tmp_path / "log.csv")))
    assert (tmp_path / "a" / "m").read_bytes() == (tmp_path / "b" / "m").read_bytes()
    with (tmp_path / "log.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [record["phase"] for record in rows] == [phase for phase in PHASES for _ in range(3)]
    assert all(0 <= float(record["accuracy"]) <= 1 for record in rows)


ROW = EpochRecord(phase="QAT, lowered", epoch=1, step=4, rate=0.1, loss=2.0, accuracy=0.5)


def test_tensorboard_events(tmp_path):
    pytest.importorskip("tensorboardX", reason="tensorboardX is in the dependency group `logs`")
    log = opened(tmp_path / "events")
    log.write(ROW)
    log.close()
    (path,) = (tmp_path / "events").iterdir()
    content = path.read_bytes()
    assert all(name in content for name in (b"qat-lowered/loss", b"qat-lowered/accuracy", b"qat-lowered/learning-rate"))


def test_tensorboard_without_its_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ValueError, match=r"TensorBoard events need tensorboardX: pip install tensorboardX "):
        TensorBoardLog(tmp_path / "events")
    assert not (tmp_path / "events").exists()


@pytest.mark.parametrize("seed", [1.5, 1 << 63, "0"])
def test_what_is_no_seed_is_refused(seed):
    with pytest.raises(ValueError, match=r"--seed .*: a seed is a whole number of at most 64 bits"):
        reproducible(seed)
