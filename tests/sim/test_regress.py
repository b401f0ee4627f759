"""The regression command and its reports."""

import io
from xml.etree import ElementTree

import typer
from concord.sim.campaigns import regress
from concord.sim.campaigns.coverage import merge
from concord.sim.units import UNITS
from typer.testing import CliRunner

APP = typer.Typer()
APP.command()(regress.main)


def test_one_unit(tmp_path, monkeypatch):
    """A table, JUnit XML, coverage."""
    monkeypatch.setattr(regress, "REPORT", tmp_path)
    done = CliRunner().invoke(APP, ["--unit", "adder", "--seed", "3", "--seed", "4"])
    assert done.exit_code == 0, done.output
    assert "2 runs, 0 failed" in (tmp_path / "summary.txt").read_text()
    (suite,) = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("adder", "2", "0")
    assert [case.get("name") for case in suite] == ["tiny-3", "tiny-4"]


def test_unknown_unit():
    done = CliRunner().invoke(APP, ["--unit", "paper"])
    assert done.exit_code == 2
    assert "there is no unit" in done.output


def test_failures_are_told():
    """What fails is in the report, with what repeats it."""
    job = regress.Job(unit="adder", config="tiny", seed=1)
    failure = regress.Result(job=job, seconds=1.0, failure="sum is wrong\nat lane 3")
    console = regress.Console(record=True, file=io.StringIO())
    regress.tell([failure], console)
    text = console.export_text()
    assert "FAIL sum is wrong" in text
    assert "nox -s regress -- --unit adder --config tiny --seed 1 --waves" in text


def test_coverage_adds_runs(tmp_path):
    point = "C '\x01f\x02u.v\x01l\x02{}\x01o\x02block\x01h\x02u' {}\n"
    for name, counts in (("a", (0, 2)), ("b", (1, 0))):
        (tmp_path / name).write_text("# head\n" + "".join(point.format(k, n) for k, n in enumerate(counts)))
    assert merge([tmp_path / "a"]).hit == 1
    assert merge([tmp_path / "a"]).missed == [("u", 0, "block")]
    both = merge([tmp_path / "a", tmp_path / "b"])
    assert both.hit == len(both) == 2


def test_every_unit_names_presets():
    assert all(unit.configurations for unit in UNITS.values())
