"""The campaign `mutants` finds the lines that it breaks."""

import os
import subprocess
import sys

import pytest
from concord.campaigns.broken_lines import TESTS, Mutant, mutants_of, tree
from concord.campaigns.mutants import assertion
from concord.sim.machines.build import ROOT
from concord.sim.units import TESTBENCHES

MUTANTS = [mutant for bench in TESTBENCHES.values() for mutant in mutants_of(bench)]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.unit}: {mutant.old}")
def test_the_line_stands_there_once(mutant):
    assert (ROOT / mutant.file).read_text().count(mutant.old) == 1
    assert mutant.test or mutant.config in TESTBENCHES[mutant.unit].configurations
    assert f"def {mutant.test.partition('[')[0] or 'test_unit'}(" in (ROOT / TESTS).read_text()


def test_most_units_have_mutants():
    assert len({mutant.unit for mutant in MUTANTS}) > 30


@pytest.mark.parametrize(("printed", "found"), [
    ("AssertionError: o differs\n  assert 1 == 2\n1 failed", "o differs assert 1 == 2"),
    ("E    AssertionError: b: 1 of 1 tests failed; see /a\nE     AssertionError: o differs\n", "o differs"),
    ("E    AssertionError: b with seed 1: 0 of 0 tests failed; see /tmp\nE     %Error: no such pin\n", ""),
    ("cocotb.triggers.SimTimeoutError: 9 us\n", "cocotb.triggers.SimTimeoutError: 9 us"),
    ("cocotb.regression.SimFailure: it ended\n", "cocotb.regression.SimFailure: it ended"), ("SyntaxError\n", "")])
def test_the_assertion_of_a_testbench_is_found(printed, found):
    assert assertion(printed) == found


def test_the_tree_has_its_line_broken(tmp_path):
    mutant = Mutant(unit="queue", file="hw/lib/queue.py", old="self.i.ready.eq(queue.w_rdy)", new="self.i.ready.eq(1)")
    tree(tmp_path / "tree", mutant)
    broken, whole = ((folder / mutant.file).read_text() for folder in (tmp_path / "tree", ROOT))
    assert broken == whole.replace(mutant.old, mutant.new)
    with pytest.raises(ValueError, match="has 0 times 'no such line', not once: choose another line in MUTANTS"):
        tree(tmp_path / "tree", Mutant(unit="queue", file=mutant.file, old="no such line", new=""))


def test_the_tree_has_all_that_its_tests_import(tmp_path):
    mutant = mutants_of(TESTBENCHES["queue"])[0]
    tree(tmp_path / "tree", mutant)
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", *mutant.words]
    path = {"PATH": os.environ["PATH"]}  # without PYTHONPATH: the package is that of the tree
    done = subprocess.run(words, cwd=tmp_path / "tree", env=path, capture_output=True, text=True, check=False)
    assert "test_unit[queue-tiny-1]" in done.stdout, done.stdout + done.stderr
