"""Products of a network under training as the overflow predictor sees them: integers, codes, and ranges to change."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import torch
from concord.net.layer_overflow import Count, CountFunction, Widths, count_groups
from concord.net.lowering.lowering import start_values
from concord.train.network.quantized_network import QuantizedNetwork
from concord.train.overflow.factors import Factors, ShrinkRoom
from concord.train.overflow.record import Adjusted, RangeSteps
from concord.train.qat.layer import QuantizedAverage, QuantizedLayer
from concord.train.recurrent.directions import Directions
from concord.train.recurrent.quantized import QuantizedRecurrent


class RangedProduct(ABC):
    """A product of the machine, whose weights and inputs have ranges that can change.

    Args:
        name:   Name of the product, as golden has it.
        steps:  float64[ranges], the real value of one step of the weights in each range.
        shared: Number of neighbouring rows that share a range.

    Attributes:
        ones: Whether weights are those of an average, which are 1 and have no range.
    """

    ones = False

    def __init__(self, name: str, steps: torch.Tensor, shared: int):
        self.name, self.shared, self._first = name, shared, steps.numpy().copy()

    @property
    @abstractmethod
    def bits(self) -> int:
        """Bits of a code."""

    @property
    @abstractmethod
    def steps(self) -> torch.Tensor:
        """float64[ranges], the real value of one step of the weights in each range now."""

    @property
    @abstractmethod
    def ranges(self) -> tuple[float, float]:
        """The largest range of the weights, and that of the inputs, as real numbers."""

    @property
    def grown(self) -> np.ndarray:
        """float64[ranges], the ranges of the weights as multiples of those at the beginning."""
        return np.divide(self.steps.numpy(), self._first, out=np.ones_like(self._first), where=self._first != 0)

    @abstractmethod
    def integers(self) -> np.ndarray:
        """int64[groups, rows, columns], the weights."""

    @abstractmethod
    def codes(self, x: torch.Tensor, lengths: torch.Tensor) -> np.ndarray:
        """int16[groups, samples, columns], the codes that the weights multiply, for what enters the layer."""

    @abstractmethod
    def start(self, weights: np.ndarray) -> np.ndarray:
        """int64[groups, rows], added to the sums of these weights."""

    @abstractmethod
    def room(self, codes: Sequence[np.ndarray]) -> ShrinkRoom:
        """How far ranges can shrink before numbers of these codes clip."""

    @abstractmethod
    def enlarge(self, parameters: np.ndarray, inputs: float):
        """Enlarge the ranges of the weights by parameters[ranges], and that of the inputs by another factor.

        Real weights and inputs stay, in fewer steps. Factors below 1 shrink ranges.
        """

    @abstractmethod
    def used(self) -> np.ndarray:
        """float64[ranges]: the largest weight of each range in steps, as a share of the largest integer."""

    @abstractmethod
    def clip(self, shares: np.ndarray):
        """Replace weights above shares[ranges] of the largest integer by smaller ones, in the same steps."""

    @abstractmethod
    def follow(self, factors: Factors):
        """Let gradients follow the factors of the ranges."""

    def allowed(self, steps: RangeSteps) -> RangeSteps:
        """The steps that the ranges can make."""
        return steps

    def count(self, codes: Sequence[np.ndarray], widths: Widths, counter: CountFunction) -> Count:
        """Count the overflow events for codes, some samples at a time.

        Raises:
            ValueError: what counts cannot count this product; the sentence names it.
        """
        weights = self.integers()
        start = self.start(weights)
        return reduce(Count.__add__, (
            count_groups(self.name, zip(weights, part, start, strict=True), widths, counter) for part in codes))


class LayerProduct(RangedProduct):
    """The product of a convolution, dense layer or average.

    Args:
        name:   Name of the layer.
        layer:  The layer.
        rows:   Whether each row has a range of its own.
    """

    def __init__(self, name: str, layer: QuantizedLayer, *, rows: bool):
        self.layer, self.rows = layer, 1 if rows else len(layer.weights.scale)
        self.ones = isinstance(layer, QuantizedAverage)
        super().__init__(name, self.steps, self.rows)

    @property
    def bits(self):
        return self.layer.input_format.bits

    @property
    def steps(self):
        return self.layer.weights.scale[::self.rows]

    @property
    def ranges(self):
        layer = self.layer
        weights = self.steps.max().item() * layer.weights.grid.highest
        return weights, layer.inputs.step.item() * layer.inputs.levels

    def integers(self):
        layer = self.layer
        with torch.no_grad():
            weights = layer.weights()[0].numpy().astype(np.int64)
        return weights.reshape(layer.geometry.groups, -1, weights.shape[1])

    def codes(self, x, lengths):
        zero = self.layer.input_format.zero if self.layer.inputs.unsigned else 0
        with torch.no_grad():
            return (self.layer.patches(x) - zero).to(torch.int16).numpy()

    def start(self, weights):
        return start_values(weights, self.layer.input_format, self.layer.inputs.unsigned)

    def room(self, codes):
        inputs, fmt, unsigned = self.layer.inputs, self.layer.input_format, self.layer.inputs.unsigned
        used = _largest(codes) + fmt.zero if unsigned else np.inf  # the range of signed codes never shrinks
        return ShrinkRoom(parameters=self.used(), inputs=used / inputs.levels,
                          lowered=unsigned)

    def used(self):
        with torch.no_grad():
            weights = self.layer.weights
            steps = weights.bent() * weights.per_weight(1 + weights.change.double())
            largest = steps.abs().amax(1).double().numpy() / weights.grid.highest
        return largest.reshape(-1, self.rows).max(1)

    def clip(self, shares):
        weights = self.layer.weights
        weights.clip(torch.from_numpy(np.repeat(shares * weights.grid.highest, self.rows)))

    def enlarge(self, parameters, inputs):
        if (parameters != 1).any():
            self.layer.weights.enlarge(torch.from_numpy(np.repeat(np.asarray(parameters, np.float64), self.rows)))
        if inputs != 1:
            self.layer.inputs.enlarge(inputs)

    def follow(self, factors):
        """Scale the gradients of weights whose quantisation steps have become a1 times as large.

        Integers shall move as far as before. Gradients are therefore divided by a1, or multiplied by a1 for weights in
        real units, which then move a1 times as far. Without that, coarse integers would hardly ever change.
        """
        weights = self.layer.weights

        def hook(gradient):
            scale = torch.from_numpy(np.repeat(factors.parameters, self.rows)).to(gradient.dtype)[:, None]
            return gradient * scale if weights.in_real_units else gradient / scale

        if weights.weight.requires_grad:
            weights.weight.register_hook(hook)

    def allowed(self, steps):
        if self.ones:
            return replace(steps, inputs=1.0, weights_factor=None, by=Adjusted.RANGES)
        # The largest code of these inputs is the clip of a relu6, and stays where it is.
        return steps if self.layer.inputs.ceiling is None else replace(steps, inputs=0.0, inputs_factor=None)


class GatesProduct(RangedProduct):
    """The product of W with x, or of R with one of the vectors that it multiplies; each gate has one range.

    Args:
        name:   Name of the layer of this direction.
        layer:  The recurrent layer.
        index:  Index of the direction.
        matrix: 0 for W, 1 for R.
        gates:  Names of the gates.
        tied:   Whether both matrices of a gate share a scale. Their ranges then grow together, and never shrink.
    """

    def __init__(self, name: str, layer: Directions, index: int, matrix: int, gates: tuple[str, ...], *, tied: bool):
        self.layer, self.index, self.key, self.tied = layer, index, (matrix, gates), tied
        self.part: QuantizedRecurrent = layer.parts[index]
        self.indices = [self.part.cell.index(gate) for gate in gates]
        words = "input" if matrix == 0 else "recurrent"
        if len(gates) < len(self.part.cell.gates):
            words += f" {' '.join(gates)}"
        super().__init__(f"{name}, {words}", self.steps, self.part.bias.shape[1])

    @property
    def bits(self):
        return self.part.found.inputs.bits

    @property
    def steps(self):
        return self.part.steps[self.key[0], self.indices]

    @property
    def ranges(self):
        return (float((self.steps.numpy() * self.highest).max()),
                self.part.code_steps[self.key[0]].item() * 2.0 ** (self.bits - 1))

    def integers(self):
        with torch.no_grad():
            return self.part.integers()[self.key[0]][self.indices].flatten(0, 1).numpy().astype(np.int64)[None]

    def codes(self, x, lengths):
        with torch.no_grad():
            return self.part.multiplied(self.layer.read(x, lengths, self.index), lengths)[self.key].numpy()[None]

    def start(self, weights):
        if self.key[0] == 1 or not self.part.bias_bits:
            return np.zeros(weights.shape[:2], np.int64)
        return self.part.biases().detach().numpy().astype(np.int64).reshape(1, -1)

    def room(self, codes):
        matrix, part = self.key[0], self.part
        # The first range of the codes contains every h, and it is the smallest one.
        first = (part.found.inputs, part.found.hidden)[matrix].step
        return ShrinkRoom(parameters=np.ones(len(self.indices)) if self.tied else self.used(),
                          inputs=first / part.code_steps[matrix].item(), lowered=False)

    @property
    def highest(self) -> np.ndarray:
        """float64[gates], the largest magnitude of an integer of each gate."""
        affines = self.part.found.affines[self.key[0]]
        return np.array([max(map(abs, affines[index].ends)) for index in self.indices], np.float64)

    def used(self):
        with torch.no_grad():
            return self.part.matrices[self.key[0]][self.indices].abs().amax((1, 2)).double().numpy() / self.highest

    def clip(self, shares):
        with torch.no_grad():
            weights = self.part.matrices[self.key[0]]
            limit = torch.from_numpy(shares * self.highest).float()[:, None, None]
            weights[self.indices] = weights[self.indices].clamp(-limit, limit)

    def enlarge(self, parameters, inputs):
        matrix, factor = self.key[0], torch.from_numpy(np.asarray(parameters, np.float64))
        with torch.no_grad():
            for one in range(2) if self.tied else (matrix,):
                self.part.steps[one, self.indices] *= factor
                self.part.matrices[one][self.indices] /= factor.float()[:, None, None]
            self.part.code_steps[matrix] *= inputs

    def follow(self, factors):
        """Leave gradients as they are: the steps of Adam do not depend on their scale."""


def products_of(network: QuantizedNetwork, widths: Widths, *, rows: bool) -> Iterator[tuple[str, list[RangedProduct]]]:
    """Each layer with quantisers by its name, and its products in the order of golden.

    Args:
        network: The network.
        widths:  Widths of the machine's storage.
        rows:    Whether each row of a layer without gates has a range of its own.

    Raises:
        ValueError: a layer has no integers.
    """
    for name, layer in network.layers.items():
        if isinstance(layer, QuantizedLayer) and layer.weights and layer.inputs:
            if layer.norm:
                raise ValueError(f"layer {name!r} keeps batch normalisation, whose statistics do not follow ranges "
                                 "that grow; fold it, or leave out the accumulator")
            yield name, [LayerProduct(name, layer, rows=rows)]
        elif isinstance(layer, Directions) and all(isinstance(part, QuantizedRecurrent) for part in layer.parts):
            yield name, [
                GatesProduct(name + "-reverse" * bool(index), layer, index, matrix, gates,
                             tied=network.arithmetic.gates.shared)
                for index, part in enumerate(layer.parts) for matrix, gates in part.products]
        else:
            raise ValueError(f"layer {name!r} keeps FP32 weights or inputs, so it has no sums to keep in "
                             f"{widths.sum_bits} bits; give it bits, or leave out the accumulator")


def _largest(codes: Sequence[np.ndarray]) -> int:
    return max(int(part.max()) for part in codes)
