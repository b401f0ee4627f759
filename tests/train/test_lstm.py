"""Integer gates of an LSTM: the published formulas, no drift, and the machine's bits in every form and width."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from concord.campaigns.makers import networks
from concord.compiler.network import compile_network
from concord.datasets import dataset
from concord.firmware.session import Session
from concord.golden.lib import float16
from concord.net import float_network as reference
from concord.net import network
from concord.net.cells.registry import CELLS
from concord.net.first_states import InitialState, drawn
from concord.net.lowering import lowering
from concord.net.model_file import load_model
from concord.net.quantize import gates as scales
from concord.net.quantize import tensors as ptq
from concord.net.quantize.codes import signed
from concord.net.quantize.gated import Gated
from concord.net.quantize.recipe import Gates
from concord.nnp.main import app
from concord.sim.machines.host import machine
from concord.spec.machine.config import preset
from concord.spec.numbers.formats import Format
from concord.train.lib import export
from concord.train.network.quantized_network import QuantizedNetwork, behind_quantizers
from concord.train.recurrent.float_network import FloatClassifier
from concord.train.recurrent.quantized import QuantizedRecurrent
from concord.train.runs import recurrent as lstm
from typer.testing import CliRunner

FORMS = [Gates(asymmetric=asymmetric, shared=shared) for asymmetric, shared in product((False, True), repeat=2)]
NAMES = ["symmetric", "symmetric, shared", "asymmetric", "asymmetric, shared"]
STEPS = 1000  #: Number of time steps in the tests of drift.


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def utterances():
    return dataset.load("japanese-vowels").first(20)


def classifier(*hidden: int, seed: int = 0) -> FloatClassifier:
    torch.manual_seed(seed)
    return FloatClassifier(12, hidden, 9, CELLS["lstm"])


def behind(net: FloatClassifier, samples, fmt: Format, gates: Gates = lstm.SYMMETRIC) -> QuantizedNetwork:
    """A classifier with quantisers of one format, by a calibration set."""
    x, lengths, _ = lstm.tensors(samples)
    return behind_quantizers(net.graph(), x, lstm.choices_of(fmt, fmt, gates), lengths)


def test_asymmetric_integers_worked_by_hand():
    values = np.array([-1.0, 0.0, 0.01, 3.0])
    affine = scales.asymmetric(values, 8)  # S = 255 / 4 = 63.75, S x_min = -63.75
    assert (affine.step, affine.zero, affine.ends) == (4 / 255, -64, (-64, 191))
    codes = scales.quantize(values, affine)  # round(-63.75) + 64, 0 + 64, round(0.6375) + 64, round(191.25) + 64
    assert codes.tolist() == [0, 64, 65, 255]
    assert scales.recover(codes, affine).tolist() == [-64 * 4 / 255, 0, 4 / 255, 191 * 4 / 255]


def test_two_roundings_that_differ_by_the_whole_range_clip():
    values = np.array([-63.5, 191.5])  # S = 1; half to even: -64 and 192, which are 256 apart
    assert scales.quantize(values, scales.asymmetric(values, 8)).tolist() == [0, 255]


def test_symmetric_integers_worked_by_hand():
    affine = scales.symmetric(np.array([-2.0, 0.5]), 4)  # S = 7 / 2
    assert (affine.zero, affine.ends) == (0, (-7, 7))
    assert scales.quantize(np.array([-2.0, 0.5, 9.0]), affine).tolist() == [-7, 2, 7]
    assert scales.recover([-7, 2], affine).tolist() == [-2.0, 4 / 7]


@pytest.mark.parametrize("fit", [scales.symmetric, scales.asymmetric])
def test_ranges_without_an_extent_or_without_zero(fit):
    assert fit(np.zeros(3), 8).step == 1
    assert not scales.recover(scales.quantize(np.zeros(3), fit(np.zeros(3), 8)), fit(np.zeros(3), 8)).any()
    for values in (np.array([2.0, 5.0]), np.array([-5.0, -2.0])):  # the range is stretched to 0
        affine = fit(values, 8)
        assert affine.step == 5 / (255 if fit is scales.asymmetric else 127)
        assert scales.recover(scales.quantize(np.zeros(1), affine), affine) == 0


@pytest.mark.parametrize("bits", range(2, 17))
@pytest.mark.parametrize("fit", [scales.symmetric, scales.asymmetric])
def test_nothing_is_off_by_more_than_half_a_step_but_what_clips(fit, bits):
    values = np.random.default_rng(bits).normal(0.3, 1, 4000)
    affine = fit(values, bits)
    codes = scales.quantize(values, affine)
    assert (codes.min(), codes.max()) >= (affine.lowest, affine.lowest)
    assert codes.max() <= affine.highest
    error = np.abs(scales.recover(codes, affine) - values) / affine.step
    inside = (codes > affine.lowest) & (codes < affine.highest)
    assert error[inside].max() <= 0.5 + 1e-9
    assert error.max() <= 1
    assert max(-affine.ends[0], affine.ends[1]) < 1 << bits - (fit is scales.symmetric)


@pytest.mark.parametrize(("values", "bits", "message"), [
    ([1.0], 1, "an integer has 2 to 32 bits, not 1"),
    ([1.0], 33, "an integer has 2 to 32 bits, not 33"),
    ([1.0, np.nan], 8, "infinite or NaN, so it has no scale: train with a lower learning rate"),
])
@pytest.mark.parametrize("fit", [scales.symmetric, scales.asymmetric])
def test_what_has_no_scale_is_refused(fit, values, bits, message):
    with pytest.raises(ValueError, match=message):
        fit(np.array(values), bits)


def test_one_scale_for_a_gate_covers_both_matrices():
    w, r = np.array([[-0.5, 1.0]]), np.array([[0.0, 2.0]])
    for gates in FORMS:
        of_w, of_r = scales.of_gate((w, r), 8, gates)
        assert (of_w == of_r) == gates.shared
        assert of_r.step == 2 / 127 if not gates.asymmetric else 2.5 / 255 if gates.shared else 2 / 255
    # A matrix of zeros alone has S = 1; in a shared scale it has no influence.
    of_w, of_r = scales.of_gate((0 * w, r), 8, Gates(shared=True))
    assert of_w.step == of_r.step == 2 / 127


def mixed(values: np.ndarray, affine: scales.IntegerScale) -> np.ndarray:
    """The wrong way: quantise with the unrounded minimum, and recover values with the rounded one."""
    minimum = min(0.0, values.min()) / affine.step
    codes = np.clip(np.rint(values / affine.step - minimum), affine.lowest, affine.highest)
    return scales.recover(codes, affine)


def consistent(values: np.ndarray, affine: scales.IntegerScale) -> np.ndarray:
    return scales.recover(scales.quantize(values, affine), affine)


def drift(quantized, values: np.ndarray, affine: scales.IntegerScale) -> np.ndarray:
    """Final distance of the recurrences c <- c + x' and c <- c + x, in quantisation steps, float64[cells]."""
    cell = exact = np.zeros(values.shape[1])
    for now, true in zip(quantized(values, affine), values, strict=True):
        cell, exact = cell + now, exact + true
    return (cell - exact) / affine.step


