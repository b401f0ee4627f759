"""Networks whose tiles MatrixRf does not hold: the program loads them from Dram, and the bits are the same."""

from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.compiler.explain import explain
from concord.compiler.lib.limits import CannotRun
from concord.compiler.network import compile_network, full_precision
from concord.firmware.session import Session
from concord.net import network
from concord.net.model_file import load_model
from concord.sim.machines.host import machine as host
from concord.spec.host.registers import Counter
from concord.spec.isa.check import Sequencer
from concord.spec.isa.instructions import Op, decode
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config, preset
from concord.tests.compiled import agree_on_random
from concord.verification.tables import explain_table
from rich.console import Console

ROOM = {"instructions": 4096, "initial_vrf": 2048, "addsub_vrf": 2048, "multiply_vrf": 2048, "bias_words": 1024,
        "mvmq_words": 256, "operand_columns": 16}


def machine(name: str, tiles: int, **changes) -> Config:
    """A preset with few tiles, and with memory outside the chip."""
    return replace(preset(name), **ROOM | {"matrix_tiles": tiles, "dram_words": 1 << 20, "dram_bus": 8} | changes)


def loads(firmware) -> list:
    """The instructions that load tiles."""
    return [one for one in map(decode, firmware.instruction_words.tolist()) if one.op == Op.M_RD]


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize(("sizes", "tiles"), [([40, 40, 40, 9], 16), ([60, 17, 33, 8], 32), ([30, 30], 8)])
def test_perceptrons(block, sizes, tiles):
    """Products are cut so that two of them fit, and each matrix is loaded once for each input, or stays."""
    config = machine("tiny", tiles)
    made = agree_on_random(config, networks.mlp(np.random.default_rng(1), config, sizes, block=block))
    firmware = made.firmware
    assert made.usage["MatrixRf"] == (tiles, tiles)
    assert made.usage["Dram"][0] == firmware.constant_words == len(firmware.vectors[Mem.DRAM])
    assert loads(firmware)
    assert len(firmware.tiles.integer) < tiles


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("tiles", [8, 16, 64])
def test_recurrent_networks(block, tiles):
    """Matrices that the rest of MatrixRf holds are loaded before the loop over time steps, others in each step."""
    config, rng = machine("tiny", tiles), np.random.default_rng(2)
    model = networks.recurrent(rng, config, [12, 20, 10], block=[block, not block])
    inputs = networks.inputs(rng, 3, 5, 12)
    made = compile_network(model, config)
    assert loads(made.firmware)
    session = Session(host("golden", config), made.firmware)
    wanted = network.forward(model, inputs)[-1].outputs
    for sample, outputs in zip(inputs, wanted, strict=True):
        np.testing.assert_array_equal(session.infer(sample), outputs)


def test_the_shipped_resnet():
    """Diagonal tiles, strips, and a program whose products are used once or many times."""
    config = replace(preset("vision_dram"), matrix_tiles=64)
    made = agree_on_random(config, load_model("data/models/fashion-resnet-w8.safetensors"), 1)
    assert any(one.diagonal for one in map(decode, made.firmware.instruction_words.tolist()))


def test_what_fits_is_not_loaded():
    """A machine with Dram has the program of one without, where MatrixRf holds all tiles."""
    config = machine("tiny", 64)
    model = networks.mlp(np.random.default_rng(1), config, [30, 30], block=False)
    with_dram, without = (compile_network(model, one).firmware for one in (
        config, replace(config, dram_words=0, dram_bus=0)))
    np.testing.assert_array_equal(with_dram.instruction_words, without.instruction_words)
    assert not with_dram.constant_words


def test_products_wait_for_no_tile_that_is_not_there():
    """Every product reads tiles of its own mode: the walk of the program refuses others, and so does this network."""
    config = machine("tiny", 16)
    model = networks.mlp(np.random.default_rng(4), config, [40, 40, 40, 9], block=False)
    firmware = compile_network(model, config).firmware
    chains = list(Sequencer(config, firmware.instruction_words.tolist(), firmware.tiles.modes(config)).walk())
    written = {tile for chain in chains if chain.loads for tile in chain.tiles}
    assert min(written) >= len(firmware.tiles.integer)
    there = written | set(range(len(firmware.tiles.integer)))
    assert all(there.issuperset(chain.tiles) for chain in chains if chain.product)


@pytest.mark.parametrize(("config", "sentence"), [
    (machine("tiny", 8, operand_columns=32), "a product needs 13 tiles at once, and MatrixRf has 8 for tiles"),
    (machine("tiny", 16, dram_words=100), "Dram needs"),
    (machine("tiny", 16, dram_words=0, dram_bus=0), "MatrixRf needs"),
])
def test_what_has_no_room(config, sentence):
    model = networks.mlp(np.random.default_rng(1), config, [100, 40, 9], block=False)
    with pytest.raises(CannotRun, match=sentence):
        compile_network(model, config)


def test_full_precision_says_that_it_knows_no_loads():
    config = machine("tiny", 16)
    model = networks.mlp(np.random.default_rng(1), config, [40, 40, 9], block=False)
    with pytest.raises(ValueError, match="loads tiles from Dram, which full precision does not know"):
        full_precision(model, compile_network(model, config).firmware)


def test_explain_says_what_is_loaded():
    """The bytes that each layer's tiles take, and beats that the counters have, zero marks of loaded tiles included."""
    config = machine("tiny", 16)
    model = networks.mlp(np.random.default_rng(1), config, [40, 40, 40, 9], block=False)
    compiled = compile_network(model, config)
    session = Session(host("golden", config), compiled.firmware)
    session.infer(networks.inputs(np.random.default_rng(0), 1, model.inputs)[0])
    works, counters = explain(compiled.firmware), session.counters()
    assert sum(work.beats for work in works) == counters[Counter.BEATS]
    assert sum(work.loaded for work in works) == counters[Counter.READ_DRAM] == compiled.firmware.constant_words
    assert {work.layer for work in works if work.loaded} <= {layer.name for layer in model.layers}
    assert {work.bound for work in works if work.loaded} == {"loads"}
    console = Console(file=StringIO(), width=200)
    console.print(explain_table(compiled))
    assert "bytes of" in console.file.getvalue()
