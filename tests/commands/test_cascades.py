"""Commands on several machines: what a user types, and the sentences for what cannot be."""

import json
from dataclasses import replace

import numpy as np
import pytest
from concord.datasets.dataset import DATA
from concord.datasets.samples import Samples
from concord.firmware.cascade_session import Streamed
from concord.sim.machines.kinds import MachineKind
from concord.spec.host.registers import Counter
from concord.tests.command_line import done, refused
from concord.verification.batches import Builds
from concord.verification.inputs import InputSource
from concord.verification.tables import faults, verify_rows
from concord.verification.verification import prepare, streamed_samples, verify_model
from concord.verification.verified import Request, Verified
from rich.console import Console

MLP, LSTM = (DATA / "models" / f"{name}.safetensors" for name in ("fashion-mlp-w4a4", "vowels-lstm-w8"))


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    path = tmp_path_factory.mktemp("cascades") / "both.safetensors"
    printed = done("compile", MLP, "--machines", 2, "--preset", "ulx3s", "--cut", "hidden2", "-o", path)
    assert "machine 1: hidden1 to hidden2" in printed
    assert "machine 2: output to output" in printed
    assert printed.rstrip().endswith("instructions for ulx3s, 2 machines, cut after hidden2")
    return path


def test_two_machines_give_the_outputs_of_one(both, tmp_path):
    one = tmp_path / "one.safetensors"
    done("compile", MLP, "--preset", "ulx3s", "-o", one)
    for path in (one, both):
        done("run", path, "--samples", 4, "-q", "-o", path.with_suffix(".npy"))
    np.testing.assert_array_equal(*(np.load(path.with_suffix(".npy")) for path in (one, both)))


def test_a_sequence_runs_in_parts(tmp_path):
    path = tmp_path / "both.safetensors"
    done("compile", LSTM, "--machines", 2, "--preset", "vision", "-o", path)
    assert "2 right" in done("run", path, "--samples", 2, "--keep-state")


def test_verify_compares_with_the_reference_and_with_one_machine(both, tmp_path):
    printed = done("verify", MLP, "--machines", 2, "--cut", "hidden2", "--preset", "ulx3s", "--machine", "golden",
                   "--samples", 3, "--report", tmp_path, "--jobs", 1)
    (record,) = json.loads((tmp_path / "verify.json").read_text())
    assert "cut after" in printed
    assert record["equal"]
    assert (record["golden_network_bits"], record["large_golden_bits"], record["cuts"]) == (0, 0, ["hidden2"])
    assert len(record["configurations"]) == 2


def test_the_twin_of_two_machines_is_one_program(both, tmp_path):
    said = done("twin", both, "-o", tmp_path, "--samples", 2)
    assert "0 differing bits over 2 samples" in said
    assert "for the machine `ulx3s, ulx3s`" in (tmp_path / "fashion_mlp_w4a4_numpy.py").read_text()
    assert "carries no numbers in full precision" in refused("twin", both, "-o", tmp_path, "--unquantised")


def test_both_programs_are_printed(both):
    printed = done("disasm", both)
    first, second = printed.split("# machine 2 of 2\n")
    assert first.startswith("# machine 1 of 2\n")
    assert [part.rstrip().endswith("\nend") for part in (first, second)] == [True, True]


def test_verify_takes_firmware(both, tmp_path):
    """Of several machines, and of one."""
    one = tmp_path / "one.safetensors"
    done("compile", MLP, "--preset", "ulx3s", "-o", one)
    for path in one, both:
        printed = done("verify", path, "--machine", "golden", "--samples", 2, "--jobs", 1, "--report", tmp_path)
        assert "no model" in printed
        (record,) = json.loads((tmp_path / "verify.json").read_text())
        assert record["accuracy"].keys() == {"golden"}, "the labels of the data are compared, with and without a model"
    assert "firmware holds its machines" in refused("verify", one, "--preset", "ulx3s", "--report", tmp_path)
    assert "has no float network" in refused("verify", one, "--errors", "--report", tmp_path)


