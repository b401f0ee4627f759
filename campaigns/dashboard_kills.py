"""Kills the dashboard's server and its workers at random moments: `nox -s dashboard_kills`.

No run is lost, no file is half written, and an interrupted run that goes on ends with the bytes of one that was
never interrupted.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import httpx2
from concord.dashboard.execution import alive, execute
from concord.dashboard.run_folder import TRAIN, RunFolder
from concord.tests.own_digits import written
from concord.train.live.changes import MODEL

#: Options of the run, which takes some seconds; its overflows are steered by the predictor.
OPTIONS = ("--weights-bits", "8", "--input-bits", "8", "--accumulator", "14", "--epochs", "150,20", "--seed", "0")
#: Seconds between two kills, at least and at most; and seconds until something must have happened.
BETWEEN, PATIENCE = (0.3, 4.0), 120


class DashboardProcess:
    """The dashboard as a process, with a client.

    Args:
        runs: Folder of runs.
    """

    def __init__(self, runs: Path):
        self.runs = runs
        self.begin()

    def begin(self):
        """Start it, and enter with the token that it prints."""
        words = [sys.executable, "-m", "concord.nnp.main", "dashboard", "--port", "0", "--runs", str(self.runs)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        url = self.process.stdout.readline().split()[-1]
        self.base = url.partition("/?")[0]
        self.client = httpx2.Client(
            base_url=self.base, headers={"Origin": self.base}, follow_redirects=True, timeout=60)
        self.client.get(url).raise_for_status()

    def post(self, path: str):
        """Send an empty form."""
        self.client.post(path).raise_for_status()

    def text(self, path: str) -> str:
        """The page at a path."""
        return self.client.get(path).raise_for_status().text

    def kill(self):
        """End it at once."""
        self.process.kill()
        self.process.wait()


def check_whole(run: RunFolder):
    """Refuse a file of a run that is half written.

    Raises:
        ValueError: JSON cannot be read.
    """
    for path in run.path.rglob("*.json"):
        json.loads(path.read_text())


def interrupted(server: DashboardProcess, run: RunFolder, rng: random.Random, kills: int) -> int:
    """Kill the server, the worker, or both, and let the run go on, until it ends; returns the number of kills."""
    until, done = time.monotonic() + PATIENCE * (1 + kills), 0
    while not (run.path / MODEL).is_file():
        assert time.monotonic() < until, f"the run does not end: {server.text('/')}"
        if done < kills:
            time.sleep(rng.uniform(*BETWEEN))
            what = rng.choice(("server", "worker", "both"))
            step = run.read("state.json").get("step")
            killed = ["worker"] if what != "server" and worker_killed(run) else []
            if what != "worker":
                server.kill()
                server.begin()
                killed.append("server")
            done += bool(killed)
            print(f"{done}: {' and '.join(killed) or 'nothing'} killed at step {step}", flush=True)
        check_whole(run)
        assert run.title in server.text("/"), "the run is lost"
        if "state interrupted" in server.text(f"/runs/{run.name}"):
            server.post(f"/runs/{run.name}/go-on")
        time.sleep(0.2)
    return done


def worker_killed(run: RunFolder) -> bool:
    """Kill the worker of a run; returns whether there was one."""
    pid = run.status(TRAIN).get("pid")
    if pid and alive(pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return True
    return False


def main():
    """Run the campaign; the exit code is 1 if bytes differ, or the run has ended before all kills were done."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        network, data = written(Path(name))
        command = ["train", "inputs/network.safetensors", "--data", "inputs/data.npz", *OPTIONS, "--run", "."]
        runs = Path(name, "runs")
        for folder in "whole", "killed":
            (runs / folder / "inputs").mkdir(parents=True)
            shutil.copy(network, runs / folder / "inputs" / "network.safetensors")
            shutil.copy(data, runs / folder / "inputs" / "data.npz")
        assert execute(str(runs / "whole"), TRAIN, command) == 0, RunFolder(runs / "whole").output(TRAIN)
        run = RunFolder(runs / "killed")
        run.write("run.json", {"name": "killed", "command": command, "created": time.time()})
        server = DashboardProcess(runs)  # which finds that the run waits
        try:
            done = interrupted(server, run, random.Random(given.seed), given.kills)
        finally:
            server.kill()
        equal = (run.path / MODEL).read_bytes() == (runs / "whole" / MODEL).read_bytes()
    print(f"{done} of {given.kills} kills, seed {given.seed}: the bytes of the model are "
          f"{'equal' if equal else 'DIFFERENT'}")
    sys.exit(not equal or done < given.kills)


if __name__ == "__main__":
    main()
