"""Codes of the outputs of gates, by the curve or by measured ranges: golden, training and the machine agree."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from concord.campaigns.makers import networks
from concord.compiler.network import compile_network
from concord.datasets import dataset
from concord.firmware.session import Session
from concord.golden.lib.float16 import to_real
from concord.net import network
from concord.net.cells.golden import GoldenOperations
from concord.net.cells.output_codes import ENDS, OutputCodes, output_codes
from concord.net.cells.registry import CELLS
from concord.net.model_file import load_model, save_model
from concord.net.quantize.quantized import prepared, quantized
from concord.net.quantize.recipe import GateForm, Gates
from concord.nnp.main import app
from concord.sim.machines.host import machine
from concord.spec.machine.config import preset
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format
from concord.train.lib import export
from concord.train.network.quantized_network import behind_quantizers
from concord.train.recurrent.float_network import FloatClassifier
from concord.train.runs import recurrent
from typer.testing import CliRunner

EIGHT = Format(bits=8, symmetric=True, e_min=-11, e_max=4)
MEASURED = [GateForm.SYMMETRIC, GateForm.ASYMMETRIC]
BLOCK = preset("speech").native_dim


class Golden(GoldenOperations):
    """Golden additions and comparisons without a layer."""

    preactivation = input_product = recurrent_product = None

    def __init__(self):
        pass


@pytest.fixture(scope="module")
def utterances():
    return dataset.load("japanese-vowels").first(12)


def classifier(cell: str, *hidden: int, both: bool = False) -> FloatClassifier:
    torch.manual_seed(0)
    return FloatClassifier(12, hidden, 9, CELLS[cell], both=both)


def behind(net, samples, gates: Gates, block: int | None = None):
    """The network behind quantisers of 8 bits."""
    x, lengths, _ = recurrent.tensors(samples)
    return behind_quantizers(net.graph(), x, recurrent.choices_of(EIGHT, EIGHT, gates, block), lengths)


@pytest.mark.parametrize("curve", ENDS)
def test_machine_operations_give_the_nearest_code_of_every_output(curve):
    rng = np.random.default_rng(0)
    patterns = np.arange(1 << 16, dtype=np.uint16)
    values = to_real(patterns)
    outputs = patterns[(values >= ENDS[curve][0]) & (values <= ENDS[curve][1])]
    for _ in range(60):
        bits, symmetric, scale = int(rng.integers(3, 10)), bool(rng.integers(2)), 10 ** rng.uniform(-4, 0)
        low, high = np.sort(rng.uniform(max(ENDS[curve][0], -1), 1, 2)) * scale
        codes = OutputCodes.of_range(curve, bits, symmetric, low, high)
        assert codes.count <= 1 << bits
        assert codes.lowest * codes.step <= low
        assert high <= codes.highest * codes.step
        finer = replace(codes, exponent=codes.exponent - 1)  # half the step would not hold the range, or is too fine
        assert codes.exponent == -14 or max(-low, high) > 1024 * codes.step or (high - low) > (
            codes.count - 3) * finer.step or max(-low, high) > (codes.count - 3) / 2 * finer.step
        wanted = (codes.quantized(to_real(outputs)) + 0.0).astype(np.float16).view(np.uint16)
        assert np.array_equal(codes.rounded(Golden(), outputs), wanted), codes


def test_codes_worked_by_hand():
    of_range = OutputCodes.of_range
    assert of_range(Activation.SIGMOID, 8, False, 0.02, 0.97).record == (-8, 0, 255)
    assert of_range(Activation.SIGMOID, 8, True, 0.02, 0.97).record == (-7, -127, 127)
    assert of_range(Activation.TANH, 8, False, -0.9, 0.95).record == (-7, -128, 127)
    assert of_range(Activation.TANH, 4, False, 0.5, 0.7).record == (-6, 30, 45)  # downward to no end of the curve
    assert of_range(Activation.RELU, 4, False, 0.0, 6.0).record == (-1, 0, 15)
    with pytest.raises(ValueError, match="outputs of gates up to 60 do not fit 2 bits in steps of at most 16"):
        of_range(Activation.RELU, 2, True, 0.0, 60.0)


@pytest.mark.parametrize("form", MEASURED)
@pytest.mark.parametrize(("cell", "block"), [("lstm", None), ("gru", None), ("rnn-relu", None), ("lstm", BLOCK)])
def test_golden_training_and_machine_agree(cell, block, form, utterances, tmp_path):
    x, lengths, _ = recurrent.tensors(utterances)
    net = behind(classifier(cell, 9), utterances, Gates(outputs=5, form=form), block)
    with torch.no_grad():
        got = export.patterns(net(x, lengths, lowered=True))
    save_model(networks.model(*net.lower()), tmp_path / "model.safetensors")
    model = load_model(tmp_path / "model.safetensors")
    layer = model.layers[0]
    assert (layer.gate_bits, layer.gate_codes.shape) == (5, (len(layer.cell.gates), 3))
    assert np.array_equal(got, network.forward(model, utterances.inputs, utterances.lengths)[-1].outputs)
    plain = networks.model([replace(layer, gate_bits=0, gate_codes=None), *model.layers[1:]])
    assert not np.array_equal(got, network.forward(plain, utterances.inputs, utterances.lengths)[-1].outputs)
    session = Session(machine("golden", preset("speech")), compile_network(model, preset("speech")).firmware)
    for index in range(2):
        assert np.array_equal(session.infer(utterances.inputs[index][: utterances.lengths[index]]), got[index])


def test_both_directions_have_codes_of_their_own(utterances):
    net = behind(classifier("lstm", 6, both=True), utterances, Gates(outputs=4, form=GateForm.ASYMMETRIC))
    forward, backward = (layer for layer in net.lower()[0] if hasattr(layer, "gate_codes"))
    assert not np.array_equal(forward.gate_codes, backward.gate_codes)


@pytest.mark.parametrize("form", MEASURED)
def test_no_output_of_the_calibration_set_clips(form, utterances):
    """The float network's outputs lie within the codes, and the quantised one's are codes."""
    x, lengths, _ = recurrent.tensors(utterances)
    net = classifier("lstm", 9)
    gates = Gates(outputs=6, form=form)
    made = quantized(prepared(net.graph(), recurrent.choices_of(EIGHT, EIGHT, gates)), x.numpy(), lengths.numpy())
    layer = made.layers[0]
    for gate, codes in output_codes(layer.cell, 6, layer.gate_codes).items():
        assert codes.count <= 64, gate
    model = networks.model(made.layers, sources=made.sources)
    near = network.forward(model, utterances.inputs, utterances.lengths)[-1].outputs
    assert np.abs(to_real(near) - net(x, lengths).detach().numpy()).max() < 0.1


def test_the_command_takes_the_form(vowels, tmp_path):
    out = tmp_path / "vowels.safetensors"
    words = "train rnn-relu --gate-bits 6 --gate-form asymmetric --hidden 5 --epochs 1,1,1"
    result = CliRunner().invoke(app, [*words.split(), "--data", str(vowels), "--out", str(out)])
    assert result.exit_code == 0, result.output
    model = load_model(out)
    assert model.layers[0].gate_codes[0][1] == 0
    assert "outputs of gates of 6 bits, asymmetric" in model.provenance.method


@pytest.mark.parametrize(("words", "sentence"), [
    ("lstm --gate-form symmetric", "lie: give their bits by --gate-bits"),
    ("rnn-relu --gate-bits 6", "or the form symmetric or asymmetric, whose bounds are measured"),
    ("lstm --arithmetic bfp --gate-bits 6 --shared", "--asymmetric, --shared and --bias-bits are for integer"),
])
def test_forms_that_make_no_sense_are_refused(words, sentence, tmp_path):
    result = CliRunner().invoke(app, ["train", *words.split(), "--data", "nowhere", "--out", str(tmp_path / "a")])
    assert result.exit_code == 2
    assert sentence in " ".join(result.output.split())


def test_a_file_with_other_codes_is_refused(utterances):
    layer = behind(classifier("lstm", 5), utterances, Gates(outputs=4, form=GateForm.ASYMMETRIC)).lower()[0][0]
    wide = layer.gate_codes.copy()
    wide[1, 2] += 1
    with pytest.raises(ValueError, match=r"layer 'lstm1', gate_codes: .* of gate \w are no codes of 4 bits"):
        replace(layer, gate_codes=wide)
