"""Training tensors in PyTorch: exact integers in floating point tensors, with the bits of `golden.lazy.tensor`.

The quick way holds where nothing leaves the range of exponents and what a tensor's type holds exactly; everywhere else
golden itself computes. Half away from zero is one product and one rounding to even: for integers n of at most B bits,
n * (2**-s * (1 + 2**-(B + 1))) lies on the side of n / 2**s away from zero, and on no tie.
"""

from dataclasses import dataclass

import numpy as np
import torch
from concord.golden.lazy import tensor as golden_tensor
from concord.golden.lazy import tensor_layers
from concord.golden.lazy.tensor import TrainingTensor
from concord.spec.numbers.lazy import E_MAX, E_MIN, Width
from concord.train.bfp.parallel import Alone

#: For each type: the bound below which integers are rounded in it as described, and the factor that makes ties uneven.
ROUNDED = {torch.float32: (1 << 22, 1 + 2.0**-23), torch.float64: (1 << 50, 1 + 2.0**-52)}


@dataclass(slots=True)
class ExactTensor:
    """A training tensor: its mantissas are values * 2**left_shift, in units of 2**lsb.

    Attributes:
        values:     Integers: int8 or int16 for mantissas of 8 or 16 bits, else of a type that holds them exactly.
        lsb:        Exponent of one unit, as in `golden.lazy.tensor.TrainingTensor`.
        bits:       Bits of a mantissa; 0 for exact sums, which have no fixed width.
        left_shift: Number of zero bits below the values that are not stored, 0 or more.
        top:        max |value| over all processes, or None where it is not known.
        lengths:    int64[samples], time steps of each sample of a network's input, or None.
    """

    values: torch.Tensor
    lsb: int
    bits: int = 0
    left_shift: int = 0
    top: int | None = None
    lengths: torch.Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        return self.values.shape

    def integers(self) -> np.ndarray:
        """int64[...]: the mantissas."""
        return self.values.cpu().to(torch.int64).numpy() << self.left_shift

    def golden(self) -> TrainingTensor:
        """The same tensor in golden's form."""
        return tensor_layers.whole(self.integers(), self.lsb + self.bits - 1, self.bits)


def exact(made: TrainingTensor, like: torch.Tensor) -> ExactTensor:
    """One of golden's training tensors, on the device of another tensor."""
    values = torch.from_numpy(made.mantissas).to(like.device, _type(made.bits))
    return ExactTensor(values, int(made.lsb.item()), made.bits)


def sums(total: torch.Tensor, lsb: int, left_shift: int) -> ExactTensor:
    """Exact sums from int64, in float64 if it holds them with room for rounding."""
    top = largest(total)
    return ExactTensor(total.double() if top < ROUNDED[torch.float64][0] else total, lsb, 0, left_shift, top)


def largest(values: torch.Tensor, group=Alone) -> int:
    """Largest magnitude of the values, over all processes."""
    if not values.numel():
        return group.largest(0)
    return group.largest(max(-int(values.amin()), int(values.amax())))


def ceil_log2(top: int) -> int:
    """Smallest k with top <= 2**k."""
    return (top - 1).bit_length() if top else 0


def requantize(x: ExactTensor, bits: int, group=Alone) -> ExactTensor:
    """Bring exact sums to mantissas: see `golden.lazy.tensor.requantize`.

    Args:
        x:     Exact sums, which may be overwritten, or mantissas, which are not.
        bits:  Bits of a mantissa: 8, 16 or 32.
        group: The processes that share the tensor.
    """
    top = largest(x.values, group) if x.top is None else x.top
    if not top:
        return ExactTensor(_zeros(x.values, bits), E_MIN - (bits - 1), bits, 0, 0)
    size = ceil_log2(top) + x.left_shift
    exponent, shift = size + x.lsb, size - (bits - 1)
    quick = x.values.dtype != torch.int64 and top < ROUNDED[torch.float64][0] and E_MIN <= exponent <= E_MAX
    if not quick:
        return _by_golden(x, bits, top)
    lsb, shift = exponent - (bits - 1), shift - x.left_shift
    if shift <= 0 and top & (top - 1):  # nothing to round and nothing to clip
        return ExactTensor(x.values.to(_type(bits)), lsb, bits, -shift, top)
    known = None if top & (top - 1) == 0 else top + (1 << shift - 1) >> shift
    return ExactTensor(_scaled(x.values, shift, bits, top, spare=not x.bits), lsb, bits, 0, known)


