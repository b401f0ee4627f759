"""Training that is watched and steered: nothing that is shown changes a bit, and changes can be repeated."""

import json
import sqlite3
import threading
import time
from contextlib import closing

import numpy as np
import pytest
import torch
from concord.dashboard.live import HISTORY, history
from concord.lib.progress import silent
from concord.net.cells import gru, lstm
from concord.net.quantize.options import QuantizationOptions
from concord.tests.own_digits import convolutional, perceptron, recurrent, written
from concord.train.lib.checkpoints import Checkpoints
from concord.train.lib.observer import Observer
from concord.train.live.changes import SteeringChange, read_changes
from concord.train.live.layer_figures import LayerFigures
from concord.train.live.live_database import TABLES
from concord.train.live.live_observer import LiveObserver
from concord.train.live.steered import SteeredObserver
from concord.train.network.quantized_network import behind_quantizers
from concord.train.overflow.options import OverflowOptions
from concord.train.runs.imported import train_imported
from concord.workflows import imports

CHOICES = QuantizationOptions(weights_bits=8, input_bits=8).choices()
EPOCHS = (12, 3)
#: Steps of the run: two batches in each epoch.
STEPS = 2 * sum(EPOCHS)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return data_of(perceptron(), tmp_path_factory.mktemp("digits"))


def data_of(network, folder):
    """Data of eight times eight numbers, whose labels are the network's answers."""
    return imports.data_set(written(folder, network)[1], network, None, None)


def trained(data, path, observer, accumulator=12, network=None):
    """The bytes of the model after training."""
    train_imported(
        path,
        network=network or perceptron(),
        data=data,
        choices=CHOICES,
        epochs=EPOCHS,
        overflow=OverflowOptions(accumulator=accumulator),
        progress=observer,
    )
    if isinstance(observer, LiveObserver):
        observer.close()
    return path.read_bytes()


def live(folder, progress=silent):
    return LiveObserver(folder, sum(EPOCHS), {}, progress, None, Checkpoints(folder / "checkpoint", {}))


def give(folder, number, **command):
    """Give the process of a run a command."""
    (folder / "commands").mkdir(parents=True, exist_ok=True)
    (folder / "commands" / f".{number}.part").write_text(json.dumps(command))
    (folder / "commands" / f".{number}.part").rename(folder / "commands" / f"{number:06}.json")


def rows(folder, query):
    with closing(sqlite3.connect(folder / "live.db")) as db:
        return db.execute(query).fetchall()


def giving(folder, commands):
    """Progress that gives commands after the steps of `commands`; an exception instead of a command is raised."""

    def show(phase, step, steps, note):
        number, found = next(((k, one) for k, one in enumerate(commands, 1) if one[0] == (phase, step)), (0, None))
        if found and isinstance(found[1], dict):
            give(folder, number, **found[1])
        elif found and not (folder / "again").exists():
            (folder / "again").touch()
            raise found[1]

    return show


COMMANDS = (
    (("QAT", 4), {"do": "set", "what": "threshold", "layer": None, "value": 50}),
    (("QAT", 8), {"do": "set", "what": "accumulator", "layer": None, "value": 13}),
    (("QAT", 10), {"do": "set", "what": "rate", "layer": None, "value": 0.02}),
    (("QAT", 14), {"do": "set", "what": "range", "layer": "two", "value": True}),
    (("QAT", 18), {"do": "set", "what": "weights_factor", "layer": "one", "value": 1.2}),
)


def test_who_watches_changes_nothing(data, tmp_path):
    folder = tmp_path / "run"
    assert trained(data, folder / "model", live(folder)) == trained(data, tmp_path / "model", Observer())
    assert [step for (step,) in rows(folder, "SELECT step FROM steps")] == list(range(1, STEPS + 1))
    assert {layer for (layer,) in rows(folder, "SELECT layer FROM layers")} == {"one", "two"}
    assert rows(folder, "SELECT step FROM steps WHERE accuracy IS NOT NULL")
    assert json.loads((folder / "state.json").read_text())["state"] == "finished"


@pytest.mark.parametrize(
    "network", [perceptron(), convolutional(), recurrent(lstm.LSTM)], ids=("mlp", "cnn", "lstm")
)
def test_the_error_of_a_layer_is_that_of_its_result(network):
    """Of 4 and of 8 bits, beside outputs of the whole network; each bit of weights and inputs halves the error."""
    shape = (6, 8) if network.sequence else network.shape
    x = np.random.default_rng(5).normal(size=(40, *shape)).astype(np.float32)
    found = []
    for bits in 4, 8:
        net = behind_quantizers(network, torch.tensor(x), QuantizationOptions(
            weights_bits=bits, input_bits=bits).choices()).eval()
        errors = LayerFigures(net, torch.tensor(x), None, None).errors()
        real, ours = network.run(x[:32]), net(torch.tensor(x[:32]), lowered=True).detach().numpy()
        whole = np.sqrt(np.mean((ours - real.reshape(ours.shape)) ** 2) / np.mean(real**2))
        assert errors["two"] == pytest.approx(whole, rel=1e-5)
        found.append(errors)
    for name in found[0]:
        assert 5 < found[0][name] / found[1][name] < 60, name


