"""`nnp overflow`: its output and its errors."""

import re
from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.datasets.dataset import DATA
from concord.net.layer_overflow import count
from concord.net.model_file import save_model
from concord.nnp.main import app
from concord.spec.machine.config import preset
from concord.tests.net.test_images import conv
from typer.testing import CliRunner

MLP, LSTM, BLOCK = (DATA / "models" / f"{name}.safetensors"
                    for name in ("fashion-mlp-w4a4", "vowels-lstm-w8", "fashion-mlp-bfp8"))


def nnp(*words):
    return CliRunner().invoke(app, ["overflow", *(str(word) for word in words)])


def row(output: str, name: str) -> list[str]:
    """The cells of one line of the table."""
    (line,) = [line for line in output.splitlines() if line.strip().startswith(name)]
    return re.split(r" {2,}", line.strip())


def test_a_model_that_fits():
    result = nnp(MLP, "--accumulator", 16, "--samples", 20)
    assert result.exit_code == 0, result.output
    assert row(result.output, "hidden1")[1:6] == ["0", "0", "0", "0", "16"]
    text = " ".join(result.output.split())
    assert "fashion-mlp-w4a4, 20 samples of fashion-mnist: no sum overflows 16 bits, whatever the input" in text
    accuracies = re.findall(r"\d+\.\d+%", text)
    assert len(accuracies) == 2
    assert accuracies[0] == accuracies[1]


def test_a_model_that_does_not_fit():
    result = nnp(MLP, "--accumulator", 12, "--samples", 20, "--product", 6, "--output", 10, "--lanes", 2)
    assert result.exit_code == 0, result.output
    name, partial, share, products, outputs, proved, measured = row(result.output, "hidden1")
    assert min(int(number.replace(",", "")) for number in (partial, products, outputs)) > 0
    assert 0 < float(share) < 1
    assert (proved, int(measured) > 12) == ("16", True)
    assert "sums overflow 12 bits; these samples need" in " ".join(result.output.split())


def test_samples_that_fit_by_chance():
    result = nnp(MLP, "--accumulator", 15, "--samples", 5, "--first", 3)
    assert "no sum overflowed 15 bits; 16 bits hold every sum" in " ".join(result.output.split())


@pytest.fixture
def on_serial(tmp_path):
    """A model for the preset `serial`, and the words of the command that names its inputs."""
    rng = np.random.default_rng(2)
    save_model(networks.mlp(rng, preset("serial"), [13, 9, 5], block=False), tmp_path / "m.safetensors")
    np.save(tmp_path / "x.npy", 20 * rng.normal(size=(6, 13)))
    return tmp_path / "m.safetensors", "--inputs", tmp_path / "x.npy"


def test_the_counters_of_the_library_agree(on_serial):
    result = nnp(*on_serial, "--preset", "serial", "--count-on", "library")
    assert result.exit_code == 0, result.output
    counts = [row(result.output, name)[1:5] for name in ("dense0", "dense1")]
    events = sum(int(number.replace(",", "")) for partial, _, *rest in counts for number in (partial, *rest))
    assert events > 0
    assert f"the counters of serial agree with numpy in every row of 2 products: {events:,} events" in result.output


def test_counters_that_differ_are_named(on_serial, monkeypatch):
    monkeypatch.setattr("concord.workflows.overflow_counts.MachineCounter.__call__",
                        lambda self, weights, codes, start, widths: count(weights // 2, codes, start, widths))
    result = nnp(*on_serial, "--preset", "serial", "--count-on", "library")
    assert result.exit_code == 1, result.output
    assert "nnp: dense0: numpy counts Events(partial=0, product=" in result.output


def test_the_counters_of_no_machine_are_refused(on_serial):
    result = nnp(*on_serial, "--count-on", "library")
    assert result.exit_code == 2
    assert "--count-on library counts on a machine: name one that has overflow counters with --preset" in " ".join(
        result.output.split())


def test_a_recurrent_model():
    result = nnp(LSTM, "--samples", 3)
    assert result.exit_code == 0, result.output
    assert row(result.output, "lstm1, input")[-2] == "18"
    assert row(result.output, "lstm1, recurrent")[-2] == "19"
    assert "; with sums that wrap at 16 bits" in " ".join(result.output.split())


def test_a_model_of_convolutions(tmp_path):
    first, last = (conv(name, shape=shape, outputs=outputs, size=(9, 9), stride=(9, 9), padding=(padding,) * 4,
                        groups=1)
                   for name, shape, outputs, padding in (("first", (1, 28, 28), 2, 0), ("last", (2, 3, 3), 10, 3)))
    model = tmp_path / "image.safetensors"
    save_model(replace(networks.model([first, last]), data="fashion-mnist"), model)
    result = nnp(model, "--accumulator", 8, "--samples", 4)
    assert result.exit_code == 0, result.output
    assert int(row(result.output, "first")[1].replace(",", "")) > 0
    assert int(row(result.output, "last")[-1]) > 8
    assert "; with sums that wrap at 8 bits" in " ".join(result.output.split())


def test_the_widths_of_a_machine(tmp_path):
    machine = tmp_path / "narrow.toml"
    machine.write_text('based_on = "ulx3s"\nacc_int = 0\nacc_frac = 12\nweights = { e_min = 0 }\nlanes = 2\n')
    result = nnp(MLP, "--preset", machine, "--samples", 20)
    assert result.exit_code == 0, result.output
    assert "overflows in 12 bits" in result.output
    assert result.output == nnp(MLP, "--accumulator", 12, "--lanes", 2, "--samples", 20).output


@pytest.mark.parametrize(("words", "sentence"), [
    ((MLP, "--accumulator", 65), "--accumulator 65 is no width: storage has 1 to 64 bits"),
    ((MLP, "--output", 0), "--output 0 is no width"),
    ((MLP, "--lanes", 0), "lanes = 0 must be at least 1"),
    ((MLP, "--preset", "ulx3s", "--lanes", 2), "--preset ulx3s decides --accumulator, --product, --output and --lanes"),
    ((MLP, "--preset", "huge"), "there is no preset 'huge'"),
    ((MLP, "--samples", 0), "--samples 0 is neither 'all' nor a number"),
    ((BLOCK,), "layer 'hidden1' has no integer weights: overflow is counted in integer mode only"),
    (("nowhere",), "nowhere: there is no such model file")])
def test_bad_input_is_a_sentence(words, sentence):
    result = nnp(*words)
    assert result.exit_code == 2
    assert result.stderr.startswith("nnp: ")
    assert sentence in result.stderr
