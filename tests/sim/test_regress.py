"""The regression: options of pytest choose units, configurations and seeds."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from concord.campaigns.regress import BenchJob, Result, jobs, merge, tables
from concord.sim import units
from concord.sim.machines.build import COVERAGE, FLAGS, ROOT, environment
from concord.sim.units import TESTBENCHES
from rich.console import Console


def regress(*words) -> subprocess.CompletedProcess:
    """Run the command of the nox session `regress`."""
    command = [sys.executable, "-m", "pytest", "tests/sim/test_units.py::test_unit", "-q", "-p", "no:cacheprovider"]
    return subprocess.run([*command, *words], cwd=ROOT, capture_output=True, text=True, check=False)


def test_one_unit(tmp_path):
    """The run prints tables, and writes JUnit XML, line coverage and waveforms."""
    words = ["--unit", "crc", "--config", "tiny", "--seed", "3", "--seed", "4"]
    words += ["--junitxml", str(tmp_path / "junit.xml")]
    done = regress("--regress", "--waves", *words)  # with the libraries of the other test of waveforms and coverage
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
    assert "100.0 %" in done.stdout
    (suite,) = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert [case.get("name") for case in suite] == ["test_unit[crc-tiny-3]", "test_unit[crc-tiny-4]"]
    properties = {each.get("name"): each.get("value") for each in suite[1].iter("property")}
    assert (properties["unit"], properties["config"], properties["seed"]) == ("crc", "tiny", "4")
    assert all(Path(properties["folder"], name).exists() for name in ("coverage.dat", "dump.vcd"))


@pytest.mark.parametrize(("words", "sentence"), [
    (("--unit", "adder", "--config", "tinyy"),
     "adder has no configuration 'tinyy': choose one of tiny, or a TOML file\n"),
    (("--config", "tinyy"),
     ("no unit has a configuration 'tinyy': choose one of tiny, serial, wide, tiny_softmax, tiny_float, "
      "tiny_vector, vision_dram, trainer, ulx3s, speech, vision, or a TOML file\n")),
    (("--unit", "paper"), "there is no testbench of a unit 'paper': choose one of accelerator, accumulator"),
    (("--unit", "core"), "there is no testbench of a unit 'core': choose one of"),
    (("--unit", "adder", "--unit", "mvm", "--config", "wide"), "adder has no configuration wide: choose one of tiny\n"),
    (("--seeds", "0"), "--seeds takes a positive number, not 0\n"),
])
def test_what_runs_nothing_is_refused(words, sentence):
    done = regress("--regress", *words)
    assert done.returncode == 2, done.stdout
    assert sentence in done.stderr


def test_a_filter_that_leaves_nothing_fails():
    assert regress("--regress", "-k", "paper").returncode == 5


def test_a_machine_in_a_file(tmp_path):
    """It runs the testbenches of the units that it holds."""
    mine = tmp_path / "mine.toml"
    mine.write_text('based_on = "tiny"\nlazy_update = false\n')
    chosen = {"config": [str(mine)], "seed": []}
    assert [str(job) for job in jobs(unit=["crc"], **chosen)] == ["crc-mine-1"]
    names = {job.unit for job in jobs(unit=[], **chosen)}
    assert "quantizer" in names
    assert "lazy_update" not in names
    mine.write_text('based_on = "brainwave_s10"\n')
    with pytest.raises(ValueError, match="hardware needs native_dim to be a power of two, not 400"):
        jobs(unit=[], **chosen)


def test_ordinary_tests_run_a_part():
    """Arithmetic units run in each configuration, others in one; a unit that is named runs in each."""
    def names(**chosen):
        options = {"unit": [], "config": [], "seed": []} | chosen
        return [str(job) for job in jobs(**options)]

    ordinary, every = names(), names(regress=True)
    assert set(ordinary) < set(every)
    assert {"quantizer-tiny-1", "quantizer-serial-1", "quantizer-wide-1", "queue-wide-1"} <= set(ordinary)
    assert "queue-tiny-1" not in ordinary
    assert names(unit=["queue"], seed=[1, 2]) == [
        f"queue-{config}-{seed}" for config in ("tiny", "serial", "wide") for seed in (1, 2)]
    assert names(unit=["queue"], config=["wide"]) == ["queue-wide-1"]


def test_a_job_tells_how_to_repeat_it():
    job = BenchJob(unit="adder", config="tiny", seed=7)
    assert job.command == "nox -s regress -- --unit adder --config tiny --seed 7 --waves"


def test_bins_that_nothing_met_are_told(tmp_path):
    for folder, counts in (("1", '{"a": 1, "b": 0, "c": 0}'), ("2", '{"a": 0, "b": 0, "c": 3}')):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "bins.json").write_text(counts)
    results = [Result(unit="nnp", config="tiny", seed=seed, outcome="passed", seconds=1.0, folder=tmp_path / str(seed))
               for seed in (1, 2)]
    results.append(Result(unit="adder", config="tiny", seed=1, outcome="failed", seconds=1.0))
    console = Console(width=100)
    with console.capture() as printed:
        for part in tables(results):
            console.print(part)
    assert "Bins of nnp: 2 of 3 hit; not b" in printed.get()
    assert "failed" in printed.get()


def test_coverage_adds_runs(tmp_path):
    point = "C '\x01f\x02u.v\x01l\x02{}\x01o\x02block\x01h\x02u' {}\n"
    for name, counts in (("a", (0, 2)), ("b", (1, 0))):
        (tmp_path / name).write_text("# head\n" + "".join(point.format(k, n) for k, n in enumerate(counts)))
    assert merge([tmp_path / "a"]).hit == 1
    assert merge([tmp_path / "a"]).missed == [("u", 0, "block")]
    both = merge([tmp_path / "a", tmp_path / "b"])
    assert both.hit == len(both) == 2


def test_ordinary_configurations_are_among_those_of_the_regression():
    assert all(set(bench.tested) <= set(bench.configurations) for bench in TESTBENCHES.values())


def test_a_testbench_may_name_both_configurations_at_once():
    assert TESTBENCHES["command_check"].tested == TESTBENCHES["command_check"].configurations == ("tiny", "wide")


@pytest.mark.parametrize(("name", "line"), [
    ("CONFIGURATIONS", "CONFIGURATIONS: tuple = ('wide',)"), ("TESTED", "TESTED, other = ('tiny',), ('tiny',)"),
    ("MUTANTS", "if True:\n    MUTANTS = ()"), ("MUTANTS", "MUTANTS = ()\nMUTANTS += ()"),
    ("TESTED", "TESTED = ('tiny',)\nTESTED = ('wide',)"), ("TESTED", "for TESTED in ():\n    pass"),
    ("MUTANTS", "from concord.sim.queue import MUTANTS"), ("MUTANTS", "import numpy as MUTANTS"),
    ("TESTED", "def change():\n    global TESTED\n    TESTED = ()"), ("TESTED", "print(TESTED := ())"),
    ("component", "component = print"), ("component", "if True:\n    def component(config):\n        return config"),
    ("component", "from concord.hw.units import component"), ("component", "class component:\n    pass")])
def test_a_testbench_that_binds_its_names_in_another_form_is_refused(tmp_path, monkeypatch, name, line):
    """Otherwise the default would be taken."""
    monkeypatch.setattr(units, "ROOM", tmp_path)
    (tmp_path / "paper.py").write_text(f"{line}\n")
    with pytest.raises(ValueError, match=rf"^sim/paper\.py binds {name} in a way that is not read here: write one "):
        _ = units.Testbench(path="paper").mutants


def test_an_assignment_may_have_several_names(tmp_path, monkeypatch):
    monkeypatch.setattr(units, "ROOM", tmp_path)
    (tmp_path / "paper.py").write_text("CONFIGURATIONS = other = ('wide', 'tiny')\n")
    bench = units.Testbench(path="paper")
    assert (bench.configurations, bench.tested, bench.mutants) == (("wide", "tiny"), ("tiny",), ())


def test_counted_conditions_keep_their_signs(tmp_path):
    """Verilator 5.048 extends the sign of a wrong bit where it puts a function instead of its call."""
    (tmp_path / "top.v").write_text(
        "module top(input [1:0] mode, input signed [5:0] i, output signed [7:0] o);\n  wire [5:0] a;\n"
        "  assign a = mode[1] ? 6'h20 : 6'h00;\n  assign o = i + $signed({1'h0, a});\nendmodule\n")
    flags = [*FLAGS, *COVERAGE, "--Mdir", ".", "--prefix", "Vtop", "--top-module", "top", "top.v"]
    subprocess.run(["verilator", *flags], cwd=tmp_path, env=environment(), check=True, capture_output=True)
    text = "".join(path.read_text() for path in tmp_path.glob("*.cpp"))
    assert text.count("VL_EXTENDS_II(8,7") == text.count("VL_EXTENDS_II(8,6") > 0
