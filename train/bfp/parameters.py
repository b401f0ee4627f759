"""Parameters under training in block floating point: the lazy update, and the rules that it is compared with.

All rules but FP32 share the forward and the backward pass in block floating point. They differ in what an update does.
"""

from dataclasses import replace

import numpy as np
import torch
from concord.golden.lazy import lazy_update as golden
from concord.golden.lazy import tensor_training
from concord.golden.lazy.lazy_update import Counts
from concord.golden.lazy.tensor import to_training_tensor
from concord.golden.lazy.tensor_training import Rates
from concord.spec.numbers.lazy import LazyFormat, Width
from concord.train.bfp import lazy_update
from concord.train.bfp.options import UpdateRule
from concord.train.bfp.tensor import ExactTensor, exact, parameter_gradient, requantize
from concord.train.bfp.tensor import add as add_tensors

SHORT = LazyFormat(residual=8, shift=7)
FLOAT_BYTES = 4


def state_bytes(rule: UpdateRule, rates: Rates) -> dict[str, int]:
    """Bytes of training state for each parameter, by kind. Exponents, one byte for each tensor, are not counted."""
    fmt = SHORT if rule is UpdateRule.RESIDUAL8 else LazyFormat()
    real = rule in (UpdateRule.FP32, UpdateRule.MASTER)
    found = {
        "parameter": FLOAT_BYTES if rule is UpdateRule.FP32 else fmt.bits // 8,
        "residual": fmt.residual // 8 if rule in (UpdateRule.LAZY, UpdateRule.FROZEN, UpdateRule.RESIDUAL8) else 0,
        "master": FLOAT_BYTES if rule is UpdateRule.MASTER else 0,
        "momentum": (FLOAT_BYTES if real else rates.momentum_bits // 8) if rates.momentum else 0,
    }
    return found | {"all": sum(found.values())}


class Lazy:
    """A tensor of parameters under the lazy update.

    Args:
        begun:  Parameters from `golden.lazy.lazy_update.initial_parameters`, or from a checkpoint.
        rates:  Learning rate and momentum.
        device: Device of the tensors.

    Attributes:
        kept:     Mantissas and residuals.
        momentum: Momentum, or None before the first step and under plain SGD.
        counts:   Counts of events.
    """

    def __init__(self, begun: golden.Parameters, rates: Rates, device: str = "cpu"):
        self.rates, self.momentum, self.counts = rates, None, Counts()
        self.learning_rate, self.decay = rates.learning_rate_tensor, rates.momentum_tensor
        self.kept = lazy_update.from_golden(begun, device)

    @property
    def mantissas(self) -> torch.Tensor:
        """The mantissas, float32[...]."""
        return self.kept.mantissas.float()

    @property
    def lsb(self) -> int:
        """Exponent of one unit of the mantissas."""
        return self.kept.exponent - (self.kept.fmt.bits - 1)

    def pace(self, rate: float):
        """Go on with another learning rate."""
        self.learning_rate = replace(self.rates, learning_rate=rate).learning_rate_tensor

    def golden(self) -> golden.Parameters:
        """What is kept, in NumPy."""
        return self.kept.golden()

    def update(self, found: ExactTensor):
        """Take a training step, from the exact sums of a gradient."""
        direction = parameter_gradient(found)
        if self.rates.momentum:
            direction = self.momentum = self._next_momentum(direction)
        self.subtract(requantize(_product(self.learning_rate, direction), Width.LINEAR))

    def subtract(self, update: ExactTensor):
        """Subtract an update with 32-bit mantissas."""
        self.kept = lazy_update.lazy_update(self.kept, update, self.counts)

    def _next_momentum(self, gradient: ExactTensor) -> ExactTensor:
        old = self.momentum
        if old is None:
            old = exact(tensor_training.no_momentum(tuple(gradient.shape), self.rates), gradient.values)
        reach = tensor_training.MOMENTUM_REACH
        return add_tensors(_product(self.decay, old), gradient, self.rates.momentum_bits, reach=reach)


def _product(rate, x: ExactTensor) -> ExactTensor:
    """Exact product with a training tensor of one mantissa."""
    mantissa = int(rate.mantissas.item())
    top = None if x.top is None else x.top * mantissa
    return ExactTensor(x.values.double() * float(mantissa), x.lsb + int(rate.lsb.item()), 0, x.left_shift, top)


class WithoutResiduals(Lazy):
    """Parameters without residuals: updates are rounded into the mantissas, and less than half a unit is lost."""

    def subtract(self, update: ExactTensor):
        super().subtract(update)
        self.kept.residuals.zero_()


class Stochastic(Lazy):
    """Parameters without residuals: mantissas are rounded up with the probability of the fraction that is cut off.

    Args:
        seed: Seed of the random numbers that decide.
    """

    def __init__(self, begun, rates: Rates, seed: int, device: str = "cpu"):
        super().__init__(begun, rates, device)
        self.noise = torch.Generator(device).manual_seed(seed)

    def subtract(self, update: ExactTensor):
        super().subtract(update)
        kept, one = self.kept, 1 << self.kept.fmt.shift
        noise = torch.randint(one, kept.residuals.shape, generator=self.noise, device=kept.residuals.device)
        kept.mantissas.add_(((noise - kept.residuals) / one).floor_()).clamp_(kept.fmt.lowest, kept.fmt.highest)
        kept.residuals.zero_()


class Frozen(Lazy):
    """Parameters whose exponent stays, so that mantissas saturate. Only a tensor of zeros takes an exponent."""

    def subtract(self, update: ExactTensor):
        old = self.kept.golden()
        step = ExactTensor(update.values, update.lsb, Width.LINEAR, update.left_shift).golden()
        exponent = int(step.exponent.item())
        if not old.mantissas.any() and not old.residuals.any():
            old = golden.Parameters(old.mantissas, old.residuals, exponent, old.fmt)
        done = golden.one_pass(old, step.mantissas, exponent)
        self.counts.steps += done.steps
        self.counts.saturations += done.saturations
        made = golden.Parameters(done.mantissas, done.residuals, old.exponent, old.fmt)
        self.kept = lazy_update.from_golden(made, self.kept.mantissas.device)


class Master:
    """An FP32 master copy, quantised to 8-bit mantissas for every step.

    Args:
        values: float64[...], the initial parameters.
    """

    def __init__(self, values: np.ndarray, rates: Rates, device: str = "cpu"):
        self.master = torch.from_numpy(np.asarray(values)).to(device, torch.float32)
        self.rates, self.momentum, self.counts = rates, None, Counts()
        self._quantize()

    def _quantize(self):
        made = exact(to_training_tensor(self.master.cpu().numpy(), Width.PARAMETER), self.master)
        self.mantissas, self.lsb = made.values, made.lsb

    def pace(self, rate: float):
        """Go on with another learning rate."""
        self.rates = replace(self.rates, learning_rate=rate)

    def golden(self) -> golden.Parameters:
        """The mantissas without residuals, in NumPy."""
        made = ExactTensor(self.mantissas, self.lsb, Width.PARAMETER).golden()
        return golden.Parameters(made.mantissas, np.zeros_like(made.mantissas), made.exponent.item(), LazyFormat())

    def update(self, found: ExactTensor):
        """Take a training step, from the exact sums of a gradient."""
        gradient = parameter_gradient(found)
        direction = (gradient.values * 2.0 ** (gradient.lsb + gradient.left_shift)).float()
        if self.rates.momentum:
            self.momentum = direction if self.momentum is None else self.momentum * self.rates.momentum + direction
            direction = self.momentum
        self.master.sub_(direction, alpha=self.rates.learning_rate)
        lsb = self.lsb
        self._quantize()
        self.counts.changes += self.lsb != lsb


def parameter(rule: UpdateRule, values: np.ndarray, rates: Rates, seed: int = 0, device: str = "cpu"):
    """Parameters under a rule, from real numbers."""
    if rule is UpdateRule.MASTER:
        return Master(values, rates, device)
    if rule is UpdateRule.FP32:
        raise ValueError("the rule fp32 has no parameters in block floating point; train it with torch's own layers")
    fmt = SHORT if rule is UpdateRule.RESIDUAL8 else LazyFormat()
    made = restored(rule, golden.initial_parameters(values, fmt), rates, device, seed)
    if rule in (UpdateRule.NONE, UpdateRule.STOCHASTIC):
        made.kept.residuals.zero_()
    return made


def restored(rule: UpdateRule, kept: golden.Parameters, rates: Rates, device: str = "cpu", seed: int = 0) -> Lazy:
    """Parameters under a rule, from mantissas and residuals."""
    if rule is UpdateRule.STOCHASTIC:
        return Stochastic(kept, rates, seed, device)
    return {UpdateRule.NONE: WithoutResiduals, UpdateRule.FROZEN: Frozen}.get(rule, Lazy)(kept, rates, device)