@pytest.mark.parametrize(("low", "high"), [(-0.7, 1.9), (-0.9, 1.1), (-1.3, 0.5)])
def test_a_consistent_zero_point_leaves_no_drift_and_a_mixed_pair_drifts(low, high):
    """The mixed pair drifts by 1,000 times what rounding takes from the minimum: 346, 250 and 167 quantisation steps.

    Rounding errors of random numbers are a random walk: 9 steps a cell after 1,000, 1.2 in the mean of 64 cells.
    """
    values = np.random.default_rng(0).uniform(low, high, (STEPS, 64))
    values[0, :2] = low, high
    affine = scales.asymmetric(values, 8)
    lost = affine.zero - low / affine.step  # error of one value in steps, always with this sign
    assert 0.1 < abs(lost) < 0.5
    good, bad = (drift(quantized, values, affine) for quantized in (consistent, mixed))
    assert abs(good.mean()) < 5
    assert np.abs(good).max() < 40
    assert bad.mean() == pytest.approx(STEPS * lost, abs=5)
    assert abs(bad.mean()) > 100


def test_a_cell_that_gets_zeros_stays_where_it_is():
    affine = scales.asymmetric(np.array([-0.7, 1.9]), 8)
    assert (drift(consistent, np.zeros((STEPS, 2)), affine) == 0).all()


