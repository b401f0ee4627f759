"""Calls on an executor that loses them, and the file of their results: once each, in the order of the jobs."""

import json
import random
from concurrent.futures import CancelledError, Executor, Future

import pytest
from concord.campaigns.results_file import ResultsFile, recorded
from concord.lib import extras, processes
from concord.lib.extras import Extra
from concord.lib.processes import TRIES, executor, results, side_by_side
from rich.console import Console


class Losing(Executor):
    """An executor that ends calls in any order, when a next one is asked for, and loses some first.

    Args:
        lost: How often each call is lost, by the first argument.
    """

    def __init__(self, lost):
        self.lost, self.waiting, self.made, self.rng = dict(lost), [], [], random.Random(0)

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        self.waiting.append((future, fn, args))
        if len(self.waiting) > 3 or self.made or self.lost.get(args[0]):
            self.work()
        return future

    def work(self):
        """End all calls that wait, in a random order."""
        self.rng.shuffle(self.waiting)
        for future, fn, args in self.waiting:
            if self.lost.get(args[0], 0):
                self.lost[args[0]] -= 1
                future.cancel()
                future.set_running_or_notify_cancel()
            elif not future.cancelled():
                self.made.append(args[0])
                try:
                    future.set_result(fn(*args))
                except ValueError as error:
                    future.set_exception(error)
        self.waiting = []


def doubled(number):
    """A call that fails for a negative number."""
    if number < 0:
        raise ValueError("below zero")
    return [number, 2 * number]


def test_lost_calls_begin_again_and_each_gives_one_result():
    pool = Losing({2: 1, 5: TRIES - 1})
    found = list(results(pool, doubled, [(number,) for number in range(20)]))
    assert sorted(found) == [(number, [number, 2 * number]) for number in range(20)]
    assert sorted(pool.made) == list(range(20))


def test_a_call_that_is_lost_each_time_ends_the_calls():
    with pytest.raises(CancelledError):
        list(results(Losing({0: TRIES}), doubled, [(number,) for number in range(4)]))


def test_an_error_cancels_what_has_not_begun():
    pool = Losing({})
    with pytest.raises(ValueError, match="below zero"):
        list(results(pool, doubled, [(0,), (1,), (2,), (-1,)]))
    assert sorted(pool.made) == [-1, 0, 1, 2]


@pytest.fixture
def losing(monkeypatch):
    """Calls go to an executor that loses some; what it has made, call by call."""
    pools = []

    def workers(*_):
        pools.append(Losing({1: 1, 4: 2}))
        return pools[-1]

    monkeypatch.setattr(processes, "workers", workers)
    return pools


def test_side_by_side_gives_the_order_of_the_jobs(losing):
    found = side_by_side("calls", doubled, [(number,) for number in range(12)], Console(quiet=True))
    assert found == [[number, 2 * number] for number in range(12)]


JOBS = [(number,) for number in range(12)]


def test_an_interrupted_campaign_goes_on_and_its_file_is_the_same(losing, tmp_path):
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    found = dict(recorded(doubled, JOBS, whole, {"seed": 1}, processes=2))
    assert found == {number: [number, 2 * number] for number in range(12)}
    lines = whole.read_text().splitlines(keepends=True)
    assert [json.loads(line)[0] for line in lines[1:]] == list(range(12))
    cut.write_text(lines[0] + "".join(lines[9:3:-1]) + lines[1][:-3])  # in any order, and the last one half written
    assert dict(recorded(doubled, JOBS, cut, {"seed": 1}, processes=2)) == found
    assert cut.read_bytes() == whole.read_bytes()
    assert sorted(losing[1].made) == [0, 1, 2, 9, 10, 11]


def test_files_of_other_campaigns_are_left_alone(losing, tmp_path):
    path = tmp_path / "a.jsonl"
    list(recorded(doubled, JOBS, path, {"seed": 1}, processes=2))
    for text in path.read_text(), "my notes", '{"seed": 2}\n[1, 2]\n', "\n":
        path.write_text(text)
        with pytest.raises(ValueError, match=r"a\.jsonl: it holds other things than this campaign's results"):
            list(recorded(doubled, JOBS, path, {"seed": 2}, processes=2))
        assert path.read_text() == text
    path.unlink()
    file = ResultsFile(path, {})
    with pytest.raises(ValueError, match="another campaign is writing this file"):
        ResultsFile(path, {})
    file.close()


def test_a_cluster_needs_its_extra(monkeypatch):
    monkeypatch.setattr(extras, "EXTRAS", {"cluster": Extra(purpose="clusters", needed=("no_such_package",))})
    with (
        pytest.raises(ValueError, match=r"clusters need no_such_package, .* 'concord-nnp\[cluster\]'"),
        executor(1, scheduler="tcp://127.0.0.1:1"),
    ):
        pass
