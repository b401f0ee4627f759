"""Recurrent cells in training, against PyTorch's own layers and against golden arithmetic."""

import numpy as np
import pytest
import torch
from concord.campaigns.makers import networks
from concord.datasets import dataset
from concord.net import float_network as reference
from concord.net import network
from concord.net.cells.cell import Cell
from concord.net.cells.registry import CELLS
from concord.net.first_states import InitialState
from concord.net.layers.recurrent import BlockRecurrent
from concord.net.model_file import load_model, save_model
from concord.net.ops.recurrent import Direction, Recurrence
from concord.net.quantize.choices import Choices
from concord.net.quantize.recipe import Gates
from concord.nnp.main import app
from concord.spec.machine.config import PRESETS
from concord.spec.numbers.formats import Format
from concord.train.lib import export
from concord.train.network.quantized_network import QuantizedNetwork, behind_quantizers
from concord.train.recurrent.directions import Directions, last
from concord.train.recurrent.float_network import FloatClassifier, FloatRecurrent
from concord.train.runs.recurrent import SYMMETRIC, choices_of, tensors, train_recurrent
from torch import nn
from typer.testing import CliRunner

EIGHT_BITS = Format(bits=8, symmetric=True)
BLOCKS = choices_of(Format(bits=8, e_min=-11, e_max=4), Format(bits=8, e_min=-11, e_max=4), block=8)
ORACLES = [cell for cell in CELLS.values() if cell.torch_class]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def utterances():
    return dataset.load("japanese-vowels").first(12)


def module_of(cell: Cell, inputs: int, hidden: int, **options) -> nn.RNNBase:
    """PyTorch's own layer for a cell, with random weights."""
    torch.manual_seed(0)
    if cell.torch_class == "RNN":
        options["nonlinearity"] = str(cell.gates[0].curve)
    return getattr(nn, cell.torch_class)(inputs, hidden, batch_first=True, **options)


def recurrence(cell: Cell, module: nn.RNNBase, layer: int = 0) -> Recurrence:
    """The operator with the weights of one layer of `torch.nn.LSTM`, `GRU` or `RNN`."""
    ends = ("", "_reverse") if module.bidirectional else ("",)
    numbers = {name: value.detach().numpy() for name, value in module.named_parameters()}
    return Recurrence(cell=cell, directions=tuple(Direction.of_gates(cell, cell.torch_gates, *(
        numbers[f"{name}_l{layer}{end}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")))
        for end in ends))


def float_layer(op: Recurrence) -> Directions:
    """A recurrent operator in PyTorch."""
    return Directions(op, [FloatRecurrent(op, one) for one in op.directions])


@pytest.mark.parametrize("cell", ORACLES, ids=lambda cell: cell.name)
def test_layers_compute_what_pytorch_does(cell):
    module = module_of(cell, 5, 7, num_layers=2)
    x, lengths = torch.randn(4, 6, 5), torch.full((4,), 6)
    with torch.no_grad():
        wanted, _ = module(x)
        for layer in range(2):
            x = float_layer(recurrence(cell, module, layer))(x, lengths)
    torch.testing.assert_close(x, wanted)


@pytest.mark.parametrize("cell", ORACLES, ids=lambda cell: cell.name)
def test_gradients_are_those_of_pytorch(cell):
    module = module_of(cell, 3, 4)
    layer, x = float_layer(recurrence(cell, module)), torch.randn(2, 5, 3)
    module(x)[0].square().sum().backward()
    layer(x, torch.full((2,), 5)).square().sum().backward()
    order = [cell.torch_gates.index(gate.name) for gate in cell.gates]
    wanted = module.weight_hh_l0.grad.unflatten(0, (len(cell.gates), -1))[order]
    torch.testing.assert_close(layer.parts[0].recurrent_weights.grad, wanted)


@pytest.mark.parametrize("cell", ORACLES, ids=lambda cell: cell.name)
def test_both_directions_are_those_of_pytorch(cell):
    module = module_of(cell, 5, 7, num_layers=2, bidirectional=True)
    x, lengths = torch.randn(3, 6, 5), torch.tensor([6, 1, 4])
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    with torch.no_grad():
        wanted, ends = module(packed)
        ends = ends[0] if cell.torch_class == "LSTM" else ends
        for layer in range(2):
            x = float_layer(recurrence(cell, module, layer))(x, lengths)
    inside = (torch.arange(6) < lengths[:, None])[:, :, None]
    wanted, _ = nn.utils.rnn.pad_packed_sequence(wanted, batch_first=True)
    torch.testing.assert_close(x * inside, wanted)
    torch.testing.assert_close(last(x, lengths, 7), torch.cat([ends[2], ends[3]], 1))


def test_the_conventions_of_the_reset_gate_differ_and_peepholes_are_seen():
    torch.manual_seed(0)
    x, lengths = torch.randn(2, 5, 3), torch.full((2,), 5)
    outputs = {}
    for name in ("gru", "gru-reset-before", "lstm", "lstm-peephole"):
        torch.manual_seed(1)
        layer = FloatClassifier(3, (4,), 2, CELLS[name]).layers[0].parts[0]
        for vector in layer.vectors.values():
            nn.init.constant_(vector, 0.5)
        outputs[name] = layer(x, lengths)
    assert not torch.allclose(outputs["gru"], outputs["gru-reset-before"], atol=1e-3)
    assert not torch.allclose(outputs["lstm"], outputs["lstm-peephole"], atol=1e-3)


def integers(gates: Gates = SYMMETRIC) -> Choices:
    return choices_of(EIGHT_BITS, EIGHT_BITS, gates)


