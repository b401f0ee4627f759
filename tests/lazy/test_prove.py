"""The solver: what it proves of the lazy update, and that it finds what is wrong."""

import pytest
from concord.sim.campaigns import prove
from concord.sim.campaigns.lazy_proofs import PROOFS
from concord.spec.training import LazyFormat
from typer import Typer
from typer.testing import CliRunner

APP = Typer()
APP.command()(prove.main)


@pytest.mark.parametrize("task", prove.tasks("invariant"), ids=lambda task: task.title)
def test_invariant(task):
    """At the real widths; its bugs are the formula that the source prints, and others."""
    wanted = "found" if task.bug else {"bmc": "proved", "cover": "reached"}[task.mode]
    assert prove.verdict(task, LazyFormat()) == wanted


def test_a_bug_is_no_proof():
    bug = prove.tasks("invariant")[-1].bug
    task = prove.Task("invariant", "cover", bug)  # its covers are reached, and that is told as what it is not
    assert prove.verdict(task, LazyFormat()).startswith("FAILED")


def test_unknown_proof():
    done = CliRunner().invoke(APP, ["--proof", "everything"])
    assert done.exit_code == 2
    assert all(claim.__name__ in done.output for claim in PROOFS)