def post_training(net: FloatClassifier, x, fmt: Format, gates: Gates) -> list:
    """The PTQ network, computed by numpy alone."""
    layers, s_in = [], float(np.abs(x.numpy()).max()) / fmt.highest
    for index, (layer,) in enumerate(one.parts for one in net.layers):
        matrices = [m.detach().double().numpy() for m in (layer.input_weights, layer.recurrent_weights)]
        pairs = [scales.of_gate(pair, fmt.bits, gates) for pair in zip(*matrices, strict=True)]
        codes = [
            np.stack([scales.quantize(m, pair[k]) + pair[k].zero for m, pair in zip(matrices[k], pairs, strict=True)])
            for k in range(2)
        ]
        input_steps, recurrent_steps = np.array([[affine.step for affine in pair] for pair in pairs]).T
        layers.append(lowering.recurrent(
            cell=CELLS["lstm"],
            name=f"lstm{index}", input_codes=codes[0], recurrent_codes=codes[1], input_steps=input_steps,
            recurrent_steps=recurrent_steps, bias=layer.bias.detach().numpy(), s_in=s_in,
            weights_format=gates.travels_as(fmt), input_format=fmt))
        s_in = 2.0 ** -(fmt.bits - 1)
    codes, gain = ptq.weights(net.head.weight.detach().double().numpy(), fmt)
    constant = net.head.bias.detach().numpy()
    formats = {"weights_format": fmt, "input_format": fmt, "unsigned": False, "quantize_input": True}
    layers.append(lowering.dense(name="output", codes=codes, gain=gain, constant=constant, s_in=s_in, **formats))
    return layers


@pytest.mark.parametrize("bits", [*range(2, 9), 11, 15])
@pytest.mark.parametrize("gates", FORMS, ids=NAMES)
def test_the_first_qat_pass_is_the_ptq_network_to_the_bit(gates, bits, utterances):
    x, lengths, _ = lstm.tensors(utterances)
    net, fmt = classifier(7, 5, seed=bits), Format(bits=bits, symmetric=True)
    qat = behind(net, utterances, fmt, gates)
    with torch.no_grad():
        got = qat(x, lengths, lowered=True)
    wanted = post_training(net, x, fmt, gates)
    for layer, lowered in zip(list(qat.layers.values())[:2], wanted, strict=False):
        made = layer.parts[0].integers()
        for ours, theirs in zip(made, (lowered.input_weights, lowered.recurrent_weights), strict=True):
            assert np.array_equal(ours.detach().numpy(), theirs)
    outputs = network.forward(networks.model(wanted), utterances.inputs, utterances.lengths)[-1].outputs
    assert np.array_equal(export.patterns(got), outputs)


@pytest.mark.parametrize("shared", [False, True])
def test_sixteen_bits_start_from_their_ptq_network_too(shared, utterances):
    test_the_first_qat_pass_is_the_ptq_network_to_the_bit(Gates(shared=shared), 16, utterances)


