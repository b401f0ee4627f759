"""The solver proves a claim about the lazy update, and finds bugs."""

import pytest
from concord.campaigns import prove
from concord.campaigns.prove import PROOFS
from concord.spec.numbers.lazy import LazyFormat
from typer import Typer
from typer.testing import CliRunner

APP = Typer()
APP.command()(prove.main)


@pytest.mark.parametrize("task", prove.tasks("invariant"), ids=lambda task: task.title)
def test_invariant(task):
    """The invariant holds at the real widths; one of its bugs is the formula that the publication prints."""
    wanted = "found" if task.bug else {"bmc": "proved", "cover": "reached"}[task.mode]
    assert prove.verdict(task, LazyFormat()) == wanted


def test_a_bug_is_no_proof():
    bug = prove.tasks("invariant")[-1].bug
    task = prove.ProofTask("invariant", "cover", bug)  # its covers are reached, which is reported as a failure
    assert prove.verdict(task, LazyFormat()).startswith("FAILED")


def test_unknown_proof():
    done = CliRunner().invoke(APP, ["--proof", "everything"])
    assert done.exit_code == 2
    assert all(claim.__name__ in done.output for claim in PROOFS)
