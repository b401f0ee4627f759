"""A step of training in block floating point: the loss' gradient, momentum, and what a parameter is updated by.

Learning rate and momentum are training tensors of one 16-bit mantissa. With them

    SGD         update = learning_rate * gradient                          brought to 32 bits
    momentum    v <- momentum * v + gradient                               brought to `momentum_bits`
                update = learning_rate * v                                 brought to 32 bits

each product exact before that, and each sum of 48 bits, in a unit that is at most MOMENTUM_REACH bits finer than the
coarser one of its terms. The update then is subtracted by `golden.lazy.lazy_update`.

Source: S2.d; numerics.md of the specification, lazy update and training tensors.
"""

from dataclasses import dataclass

import numpy as np
from concord.golden.lazy.lazy_update import Counts, Parameters, lazy_update
from concord.golden.lazy.tensor import TrainingTensor, requantize, to_training_tensor
from concord.golden.lazy.tensor_layers import add_exact, unit, whole
from concord.spec.numbers.lazy import ACCUMULATOR_BITS, E_MIN, Width

#: Mantissa bits of learning rate and momentum.
_RATE_BITS = 16
#: The unit of the sum for the momentum is never finer than 2**-MOMENTUM_REACH of the coarser unit of its two terms.
MOMENTUM_REACH = ACCUMULATOR_BITS - Width.LINEAR - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """Learning rate and momentum.

    Attributes:
        learning_rate: Above 0.
        momentum:      0 for plain SGD, below 1.
        momentum_bits: Mantissa bits in which momentum is kept.
        weight_decay:  0: it is not defined in block floating point.
        clip_norm:     0: gradients are not clipped; the norm of a tensor is no exact integer.

    Raises:
        ValueError: a value out of its range.
    """

    learning_rate: float
    momentum: float = 0.0
    momentum_bits: int = 16
    weight_decay: float = 0.0
    clip_norm: float = 0.0

    def __post_init__(self):
        if not 0 < self.learning_rate < 2.0**64:
            raise ValueError(f"learning_rate = {self.learning_rate} must lie above 0 and below 2**64")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum = {self.momentum} must lie in 0..1, without 1; 0 is plain SGD")
        if self.momentum_bits not in (8, 16):
            raise ValueError(f"momentum_bits = {self.momentum_bits}: choose 8 or 16")
        for name in "weight_decay", "clip_norm":
            if getattr(self, name):
                raise ValueError(f"{name} = {getattr(self, name)}: training in block floating point has none; leave it "
                                 "at 0, or train in FP32")

    @property
    def learning_rate_tensor(self) -> TrainingTensor:
        """The learning rate that training uses: one mantissa of 16 bits."""
        return to_training_tensor([self.learning_rate], _RATE_BITS)

    @property
    def momentum_tensor(self) -> TrainingTensor:
        """The momentum that training uses: one mantissa of 16 bits."""
        return to_training_tensor([self.momentum], _RATE_BITS)


def no_momentum(shape: tuple[int, ...], rates: Rates) -> TrainingTensor:
    """The momentum before the first step: zeros."""
    return whole(np.zeros(shape, np.int64), E_MIN, rates.momentum_bits)


def loss_gradient(logits: np.ndarray, labels: np.ndarray, count: int) -> tuple[float, np.ndarray]:
    """Softmax cross-entropy of a batch, or of a process' share of one, and its gradient.

    Args:
        logits: float64[samples, classes], the values of linear outputs.
        labels: int[samples].
        count:  Samples in the batch over all processes, by which the mean divides.

    Returns:
        The share of the mean loss that these samples give, and float64[samples, classes].
    """
    shifted = logits - logits.max(1, keepdims=True)
    powers = np.exp(shifted)
    totals = powers.sum(1, keepdims=True)
    rows = np.arange(len(labels))
    loss = float((np.log(totals[:, 0]) - shifted[rows, labels]).sum() / count)
    gradient = powers / totals
    gradient[rows, labels] -= 1
    return loss, gradient / count


def product(rate: TrainingTensor, values: TrainingTensor) -> TrainingTensor:
    """Exact product with a tensor of one element, in units of 2**lsb; mantissas as wide as they come."""
    lsb, bits = unit(rate) + unit(values), rate.bits + values.bits
    return whole(rate.mantissas.item() * values.mantissas, lsb + bits - 1, bits)


def next_momentum(old: TrainingTensor, gradient: TrainingTensor, rates: Rates) -> TrainingTensor:
    """v <- momentum * v + gradient."""
    kept = product(rates.momentum_tensor, old)
    return requantize(*add_exact(kept, gradient, MOMENTUM_REACH), rates.momentum_bits)


def update_of(direction: TrainingTensor, rates: Rates) -> TrainingTensor:
    """learning_rate * (gradient or momentum)."""
    exact = product(rates.learning_rate_tensor, direction)
    return requantize(exact.mantissas, unit(exact), Width.LINEAR)


def train_step(
    parameters: dict[str, Parameters],
    momenta: dict[str, TrainingTensor],
    gradients: dict[str, TrainingTensor],
    rates: Rates,
    counts: Counts | None = None,
):
    """Replace every parameter, and its momentum where there is one, by the updated one.

    Args:
        parameters: By name.
        momenta:    By name; empty for plain SGD.
        gradients:  By name, 32 bits.
        rates:      Learning rate and momentum.
        counts:     To which what happens is added.
    """
    for name, gradient in gradients.items():
        direction = gradient
        if rates.momentum:
            direction = momenta[name] = next_momentum(
                momenta.get(name, no_momentum(gradient.mantissas.shape, rates)), gradient, rates)
        parameters[name] = lazy_update(parameters[name], update_of(direction, rates), counts)