def _type(bits: int) -> torch.dtype:
    return {8: torch.int8, 16: torch.int16}.get(bits, torch.float64)


def _zeros(values: torch.Tensor, bits: int) -> torch.Tensor:
    return torch.zeros_like(values, dtype=_type(bits))


def _scaled(values: torch.Tensor, shift: int, bits: int, top: int, spare: bool) -> torch.Tensor:
    """clip(round(values / 2**shift)): only an exact power of two, at the top, is clipped."""
    highest = (1 << bits - 1) - 1
    if values.dtype == torch.int32 and shift > 0 and top + (1 << shift - 1) < 1 << 31:
        sign = values >> 31
        rounded = sign.add_(values).add_(1 << shift - 1).bitwise_right_shift_(shift)
        return rounded.clamp_(max=highest).to(_type(bits))
    if values.dtype != torch.float32 or top >= ROUNDED[torch.float32][0] or bits > Width.GRADIENT:
        values, spare = values.double(), spare or values.dtype != torch.float64
    factor = 2.0**-shift * (ROUNDED[values.dtype][1] if shift > 0 else 1)
    scaled = values.mul_(factor) if spare and values.is_floating_point() else values * factor
    return (scaled.round_() if shift > 0 else scaled).clamp_(max=highest).to(_type(bits))


def _by_golden(x: ExactTensor, bits: int, top: int) -> ExactTensor:
    if top << x.left_shift >= 1 << 62:
        raise ArithmeticError(f"a sum of {top.bit_length() + x.left_shift} bits does not fit 62; use smaller batches")
    exponent = int(golden_tensor.measure(np.int64(top << x.left_shift), x.lsb).item())
    made = golden_tensor.requantize(x.integers(), x.lsb, bits, exponent=exponent)
    return exact(tensor_layers.whole(made.mantissas, exponent, bits), x.values)


def parameter_gradient(x: ExactTensor) -> ExactTensor:
    """Exact sums over all processes in 32 bits, in their own unit if they fit: see
    `golden.lazy.tensor_layers.parameter_gradient`."""
    top, exponent = largest(x.values) if x.top is None else x.top, x.lsb + Width.LINEAR - 1
    if top << x.left_shift >= 1 << Width.LINEAR - 1:
        return requantize(x, Width.LINEAR)
    if E_MIN <= exponent <= E_MAX:
        return ExactTensor(x.values.double(), x.lsb, Width.LINEAR, x.left_shift, top)
    return exact(tensor_layers.parameter_gradient(x.integers(), x.lsb), x.values)


def add(a: ExactTensor, b: ExactTensor, bits: int, group=Alone, reach: int = tensor_layers.REACH) -> ExactTensor:
    """The exact sum of two tensors in `bits` bits: see `golden.lazy.tensor_layers.add_exact`."""
    units = a.lsb, b.lsb
    low = max(min(units), max(units) - reach)
    shared = min(a.lsb + a.left_shift, b.lsb + b.left_shift)
    shifts = a.lsb + a.left_shift - shared, b.lsb + b.left_shift - shared
    bound = sum(largest(t.values) << s for t, s in zip((a, b), shifts, strict=True))
    if shared < low or bound >= ROUNDED[torch.float64][0]:
        one, other = (torch.from_numpy(golden_tensor.round_shift(t.integers(), low - t.lsb)) for t in (a, b))
        return requantize(ExactTensor((one + other).to(a.values.device), low), bits, group)
    dtype = torch.float32 if bound < ROUNDED[torch.float32][0] else torch.float64
    one, other = (_lifted(t.values, s, dtype) for t, s in zip((a, b), shifts, strict=True))
    return requantize(ExactTensor(one.add_(other), low, 0, shared - low), bits, group)


def _lifted(values: torch.Tensor, shift: int, dtype: torch.dtype) -> torch.Tensor:
    """A copy of the values times 2**shift."""
    copy = values.to(dtype, copy=True)
    return copy.mul_(2.0**shift) if shift else copy
