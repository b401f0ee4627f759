"""What a page shows of each product while a network trains: overflows, ranges, bits of sums, the error of its layer."""

import json
from dataclasses import replace

import numpy as np
import torch
from concord.net.layer_overflow import Count, Widths, count
from concord.train.network.quantized_network import QuantizedNetwork
from concord.train.overflow.predictor import Predictor
from concord.train.overflow.products import RangedProduct, products_of

SAMPLES = 32  #: Samples of the calibration set that are counted at once.
SUMS = 1 << 18  #: Most partial sums of a product whose bits are counted at once.


class LayerFigures:
    """Counts the sums of a network on its calibration set, a few samples at a time, and changes nothing.

    Args:
        network:   Network under training.
        inputs:    float32[samples, ...], the calibration set.
        lengths:   int64[samples], time steps of each sequence, or None.
        predictor: The predictor, whose widths and factors are shown; None where no width was given.

    Raises:
        ValueError: a layer has no integers.
    """

    def __init__(
        self, network: QuantizedNetwork, inputs: torch.Tensor, lengths: torch.Tensor | None, predictor: Predictor | None
    ):
        self.network, self.inputs, self.lengths, self.predictor = network, inputs, lengths, predictor
        rows = network.recipe.methods.rows == 1
        self.products: dict[str, list[RangedProduct]] = (
            predictor.products if predictor else dict(products_of(network, self.widths, rows=rows))
        )
        self.parts = torch.arange(len(inputs)).split(SAMPLES)
        first = self.parts[0]
        self.first = inputs[first], None if lengths is None else lengths[first]
        graph, (x, times) = network.plan.graph, self.first
        self.real = graph.forward(x.reshape(*x.shape[:1 + graph.sequence], *graph.shape).numpy(),
                                  None if times is None else times.numpy())
        self.next, self.counts = 0, {}

    @property
    def widths(self) -> Widths:
        """The widths of the storage."""
        return self.predictor.widths if self.predictor else Widths(sum_bits=64, product_bits=64, output_bits=64)

    def begin(self):
        """Forget what was counted, since ranges or widths have changed."""
        self.next, self.counts = 0, {}

    def rows(self, step: int) -> list[tuple]:
        """Rows of the table `layers` after counting the next samples: all samples that were counted, added up."""
        part = self.next % len(self.parts)
        self.next += 1
        made, errors = [], self.errors()
        for layer, products in self.products.items():
            entering = self._entering(layer, self.parts[part])
            for product in products:
                codes = product.codes(*entering)
                mine = self.counts.setdefault(product.name, {})
                mine[part] = product.count([codes], self.widths, count)
                made.append((*self._row(step, product, list(mine.values()), codes), errors[layer]))
        return made

    def errors(self) -> dict[str, float]:
        """RMS error of the result of each layer in the machine's arithmetic, relative to the network in float32.

        The network is the one from which training began, and samples are the first ones of the calibration set.
        """
        ours, found = self.network.results(*self.first), {}
        for layer in self.products:
            made, tensor = ours[layer]
            real = self.real[tensor].reshape(made.shape)
            found[layer] = float(np.sqrt(np.mean((made - real) ** 2) / max(np.mean(real**2), 1e-30)))
        return found

    def what_if(self, accumulator: int | None, threshold: int | None) -> dict[str, dict[str, int]]:
        """Events of products on the whole calibration set, whose ranges would change.

        Args:
            accumulator: Another width of the accumulator; None for its own.
            threshold:   Another number of events that are tolerated; None for all products, whatever is tolerated.

        Raises:
            ValueError: storage has no such width.
        """
        widths = replace(self.widths, sum_bits=accumulator) if accumulator else self.widths
        found = {}
        for layer, products in self.products.items():
            entering = [self._entering(layer, part) for part in self.parts]
            for product in products:
                made = product.count([product.codes(*each) for each in entering], widths, count)
                if threshold is None or made.number > threshold:
                    found[product.name] = {
                        "product_events": made.events.product,
                        "sum_events": made.events.partial,
                        "output_events": made.events.output,
                    }
        return found

    def _entering(self, layer: str, index: torch.Tensor):
        lengths = None if self.lengths is None else self.lengths[index]
        return self.network.entering(layer, self.inputs[index], lengths)

    def _row(self, step: int, product: RangedProduct, counts: list[Count], codes: np.ndarray) -> tuple:
        total, (weights, inputs) = sum(counts[1:], counts[0]), product.ranges
        factors = self.predictor.factors[product.name] if self.predictor else None
        histogram = json.dumps(bits_of_sums(product.integers(), codes))
        return (
            step,
            product.name,
            total.events.product,
            total.events.partial,
            total.events.output,
            total.additions,
            total.excess,
            total.bits,
            weights,
            inputs,
            float(product.grown.max()),
            factors.inputs if factors else 1.0,
            histogram,
        )


def bits_of_sums(weights: np.ndarray, codes: np.ndarray) -> dict[int, int]:
    """Number of partial sums by the bits that they need, of some of the samples.

    Args:
        weights: int64[groups, rows, columns].
        codes:   Integers[groups, samples, columns].
    """
    found: dict[int, int] = {}
    samples = max(1, SUMS // weights.size)
    for rows, columns in zip(weights, codes, strict=True):
        sums = np.cumsum(rows[:, None] * columns[None, :samples].astype(np.int64), axis=2)
        needed = np.frexp(np.where(sums < 0, ~sums, sums))[1] + 1
        for bits, number in enumerate(np.bincount(needed.ravel())):
            if number:
                found[bits] = found.get(bits, 0) + int(number)
    return found