def moved(net, by: float = 0.1):
    """`net` with every parameter moved a little, as training does."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += by * parameter.std() * torch.randn(parameter.shape, generator=generator)
    return net


@pytest.mark.parametrize("gates", FORMS, ids=NAMES)
def test_a_trained_layer_says_what_its_integers_mean(gates, utterances):
    fmt = Format(bits=8, symmetric=True)
    net = moved(behind(moved(classifier(6)), utterances, fmt, gates), 2)
    layer = net.lower()[0][0]
    assert layer.weights_format.bits == (9 if gates.asymmetric else 8)
    for matrix, weights in (("input", layer.input_weights), ("recurrent", layer.recurrent_weights)):
        zeros = layer.real[f"{matrix}_zeros"]
        assert zeros.any() == gates.asymmetric
        codes = weights - zeros[:, None, None]
        ends = (0, 255) if gates.asymmetric else (-127, 127)
        assert (codes.min(), codes.max()) == ends  # values that training moved beyond the ends are clipped


def test_gradients_of_asymmetric_weights_stop_outside_their_range():
    torch.manual_seed(0)
    fmt = Format(bits=4, symmetric=True)
    op = FloatClassifier(3, (4,), 2, CELLS["lstm"]).layers[0].op
    codes = signed(0.1, fmt.bits, fmt.symmetric)
    found = Gated.of(op.directions[0], fmt.bits, Gates(asymmetric=True), codes, codes)
    layer = QuantizedRecurrent(op, op.directions[0], found, Gates(asymmetric=True))
    low, high = found.affines[0][1].ends
    with torch.no_grad():
        layer.input_weights[1, 0] = torch.tensor([low - 0.1, low + 0.3, high + 0.1])
    w, _ = layer.integers()
    assert w[1, 0].tolist() == [low, low, high]
    w.sum().backward()
    assert layer.input_weights.grad[1, 0].tolist() == [0, 1, 0]
    assert layer.input_weights.grad[0].min() == 1  # start values lie inside the range


@pytest.mark.parametrize("shared", [False, True])
def test_asymmetric_weights_need_a_machine_one_bit_wider(shared, utterances):
    x, lengths, _ = lstm.tensors(utterances)
    fmt = Format(bits=8, symmetric=True)
    net = behind(moved(classifier(8)), utterances, fmt, Gates(asymmetric=True, shared=shared))
    model, narrow = networks.model(*net.lower()), preset("speech")
    reason = r"layer 'lstm1' \(LSTM, integer\): its weights lie in .* mantissas in -127..127: .* a wider preset"
    with pytest.raises(ValueError, match=reason):
        compile_network(model, narrow)
    wide = replace(narrow, weights=replace(narrow.weights, bits=9), acc_frac=narrow.acc_frac + 1)
    session = Session(machine("golden", wide), compile_network(model, wide).firmware)
    with torch.no_grad():
        wanted = export.patterns(net(x, lengths, lowered=True))
    for index in range(3):
        got = session.infer(utterances.inputs[index][: utterances.lengths[index]])
        assert np.array_equal(got, wanted[index])


@pytest.mark.parametrize("bits", range(2, 10))
def test_two_additions_round_a_gates_output_to_its_steps(bits, utterances):
    """For all binary16 outputs of a gate, the machine's two additions, rounding, and training agree."""
    net = behind(classifier(3), utterances, Format(bits=8, symmetric=True), Gates(outputs=bits))
    layer = net.layers["lstm1"].parts[0]
    numbers = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    for gate, low, steps in (("f", 0, 2.0**bits), ("j", -1, 2.0 ** (bits - 1))):
        values = numbers[(numbers >= low) & (numbers <= 1)]
        centre = np.full(values.shape, 1536 / steps, np.float16).view(np.uint16)
        by_machine = float16.sub(float16.add(values.view(np.uint16), centre), centre)
        rounded = np.rint(values.astype(np.float64) * steps) / steps + 0.0
        assert np.array_equal(by_machine, rounded.astype(np.float16).view(np.uint16))
        got = layer.gate_output(torch.from_numpy(values.astype(np.float32)), gate)
        assert np.array_equal(export.patterns(got), by_machine)


@pytest.mark.parametrize("bits", [2, 5, 8, 9])
def test_quantized_outputs_of_gates_are_the_machines_too(bits, utterances):
    x, lengths, _ = lstm.tensors(utterances)
    fmt = Format(bits=8, symmetric=True)
    net = moved(behind(moved(classifier(9, 5)), utterances, fmt, Gates(outputs=bits)))
    with torch.no_grad():
        got = export.patterns(net(x, lengths, lowered=True))
    model = networks.model(*net.lower())
    assert np.array_equal(got, network.forward(model, utterances.inputs, utterances.lengths)[-1].outputs)
    plain = networks.model([replace(model.layers[0], gate_bits=0), *model.layers[1:]])
    assert not np.array_equal(got, network.forward(plain, utterances.inputs, utterances.lengths)[-1].outputs)
    for limits in ({}, {"accumulator_rows": 16, "mvmq_words": 4}):  # all gates in one product, and gates in pieces
        config = replace(preset("speech"), **limits)
        session = Session(machine("golden", config), compile_network(model, config).firmware)
        for index in range(2):
            sample = utterances.inputs[index][: utterances.lengths[index]]
            assert np.array_equal(session.infer(sample), got[index])


def test_outputs_of_gates_have_two_to_nine_bits(utterances):
    layer = behind(classifier(3), utterances, Format(bits=8, symmetric=True)).lower()[0][0]
    for bits in (1, 10):
        with pytest.raises(ValueError, match=f"layer 'lstm1', gate_bits: 2 to 9, or 0 for none, not {bits}"):
            replace(layer, gate_bits=bits)


