"""Training on golden's trainer leaves the checkpoints of PyTorch, and each goes on from those of the other."""

from dataclasses import replace

import pytest
from concord.datasets import dataset
from concord.golden.lazy.tensor_network import Conv, Dense, MaxPool, Recurrent, Relu
from concord.golden.lazy.tensor_training import Rates
from concord.net.cells.registry import CELLS
from concord.train.bfp.options import LazyOptions, TrainedOn, UpdateRule

pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
lazy = pytest.importorskip("concord.train.runs.lazy")
checkpoints = pytest.importorskip("concord.train.bfp.tensor_checkpoint")
trainers = pytest.importorskip("concord.verification.trainers")
data = pytest.importorskip("concord.train.lib.data")

LAYERS = (Conv(1, 4, 5, 3, 1), Relu(), MaxPool(3, 3), Dense(36, 10))
EPOCHS = 3


class Stopped(Exception):
    """Somebody has ended the training."""


def trained(folder, machine=None, stop=EPOCHS + 1, layers=LAYERS, shape=(1, 28, 28)):
    """The bytes of the checkpoint, once training has ended or is stopped in an epoch."""
    samples = dataset.load("fashion-mnist").first(25)
    trainee = lazy.Trainee(
        layers=layers,
        names={"0": "a", "3": "b"},
        shape=shape,
        batch=10,
        sets=data.Sets(name="data", train=samples, test=samples),
        preprocessing="",
    )
    begun = checkpoints.Checkpoint(
        layers=layers,
        rule=UpdateRule.LAZY,
        rates=Rates(learning_rate=0.1, momentum=0.9),
        seed=3,
        epochs=EPOCHS,
        shape=shape,
        names=trainee.names,
        data="data",
    )
    notes = []

    def progress(phase, step, steps, note):
        notes.append((phase, step, steps, note))
        if (phase, step) == ("lazy update", stop):
            raise Stopped

    options = LazyOptions(rate=0.1)
    try:
        net, _ = lazy.trained(trainee, begun, options, folder, machine=machine, progress=progress)
        counts = net.counts
    except Stopped:
        counts = None
    return (folder / lazy.CHECKPOINT).read_bytes(), counts, notes


def test_checkpoints_are_the_same_bytes(tmp_path):
    golden = trainers.machine_training(TrainedOn.GOLDEN)
    pytorch, counts, _ = trained(tmp_path / "pytorch")
    machine, others, notes = trained(tmp_path / "golden", golden)
    assert (machine, others) == (pytorch, counts)
    assert counts.steps
    assert counts.changes
    phase, step, steps, note = notes[0]
    assert (phase, step, steps) == ("steps on the trainer", 0, 9)
    assert note.startswith("of about ")
    assert note.endswith(" at most")
    several = trainers.machine_training(TrainedOn.GOLDEN, cores=3)
    for first, second in ((None, golden), (golden, None), (golden, several)):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        trained(folder, first, stop=2)
        assert trained(folder, second)[:2] == (pytorch, counts)


def test_what_a_trainer_does_not_have_is_refused(tmp_path):
    layers = (Recurrent(CELLS["gru"], 28, (8,)), Dense(8, 10))
    net = lazy.network(layers, UpdateRule.LAZY, Rates(learning_rate=0.1, momentum=0.9))
    with pytest.raises(ValueError, match="layer '0' is recurrent, and a trainer has no such layers"):
        trainers.machine_training("golden")(net, layers, (28,), Rates(learning_rate=0.1, momentum=0.9), [4], 1, print)
    with pytest.raises(ValueError, match="there is no trainer 'board': choose one of golden, library"):
        trained(tmp_path, trainers.machine_training("board"))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rule": UpdateRule.NONE}, "--rule none: a trainer has the lazy update only"),
        ({"momentum": 0.0}, "--momentum 0: a trainer keeps momenta"),
        ({"processes": 2}, "--processes 2: one process drives a trainer"),
        ({"compare": "golden"}, "--compare golden is for --machine library"),
        ({"compare": "library"}, "--compare library: golden is what a machine is compared with"),
        ({"cores": 9}, "--cores 9: a batch is shared by 1 to 8 trainers"),
        ({"cores": 2, "machine": TrainedOn.PYTORCH}, "--cores 2 is for --machine golden or library"),
    ],
)
def test_options_that_a_trainer_does_not_take(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        replace(LazyOptions(machine=TrainedOn.GOLDEN), **options).check(lazy=True)
    LazyOptions(machine=TrainedOn.LIBRARY, compare="golden").check(lazy=True)
