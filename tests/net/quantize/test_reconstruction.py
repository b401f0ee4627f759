"""Layers that are found by their results: integers, ranges and biases."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from concord.net import network as golden
from concord.net.model import Model, Provenance
from concord.net.ops.weighted import Linear
from concord.net.quantize import reconstruction
from concord.net.quantize.codes import signed
from concord.net.quantize.node_results import outputs
from concord.net.quantize.options import QuantizationOptions
from concord.net.quantize.plan import plan
from concord.net.quantize.quantized import prepared, quantized
from concord.net.quantize.tensors import decibels
from concord.net.quantize.weights import Grid
from concord.net.quantize.widths import NetworkArithmetic
from concord.tests import float_networks

THREE = QuantizationOptions(weights_bits=3, input_bits=4).choices()
GRID = Grid(-3, 3)


def error(codes, real, gram, scales):
    wrong = scales[:, None] * codes - real
    return (wrong @ gram * wrong).sum(1)


@pytest.fixture
def rows():
    rng = np.random.default_rng(7)
    columns = rng.normal(0, 1, (50, 4)) @ rng.normal(0, 1, (4, 4))
    return rng.normal(0, 1, (5, 4)), columns.T @ columns, np.full(5, 0.6)


def test_integers_are_rounded_so_that_later_columns_make_up_for_earlier_ones(rows):
    real, gram, scales = rows
    codes = reconstruction.rounded(real, gram, scales, GRID)
    nearest = GRID.nearest(real / 0.6)
    assert error(codes, real, gram, scales).sum() < 0.7 * error(nearest, real, gram, scales).sum()
    assert np.array_equal(reconstruction.rounded(real, np.eye(4), scales, GRID), nearest)


def test_no_change_of_one_integer_lessens_the_error_after_descent(rows):
    real, gram, scales = rows
    codes = GRID.nearest(real / 0.6).astype(np.float64)
    reconstruction.descend(codes, real, gram, scales, GRID, scaled=False)
    least = error(codes, real, gram, scales)
    for row, column, code in product(range(5), range(4), range(-3, 4)):
        other = codes.copy()
        other[row, column] = code
        assert error(other, real, gram, scales)[row] >= least[row] - 1e-9


@pytest.mark.parametrize("make", [float_networks.residual, float_networks.images])
def test_moments_are_those_of_patches_and_results(make):
    """Least squares by the moments finds the weights and biases that made the results."""
    network = plan(make())
    rng = np.random.default_rng(0)
    for part in (part for part in network.parts if hasattr(part.op, "weight")):
        x = rng.normal(0, 1, (40, *part.shapes[0])).astype(np.float32)
        if part.window is None:
            x = x.reshape(40, -1)
        found = reconstruction.moments(part, x, part.op.real(x, lengths=None))
        weights = np.linalg.solve(found.gram, found.product.swapaxes(1, 2)).swapaxes(1, 2)
        assert np.allclose(weights.reshape(part.op.weight.shape), part.op.weight, atol=1e-3)
        assert np.allclose(found.constant(weights).ravel(), part.op.bias, atol=1e-3)


@pytest.mark.parametrize("make", [float_networks.images, float_networks.residual])
def test_results_come_closer_and_golden_computes_them(make):
    network, rng = make(), np.random.default_rng(1)
    x = rng.normal(0, 1, (40, *network.shape)).astype(np.float16).astype(np.float32)
    wanted, found = outputs(network, x), []
    for reconstruct in (False, True):
        made = quantized(prepared(network, replace(THREE, reconstruct=reconstruct)), x)
        found.append(decibels(wanted, outputs(made.graph, x)))
    assert found[1] > found[0] + 1
    where = Provenance(command="", method="", seed=0, fp32_accuracy=0.0, quantized_accuracy=0.0, golden_accuracy=0.0)
    model = Model(name="net", data="none", preprocessing="", classes=(), layers=made.layers, sources=made.sources,
                  provenance=where, fp32_predictions=np.zeros(1, np.uint8), quantized_predictions=np.zeros(1, np.uint8))
    inputs = x.reshape(40, -1).astype(np.float16).view(np.uint16)
    real = golden.forward(model, inputs)[-1].outputs.view(np.float16)
    assert decibels(wanted, real.astype(np.float64)) > found[0] + 1


def test_the_range_of_the_network_s_input_is_that_of_its_outputs(monkeypatch):
    # Hidden element 0 follows an input that is a hundred times the others, and the outputs hardly read it.
    rng = np.random.default_rng(3)
    network = float_networks.perceptron(8)
    one, two = (node.op for node in network.nodes if isinstance(node.op, Linear))
    one.weight[1:, 0], two.weight[:, 0] = 0, 1e-3
    x = rng.normal(0, 1, (64, 8)).astype(np.float32)
    x[:, 0] *= 100
    wanted, found = outputs(network, x), []
    for ranged in (lambda codes, *_: codes, reconstruction.ranged_by_outputs):
        monkeypatch.setattr(reconstruction, "ranged_by_outputs", ranged)
        made = quantized(prepared(network, replace(THREE, reconstruct=True)), x)
        found.append(decibels(wanted, outputs(made.graph, x)))
    assert found[1] > found[0] + 2


def test_layers_of_very_many_columns_are_quantized_as_without(monkeypatch):
    network, x = float_networks.perceptron(), np.random.default_rng(2).normal(0, 1, (40, 12)).astype(np.float32)
    plain = quantized(prepared(network, THREE), x).layers
    monkeypatch.setattr(reconstruction, "COLUMNS", 12)
    one, two = quantized(prepared(network, replace(THREE, reconstruct=True)), x).layers
    assert not np.array_equal(one.weights, plain[0].weights)
    assert np.array_equal(two.weights, plain[1].weights)


def test_codes_reach_from_one_number_to_another():
    codes = signed(1.0, 4, True)
    plain = replace(codes, unsigned=True).reaching(-1.3, 5.0)
    assert plain.offset == np.float32(-1.3)
    assert np.isclose(plain.offset + plain.levels * plain.step, 5.0)
    padded = replace(codes, unsigned=True, padded=True).reaching(-1.3, 5.0)
    assert abs(padded.quantized(np.zeros(1))) < 1e-6


def test_four_bits_reconstruct_by_themselves():
    def by_itself(**options):
        made = QuantizationOptions(**options).choices().by_itself(sequence=False)
        return made.reconstruct, made.equalize

    assert by_itself(weights_bits=4, input_bits=4) == (True, True)
    assert by_itself(weights_bits=4, input_bits=5) == (False, False)
    assert by_itself(weights_bits=8, input_bits=8, reconstruct=True) == (True, False)
    assert by_itself(weights_bits=4, input_bits=4, reconstruct=False) == (False, False)
    assert not THREE.by_itself(sequence=True).reconstruct
    blocks = QuantizationOptions(weights_bits=4, input_bits=4, arithmetic=NetworkArithmetic.BFP)
    assert not blocks.choices().by_itself(sequence=False).reconstruct
    with pytest.raises(ValueError, match="bfp finds its own exponents: --reconstruct is for integer"):
        replace(blocks, reconstruct=True).choices()
    with pytest.raises(ValueError, match="--reconstruct is for `nnp quantize`"):
        QuantizationOptions(reconstruct=True).check_trains()
