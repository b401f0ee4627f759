"""From files to a run, its stream, its commands, and its downloads, as a browser asks for them."""

import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from concord.campaigns.dashboard_bytes import changes, same_by_commands, steered
from concord.dashboard.finishing import command_of
from concord.dashboard.inspection import tried
from concord.dashboard.run_folder import RunFolder
from concord.dashboard.watching import _events, _state
from concord.datasets.dataset import DATA
from concord.net.graph_file import save
from concord.net.ops.pointwise import Relu
from concord.tests.dashboard.folders import add, filled, waits
from concord.tests.float_networks import Chain
from concord.tests.own_digits import arrays, written


def test_a_network_is_brought_chosen_and_started(client, settings, tmp_path):
    network, data = written(tmp_path)
    with open(network, "rb") as first, open(data, "rb") as second:
        page = client.post("/new", data={"name": "  "}, files={
            "network": ("../../x.safetensors", first), "data": ("d.npz", second)})
    assert page.status_code == 200
    for words in ("<strong>DNN</strong>", "1,210 parameters", "60 samples", "<td>two</td>", "10"):
        assert words in page.text
    run = settings.runs / page.url.path.split("/")[2]
    assert {path.name for path in (run / "inputs").iterdir()} == {"network.safetensors", "data.npz"}
    assert RunFolder(run).imported["title"] == "../../x.safetensors"
    told = client.post(f"/runs/{run.name}/check", data={"weights_bits": "8", "input_bits": "8", "accumulator": "99"})
    assert "1 to 64" in told.json()["wrong"]["accumulator"]
    again = client.post(f"/runs/{run.name}/start", data={"weights_bits": "8", "input_bits": "8", "accumulator": "99"})
    assert (again.status_code, "1 to 64" in again.text) == (400, True)
    small = client.post(f"/runs/{run.name}/try", data={"preset": "tiny_softmax"}).json()
    assert "tiny_softmax" in small["machine"] + small["wrong"].get("preset", "")
    form = {"weights_bits": "8", "input_bits": "8", "accumulator": "12", "name": "<b>mine</b>"}
    started = client.post(f"/runs/{run.name}/start", data=form)
    assert started.url.path == f"/runs/{run.name}"
    assert "&lt;b&gt;mine" in started.text
    asked = json.loads((run / "run.json").read_text())
    assert asked["command"] == [
        "train", "inputs/network.safetensors", "--data", "inputs/data.npz", "--weights-bits", "8", "--input-bits", "8",
        "--accumulator", "12", "--epochs", "4,1", "--seed", "0", "--out", "model.safetensors", "--run", "."]
    assert "<code>--weights-bits 8 --input-bits 8 --accumulator 12 --epochs 4,1 --seed 0</code>" in client.get(
        f"/compare?run={run.name}").text
    assert client.post(f"/runs/{run.name}/start", data=form).status_code == 400
    status = run / "jobs" / "train" / "status.json"
    waits(status.is_file)
    os.kill(json.loads(status.read_text())["pid"], signal.SIGKILL)
    waits(lambda: "exit" in json.loads(status.read_text()))
    assert "state interrupted" in client.get(f"/runs/{run.name}").text


def test_what_is_refused_says_the_way_out(client, settings, tmp_path):
    (root,) = settings.roots
    save(Chain((64,)).dense("one", 3, 64).add(Relu(), "r").network("net"), root / "three.safetensors")
    np.savez(root / "ten.npz", **arrays())
    said = client.post("/new", data={"network_path": "three.safetensors", "data_path": "ten.npz"})
    assert said.status_code == 400
    assert "but the network has the outputs 0..2; check the labels" in said.text
    assert "choose a file to upload" in client.post("/new", data={"data_path": "ten.npz"}).text


def test_data_that_changed_since_they_were_looked_at(tmp_path):
    network, data = written(tmp_path)
    held = arrays()
    np.savez(data, x_test=held["x_test"], y_test=held["y_test"], x_calibration=held["x_test"])
    with pytest.raises(ValueError, match="no samples to train with"):
        tried(network, str(data), {"weights_bits": 8, "input_bits": 8})


