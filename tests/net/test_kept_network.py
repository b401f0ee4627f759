"""Networks that are quantised already: the codes of every quantiser, and refusals by name."""

from itertools import product

import numpy as np
import pytest
from concord.net import network as golden
from concord.net.graph import Graph
from concord.net.model import Model, Provenance
from concord.net.ops.grid import IntegerGrid
from concord.net.ops.joins import Concatenation
from concord.net.ops.pointwise import HardSwish, Relu
from concord.net.ops.weighted import Linear
from concord.net.qdq.network import Kept, keep
from concord.spec.numbers.formats import Format
from concord.tests.float_networks import Chain

FULL, SYMMETRIC = Format(bits=8), Format(bits=8, symmetric=True)


def quantizer(chain: Chain, name: str, scale: float, *, bits=8, signed=True, narrow=False, zero=0, sources=()) -> Chain:
    return chain.quantizer(name, sources, scale=scale, zero_point=zero, bits=bits, signed=signed, narrow=narrow)


def dense(chain: Chain, name: str, integers, scale: float, bias=0.0, bits=8, sources=()) -> Chain:
    weight, ones = np.float32(np.asarray(integers) * scale), np.ones(len(integers), np.float32)
    grid = IntegerGrid.of_outputs(scale * ones, 0 * ones, weight, bits=bits, signed=True)
    return chain.add(Linear(weight=weight, bias=np.float32(bias * ones), grid=grid), name, sources)


def outputs(kept: Kept, x: np.ndarray) -> np.ndarray:
    """float64[samples, outputs] of the network in golden arithmetic."""
    nothing = np.zeros(0, np.uint8)
    model = Model(name="kept", data="none", preprocessing="", classes=(), layers=kept.layers, sources=kept.sources,
                  provenance=Provenance(command="", method="", seed=0, fp32_accuracy=None, quantized_accuracy=None,
                                        golden_accuracy=None), fp32_predictions=nothing, quantized_predictions=nothing)
    x = np.ascontiguousarray(x.astype(np.float16).reshape(len(x), -1)).view(np.uint16)
    return golden.outputs(model, x).view(np.float16).astype(np.float64)


def same(network: Graph, kept: Kept, x: np.ndarray) -> bool:
    return np.array_equal(outputs(kept, x), network.run(x).reshape(len(x), -1))


def kept_or_refused(network: Graph, fmt: Format) -> Kept | None:
    """None where the quantiser q is refused."""
    try:
        return keep(network, fmt, fmt)
    except ValueError as error:
        if "  q: its integers" not in str(error):
            raise
        return None


GRIDS = [(bits, signed, narrow, zero) for bits, signed, narrow in product((2, 3, 4), (True, False), (True, False))
         for zero in (0, 1)]


@pytest.mark.parametrize("fmt", [Format(bits=4), Format(bits=4, symmetric=True), Format(bits=5), SYMMETRIC])
@pytest.mark.parametrize("relu", ["", "relu", "ceiling", "pool"])
def test_every_quantizer_of_few_bits_has_its_own_integers_or_is_refused(fmt, relu):
    """All codes of a first quantiser, behind which a layer gives halves and quarters, go through a second one."""
    first = {"bits": fmt.bits, "narrow": fmt.symmetric}
    exact = refused = 0
    for bits, signed, narrow, zero in GRIDS:
        chain = quantizer(Chain((2,)), "in", 0.5, **first)
        dense(chain, "one", [[1, 0], [-1, 1], [1, 1]], 0.25, 0.125)
        if relu:
            chain.add(Relu(ceiling=1.0 if relu == "ceiling" else None), "relu")
        if relu == "pool":
            chain.add(Concatenation(), "twice", ("relu", "relu"))
            quantizer(chain, "q", 0.25, bits=bits, signed=signed, narrow=narrow, zero=zero)
            dense(chain, "two", np.eye(6, dtype=int)[::-1], 0.5)
        else:
            quantizer(chain, "q", 0.25, bits=bits, signed=signed, narrow=narrow, zero=zero)
            dense(chain, "two", np.eye(3, dtype=int), 0.5)
        network = chain.network()
        kept = kept_or_refused(network, fmt)
        if kept is None:
            refused += 1
            continue
        codes = np.arange(fmt.lowest, fmt.highest + 1)[:: 1 if fmt.bits < 8 else 9] * 0.5
        x = np.array(list(product(codes, codes)))
        assert same(network, kept, x) or kept.inexact, (bits, signed, narrow, zero)
        exact += kept.exact
    assert exact >= 3
    assert refused + exact >= len(GRIDS) // 2


def test_full_ranges_need_full_operands():
    network = dense(quantizer(Chain((3,)), "in", 0.5), "one", [[1, 2, 3]], 0.25).network()
    x = np.array([[-64.0, 3.25, 1], [0.25, 0.75, 100]])
    assert same(network, keep(network, FULL, FULL), x)
    with pytest.raises(ValueError, match=r"in: its integers.*-128..127, and the machine clips at -127..127"):
        keep(network, FULL, SYMMETRIC)


