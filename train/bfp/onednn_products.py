"""Exact sums over products by the CPU's 8-bit integer kernels, which are several times faster than float32 ones.

A kernel multiplies unsigned bytes by signed ones into 32 bits. A gradient of more than 8 bits goes in *digits*, signed
bytes d with g = d0 + 256 * d1 + ..: with 128 added at every digit but the last, the bytes of g are those
digits, each 128 too high but the last. The kernels are oneDNN's, as torch's quantisation uses them; `available` says
whether they are exact on this machine, since those of old CPUs saturate in 16 bits.
"""

from dataclasses import dataclass
from functools import cache, partial

import torch
from concord.train.bfp.exact_products import FLOAT32_EXACT, Floating
from torch.nn.functional import pad

#: Number that makes an unsigned byte of a signed one when it is added.
ZERO = 128
#: Most pixels of which an int32 holds the sum of 8 x 8-bit products.
PIXELS = 1 << 14
#: Number of elements that are computed at once, so that intermediate results stay in the cache.
PIECE = 1 << 18
#: Bound of the sum of the magnitudes of weights: with it, products with 16-bit gradients, byte by byte, have sums that
#: float32 and int32 hold.
LARGEST_ROW = 1 << 16


def _convolution(w: torch.Tensor, zero: int, stride: int, padding: int):
    """A function of unsigned bytes x and a bias, or None, that returns float32 sums over (x - zero) * w."""
    ones, zeros = torch.ones(len(w)), torch.zeros(len(w), dtype=torch.int64)
    where = [stride] * 2, [padding] * 2, [1, 1], 1
    packed = torch.ops.onednn.qconv_prepack(w, ones, 1.0, zero, *where, None)

    def convolve(x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return torch.ops.onednn.qconv2d_pointwise(x, 1.0, zero, packed, ones, zeros, bias, *where, 1.0, 0,
                                                  torch.float32, "none", [], "")

    return convolve


@cache
def available() -> bool:
    """Whether this machine has the kernels, and they are exact at the ends of their range."""
    try:
        x = torch.full((1, 64, 4, 4), 255, dtype=torch.uint8).contiguous(memory_format=torch.channels_last)
        w = torch.full((16, 64, 3, 3), 127, dtype=torch.int8)
        inner = _convolution(w, 0, 1, 0)(x).unique().tolist()
        lowest = torch.full((64, 64), -128, dtype=torch.int8)
        return inner == [255 * 127 * 576] and torch._int_mm(lowest, lowest).unique().tolist() == [128 * 128 * 64]
    except (RuntimeError, AttributeError, NotImplementedError):
        return False


@dataclass(frozen=True, slots=True)
class Digits:
    """A gradient in digits.

    Attributes:
        values:  The gradient as integers.
        shifted: The gradient as int16, int32 or int64, with 128 added at every digit but the last.
    """

    values: torch.Tensor
    shifted: torch.Tensor

    @property
    def count(self) -> int:
        """Number of digits."""
        return self.shifted.itemsize

    def rows(self, part: slice) -> torch.Tensor:
        """int8[pixels, outputs * count]: digits of some samples. Those of an output lie together, low ones first."""
        whole = self.shifted[part] ^ _offset(self.count)
        whole = whole.permute(0, 2, 3, 1).contiguous() if whole.ndim == 4 else whole.contiguous()
        return whole.view(torch.int8).reshape(-1, whole.shape[-1] * self.count)


def _offset(count: int) -> int:
    """The number that has 128 at every digit but the last."""
    return sum(ZERO << 8 * digit for digit in range(count - 1))


class Integer8(Floating):
    """8-bit kernels where they are exact. `Floating` computes all other products."""

    def prepare(self, g, top):
        dtype = next(t for t in (torch.int16, torch.int32, torch.int64) if top + _offset(t.itemsize) < _limit(t))
        shifted = g.to(dtype) + _offset(dtype.itemsize)
        return Digits(g, shifted.contiguous(memory_format=torch.channels_last) if g.ndim == 4 else shifted)

    def convolve(self, x, w, bias, stride, padding):
        x = x.contiguous(memory_format=torch.channels_last)
        if float(w.abs().sum((1, 2, 3)).max()) * ZERO + float(bias.abs().max()) >= FLOAT32_EXACT:
            return super().convolve(x, w, bias, stride, padding)
        signed = bool(x.amin() < 0)
        unsigned = x.view(torch.uint8) ^ ZERO if signed else x.view(torch.uint8)
        return _convolution(w.to(torch.int8), ZERO * signed, stride, padding)(unsigned, bias.float()), x

    def convolve_input(self, g, w, shape, stride, padding):
        size = w.shape[2]
        if float(w.abs().sum((0, 2, 3)).max()) >= LARGEST_ROW or padding >= size or g.count > 2:
            return super().convolve_input(g.values, w, shape, stride, padding)
        if size == 1 and stride > 1 and not padding:
            total = torch.zeros(shape, dtype=torch.int32).contiguous(memory_format=torch.channels_last)
            inner = total[:, :, ::stride, ::stride]
            inner.copy_(self.convolve_input(g, w, inner.shape, 1, 0))
            return total
        inner = [n + 2 * padding - size + 1 for n in shape[2:]]
        turned = w.to(torch.int8).flip(2, 3).transpose(0, 1).contiguous()
        convolve = _convolution(turned, ZERO, 1, size - 1 - padding)
        total = torch.empty(shape, dtype=torch.int32, memory_format=torch.channels_last)
        samples = max(1, PIECE // (g.shifted.shape[1] * inner[0] * inner[1]))
        for into, part in zip(total.split(samples), g.shifted.split(samples), strict=True):
            low, high = convolve(_spread(part, stride, inner)).int().split(len(part))
            torch.add(low, high, alpha=256, out=into)
        return total

    def convolve_weight(self, g, x, size, stride, padding):
        values, total = g.values, 0
        if values[0, 0].numel() > PIXELS:
            return super().convolve_weight(values, x, size, stride, padding)
        samples = PIXELS // values[0, 0].numel()
        for first in range(0, len(values), samples):
            some = slice(first, first + samples)
            total = total + _products(g.rows(some), _columns(x[some], size, stride, padding, values.shape[2:]), g.count)
        made = total.reshape(values.shape[1], size, size, x.shape[1]).permute(0, 3, 1, 2).contiguous()
        return made, values.permute(0, 2, 3, 1).reshape(-1, values.shape[1]).sum(0, dtype=torch.int64)

    def dense(self, x, w, bias):
        if x.shape[1] > PIXELS:
            return super().dense(x, w, bias)
        return torch._int_mm(x, w.to(torch.int8).T).double().add_(bias), x

    def dense_input(self, g, w):
        if float(w.abs().sum(0).max()) >= LARGEST_ROW or g.count > 2:
            return super().dense_input(g.values, w)
        digits = g.rows(slice(None)).view(*g.values.shape, 2)
        low, high = (torch._int_mm(digits[..., digit].contiguous(), w.to(torch.int8)) for digit in (0, 1))
        return low.add_(high, alpha=256)

    def dense_weight(self, g, x):
        if len(x) > PIXELS:
            return super().dense_weight(g.values, x)
        return _products(g.rows(slice(None)), [x], g.count), g.values.sum(0, dtype=torch.int64)


def _limit(dtype: torch.dtype) -> int:
    return 1 << 8 * dtype.itemsize - 1


def _spread(shifted: torch.Tensor, stride: int, size: list[int]) -> torch.Tensor:
    """Both digits of a gradient as unsigned bytes, in a tensor of twice as many samples with channels last.

    Low digits come first. Between neighbours lie stride - 1 zeros, and zeros fill each image to `size`.
    """
    samples, channels = shifted.shape[:2]
    made = torch.empty if stride == 1 else partial(torch.full, fill_value=ZERO)
    spread = made((2 * samples, *size, channels), dtype=torch.uint8).permute(0, 3, 1, 2)
    for part, digit in zip(spread.split(samples), (shifted, (shifted >> 8).add_(ZERO)), strict=True):
        part[:, :, ::stride, ::stride] = digit  # its low byte
    return spread


def _columns(x: torch.Tensor, size: int, stride: int, padding: int, shape) -> list[torch.Tensor]:
    """Bytes[pixels, size * channels] that each row of a kernel multiplies; for one channel all rows in one tensor."""
    samples, channels = x.shape[:2]
    padded = pad(x.permute(0, 2, 3, 1), (0, 0, padding, padding, padding, padding)).contiguous()
    rows, columns = padded.shape[1:3]
    if stride == 1:  # neighbours once, then whole rows
        across = samples * rows * columns - size + 1
        wide = padded.as_strided((across, size * channels), (channels, 1)).contiguous()
        run, step = shape[1] * size * channels, columns * size * channels
        seen = [wide.as_strided((samples, shape[0], run), (rows * step, step, 1), row * step) for row in range(size)]
    else:
        steps = rows * columns * channels, stride * columns * channels, stride * channels, 1
        seen = [padded.as_strided((samples, *shape, size * channels), steps, row * columns * channels)
                for row in range(size)]
    seen = [part.reshape(-1, size * channels) for part in seen]
    return [torch.cat(seen, 1)] if channels == 1 else seen


def _products(rows: torch.Tensor, columns: list[torch.Tensor], count: int) -> torch.Tensor:
    """int64: g[pixels, outputs].T @ columns, all of them side by side, from the digits of g."""
    sums = torch.cat([torch._int_mm(rows.T, column) for column in columns], 1).long()
    digits = sums.view(-1, count, sums.shape[1])
    return sum(digits[:, digit] << 8 * digit for digit in range(count))
