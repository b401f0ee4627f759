"""`nnp cycles`: the cycles of the machine, from a simulation without its numbers."""

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.compiler.network import compile_network
from concord.firmware.firmware_file import save_firmware
from concord.firmware.layer_costs import layer_costs
from concord.firmware.session import Session
from concord.firmware.timing import timed
from concord.hw.timing import OF_NUMBERS
from concord.net.graph_file import save
from concord.net.model_file import save_model
from concord.net.quantize.widths import NetworkArithmetic
from concord.sim.machines.host import machine
from concord.spec.machine.config import preset
from concord.tests.command_line import done, refused
from concord.tests.float_networks import images, perceptron, sequences
from concord.verification.timed_firmware import firmware_at

CONFIG = preset("serial")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A model of a perceptron, and firmware of a larger one."""
    folder, rng = tmp_path_factory.mktemp("cycles"), np.random.default_rng(3)
    save_model(networks.mlp(rng, CONFIG, [4, 8, 3], block=False), folder / "small.safetensors")
    large = compile_network(networks.mlp(rng, CONFIG, [4, 12, 3], block=False), CONFIG).firmware
    save_firmware(large, folder / "large.safetensors")
    return folder, large


def test_counters_and_layers_are_those_of_the_hardware(files):
    found = timed(files[1], 1, layers=True)
    sample = np.random.default_rng(0).normal(size=4).astype(np.float16).view(np.uint16)
    with machine("library", CONFIG) as made:
        session = Session(made, files[1])
        session.prepare(1)
        session.counters()
        session.infer(sample)
        counters, costs = session.counters(), layer_costs(session, sample)
    for counter in OF_NUMBERS:
        for counted in (found.counters, counters, *(cost.counters for cost in (*costs, *found.costs))):
            counted.pop(counter)
    assert found.counters == counters
    assert [*found.costs] == costs
    assert found.whole.cycles > 100


def test_files_beside_each_other(files):
    folder, large = files
    text = done("cycles", folder / "small.safetensors", "--preset", "serial", "--compare", folder / "large.safetensors",
                "--layers", "--clock", "20")  # fmt: skip
    cycles = timed(large, 1).whole.cycles
    assert f"{cycles:,} (+" in text
    assert f"{cycles / 20:,.1f} us at 20 MHz" in text
    assert "tile engines: waits for operands" in text
    assert text.count("layers of ") == 2
    assert "MHz" not in done("cycles", folder / "small.safetensors", "--preset", "serial")  # nobody measured a clock


def test_a_network_in_float32_needs_no_data(tmp_path):
    save(perceptron(4, 3), tmp_path / "net.safetensors")
    assert "serial" in done("cycles", tmp_path / "net.safetensors", "--preset", "serial")


@pytest.mark.parametrize("network", [images(), sequences()])
def test_any_network_in_float32_is_compiled(tmp_path, network):
    save(network, tmp_path / "net.safetensors")
    found = firmware_at(tmp_path / "net.safetensors", "vision_large", NetworkArithmetic.INTEGER)
    assert (found.name, found.recurrent) == ("net", network.sequence)


def test_firmware_of_another_machine_is_refused(files):
    assert "is for machine serial" in refused("cycles", files[0] / "large.safetensors", "--preset", "tiny")