@pytest.fixture(scope="module")
def steered(data, tmp_path_factory):
    """The folder of a steered run, and the bytes of its model."""
    folder = tmp_path_factory.mktemp("steered")
    return folder, trained(data, folder / "model", live(folder, giving(folder, COMMANDS)))


def test_changes_are_repeated_to_the_bit(data, tmp_path, steered):
    folder, model = steered
    changes = read_changes(folder / "steering.json")
    assert [change.step for change in changes] == [4, 8, 10, 14, 18]
    assert len(rows(folder, "SELECT 1 FROM log WHERE change IS NOT NULL")) == len(COMMANDS)
    assert b"steered: threshold = 50 after 4 steps, accumulator = 13" in model
    assert trained(data, tmp_path / "model", SteeredObserver(silent, changes=changes)) == model
    assert trained(data, tmp_path / "model", SteeredObserver(silent, changes=changes[1:])) != model


@pytest.mark.parametrize(
    "network", [convolutional(), recurrent(lstm.LSTM), recurrent(gru.AFTER)], ids=("cnn", "lstm", "gru")
)
def test_changes_of_other_networks_are_repeated_to_the_bit(tmp_path, network):
    folder, data = tmp_path / "run", data_of(network, tmp_path)
    commands = COMMANDS[:2], COMMANDS[3:4]
    observer = live(folder, giving(folder, [one for part in commands for one in part]))
    model = trained(data, folder / "model", observer, network=network)
    changes = read_changes(folder / "steering.json")
    assert [change.what for change in changes] == ["threshold", "accumulator", "range"]
    assert all(error > 0 for (error,) in rows(folder, "SELECT error FROM layers"))
    assert {layer for (layer,) in rows(folder, "SELECT layer FROM layers")} >= {"two"}
    again = SteeredObserver(silent, changes=changes)
    assert trained(data, tmp_path / "model", again, network=network) == model


def test_a_run_that_was_interrupted_goes_on_to_the_bit(data, tmp_path, steered):
    folder = tmp_path / "run"
    folder.mkdir()
    broken = giving(folder, (*COMMANDS, (("QAT", 16), KeyboardInterrupt())))
    with pytest.raises(KeyboardInterrupt):
        trained(data, tmp_path / "model", live(folder, broken))
    assert trained(data, tmp_path / "model", live(folder, broken)) == steered[1]
    assert [step for (step,) in rows(folder, "SELECT step FROM steps")] == list(range(1, STEPS + 1))


def test_commands_come_between_changes_that_are_repeated(data, tmp_path, steered):
    folder = tmp_path / "run"
    folder.mkdir()
    later = json.loads((steered[0] / "steering.json").read_text())[1:]
    for change in later:
        change["number"] = 0  # nobody has taken the command that comes
    (folder / "steering.json").write_text(json.dumps(later))
    assert trained(data, folder / "model", live(folder, giving(folder, COMMANDS[:1]))) == steered[1]
    assert read_changes(folder / "steering.json") == read_changes(steered[0] / "steering.json")


def test_what_cannot_be_is_refused_and_changes_nothing(data, tmp_path):
    folder = tmp_path / "run"
    give(folder, 1, do="set", what="threshold", layer="three", value=1)
    give(folder, 2, do="set", what="accumulator", value=0)
    give(folder, 3, do="set", what="colour", value=3)
    give(folder, 4, do="sing")
    give(folder, 5, do="what_if", id="x", accumulator=8)
    assert trained(data, folder / "model", live(folder)) == trained(data, tmp_path / "model", Observer())
    refused = " ".join(text for (text,) in rows(folder, "SELECT text FROM log WHERE text LIKE 'refused%'"))
    for words in (
        "three: there is no such layer",
        "it lies in 1..64",
        "colour: this cannot be changed",
        "sing: there is no such command",
    ):
        assert words in refused
    assert not (folder / "steering.json").exists()
    ((answer,),) = rows(folder, "SELECT text FROM what_if WHERE id = 'x'")
    assert json.loads(answer)["one"]["sum_events"] > 0


def test_ranges_that_cannot_follow_a_change_stay(data, tmp_path):
    losses = []
    for name, changes in (
        ("plain", ()),
        ("refused", (("weights_factor", 1.0001), ("accumulator", 8), ("weights_factor", None))),
    ):
        folder = tmp_path / name
        for number, (what, value) in enumerate(changes, 1):
            give(folder, number, do="set", what=what, value=value)
        trained(data, tmp_path / "model", live(folder))
        losses.append(rows(folder, "SELECT step, loss FROM steps"))
    assert losses[0] == losses[1]
    assert rows(folder, "SELECT 1 FROM log WHERE text LIKE 'refused: layer%still overflows%'")


