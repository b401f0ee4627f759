"""Overflow events of all layers of a model, and its results with narrow accumulators.

Source: S3; numerics.md of the specification, overflow events.
"""

from dataclasses import dataclass
from functools import reduce

import numpy as np
from concord.golden.mvm.overflow import wrap
from concord.net import network
from concord.net.arithmetic.integer import IntegerProduct
from concord.net.layer_overflow import Count, Widths, count
from concord.net.model import Model

TOGETHER = 50  #: Number of samples that run together; a convolution has many patches for each.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Use:
    """One product of a model, and its overflow events over a batch.

    Attributes:
        product: The product.
        count:   Overflow events and largest magnitudes of the batch.
    """

    product: IntegerProduct
    count: Count


def dry_run(model: Model, inputs: np.ndarray, lengths: np.ndarray | None, widths: Widths) -> list[Use]:
    """Count the overflow events of every product for a batch, without wrapping. The arguments are those of `forward`.

    Raises:
        ValueError: a layer multiplies, but not integers.
    """
    products, counts = _products(model), {}

    def counted(product: IntegerProduct, codes: np.ndarray) -> np.ndarray:
        groups = zip(product.weights, codes, product.start, strict=True)
        made = reduce(Count.beside, (count(*group, widths) for group in groups))
        counts[product.name] = counts[product.name] + made if product.name in counts else made
        return product.totals(codes)

    network.outputs(model, inputs, lengths, counted, TOGETHER)
    return [Use(product=product, count=counts[product.name]) for product in products]


def wrapped(model: Model, inputs: np.ndarray, sum_bits: int, lengths: np.ndarray | None = None) -> np.ndarray:
    """Outputs uint16[samples, outputs] of a model whose accumulators have `sum_bits` bits.

    Raises:
        ValueError: a layer multiplies, but not integers.
    """
    _products(model)
    return network.outputs(
        model, inputs, lengths, lambda product, codes: wrap(product.totals(codes), sum_bits), TOGETHER)


def _products(model: Model) -> list[IntegerProduct]:
    return [product for layer in model.layers for product in layer.products()]
