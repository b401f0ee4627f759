"""Ranges of layers in golden arithmetic, and those that a model records."""

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.golden.lib import float16
from concord.golden.mfu.multifunction import activate
from concord.net import network
from concord.net.cells.registry import CELLS
from concord.net.model_file import load_model, save_model
from concord.net.ranges import measured, with_ranges
from concord.spec.machine.config import preset
from concord.tests.command_line import done

VISION = preset("vision")


def recurrent(name: str, block: bool):
    return networks.recurrent(np.random.default_rng(0), VISION, [3, 5], block=[block], outputs=4, cell=CELLS[name])


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_the_numbers_of_all_time_steps_lie_in_the_ranges(name, block):
    """What follows the end of a sample does not count: its numbers would widen every range."""
    model, rng = recurrent(name, block), np.random.default_rng(1)
    x = float16.to_bits(rng.normal(size=(6, 5, 3)))
    lengths = np.array([5, 4, 3, 2, 1, 5])
    beyond = np.arange(5)[None] >= lengths[:, None]
    found = measured(model, x, lengths)
    assert found == measured(model, np.where(beyond[..., None], np.uint16(0x7000), x), lengths)
    layer = model.layers[0]
    entering = float16.to_real(x[~beyond])
    assert found[layer.name]["input"] == (entering.min(), entering.max())
    hidden = float16.to_real(network.forward(model, x, lengths)[0].hidden[~beyond])
    assert found[layer.name]["output"] == (hidden.min(), hidden.max())
    for gate in layer.cell.gates:
        low, high = found[layer.name][f"{gate.name}.output"]
        assert low < high
        ends = float16.to_bits(found[layer.name][f"{gate.name}.sum"])
        assert np.array_equal(float16.to_real(activate(gate.curve, ends)), (low, high))


def test_ranges_of_images_are_those_of_the_results():
    model = networks.mlp(np.random.default_rng(0), VISION, [9, 12, 7], block=False)
    x = float16.to_bits(np.random.default_rng(1).normal(size=(8, 9)))
    found, last = measured(model, x), network.outputs(model, x)
    assert found["dense1"]["output"] == (float16.to_real(last).min(), float16.to_real(last).max())
    assert found["dense0"]["output"] == found["dense1"]["input"]


def test_a_model_keeps_its_ranges(tmp_path):
    model = recurrent("lstm", False)
    found = measured(model, float16.to_bits(np.random.default_rng(1).normal(size=(6, 5, 3))))
    save_model(with_ranges(model, found), tmp_path / "m.safetensors")
    layer = load_model(tmp_path / "m.safetensors").layers[0]
    assert dict(layer.ranges) == found[layer.name]
    assert {"f.input", "f.recurrent", "f.sum", "f.output", "cell"} < layer.ranges.keys()


def test_the_command_prints_the_ranges_beside_the_recorded_ones():
    said = done("ranges", "data/models/vowels-lstm-w8.safetensors", "--samples", 5)
    line = next(line for line in said.splitlines() if " f.recurrent " in line)
    assert "-2.492 .. 3.012" in line
