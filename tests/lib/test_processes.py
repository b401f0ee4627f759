"""Worker processes: results with their jobs, and an end where a call fails."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool

import pytest
from concord.lib.processes import calls


def divided(dividend: int, divisor: int) -> float:
    """A call that fails for a divisor of 0."""
    return dividend / divisor


def late(seconds: float) -> float:
    """A call that takes some time, or fails at once for 0."""
    if not seconds:
        raise ValueError("no time")
    time.sleep(seconds)
    return seconds


def test_every_job_comes_with_its_result():
    jobs = [(number, 2) for number in range(5)]
    assert sorted(calls(divided, jobs, 2)) == [((number, 2), number / 2) for number in range(5)]


def threads(variable: str) -> str | None:
    """What a process was told about threads."""
    return os.environ.get(variable)


def test_products_use_one_thread_in_each_process():
    assert [found for _, found in calls(threads, [("OPENBLAS_NUM_THREADS",)], 1)] == ["1"]


def test_an_error_drops_the_calls_that_have_not_begun():
    began = time.monotonic()
    with pytest.raises(ValueError, match="no time"):
        list(calls(late, [(0.0,), *[(3.0,)] * 8], 1))
    assert time.monotonic() - began < 20


def interrupted():
    """A call of a process that gets Ctrl-C."""
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(20)


def test_a_process_that_gets_ctrl_c_ends_without_a_word(capfd):
    with pytest.raises(BrokenProcessPool):
        list(calls(interrupted, [()], 1))
    assert capfd.readouterr() == ("", "")


#: A process that waits for a call of its worker, which takes a minute.
WAITING = """
import time
from concord.lib.processes import workers
pool = workers(1)
print(pool.submit(abs, -1).result(), flush=True)
pool.submit(time.sleep, 60).result()
"""


def test_workers_end_with_the_process_that_began_them():
    process = subprocess.Popen([sys.executable, "-c", WAITING], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "1\n"
    process.kill()
    assert process.communicate(timeout=20) == ("", None)  # the worker holds the other end of the pipe until it ends
