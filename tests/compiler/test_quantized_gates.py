"""Recurrent layers whose products are quantised before the cell's formula, on the golden machine and on hardware."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ROOM
from concord.compiler.lib.limits import CannotRun
from concord.compiler.network import compile_network
from concord.net import network
from concord.net.arithmetic import integer
from concord.net.arithmetic.integer import IntegerProduct
from concord.net.cells.registry import CELLS
from concord.net.layers.recurrent import BlockRecurrent, IntegerRecurrent
from concord.net.model import Model
from concord.net.model_file import load_model, save_model
from concord.sim.machines.host import machine
from concord.spec.isa.instructions import Op, decode
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import PRESETS, Config
from concord.spec.numbers.formats import Format
from concord.tests.compiled import agree, agree_on_random, machines_agree
from concord.tests.small_networks import small
from concord.tests.twin import recovered
from concord.twin.source.frameworks import Framework
from concord.twin.source.writer import source

#: Limits under which all gates fit one product, or each has products of its own.
LIMITS = {"whole": {}, "apart": {"accumulator_rows": 16}, "in pieces": {"accumulator_rows": 8}}
SAMPLES = networks.inputs(np.random.default_rng(1), 2, 4, 5)


def quantized(model: Model, fmt: Format) -> Model:
    """The model with quantised products of its recurrent layers, of which few clip."""
    model = replace(model, layers=tuple(
        replace(layer, quantized_results=True) if isinstance(layer, BlockRecurrent) else layer
        for layer in model.layers))
    return replace(model, graph=None, layers=tuple(
        replace(layer, result_format=fmt, input_p=layer.input_p + 12 - fmt.bits,
                recurrent_p=layer.recurrent_p + 12 - fmt.bits)
        if isinstance(layer, IntegerRecurrent) else layer for layer in model.layers))


def gates(config: Config, cell: str = "lstm", sizes=(5, 11, 6), outputs: int | None = None,
          block: bool = False) -> Model:
    """Recurrent layers of these sizes, and a dense layer if it has outputs."""
    made = networks.recurrent(np.random.default_rng(0), config, list(sizes), block=[block] * (len(sizes) - 1),
                              outputs=outputs, cell=CELLS[cell])
    return quantized(made, config.activations)


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("block", [False, True])
def test_cells(cell, limits, block):
    config = replace(PRESETS["tiny"], **ROOM | LIMITS[limits])
    agree(config, gates(config, cell, block=block), SAMPLES)


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("name", ["serial", "wide"])
def test_machines(name, block):
    config = replace(PRESETS[name], **ROOM | {"operand_columns": 16})
    agree(config, gates(config, block=block), SAMPLES)


def test_blocks_of_results_are_those_of_the_quantiser():
    layer = gates(PRESETS["tiny"], "rnn", (4, 11), block=True).layers[0]
    x = networks.inputs(np.random.default_rng(3), 6, 4)
    one = layer.cell.gates[0].name
    found = layer.operations(x, IntegerProduct.totals).input_product(one)
    plain = replace(layer, quantized_results=False, bias=0 * layer.bias).operations(x, IntegerProduct.totals)
    a = plain.input_product(one).view(np.float16).astype(np.float64)
    blocks = [a[:, :8], a[:, 8:]]  # native vectors of 8
    exponents = [np.frexp(np.abs(block).max(1, keepdims=True))[1] for block in blocks]
    rounded = np.concatenate([np.clip(np.rint(np.ldexp(block, 7 - e)), -128, 127) * 2.0 ** (e - 7)
                              for block, e in zip(blocks, exponents, strict=True)], axis=1)
    assert (rounded != a).any()
    np.testing.assert_array_equal(found.view(np.float16), np.float16(rounded) + layer.bias[0].view(np.float16))


def test_products_go_to_vector_rf_before_anything_else():
    config = replace(PRESETS["tiny"], **ROOM)
    firmware = compile_network(gates(config, sizes=(5, 11), outputs=3), config).firmware
    program = [decode(word) for word in firmware.instruction_words.tolist()]
    after = [program[index + 1] for index, one in enumerate(program) if one.op is Op.MV_MUL]
    assert len(after) == 3  # W x and R h of all gates, and the dense layer
    assert [one.op is Op.V_WR and one.mem == Mem.VECTOR_RF for one in after] == [True, True, False]


def test_codes_are_those_of_a_run_by_hand():
    layer = gates(PRESETS["tiny"], "rnn", (4, 3)).layers[0]
    layer = replace(layer, input_p=layer.input_p - 5)
    x = networks.inputs(np.random.default_rng(3), 6, 4)
    found = layer.operations(x, IntegerProduct.totals).input_product(layer.cell.gates[0].name)
    entering = integer.codes(x, layer.input_format, scale=layer.input_quant_scale)
    a = np.float16(entering @ layer.input_weights[0].T.astype(np.int64) * 2.0**-layer.input_p)
    rounded = np.clip(np.rint(a), -128, 127).astype(np.float16)
    assert {-128, 127} & set(rounded.ravel().tolist())  # some clip
    wanted = rounded * layer.input_scale[0].view(np.float16) + layer.bias[0].view(np.float16)
    np.testing.assert_array_equal(found.view(np.float16), wanted)


@pytest.mark.parametrize("block", [False, True])
def test_beside_images(block):
    config = replace(PRESETS["tiny"], **ROOM)
    model = quantized(small(np.random.default_rng(0), config, block=block), config.activations)
    assert any(getattr(layer, "result_format", None) for layer in model.layers)
    agree_on_random(config, model)


def test_twin():
    config = replace(PRESETS["tiny"], **ROOM)
    recovered.agree(config, gates(config, block=True), SAMPLES)
    script = recovered.agree(config, gates(config), SAMPLES)
    text = source(script, Framework.NUMPY, "twin")
    assert text.count("numbers(integers(") + text.count("numbers(codes") >= 4


def test_file(tmp_path):
    model = gates(PRESETS["tiny"])
    save_model(model, tmp_path / "model.safetensors")
    read = load_model(tmp_path / "model.safetensors")
    assert [one.result_format for one in read.layers[:2]] == [PRESETS["tiny"].activations] * 2
    np.testing.assert_array_equal(network.outputs(read, SAMPLES), network.outputs(model, SAMPLES))


def test_machines_that_cannot_say_which_can():
    with pytest.raises(CannotRun, match="lacks: leave them in binary16 with --output-layer lstm0=none, or choose one "
                                        "of the presets vision, vision_large"):
        compile_network(gates(PRESETS["speech"]), PRESETS["speech"])
    made = quantized(gates(PRESETS["tiny"]), Format(bits=4))
    with pytest.raises(CannotRun, match="full 4-bit codes, the machine.s operands full 8-bit: give --output-bits 8"):
        compile_network(made, PRESETS["tiny"])


@pytest.mark.parametrize("block", [False, True])
def test_hardware_agrees(block):
    config = PRESETS["tiny"]
    model = gates(config, sizes=(5, 6), block=block)
    with machine("golden", config) as golden, machine("library", config) as library:
        machines_agree(golden, library, config, model, SAMPLES)