def test_the_stream_has_all_and_then_what_is_new(client, settings):
    filled(settings.runs / "a", 100)

    async def first() -> list[str]:
        events = _events(RunFolder(settings.runs / "a"), client.app.app.state.desk)
        whole = await anext(events)
        with sqlite3.connect(settings.runs / "a" / "live.db") as db:
            add(db, range(101, 102), ("one",), over=False)
        db.close()
        return [whole, await anext(events)]

    all_of_it, rest = client.portal.call(first)
    news = json.loads(all_of_it.removeprefix("data: "))
    assert news["state"]["condition"] == "finished"
    assert news["state"]["widths"]["accumulator"] == 12
    assert news["layers"][0]["sum_events"] == 17
    assert json.loads(rest.removeprefix("data: ")).keys() == {"loss", "accuracy", "layers"}
    assert client.get("/runs/a/history", params={"layer": "one"}).json()["excess"][1] == [2] * 10 + [0]
    assert client.get("/runs/a/curves").json()["loss"][0][-1] == 101


def test_a_run_whose_worker_makes_its_tables_has_no_figures_yet(client, settings):
    filled(settings.runs / "a", state="running", pid=os.getpid())
    (settings.runs / "a" / "live.db").unlink()
    sqlite3.connect(settings.runs / "a" / "live.db").close()
    assert client.get("/runs/a/curves").json() == {}
    assert "not measured" in client.get("/compare?run=a").text


def test_a_run_that_cannot_go_on_says_why(client, settings):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "nnp"]) as process:
        path = filled(settings.runs / "a", 20, state="paused", pid=process.pid) / "state.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"error": "training cannot go on: <b>"}))
        state = _state(RunFolder(settings.runs / "a"), client.app.app.state.desk)
        assert (state["condition"], state["error"]) == ("paused", "training cannot go on: <b>")
        process.kill()


def test_steering_reaches_only_runs_that_train(client, settings):
    filled(settings.runs / "a", 20)
    assert "nothing to steer" in client.post("/runs/a/steer", data={"do": "pause"}).text
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "nnp"]) as process:
        filled(settings.runs / "a", 20, state="running", pid=process.pid)
        said = client.post("/runs/a/steer", data={"do": "set", "what": "threshold", "layer": "one", "value": "5"})
        assert said.text == "command 1 is sent; it takes effect at the next step"
        assert client.post("/runs/a/steer", data={"do": "set", "what": "threshold", "value": "-1"}).status_code == 400
        process.kill()
    assert json.loads((settings.runs / "a" / "commands" / "000001.json").read_text()) == {
        "do": "set", "what": "threshold", "layer": "one", "value": 5}


def test_a_model_is_compiled_and_downloaded(client, settings):
    run = filled(settings.runs / "a", 20)
    assert "no model yet" in client.post("/runs/a/jobs/firmware").text
    shutil.copy(Path(DATA, "models", "fashion-mlp-w4a4.safetensors"), run / "model.safetensors")
    assert "make that first" in client.post("/runs/a/jobs/twin").text
    assert client.post("/runs/a/jobs/rm").status_code == 400
    assert client.post("/runs/a/jobs/firmware").status_code == 200
    waits(lambda: "state finished" in client.get("/runs/a/jobs").text)
    page = client.get("/runs/a/jobs").text
    assert "nnp compile model.safetensors -o jobs/firmware/firmware.safetensors" in page
    assert command_of(RunFolder(run), "verilog")[-2:] == ["--preset", "ulx3s"]  # the machine of the firmware
    assert client.get("/runs/a/files/firmware").content == (run / "jobs/firmware/firmware.safetensors").read_bytes()
    assert client.get("/runs/a/files/model.safetensors").headers["content-disposition"].startswith("attachment")
    report = run / "jobs" / "verify" / "report"
    report.mkdir(parents=True)
    (report / "verify.html").write_text("x")
    (report.parent / "status.json").write_text('{"exit": 0, "command": ["verify"]}')
    first = client.get("/runs/a/files/verify").content
    assert zipfile.ZipFile(io.BytesIO(first)).namelist() == ["verify.html"]
    assert client.get("/runs/a/files/verify").content == first
    figures = {"preset": "tiny", "machine": "golden", "samples": 2, "mismatching_bits": None, "equal": True,
               "accuracy": {"golden": None}, "cycles_per_inference": None}
    (report / "verify.json").write_text(json.dumps([figures]))
    assert "golden not defined" in client.get("/runs/a/jobs").text


@pytest.mark.parametrize("path", ["/", "/new", "/compare", "/runs/none"])
def test_pages_without_runs_say_what_to_do(client, path):
    text = client.get(path).text
    assert any(words in text for words in ("Start a new run", "Bring a network", "Mark two runs", "no such page"))


def test_a_steered_model_is_that_of_the_printed_commands(client, settings, tmp_path):
    run = steered(client, settings.runs, *written(tmp_path))
    assert changes(run) == 4
    (tmp_path / "again").mkdir()
    assert same_by_commands(client, run, tmp_path / "again") == {"model.safetensors": True}