def behind(net: FloatClassifier, samples, choices: Choices) -> QuantizedNetwork:
    """A classifier with quantisers, by a calibration set."""
    x, lengths, _ = tensors(samples)
    return behind_quantizers(net.graph(), x, choices, lengths)


def moved(net: nn.Module) -> nn.Module:
    """Change every parameter of `net` a little, as training does, and return it."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.1 * (parameter.std() + 0.1) * torch.randn(parameter.shape, generator=generator)
    return net


def classifier(cell: Cell, *hidden: int, both: bool = False) -> FloatClassifier:
    """A random network with random initial states."""
    torch.manual_seed(0)
    return moved(FloatClassifier(12, hidden, 9, cell, both=both, initial=InitialState.UNIFORM))


@pytest.mark.parametrize(
    ("cell", "bits"),
    [(cell, bits) for cell in CELLS.values() for bits in (0, 7) if not bits or cell is not CELLS["rnn-relu"]],
    ids=lambda value: getattr(value, "name", value))
def test_integers_in_training_are_the_machines(cell, bits, utterances, tmp_path):
    x, lengths, _ = tensors(utterances)
    net = classifier(cell, 6, 5)
    qat = moved(behind(net, utterances, integers(Gates(outputs=bits))))
    check(net, qat, utterances, tmp_path)


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_blocks_in_training_are_the_machines(cell, utterances, tmp_path):
    net = classifier(cell, 11, 5)
    check(net, moved(behind(net, utterances, BLOCKS)), utterances, tmp_path)


@pytest.mark.parametrize("name", ["gru", "lstm", "rnn-relu"])
def test_both_directions_in_training_are_the_machines(name, utterances, tmp_path):
    x, lengths, _ = tensors(utterances)
    net = classifier(CELLS[name], 6, 5, both=True)
    qat = moved(behind(net, utterances, integers()))
    check(net, qat, utterances, tmp_path)
    check(net, moved(behind(net, utterances, BLOCKS)), utterances, tmp_path)


def test_outputs_without_a_bound_keep_their_bits(utterances, tmp_path):
    for refused in (
        lambda: behind(classifier(CELLS["rnn-relu"], 3), utterances, integers(Gates(outputs=5))),
        lambda: train_recurrent(tmp_path / "m", cell="rnn-relu", gates=Gates(outputs=5), folder=tmp_path),
    ):
        with pytest.raises(ValueError, match="the output of gate h of RNN, relu has no bound"):
            refused()


def check(net, qat, utterances, folder):
    """Assert that the lowered network equals the model file to the bit, and that both models hold the FP32 network."""
    x, lengths, _ = tensors(utterances)
    with torch.no_grad():
        lowered, real, fp32 = qat(x, lengths, lowered=True), qat(x, lengths, lowered=False), net(x, lengths)
    save_model(networks.model(*qat.lower()), folder / "model")
    model = load_model(folder / "model")
    golden = network.forward(model, utterances.inputs, utterances.lengths)[-1].outputs
    assert np.array_equal(golden, export.patterns(lowered))
    assert torch.allclose(real, lowered, atol=0.2)
    assert reference.forward(model, utterances.inputs, lengths.numpy())[-1] == pytest.approx(fp32.numpy(), abs=1e-4)


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_all_parameters_learn_behind_blocks(cell, utterances):
    x, lengths, _ = tensors(utterances)
    qat = behind(classifier(cell, 6), utterances, BLOCKS)
    for lowered in (False, True):
        qat.zero_grad()
        qat(x, lengths, lowered=lowered).square().sum().backward()
        assert all(parameter.grad.abs().sum() > 0 for parameter in qat.parameters())
    assert isinstance(qat.lower()[0][0], BlockRecurrent)


@pytest.mark.parametrize("name", ["gru", "rnn-relu"])
def test_commands_train_what_their_options_say(name, vowels, tmp_path):
    words = f"train {name} --arithmetic bfp --preset trainer --hidden 8 --hidden 5 --bidirectional --epochs 2,1,1"
    out = tmp_path / "m.safetensors"
    result = CliRunner().invoke(app, [*words.split(), "--data", str(vowels), "--out", str(out)])
    assert result.exit_code == 0, result.output
    made, machine, plain = load_model(out), PRESETS["trainer"], name.replace("-", "_")
    recurrent = [layer for layer in made.layers if isinstance(layer, BlockRecurrent)]
    assert [layer.name for layer in recurrent] == [f"{plain}1", f"{plain}1-reverse", f"{plain}2", f"{plain}2-reverse"]
    assert [(layer.cell, layer.reverse, layer.outputs) for layer in recurrent] == [
        (CELLS[name], False, 8), (CELLS[name], True, 8), (CELLS[name], False, 5), (CELLS[name], True, 5)]
    assert {layer.weights_format for layer in recurrent} == {machine.weights}
    assert {layer.block for layer in recurrent} == {machine.native_dim}
    assert "both directions; FP32, 2 epochs" in made.provenance.method
    assert "block floating point in blocks of 16, mantissas of 8 bits" in made.provenance.method


@pytest.mark.parametrize(("words", "sentence"), [
    ("--arithmetic bfp --shared", "--asymmetric, --shared and --bias-bits are for integer"),
    ("--block 8", "--block is for --arithmetic bfp"),
    ("--preset speech --bits 4", "--preset speech decides --bits and --block: leave them out"),
    ("--preset nothing", "nothing"),
])
def test_options_that_do_not_go_together(words, sentence, tmp_path):
    out = tmp_path / "m.safetensors"
    result = CliRunner().invoke(app, ["train", "gru", *words.split(), "--data", "nowhere", "--out", str(out)])
    assert result.exit_code == 2
    assert sentence in " ".join(result.output.split())
