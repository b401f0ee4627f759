"""The page of figure 11: its table, and the sentence on where PTQ is not the best start."""

import pytest

pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")

from concord.benchmarks import bench_train, figure11
from concord.train.runs.compare_starts import FIGURE, STARTS


def results(best: str) -> list:
    """Curves of two seeds, in which one start is the best one everywhere."""
    return [((setting, name, {}, seed), 90.0, [50.0 + seed + (name == best), 60.0, 70.0 + (name == best)])
            for setting in FIGURE for name in STARTS for seed in range(2)]


def test_the_page_says_where_ptq_is_behind():
    assert "PTQ is behind no other start." in figure11.page(results("PTQ"), 100, 2)
    text = " ".join(figure11.page(results("min-max"), 100, 2).split())
    assert "resnet W4/A32 at epoch 0 (50.50 against 51.50 from min-max)" in text
    assert "at epoch 1" not in text.partition("PTQ is behind")[2]
    assert "| resnet W4/A32 | 90.00 | min-max | 51.50 | 60.00 | 71.00 | -19.00 | 71.00 71.00 |" in text


def test_a_job_runs_once(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(figure11, "OUT", tmp_path)
    monkeypatch.setattr(bench_train, "run", lambda job, samples, epochs: ran.append(job) or (job, 90.0, [1.0, 2.0]))
    job = (FIGURE[0], "PTQ", STARTS["PTQ"], 0)
    assert figure11.run_once(job, 10, 1) == figure11.run_once(job, 10, 1) == (job, 90.0, [1.0, 2.0])
    assert len(ran) == 1
    assert ran[0][2]["symmetric"] == (False, False)