def halves(fmt: Format, **grid) -> Graph:
    """A layer gives halves of the steps of a quantiser."""
    chain = quantizer(Chain((2,)), "in", 0.5, narrow=fmt.symmetric)
    return dense(quantizer(dense(chain, "one", [[1, 1]], 0.5), "q", 0.5, **grid), "two", [[1]], 0.5).network()


def pairs(fmt: Format) -> np.ndarray:
    """Two numbers in steps of 0.5: all codes of the first one, and some of the second one."""
    return np.array(list(product(range(fmt.lowest, fmt.highest + 1), (-60, -7, 0, 1, 2, 63)))) * 0.5


def test_halves_are_rounded_to_even_where_a_format_has_an_even_shift():
    network = halves(SYMMETRIC, signed=False, narrow=True, zero=3)
    kept = keep(network, SYMMETRIC, SYMMETRIC)
    assert kept.exact
    assert same(network, kept, pairs(SYMMETRIC))


def test_an_odd_shift_is_said():
    network = halves(FULL, zero=1)
    kept = keep(network, FULL, FULL)
    assert set(kept.inexact) == {"two"}
    assert "halves are rounded to the other neighbour" in kept.inexact["two"]
    assert not same(network, kept, pairs(FULL))


@pytest.mark.parametrize(("fraction", "bits"), [(3, 0), (4, 0), (5, 12), (7, 14)])
def test_more_than_11_significant_bits_are_said(fraction, bits):
    """Sums have many bits; those that are not clipped are below 128, and have 7 bits ahead of the point."""
    chain = dense(quantizer(Chain((2,)), "in", 1.0), "one", [[127, 1]], 2.0**-fraction)
    network = dense(quantizer(chain, "q", 1.0), "two", [[1]], 0.5).network()
    kept = keep(network, FULL, FULL)
    said = {"one": f"its sums have up to {bits} significant bits, and binary16 has 11"}
    assert kept.inexact == (said if bits else {})
    assert same(network, kept, np.array(list(product(range(-128, 128), range(-128, 128, 9))))) == (not bits)


def test_a_scale_that_is_no_power_of_two_is_no_reason_for_a_refusal():
    chain = dense(quantizer(Chain((3,)), "in", 0.1), "one", [[1, 2, 3], [4, -5, 6]], 0.03, 0.7)
    network = dense(quantizer(chain, "q", 0.07), "two", [[1, -1]], 0.3).network()
    kept = keep(network, SYMMETRIC, FULL)
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float16)
    assert kept.inexact["one"] == "0.1, the scale of its input, is no power of two"
    assert np.array_equal(kept.layers[0].weights, [[1, 2, 3], [4, -5, 6]])
    assert np.abs(outputs(kept, x) - network.run(x)).max() <= 0.3 * 0.07 * 3


def test_a_bias_that_is_no_multiple_stands_behind_the_product():
    network = dense(quantizer(Chain((2,)), "in", 0.5), "one", [[1, 2]], 0.25, 0.0625).network()
    kept = keep(network, FULL, FULL)
    assert kept.exact
    assert kept.layers[0].offset.view(np.float16) == 0.0625
    assert same(network, kept, np.array([[0.5, 1.0], [-3, 7]]))


@pytest.mark.parametrize(("make", "reason"), [
    (lambda c: dense(c, "a", [[1, 2]], 0.5), "a: its input is not quantised"),
    (lambda c: quantizer(c, "q", 0.5).dense("b", 1, 2), "b: its weights are not quantised"),
    (lambda c: dense(quantizer(c, "q", 0.5), "c", [[-128, 2]], 0.5), "c: its weights are the integers -128..2"),
    (lambda c: dense(quantizer(c, "q", 0.5, bits=12), "d", [[1, 2]], 0.5), "q: its integers.* are -2048..2047"),
    (lambda c: dense(quantizer(c, "q", 0.5, bits=4), "e", [[1, 2]], 0.5), "q: its integers.* are -8..7"),
    (lambda c: dense(quantizer(c, "q", 2.0**-20), "f", [[1, 2]], 0.5), "no normal number of binary16"),
    (lambda c: dense(quantizer(c, "q", 0.5), "g", [[1, 2]], 2.0**-40), "its scale .* is no normal number of binary16"),
    (lambda c: dense(quantizer(c, "q", 0.5), "h", [[1, 2]], 0.5).add(HardSwish(), "swish"),
     "swish: the machine has no hard_swish"),
])
def test_refusals_name_the_node(make, reason):
    with pytest.raises(ValueError, match=r"small: the machine cannot compute 1 node as the file says\n  .*" + reason):
        keep(make(Chain((2,))).network(), SYMMETRIC, FULL)
