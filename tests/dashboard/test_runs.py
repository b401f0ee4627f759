"""The queue and the folders of runs: positions, states, processes that outlive a server, and numbered commands."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import pytest
from concord.dashboard.execution import LEAVING, execute
from concord.dashboard.run_folder import TRAIN, Condition, RunFolder, all_runs, recovered
from concord.dashboard.work_queue import WorkQueue
from concord.tests.dashboard.folders import filled, waits


@pytest.fixture
def pool():
    LEAVING.clear()
    with ThreadPoolExecutor(1) as made:
        yield made
        LEAVING.set()


def test_one_worker_takes_runs_in_their_order(pool, tmp_path):
    queue = WorkQueue(pool)
    first, second, third = (RunFolder.made(tmp_path) for _ in range(3))
    first.start(queue, {"name": "one", "command": ["presets", "tiny"]})
    second.start(queue, {"name": "two", "command": ["presets", "no-such-preset"]})
    third.start(queue, {"name": "three", "command": ["presets"]})
    assert second.condition(queue) is Condition.QUEUED
    assert (queue.position(second.path, TRAIN), queue.position(third.path, TRAIN)) == (1, 2)
    with pytest.raises(ValueError, match="waits or runs already"):
        queue.submit(third.path, TRAIN, [])
    assert queue.cancel(third.path, TRAIN)
    waits(lambda: not queue.active(second.path, TRAIN))
    assert first.status(TRAIN)["exit"] == 0
    assert "native" in first.output(TRAIN)
    assert second.condition(queue) is Condition.FAILED
    assert "there is no preset" in second.output(TRAIN)
    assert [run.title for run in all_runs(tmp_path)] == ["three", "two", "one"]


def test_verifications_take_the_cluster(tmp_path):
    given = []

    class Kept(Executor):
        def submit(self, fn, /, *args, **kwargs):
            given.append(args[2])
            return Future()

    queue = WorkQueue(Kept(), "tcp://a:1")
    queue.submit(tmp_path, "verify", ["verify", "model.safetensors"])
    queue.submit(tmp_path, TRAIN, ["train"])
    assert given == [["verify", "model.safetensors", "--scheduler", "tcp://a:1"], ["train"]]


def worker(*words) -> subprocess.Popen:
    """A process that looks like a worker, and sleeps."""
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "nnp", *words])


def test_a_run_is_what_its_process_is(pool, tmp_path):
    queue, process = WorkQueue(pool), worker()
    run = RunFolder(filled(tmp_path / "a", 20, state="paused", pid=process.pid))
    assert run.condition(queue) is Condition.PAUSED
    process.send_signal(signal.SIGKILL)
    waits(lambda: run.condition(queue) is Condition.INTERRUPTED)  # though nobody has waited for it
    process.wait()
    run = RunFolder(filled(tmp_path / "a", 20, state="running", pid=os.getppid()))  # a number that is used again
    assert run.condition(queue) is Condition.INTERRUPTED
    assert RunFolder(filled(tmp_path / "a", 20)).condition(queue) is Condition.FINISHED
    with pytest.raises(ValueError, match="only an interrupted run"):
        run.go_on(queue)
    filled(tmp_path / "b", 20, state="running", pid=0)
    (tmp_path / "b" / "run.json").unlink()  # a user started it by hand
    with pytest.raises(ValueError, match="started here"):
        RunFolder(tmp_path / "b").go_on(queue)


def test_a_new_server_takes_over_what_runs_and_what_waited(pool, tmp_path):
    process, before = worker(), RunFolder(filled(tmp_path / "a", 20, state="running"))
    (before.path / "jobs" / TRAIN).mkdir(parents=True)
    (before.path / "jobs" / TRAIN / "status.json").write_text(json.dumps({"pid": process.pid, "command": []}))
    waiting = RunFolder.made(tmp_path)
    waiting.write("run.json", {"name": "waited", "command": ["presets", "tiny"], "created": 2.0})
    queue = WorkQueue(pool)
    recovered(tmp_path, queue)
    assert queue.active(before.path, TRAIN)
    assert waiting.condition(queue) is Condition.QUEUED  # the one worker is taken
    process.kill()
    waits(lambda: waiting.status(TRAIN).get("exit") == 0)
    process.wait()


@pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")  # nobody waits for it, as when a server ends
def test_a_process_goes_on_when_the_server_ends(tmp_path):
    LEAVING.set()
    assert execute(str(tmp_path), "presets", ["presets", "tiny"]) is None
    run = RunFolder(tmp_path)
    pid = run.status("presets")["pid"]
    assert "exit" not in run.status("presets")
    assert os.getpgid(pid) != os.getpgrp()  # Ctrl-C in the server's terminal does not reach it
    assert os.waitpid(pid, 0)[1] == 0
    assert "native" in run.output("presets")
    LEAVING.clear()


def test_commands_are_numbered_whole_and_never_lost(tmp_path):
    run = RunFolder(tmp_path)
    with ThreadPoolExecutor(8) as pages:
        numbers = list(pages.map(lambda index: run.command({"do": "step", "page": index}), range(100)))
    assert sorted(numbers) == list(range(1, 101))
    found = sorted((tmp_path / "commands").iterdir())
    assert [path.name for path in found] == [f"{number:06}.json" for number in range(1, 101)]
    assert {json.loads(path.read_text())["page"] for path in found} == set(range(100))
