"""Results of products that are quantised before anything else is computed with them."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.compiler.network import compile_network, full_precision
from concord.compiler.support import problems
from concord.firmware.unquantized import UnquantizedMachine
from concord.golden.lib import float16
from concord.net import float_network, network
from concord.net.layers.convolution import BlockConv, Conv
from concord.net.layers.dense import BlockDense, Dense
from concord.net.layers.pooling import BlockQuantizedResult, QuantizedResult
from concord.net.layers.recurrent import Recurrent
from concord.net.quantize.gated import result_shift
from concord.net.quantize.options import QuantizationOptions
from concord.nnp.lib.field_options import _output_bits
from concord.spec.isa.instructions import Op, decode
from concord.spec.machine.config import preset
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format
from concord.tests import float_networks
from concord.tests.compiled import agree, agree_on_random
from concord.tests.net.quantize.test_quantized import assert_close, quantized

VISION, ULX3S = preset("vision"), preset("ulx3s")
RESULTS = QuantizedResult | BlockQuantizedResult


def model_of(graph, machine="vision", **options):
    """The model of a network for a machine."""
    options = {"output_bits": preset(machine).activations.bits} | options
    made, _ = quantized(graph, QuantizationOptions(preset=machine, **options).choices())
    return networks.model(made.layers, sources=made.sources)


@pytest.mark.parametrize("arithmetic", ["integer", "bfp"])
@pytest.mark.parametrize("make", [float_networks.perceptron, float_networks.residual, float_networks.sequences])
def test_every_result_is_quantised_and_the_machine_agrees(make, arithmetic):
    model = model_of(make(), arithmetic=arithmetic)
    products = [layer for layer in model.layers if isinstance(layer, Dense | Conv | BlockDense | BlockConv)
                and not isinstance(layer, RESULTS) and layer.multiplications]
    assert products
    for layer in products:
        (reader,) = model.readers(layer.name)
        assert isinstance(reader, RESULTS)
        assert layer.activation is Activation.NONE
    if not model.recurrent:
        agree_on_random(VISION, model)


@pytest.mark.parametrize(("machine", "options"), [
    ("vision", {}), ("ulx3s", {}), ("vision", {"bias_bits": 24}), ("vision", {"arithmetic": "bfp"})])
def test_gates_are_quantised_and_the_machine_agrees(machine, options):
    config = preset(machine)
    model = model_of(float_networks.sequences(), machine=machine, **options)
    gates = [layer for layer in model.layers if isinstance(layer, Recurrent)]
    assert len(gates) == 2
    assert all(layer.result_format.bits == config.activations.bits for layer in gates)
    agree(config, model, networks.inputs(np.random.default_rng(0), 3, 5, model.inputs))


def test_gates_of_single_layers_are_chosen_by_name():
    graph = float_networks.sequences()
    first, second = (layer.name for layer in model_of(graph, output_bits=None).layers[:2])
    made = model_of(graph, output_layers={second: None}).layers
    assert [layer.result_format is None for layer in made[:2]] == [False, True]
    with pytest.raises(ValueError, match=f"have the 8 bits of its inputs, not 5: give --output-layer {first}=8"):
        model_of(graph, arithmetic="bfp", output_layers={first: 5})


def test_steps_of_results_lose_least():
    rng = np.random.default_rng(0)
    sums, steps, fmt = np.rint(rng.normal(size=(2, 300, 4)) * 3000), np.array([1.0, 0.5]), Format(bits=4)

    def lost(p):
        codes = np.clip(np.rint(sums / 2**p), -8, 7)
        return np.sum(((codes * 2**p - sums) * steps[:, None, None]) ** 2)

    found = result_shift(sums, steps, fmt, 0)
    assert found == min(range(16), key=lost)
    assert result_shift(sums, steps, fmt, 12) == 12  # no sum overflows
    assert result_shift(0 * sums, steps, fmt, -3) == -3


@pytest.mark.parametrize("options", [{}, {"bias_bits": 24}])
def test_simulated_gates_are_close_to_golden(options):
    graph = float_networks.sequences()
    options = {"preset": "vision", "output_layers": {"two": 5, "rnn_one": 5}} | options
    assert_close(graph, *quantized(graph, QuantizationOptions(**options).choices()), 0.1)


def test_simulated_blocks_of_gates_are_close_to_golden():
    graph, five = float_networks.sequences(), {"two": 5, "rnn_one": 5}
    options = QuantizationOptions(arithmetic="bfp", weights_bits=8, input_bits=5, output_layers=five)
    assert_close(graph, *quantized(graph, options.choices()), 0.15)


def test_codes_are_read_without_a_product():
    plain, made = (compile_network(model_of(float_networks.residual(), output_bits=bits), VISION).firmware
                   for bits in (None, 8))
    assert len(made.tiles.mantissas) <= len(plain.tiles.mantissas)
    assert _windows(made) > _windows(plain)


def _windows(firmware) -> int:
    """Number of chains that read codes as numbers."""
    return sum(decode(word).op is Op.V_POOL_MAX for word in firmware.instruction_words.tolist())


def test_a_result_has_the_levels_of_its_bits():
    model = model_of(float_networks.perceptron(), machine="ulx3s")
    traces = network.forward(model, networks.inputs(np.random.default_rng(1), 300, model.inputs))
    last = next(index for index, layer in reversed(list(enumerate(model.layers))) if isinstance(layer, RESULTS))
    assert len(np.unique(traces[last].codes)) == 15  # of 4 bits, symmetric
    values = float16.to_real(traces[last].outputs)
    assert max(len(np.unique(column)) for column in values.T) <= 15
    agree_on_random(ULX3S, model)


def test_single_layers_are_chosen_by_name():
    graph = float_networks.perceptron()
    first, *others = [layer.name for layer in model_of(graph, output_bits=None).layers]
    names = {layer.name for layer in model_of(graph, output_layers={first: None}).layers}
    assert names == {first, *others, *(f"{name}_result" for name in others)}
    names = {layer.name for layer in model_of(graph, output_bits=None, output_layers={first: 8}).layers}
    assert names == {first, *others, f"{first}_result"}
    with pytest.raises(ValueError, match="there is no product 'nobody' whose result could be quantised"):
        model_of(graph, output_layers={"nobody": 8})
    with pytest.raises(ValueError, match="99 bits: choose"):
        model_of(graph, output_bits=99)
    assert any("its input codes are 4-bit" in str(one) or "symmetric 4-bit" in str(one)
               for one in problems(model_of(graph, output_bits=4), VISION))
    assert any("the machine has no VectorRf" in str(one) for one in problems(model_of(graph), preset("speech")))


def test_full_precision_is_the_float_network():
    model = model_of(float_networks.perceptron())
    assert float_network.float_network(model) is not None
    firmware = compile_network(model, VISION).firmware
    machine = UnquantizedMachine(replace(firmware, full_precision=full_precision(model, firmware)))
    x = networks.inputs(np.random.default_rng(2), 3, model.inputs)
    wanted = float_network.forward(model, x)[-1]
    found = np.stack([machine.infer(sample) for sample in x])
    np.testing.assert_allclose(found, wanted, atol=1e-9 * np.abs(wanted).max())


def test_options_of_single_layers():
    assert _output_bits("conv1=8") == ("conv1", 8)
    assert _output_bits("conv1=none") == ("conv1", None)
    for text in "conv1", "=8", "conv1=many":
        with pytest.raises(ValueError, match="NAME=BITS or NAME=none is needed"):
            _output_bits(text)
    kind = QuantizationOptions.__annotations__["output_layers"]
    assert QuantizationOptions.value("output_layers", kind, {"a": "none", "b": 4}) == {"a": None, "b": 4}
    with pytest.raises(ValueError, match="are needed for each name, such as a = 8, not 'x'"):
        QuantizationOptions.value("output_layers", kind, {"a": "x"})


@pytest.mark.parametrize("change", [{"stride": (2, 2)}, {"padding": (1, 1, 1, 1)}])
def test_only_single_pixels_are_results(change):
    layer = next(layer for layer in model_of(float_networks.residual()).layers if isinstance(layer, RESULTS))
    with pytest.raises(ValueError, match="a quantised result has windows of one pixel"):
        replace(layer, **change)