@pytest.mark.parametrize("option", [["--errors"], ["--layers"], ["--waves"]])
def test_options_that_several_machines_do_not_take_are_refused_at_once(option, both, tmp_path):
    for words in ([MLP, "--machines", 2], [both]):
        said = refused("verify", *words, *option, "--report", tmp_path / "report")
        assert f"{option[0]} is for networks on one machine, and here are several: " in said
    assert not list(tmp_path.iterdir())


def test_no_waveform_is_what_several_machines_write(both, tmp_path):
    done("verify", both, "--no-waves", "--machine", "golden", "--samples", 1, "--jobs", 1, "--report", tmp_path)


@pytest.fixture(scope="module")
def equal(both, tmp_path_factory) -> Verified:
    """A verification on golden, which finds no difference."""
    source = InputSource(inputs=None, data=None, samples="2", first=0, default=2)
    request = Request(path=both, location=str(both), source=source, preset="", kind=MachineKind.GOLDEN, jobs=1,
                      folder=tmp_path_factory.mktemp("report"), waves=False)
    console = Console(quiet=True)
    with Builds(MachineKind.GOLDEN, []) as builds:
        return verify_model(prepare(request, console), builds, console)


@pytest.mark.parametrize("what", ["bits", "reference_bits", "large_bits", "events"])
def test_every_kind_of_difference_counts(equal, what):
    assert equal.equal
    assert not faults([equal])
    different = replace(equal, **{what: {(1, Counter.TILES): (3, 4)} if what == "events" else 3})
    assert not different.equal
    sentence = faults([different])[0]
    assert sentence.startswith("both: event counter machine 2: TILES is 3" if what == "events" else "both: 3 ")


def test_throughput_beside_one_machine(equal):
    several, one = (Streamed(outputs=np.zeros((3, 1)), ends=ends) for ends in ((50, 60, 70), (40, 65, 90)))
    rows = {name: value for name, (value,) in verify_rows([replace(equal, streamed=several, single=one)]).items()}
    assert rows["cycles per inference"] == "50"
    assert rows["cycles from result to result"] == "10"
    assert rows["one machine, cycles per inference"] == "40"
    assert rows["one machine, cycles from result to result"] == "25"
    assert rows["throughput beside one machine"] == "2.50 times"
    alone = verify_rows([replace(equal, streamed=several)])
    assert alone["one machine, cycles per inference"] == ["the network does not fit"]


def test_samples_that_follow_each_other_have_one_length():
    samples = Samples(inputs=np.zeros((4, 5, 2)), lengths=np.array([5, 4, 5, 5]), labels=None, classes=())
    assert streamed_samples(samples).tolist() == [0, 2, 3, 0, 2, 3, 0, 2]
    assert streamed_samples(replace(samples, lengths=None)).tolist() == [0, 1, 2, 3] * 2


def test_what_cannot_be_is_said(both, tmp_path):
    assert "--machines 9: 1 to 8 machines" in refused("compile", MLP, "--machines", 9)
    assert "one machine runs the whole network" in refused("compile", MLP, "--cut", "hidden1")
    assert "cut after 'hidden1' or 'hidden2'" in refused("compile", MLP, "--machines", 2, "--cut", "output")
    assert "leave out --waves" in refused("run", both, "--machine", "library", "--waves", tmp_path / "w.vcd")
    assert "is for machine ulx3s" in refused("run", both, "--preset", "tiny")
    done("compile", MLP, "--preset", "ulx3s", "-o", tmp_path / "one")
    assert "for 2 machines, and that of the twin for 1" in refused("run", both, "--twin", tmp_path / "one")
    assert "for 1 machines, and that of the twin for 2" in refused("run", tmp_path / "one", "--twin", both)
    (tmp_path / "one").unlink()
    assert "leave out --machines" in refused("verify", both, "--machines", 2)
    assert "holds firmware of several machines" in refused("handover", both, "-o", tmp_path / "out")
    for words in (["predict"], ["overflow"], ["export", "--qonnx", tmp_path / "out"]):
        assert "it holds firmware of several machines and no model" in refused(*words, both)
    assert not list(tmp_path.iterdir())
