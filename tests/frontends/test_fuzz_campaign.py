"""The campaign of damaged files: a few of every kind are refused or read, and every way to fail is noticed."""

import os
import time

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
from concord.campaigns.fuzz import attempts, kinds
from concord.campaigns.fuzz.attempts import ACCEPTED, REFUSED, Attempts


def outcomes(name: str, folder, count: int, seconds: float = 30.0) -> list[str]:
    """Verdicts on files of a kind."""
    found = Attempts(name, folder, seconds, 512).run(0, count, time.monotonic() + 60)
    return [outcome.verdict for outcome in found]


@pytest.mark.parametrize("name", kinds.KINDS)
def test_some_files_of_every_kind(name, tmp_path):
    assert set(outcomes(name, tmp_path, 8)) <= {REFUSED, ACCEPTED}


@pytest.mark.parametrize("name", kinds.KINDS)
def test_a_number_gives_the_same_file(name, tmp_path):
    made = Attempts(name, tmp_path, 1.0, 512)
    for folder in "one", "two":
        made.write(3, folder)
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert files
    assert all((tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes() for path in files)


def raising(error: Exception):
    def load(path):
        raise error

    return load


def busy(path):
    begin = time.process_time()
    while time.process_time() < begin + 9:
        pass


@pytest.mark.parametrize(("load", "verdict"), [
    (lambda path: os._exit(3), "the process ends with code 3"),
    (busy, "TooSlow: "),
    (lambda path: time.sleep(99), "the process hangs for 1.2 s"),
    (lambda path: np.ones(2**27), "MemoryError: "),
    (raising(KeyError("x")), "KeyError: 'x'"),
    (raising(ValueError("bad")), "the refusal names no file: bad"),
], ids=["exit", "slow", "waiting", "memory", "error", "no name"])
def test_failures_are_noticed(load, verdict, tmp_path, monkeypatch):
    monkeypatch.setattr(attempts, "GRACE", 1.0)
    monkeypatch.setitem(attempts.KINDS, "csv", kinds.Kind(make=kinds.KINDS["csv"].make, load=load))
    found = outcomes("csv", tmp_path, 2, 0.2)
    assert len(found) == 2
    assert all(one.startswith(verdict) for one in found), found


def test_time_that_other_processes_take_does_not_count(tmp_path, monkeypatch):
    """A loader that sleeps stands for one that is not given the CPU."""
    monkeypatch.setitem(attempts.KINDS, "csv", kinds.Kind(
        make=kinds.KINDS["csv"].make, load=lambda path: time.sleep(0.6)))
    assert outcomes("csv", tmp_path, 1, 0.2) == [ACCEPTED]
