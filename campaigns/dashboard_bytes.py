"""A model of the dashboard beside that of the commands that its page prints: `nox -s dashboard_bytes`.

A perceptron, a convolutional network, an LSTM and a GRU are brought, trained and steered through the server. What is
downloaded, inputs and changes, is given to the printed commands in another folder; model and firmware must be equal.
"""

import html
import io
import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import httpx2
from concord.campaigns.dashboard_kills import DashboardProcess
from concord.dashboard.finishing import FIRMWARE
from concord.dashboard.run_folder import RunFolder
from concord.net.cells import gru, lstm
from concord.tests.own_digits import convolutional, perceptron, recurrent, written
from concord.train.live.changes import MODEL, STATE, STEERING

#: Networks by their kinds.
NETWORKS = {
    "MLP": perceptron(), "CNN": convolutional(), "LSTM": recurrent(lstm.LSTM), "GRU": recurrent(gru.AFTER)}
#: What the form says; the training is paused as soon as it begins, so few epochs leave time to steer.
FORM = {
    "weights_bits": "8", "input_bits": "8", "accumulator": "12", "overflow_threshold": "1000000000", "epochs": "30,4"}
#: Changes of the whole network, each before a step of its own.
CHANGES = (("threshold", "50"), ("accumulator", "13"), ("rate", "0.002"), ("weights_factor", "1.5"))
#: Seconds until something must have happened, however busy the computer is.
PATIENCE = 300


def waited(condition, what: str):
    """Wait until a condition holds."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, f"{what}: nothing in {PATIENCE} seconds"
        time.sleep(0.02)


def steered(client: httpx2.Client, runs: Path, network: str, data: str) -> RunFolder:
    """A run of a network that was brought, started and steered through the server, at its end."""
    with open(network, "rb") as first, open(data, "rb") as second:
        page = client.post("/new", files={"network": ("n.safetensors", first), "data": ("d.npz", second)})
    run = RunFolder.named(runs, page.url.path.split("/")[2])
    client.post(f"/runs/{run.name}/start", data=FORM).raise_for_status()

    def steer(words: str, holds, **form: str):
        client.post(f"/runs/{run.name}/steer", data=form).raise_for_status()
        waited(lambda: holds() or run.read(STATE).get("state") == "failed", words)

    def state(word: str, step: int) -> bool:
        found = run.read(STATE)
        return found.get("state") == word and found["step"] >= step

    steer("pause", lambda: state("paused", 0), do="pause")
    for number, (what, value) in enumerate(CHANGES, 1):
        step = run.read(STATE)["step"]
        steer("one step", lambda step=step: state("paused", step + 1), do="step")
        steer(what, lambda number=number: changes(run) == number, do="set", what=what, value=value)
    steer("the end", lambda: state("finished", 1), do="go")
    waited(lambda: "exit" in run.status("train"), "the process")
    return run


def changes(run: RunFolder) -> int:
    """Number of changes of a run."""
    path = run.path / STEERING
    return len(json.loads(path.read_text())) if path.is_file() else 0


def same_by_commands(client: httpx2.Client, run: RunFolder, folder: Path) -> dict[str, bool]:
    """Whether the printed commands write the files that are downloaded, by their names.

    Args:
        client: A client of the server.
        run:    A run with a model.
        folder: Empty folder in which the commands run.
    """
    files = f"/runs/{run.name}/files"
    zipfile.ZipFile(io.BytesIO(client.get(f"{files}/inputs").content)).extractall(folder / "inputs")
    (folder / STEERING).write_bytes(client.get(f"{files}/{STEERING}").content)
    page = client.get(f"/runs/{run.name}/jobs").text
    printed = re.search(r"<pre tabindex=.0.>(nnp train.*?)</pre>", page, re.DOTALL)
    assert printed, "the page prints no commands"
    for line in html.unescape(printed[1]).strip().splitlines():
        words = shlex.split(line)[1:]
        if "-o" in words:
            (folder / words[words.index("-o") + 1]).parent.mkdir(parents=True, exist_ok=True)
        made = subprocess.run(
            [sys.executable, "-m", "concord.nnp.main", *words], cwd=folder, capture_output=True, text=True)
        assert made.returncode == 0, f"{line}: {made.stdout}{made.stderr}"
    names = {MODEL: MODEL, **({"firmware": FIRMWARE} if run.status("firmware") else {})}
    return {name: client.get(f"{files}/{name}").content == (folder / path).read_bytes() for name, path in names.items()}


def main():
    """Print whether bytes are equal, for each network; the exit code is 1 if some are not."""
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        server = DashboardProcess(Path(name, "runs"))
        try:
            for kind, network in NETWORKS.items():
                folder = Path(name, kind)
                (folder / "again").mkdir(parents=True)
                run = steered(server.client, server.runs, *written(folder, network))
                server.post(f"/runs/{run.name}/jobs/firmware")
                waited(lambda run=run: "exit" in run.status("firmware"), "firmware")
                found = same_by_commands(server.client, run, folder / "again")
                wrong += not all(found.values())
                words = ", ".join(f"{what} {'equal' if equal else 'DIFFERENT'}" for what, equal in found.items())
                print(f"{kind}: {run.read(STATE)['step']} steps, {changes(run)} changes: {words}", flush=True)
        finally:
            server.kill()
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
