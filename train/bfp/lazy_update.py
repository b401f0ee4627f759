"""The lazy update in PyTorch, with the bits of `golden.lazy.lazy_update`, which computes tensors that pass twice."""

from dataclasses import dataclass

import torch
from concord.golden.lazy import lazy_update as golden
from concord.golden.lazy import tensor_layers
from concord.golden.lazy.lazy_update import Counts
from concord.spec.numbers.lazy import LazyFormat
from concord.train.bfp.tensor import ROUNDED, ExactTensor, largest

UNEVEN = ROUNDED[torch.float64][1]


@dataclass(slots=True)
class Parameters:
    """A tensor of parameters, see `golden.lazy.lazy_update.Parameters`.

    Attributes:
        mantissas, residuals: float64[...] of integers.
        exponent:             E of the mantissas.
        fmt:                  Widths of mantissas, residuals and updates.
        zero:                 Whether all may be zero. A tensor of zeros has no exponent yet.
    """

    mantissas: torch.Tensor
    residuals: torch.Tensor
    exponent: int
    fmt: LazyFormat
    zero: bool = True

    def golden(self) -> golden.Parameters:
        """The same parameters in NumPy."""
        arrays = (t.cpu().to(torch.int64).numpy() for t in (self.mantissas, self.residuals))
        return golden.Parameters(*arrays, self.exponent, self.fmt)


def from_golden(made: golden.Parameters, device: str = "cpu") -> Parameters:
    """Parameters of the golden model as PyTorch tensors."""
    tensors = (torch.from_numpy(a).to(device, torch.float64) for a in (made.mantissas, made.residuals))
    return Parameters(*tensors, made.exponent, made.fmt, not made.mantissas.any())


def lazy_update(old: Parameters, update: ExactTensor, counts: Counts) -> Parameters:
    """Subtract an update from parameters.

    Args:
        old:    The parameters.
        update: Update, with mantissas of `fmt.update` bits.
        counts: Counts of events, to which those of this update are added.
    """
    fmt = old.fmt
    shift = fmt.alignment(old.exponent, update.lsb + fmt.update - 1) - update.left_shift
    aligned = update.values.double() * (2.0**-shift * (UNEVEN if shift > 0 else 1))
    if shift > 0:
        aligned.round_()
    total = aligned + old.residuals
    step = total * (2.0**-fmt.shift * UNEVEN)
    step.round_()
    mantissas = old.mantissas - step
    low, high = mantissas.amin().item(), mantissas.amax().item()
    inside = fmt.lowest <= low and high <= fmt.highest and largest(aligned) <= fmt.limit
    if old.zero or not inside or max(-low, high) < fmt.small:
        made = tensor_layers.whole(update.integers(), update.lsb + fmt.update - 1, fmt.update)
        return from_golden(golden.lazy_update(old.golden(), made, counts), old.mantissas.device)
    counts.steps += int(torch.count_nonzero(step))
    total.sub_(step, alpha=2**fmt.shift)
    return Parameters(mantissas, total, old.exponent, fmt, False)
