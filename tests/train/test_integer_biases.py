"""Integer biases of gates, which the accumulator adds: training, golden, the machine's program, twins and files."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")

from dataclasses import replace

from concord.campaigns.makers import networks
from concord.compiler.network import compile_network, full_precision
from concord.firmware.session import outputs_of
from concord.firmware.unquantized import UnquantizedMachine
from concord.golden.lib import float16
from concord.net import float_network, network
from concord.net.cells.registry import CELLS
from concord.net.model_file import load_model, save_model
from concord.net.quantize.choices import Choices
from concord.net.quantize.recipe import Gates, Recipe
from concord.spec.machine.config import preset
from concord.train.network.quantized_network import behind_quantizers
from concord.train.recurrent.float_network import FloatClassifier
from concord.twin.recovery.recover import recover
from concord.twin.source.writer import tensors
from concord.verification.twins import differing_bits

MACHINE = preset("vision")


def trained(cell: str, bits: int, scale: float = 1.0):
    """A network behind quantisers with random biases, and inputs."""
    torch.manual_seed(0)
    net = FloatClassifier(3, (5,), 4, CELLS[cell])
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if "bias" in name:
                parameter.add_(scale * torch.randn_like(parameter))
    x = torch.randn(20, 6, 3).half().float()
    choices = Choices(gates=Gates(biases=bits), recipe=Recipe(weights_bits=8, input_bits=8, symmetric=(True, True)))
    return behind_quantizers(net.graph(), x, choices, machine=True), x


def patterns(x) -> np.ndarray:
    return x.detach().numpy().astype(np.float16).view(np.uint16)


@pytest.mark.parametrize("cell", CELLS)
def test_all_rooms_add_the_same_integers(cell, tmp_path):
    qat, x = trained(cell, 24)
    layers, sources = qat.lower()
    model = networks.model(layers, sources=sources)
    assert np.abs(layers[0].start).max() > 1000
    assert not layers[0].bias.any()
    golden = network.outputs(model, patterns(x))
    assert np.array_equal(golden, patterns(qat(x, lowered=True)))
    firmware = compile_network(model, MACHINE).firmware
    assert np.array_equal(outputs_of("golden", firmware, list(patterns(x[:3]))), golden[:3])
    script = recover(firmware)
    assert differing_bits(firmware, script, tensors(script)) == 0
    wanted = float_network.forward(model, patterns(x[:2]))[-1]
    exact = UnquantizedMachine(firmware, full_precision(model, firmware))
    assert np.abs(np.stack([exact.infer(each) for each in patterns(x[:2])]) - wanted).max() < 1e-9
    save_model(model, tmp_path / "m.safetensors")
    again = load_model(tmp_path / "m.safetensors")
    assert np.array_equal(network.outputs(again, patterns(x)), golden)


def test_integer_biases_are_trained():
    """Gradients pass their rounding, and the chain that adds no float bias is one operation shorter."""
    qat, x = trained("lstm", 32)
    part = qat.layers["lstm1"].parts[0]
    before = part.gated().bias.copy()
    optimiser = torch.optim.Adam(qat.parameters(), lr=0.01)
    loss = torch.nn.functional.cross_entropy(qat(x, lowered=True), torch.zeros(len(x), dtype=torch.long))
    loss.backward()
    assert part.bias.grad.abs().max() > 0
    optimiser.step()
    assert (part.gated().bias != before).any()


def test_biases_that_do_not_fit_are_refused():
    qat, _ = trained("lstm", 8)
    with pytest.raises(ValueError, match=r"layer 'lstm1': its largest bias needs 1\d bits .* give --bias-bits 1\d"):
        qat.lower()
    with pytest.raises(ValueError, match="biases of gates have 2 to 32 bits"):
        Gates(biases=40)


def test_start_values_of_gates_must_fit_the_machine():
    qat, _ = trained("gru", 32)
    layers, sources = qat.lower()
    machine = replace(MACHINE, bias_bits=8)
    with pytest.raises(ValueError, match="its start values need 1\\d bits, BiasRf has 8"):
        compile_network(networks.model(layers, sources=sources), machine)


def test_a_layer_with_biases_of_binary16_has_no_integers():
    qat, x = trained("lstm", 0)
    layers, _ = qat.lower()
    assert layers[0].start is None
    assert float16.to_real(layers[0].bias).any()