@pytest.mark.parametrize("process", list(InitialState))
def test_a_first_state_is_the_machines_too(process, utterances):
    x, lengths, _ = lstm.tensors(utterances)
    torch.manual_seed(0)
    net = FloatClassifier(12, (6, 5), 9, CELLS["lstm"], initial=process, seed=3)
    qat = moved(behind(net, utterances, Format(bits=8, symmetric=True)))
    with torch.no_grad():
        got, fp32 = qat(x, lengths, lowered=True), net(x, lengths)
    model = networks.model(*qat.lower())
    assert np.array_equal(export.patterns(got), network.forward(model, utterances.inputs, lengths)[-1].outputs)
    assert reference.forward(model, utterances.inputs, lengths)[-1] == pytest.approx(fp32.numpy(), abs=1e-4)
    assert model.layers[0].initial["cell"].any() == model.layers[1].initial["hidden"].any() == (process != "zero")
    values = [np.stack(list(drawn(process, CELLS["lstm"], 500, seed).values())) for seed in (1, 1, 2)]
    assert np.array_equal(values[0], values[1])
    assert np.array_equal(values[1], values[2]) == (process == "zero")
    spread = {"zero": 0, "uniform": 3**-0.5, "normal": 0.1}[process]
    assert values[0].std() == pytest.approx(spread, rel=0.1)
    assert np.abs(values[0]).max() <= 1


def test_the_command_trains_what_its_options_say(vowels, tmp_path):
    words = "train lstm --bits 5 --asymmetric --shared --hidden 7 --hidden 6 --epochs 4,1,1 --initial normal --seed 5"
    words += " --gate-bits 7 --output-bits 5"
    out = tmp_path / "vowels.safetensors"
    result = CliRunner().invoke(app, [*words.split(), "--data", str(vowels), "--out", str(out)])
    assert result.exit_code == 0, result.output
    made = load_model(out)
    assert [layer.outputs for layer in made.layers] == [7, 6, 9, 9]
    assert [layer.weights_format.bits for layer in made.layers[:3]] == [6, 6, 5]
    assert [layer.input_format.bits for layer in made.layers] == [5, 5, 5, 5]
    assert [layer.result_format.bits for layer in made.layers[:2]] == [5, 5]
    assert [layer.gate_bits for layer in made.layers[:2]] == [7, 7]
    assert made.layers[0].initial["cell"].any()
    assert "first state normal, seed 5; FP32, 4 epochs" in made.provenance.method
    assert "asymmetric with an integer zero point, one scale for each gate, outputs" in made.provenance.method
    words = "gates of 7 bits, x and h of 5 bits, results of products of 5 bits; 1 epochs of QAT; 1 epochs more"
    assert words in made.provenance.method


def test_blocks_have_quantised_results_too(utterances):
    fmt = Format(bits=8, symmetric=True, e_min=-11, e_max=4)
    x, lengths, _ = lstm.tensors(utterances)
    net = behind_quantizers(classifier(7).graph(), x, lstm.choices_of(fmt, fmt, block=16, output_bits=8), lengths)
    layers, sources = net.lower()
    assert layers[0].quantized_results
    made = networks.model(layers, sources=sources)
    found = np.float16(net(x, lengths, lowered=True).detach().numpy()).view(np.uint16)
    np.testing.assert_array_equal(found, network.outputs(made, utterances.inputs, utterances.lengths))


@pytest.mark.parametrize(("words", "sentence"), [
    ("--bits 1", "a mantissa has 2 to 16 bits, not 1"),
    ("--bits 17", "a mantissa has 2 to 16 bits, not 17"),
    ("--bits 16 --asymmetric", "asymmetric weights of 16 bits multiply as integers of 17, operands have 16"),
    ("--arithmetic bfp --bits 12", "mantissas of 12 bits: training in PyTorch takes at most 11"),
    ("--gate-bits 10", "outputs of gates have 2 to 9 bits, or 0 for binary16, not 10"),
    ("--hidden 0", "hidden sizes are [0]: give one or more, each at least 1"),
    ("--epochs 1,-1,0", "epochs are [1, -1, 0]: none of the phases can have fewer than 0"),
])
def test_options_that_make_no_sense_are_refused_before_training(words, sentence, tmp_path):
    out = tmp_path / "vowels.safetensors"
    result = CliRunner().invoke(app, ["train", "lstm", *words.split(), "--data", "nowhere", "--out", str(out)])
    assert result.exit_code == 2
    assert sentence in " ".join(result.output.split())
    assert not out.exists()
