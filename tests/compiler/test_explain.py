"""The account of a compiled network, layer by layer, against the counters of the golden machine."""

from io import StringIO

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ImageNetworkMaker
from concord.compiler.cascade import PartCompiler
from concord.compiler.explain import explain
from concord.compiler.network import compile_network
from concord.firmware.session import Session
from concord.net.model import INPUT
from concord.sim.machines.host import machine
from concord.spec.host.registers import Counter
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import preset
from concord.tests.small_networks import small
from concord.verification.tables import explain_table
from rich.console import Console


def network():
    rng = np.random.default_rng(0)
    images = ImageNetworkMaker(rng, preset("vision"), (3, 8, 8), block=False)
    at = images.conv(INPUT, 20, (3, 3), padding=(1, 1, 1, 1))
    at = images.sum(images.conv(at, 20, (3, 3), padding=(1, 1, 1, 1), groups=20), at)
    images.dense(images.maximum(at, (2, 2), stride=(2, 2)), 10)
    return images.model()


def test_beats_and_chains_are_those_that_run():
    config, model = preset("vision"), network()
    compiled = compile_network(model, config)
    session = Session(machine("golden", config), compiled.firmware)
    session.infer(networks.inputs(np.random.default_rng(0), 1, model.inputs)[0])
    counters, works = session.counters(), explain(compiled.firmware)
    assert sum(work.beats for work in works) == counters[Counter.BEATS]
    assert sum(work.chains for work in works) == counters[Counter.CHAINS]
    assert {work.layer for work in works} - {""} == {layer.name for layer in model.layers}
    assert all(work.busiest >= max(work.beats, work.words) for work in works)


@pytest.mark.parametrize("block", [False, True])
def test_all_passes_of_a_loop_over_time_steps_are_counted(block):
    config = preset("tiny")
    model = small(np.random.default_rng(0), config, block=block)
    compiled = compile_network(model, config)
    session = Session(machine("golden", config), compiled.firmware)
    session.infer(networks.inputs(np.random.default_rng(0), model.steps, model.inputs))
    counters, works = session.counters(), explain(compiled.firmware)
    assert sum(work.beats for work in works) == counters[Counter.BEATS]
    assert sum(work.chains for work in works) == counters[Counter.CHAINS]


def test_words_of_the_copy_pipeline_are_counted_apart():
    """An image that another machine takes is copied to NetQ while the next strip is computed."""
    config, images = preset("vision"), ImageNetworkMaker(np.random.default_rng(0), preset("vision"), (4, 8, 8),
                                                         block=False)
    images.conv(images.conv(INPUT, 20, (1, 1)), 4, (2, 2))
    part = PartCompiler(images.model(), [config] * 2).compiled(["conv0"]).parts[0]
    (work,) = (one for one in explain(part.firmware) if one.layer == "conv0")
    assert (work.words, work.copied) == (64 * 3, 64 * 3)
    assert work.busiest == 64 * 3


def test_addresses_are_those_of_the_memories():
    compiled = compile_network(network(), preset("vision"))
    works = explain(compiled.firmware)
    assert max(work.writes[Mem.VECTOR_RF].stop for work in works if Mem.VECTOR_RF in work.writes) == (
        compiled.usage["VectorRf"][0])
    assert works[-1].addresses(works[-1].writes) == "NetQ"


def test_pixels_are_padded_to_an_odd_number_of_entries():
    """With two engines, pixels of four native vectors put neighbouring columns of a depthwise layer into one bank."""
    config = preset("vision_large")
    images = ImageNetworkMaker(np.random.default_rng(0), config, (64, 6, 6), block=False)
    images.dense(images.conv(INPUT, 64, (3, 3), groups=64), 2)
    firmware = compile_network(images.model(), config).firmware
    assert not sum(work.conflict for work in explain(firmware))
    assert any("WindowStep, 5" in line for line in firmware.text.splitlines())


def test_the_table_names_every_layer():
    console = Console(width=200, record=True, file=StringIO())
    console.print(explain_table(compile_network(network(), preset("vision"))))
    text = console.export_text()
    assert all(layer.name in text for layer in network().layers)