def test_pause_one_step_go_on_and_stop(data, tmp_path):
    folder, seen = tmp_path / "run", []

    def state():
        time.sleep(0.02)
        return json.loads((folder / "state.json").read_text())

    def user():
        for number, command in enumerate(("step", "stop"), 2):
            while state()["state"] != "paused" or state()["step"] in seen:
                pass
            seen.append(state()["step"])
            give(folder, number, do=command)

    give(folder, 1, do="pause")
    other = threading.Thread(target=user)
    observer = live(folder)
    other.start()
    model = trained(data, folder / "model", observer)
    other.join()
    assert seen == [0, 1]
    assert state() | {"state": "stopped", "step": 1} == state()
    assert b"stopped after 1 steps" in model
    changes = read_changes(folder / "steering.json")
    assert trained(data, tmp_path / "model", SteeredObserver(silent, changes=changes)) == model


def test_a_pause_outlasts_the_process(data, tmp_path, monkeypatch):
    folder, whole = tmp_path / "run", trained(data, tmp_path / "model", Observer())

    def killed(seconds):
        raise KeyboardInterrupt

    for _ in range(2):
        observer = live(folder, giving(folder, [(("QAT", 8), {"do": "pause"})]))
        with monkeypatch.context() as patch:
            patch.setattr(time, "sleep", killed)  # training sleeps where it is paused
            with pytest.raises(KeyboardInterrupt):
                trained(data, folder / "model", observer)
        state = json.loads((folder / "state.json").read_text())
        assert (state["state"], state["step"]) == ("paused", 8)
    give(folder, 2, do="go")
    assert trained(data, folder / "model", live(folder)) == whole


def test_training_waits_where_ranges_cannot_follow(data, tmp_path):
    """A factor of 1.0001 can be set while nothing overflows; later it is too small, until a user derives it again."""
    folder = tmp_path / "run"
    commands = (
        (("QAT", 2), {"do": "set", "what": "rate", "value": 0.002}),
        (("QAT", 4), {"do": "set", "what": "weights_factor", "layer": "one", "value": 1.0001}),
    )

    def user():
        while not rows(folder, "SELECT 1 FROM log WHERE text LIKE 'training cannot go on: layer%still overflows%'"):
            time.sleep(0.02)
        state = json.loads((folder / "state.json").read_text())
        assert state["state"] == "paused"
        assert "still overflows" in state["error"]
        for number, command in enumerate(({"do": "go"}, {"do": "set", "what": "weights_factor", "value": None}), 3):
            give(folder, number, **command)
            time.sleep(0.2)

    observer = live(folder, giving(folder, commands))
    other = threading.Thread(target=user)
    other.start()
    model = trained(data, folder / "model", observer)
    other.join()
    assert not json.loads((folder / "state.json").read_text())["error"]
    changes = read_changes(folder / "steering.json")
    assert [change.what for change in changes] == ["rate", "weights_factor", "weights_factor"]
    assert trained(data, tmp_path / "model", SteeredObserver(silent, changes=changes)) == model
    with pytest.raises(ValueError, match="still overflows"):
        trained(data, tmp_path / "model", SteeredObserver(silent, changes=changes[:2]))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "it is no list of changes"),
        ('[{"step": 1, "what": "weather", "value": 1}]', "weather: this cannot"),
        ('[{"step": -1, "what": "rate", "value": 1}]', "a whole number from 0 on"),
        ('[{"step": 1, "what": "rate"}]', "a number"),
        ('[{"step": 2, "what": "stop"}, {"step": 1, "what": "stop"}]', "do not rise"),
    ],
)
def test_a_file_of_changes_that_is_none_is_refused(tmp_path, text, words):
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(ValueError, match=words):
        read_changes(tmp_path / "s.json")


def test_a_change_that_cannot_be_repeated_ends_training(data, tmp_path):
    changes = [SteeringChange(step=1, what="threshold", layer="three", value=0)]
    with pytest.raises(ValueError, match="three: there is no such layer; there are one, two"):
        trained(data, tmp_path / "model", SteeredObserver(silent, changes=changes))


def test_a_database_of_an_older_version_goes_on(data, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    older = TABLES.replace(", error REAL", "")
    assert older != TABLES
    with closing(sqlite3.connect(folder / "live.db")) as db:
        db.executescript(older)
    assert set(history(folder, "one")) == {*HISTORY} - {"error"}
    trained(data, folder / "model", live(folder))
    assert set(history(folder, "one")) == set(HISTORY)
    assert all(error > 0 for (error,) in rows(folder, "SELECT error FROM layers"))


def test_a_folder_with_another_run_is_refused(tmp_path):
    live(tmp_path).close()
    with pytest.raises(ValueError, match="it holds a run with seed None, not 1"):
        LiveObserver(tmp_path, 1, {"seed": "1"}, silent)
