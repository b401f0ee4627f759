"""Commands on several machines: what a user types, and the sentences for what cannot be."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from concord.model.data.dataset import DATA
from concord.model.data.samples import Samples
from concord.nnp.lib.cascades import Wish
from concord.nnp.lib.options import MachineKind
from concord.nnp.verify.cascade_session import Streamed
from concord.nnp.verify.cascades import VerifiedCascade, faults, streamed_samples, subject_of, table_rows
from concord.tests.command_line import done, refused

MLP, LSTM = (DATA / "models" / f"{name}.safetensors" for name in ("fashion-mlp-w4a4", "vowels-lstm-w8"))


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    path = tmp_path_factory.mktemp("cascades") / "both.safetensors"
    printed = done("compile", MLP, "--machines", 2, "--preset", "ulx3s", "--cut", "hidden2", "-o", path)
    assert "machine 1: hidden1 to hidden2" in printed
    assert "machine 2: output to output" in printed
    assert printed.rstrip().endswith(f"{path}: 2 machines, ulx3s, cut behind hidden2")
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
    printed = done("verify", MLP, "--machines", 2, "--preset", "ulx3s", "--machine", "golden", "--samples", 3,
                   "--report", tmp_path, "--jobs", 1)
    record = json.loads((tmp_path / "fashion-mlp-w4a4-2-machines.json").read_text())
    assert "cut behind" in printed
    assert record["equal"]
    assert record["table"]["bits, golden and reference"] == "0"
    assert record["table"]["bits, golden and one large golden machine"] == "0"


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


def test_verify_takes_firmware(both):
    subject = subject_of(both, Wish(machines=1), "")
    assert (subject.machines, subject.model, subject.cascade.cuts) == ("ulx3s", None, ("hidden2",))


@pytest.mark.parametrize("option", [["--errors"], ["--layers"], ["--waves"], ["--arithmetic", "bfp"], ["--anew"]])
def test_options_that_several_machines_do_not_take_are_refused_at_once(option, both, tmp_path):
    for words in ([MLP, "--machines", 2], [both]):
        said = refused("verify", *words, *option, "--report", tmp_path / "report")
        assert f"{option[0]} is for networks on one machine, and here are several: " in said
    assert not list(tmp_path.iterdir())


def test_no_waveform_is_what_several_machines_write(both, tmp_path):
    done("verify", both, "--no-waves", "--machine", "golden", "--samples", 1, "--jobs", 1, "--report", tmp_path)


@pytest.fixture
def equal(both):
    """A verification that found no difference."""
    return VerifiedCascade(
        subject=subject_of(both, Wish(machines=1), ""), kind=MachineKind.LIBRARY, measures={}, bits=0, events=0,
        inputs=SimpleNamespace(samples=[0] * 3, name="data"), reference=0, large=0, streamed=None,
        single=None, fault="")


@pytest.mark.parametrize("what", ["bits", "events", "reference", "large"])
def test_every_kind_of_difference_counts(equal, what):
    assert equal.equal
    assert not faults(equal)
    different = replace(equal, **{what: 3})
    assert not different.equal
    (sentence,) = faults(different)
    assert sentence.startswith("fashion-mlp-w4a4: 3 ")


def test_throughput_beside_one_machine(equal):
    several, one = (Streamed(outputs=np.zeros((3, 1)), ends=ends) for ends in ((50, 60, 70), (40, 65, 90)))
    rows = table_rows(replace(equal, streamed=several, single=one))
    assert rows["cycles to the first result"] == "50"
    assert rows["cycles from result to result"] == "10"
    assert rows["one machine, cycles to the first result"] == "40"
    assert rows["one machine, cycles from result to result"] == "25"
    assert rows["throughput beside one machine"] == "2.50 times"
    assert table_rows(replace(equal, streamed=several))["one machine"] == "the network does not fit"


def test_samples_that_follow_each_other_have_one_length():
    samples = Samples(inputs=np.zeros((4, 5, 2)), lengths=np.array([5, 4, 5, 5]), labels=None, classes=())
    assert streamed_samples(samples).tolist() == [0, 2, 3, 0, 2, 3, 0, 2]
    assert streamed_samples(replace(samples, lengths=None)).tolist() == [0, 1, 2, 3] * 2


def test_what_cannot_be_is_said(both, tmp_path):
    assert "--machines 9: 1 to 8 machines" in refused("compile", MLP, "--machines", 9)
    assert "one machine runs the whole network" in refused("compile", MLP, "--cut", "hidden1")
    assert "cut behind 'hidden1' or 'hidden2'" in refused("compile", MLP, "--machines", 2, "--cut", "output")
    assert "leave out --waves" in refused("run", both, "--machine", "library", "--waves", tmp_path / "w.vcd")
    assert "is for machine ulx3s" in refused("run", both, "--preset", "tiny")
    done("compile", MLP, "--preset", "ulx3s", "-o", tmp_path / "one")
    assert "one: it holds firmware of one machine, and that of several" in refused(
        "run", both, "--twin", tmp_path / "one")
    assert "it holds firmware of several machines" in refused("run", tmp_path / "one", "--twin", both)
    (tmp_path / "one").unlink()
    assert "leave out --machines" in refused("verify", both, "--machines", 2)
    assert "holds firmware of several machines" in refused("handover", both, "-o", tmp_path / "out")
    for words in (["predict"], ["overflow"], ["export", "--qonnx", tmp_path / "out"]):
        assert "it holds firmware of several machines and no model" in refused(*words, both)
    assert not list(tmp_path.iterdir())
