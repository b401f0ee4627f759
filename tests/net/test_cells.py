"""Recurrent cells: what they multiply, and formulas in golden arithmetic against real numbers."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.net import network
from concord.net.arithmetic.windows import backward
from concord.net.cells.golden import operands
from concord.net.cells.registry import CELLS
from concord.net.float_network import float_network
from concord.net.ops.recurrent import Direction, Recurrence
from concord.spec.machine.config import preset

CONFIG = preset("trainer")


def test_gates_that_multiply_the_same_vector():
    found = {name: operands(cell) for name, cell in CELLS.items()}
    assert found["lstm"] == (("f", "i", "o", "j"),)
    assert found["gru"] == (("r", "z", "n"),)
    assert found["gru-reset-before"] == (("r", "z"), ("n",))


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_every_product_is_computed_once_for_each_time_step(cell):
    rng, seen = np.random.default_rng(0), Counter()
    model = networks.recurrent(rng, CONFIG, [5, 6], block=[False], cell=cell)

    def sums(product, codes):
        seen[product.name] += 1
        return product.totals(codes)

    network.outputs(model, networks.inputs(rng, 2, 7, 5), None, sums)
    assert seen == {product.name: 7 for product in model.layers[0].products()}


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_golden_arithmetic_lies_near_real_numbers(cell, block):
    """With the same weights, results differ only by the rounding of 8 bits; a wrong sign would differ much more."""
    rng = np.random.default_rng(1)
    make = networks.block_recurrent if block else networks.recurrent_layer
    layer = make(rng, CONFIG, cell, "layer", 5, 6)
    if block:
        (numbers,) = layer.float_operator.directions
        real = {"input_weights": numbers.input_weights, "recurrent_weights": numbers.recurrent_weights}
    else:
        real = {"input_weights": layer.input_weights * layer.real["input_steps"][:, None, None],
                "recurrent_weights": layer.recurrent_weights * layer.real["recurrent_steps"][:, None, None]}
        scale = np.full(5, CONFIG.activations.levels / 3, np.float16)
        layer = replace(layer, input_quant_scale=scale.view(np.uint16))
    halves = {name: value.view(np.float16).astype(np.float32) for name, value in layer.vectors.items()}
    operator = Recurrence(cell=cell, directions=(Direction(
        **{name: value.astype(np.float32) for name, value in real.items()},
        bias=layer.bias.view(np.float16).astype(np.float32), vectors=halves),))
    x = rng.uniform(-1, 1, (3, 6, 5)).astype(np.float16)
    golden = layer.run([x.view(np.uint16)], None).hidden.view(np.float16)
    graph = float_network(networks.model((replace(layer, float_operator=operator),)))
    wanted = graph.run(x.astype(np.float64))
    assert np.abs(golden - wanted).max() < 0.08 * max(1, np.abs(wanted).max())


def test_sequences_are_turned_within_their_lengths():
    sequences = np.arange(10).reshape(2, 5)
    assert backward(sequences, np.array([5, 3])).tolist() == [[4, 3, 2, 1, 0], [7, 6, 5, 8, 9]]
