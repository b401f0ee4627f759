"""Exact sums over products by the CPU's 8-bit integer kernels, some times faster than float32 ones.

A kernel multiplies unsigned bytes by signed ones into 32 bits; a gradient of more than 8 bits goes byte by byte. These
are oneDNN's, as torch's quantisation uses them; `available` says whether they are exact on this machine, since those of
old CPUs saturate in 16 bits.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch.nn.functional import pad

from train.exact_products import FLOAT32_EXACT, Floating

#: What a signed byte is raised by, to be an unsigned one.
ZERO = 128
#: Pixels whose 8 x 8-bit products an int32 holds.
PIXELS = 1 << 16
#: Largest sum of magnitudes of weights with which 16-bit gradients give sums in float32 (by bytes) and int32.
LARGEST_ROW = 1 << 16


def _convolution(x: torch.Tensor, zero: int, w: torch.Tensor, bias, stride: int, padding: int) -> torch.Tensor:
    """float32 sums over (x - zero) * w of unsigned bytes x and signed ones w, plus bias."""
    ones, zeros = torch.ones(len(w)), torch.zeros(len(w), dtype=torch.int64)
    where = [stride] * 2, [padding] * 2, [1, 1], 1
    packed = torch.ops.onednn.qconv_prepack(w, ones, 1.0, zero, *where, None)
    return torch.ops.onednn.qconv2d_pointwise(x, 1.0, zero, packed, ones, zeros, bias, *where, 1.0, 0, torch.float32,
                                              "none", [], "")


@cache
def available() -> bool:
    """Whether the kernels are there and exact at the ends of their range."""
    try:
        x = torch.full((1, 64, 4, 4), 255, dtype=torch.uint8).contiguous(memory_format=torch.channels_last)
        w = torch.full((16, 64, 3, 3), 127, dtype=torch.int8)
        inner = _convolution(x, 0, w, None, 1, 0).unique().tolist()
        lowest = torch.full((64, 64), -128, dtype=torch.int8)
        return inner == [255 * 127 * 576] and torch._int_mm(lowest, lowest).unique().tolist() == [128 * 128 * 64]
    except (RuntimeError, AttributeError, NotImplementedError):
        return False


@dataclass(frozen=True, slots=True)
class Bytes:
    """A gradient in bytes.

    Attributes:
        values: The gradient.
        low:    Its lower bytes, lowest first, unsigned.
        high:   Its highest byte, signed, seen as unsigned.
    """

    values: torch.Tensor
    low: list[torch.Tensor]
    high: torch.Tensor


class Integer8(Floating):
    """8-bit kernels where they are exact; what does not fit them goes the way of `Floating`."""

    def prepare(self, g, top):
        count = max(2, next(n for n in range(1, 6) if top + 1 <= 1 << 8 * n - 1))
        whole = g.to(torch.int16 if count == 2 else torch.int64)
        if g.ndim == 4:
            whole = whole.contiguous(memory_format=torch.channels_last)
        parts = [(whole >> 8 * place if place else whole).to(torch.uint8) for place in range(count)]
        return Bytes(whole, parts[:-1], parts[-1])

    def convolve(self, x, w, bias, stride, padding):
        x = x.contiguous(memory_format=torch.channels_last)
        if float(w.abs().sum((1, 2, 3)).max()) * ZERO + float(bias.abs().max()) >= FLOAT32_EXACT:
            return super().convolve(x, w, bias, stride, padding)
        signed = bool(x.amin() < 0)
        unsigned = x.view(torch.uint8) ^ ZERO if signed else x.view(torch.uint8)
        return _convolution(unsigned, ZERO * signed, w.to(torch.int8), bias.float(), stride, padding), x

    def convolve_input(self, g, w, shape, stride, padding):
        size = w.shape[2]
        if float(w.abs().sum((0, 2, 3)).max()) >= LARGEST_ROW or padding >= size or len(g.low) > 1:
            return super().convolve_input(g.values, w, shape, stride, padding)
        turned = w.to(torch.int8).flip(2, 3).transpose(0, 1).contiguous()
        inner = [n + 2 * padding - size + 1 for n in shape[2:]]
        low, high = (
            _convolution(_dilated(part, zero, stride, inner), zero, turned, None, 1, size - 1 - padding)
            for part, zero in ((g.low[0], 0), (g.high ^ ZERO, ZERO)))
        return high.int().mul_(256).add_(low.int())

    def convolve_weight(self, g, x, size, stride, padding):
        values, total = g.values, 0
        samples = max(1, PIXELS // values[0, 0].numel())
        parts = [part.permute(0, 2, 3, 1) for part in (*g.low, g.high)]
        for first in range(0, len(values), samples):
            some = slice(first, first + samples)
            columns = _columns(x[some], size, stride, padding, values.shape[2:])
            total = total + _products([part[some].reshape(-1, values.shape[1]) for part in parts], columns)
        made = total.reshape(values.shape[1], size, size, x.shape[1]).permute(0, 3, 1, 2).contiguous()
        return made, values.sum((0, 2, 3), dtype=torch.int64)

    def dense(self, x, w, bias):
        return torch._int_mm(x, w.to(torch.int8).T).double().add_(bias), x

    def dense_input(self, g, w):
        if float(w.abs().sum(0).max()) >= LARGEST_ROW or len(g.low) > 1:
            return super().dense_input(g.values, w)
        w8 = w.to(torch.int8)
        return torch._int_mm(g.high.view(torch.int8), w8).mul_(256).add_(torch._int_mm(g.low[0], w8))

    def dense_weight(self, g, x):
        return _products([*g.low, g.high], [x]), g.values.sum(0, dtype=torch.int64)


def _dilated(part: torch.Tensor, zero: int, stride: int, size: list[int]) -> torch.Tensor:
    """Bytes with stride - 1 zeros between them, and behind them up to `size`, channels last."""
    if stride == 1:
        return part
    samples, channels = part.shape[:2]
    spread = torch.full((samples, *size, channels), zero, dtype=torch.uint8).permute(0, 3, 1, 2)
    spread[:, :, ::stride, ::stride] = part
    return spread


def _columns(x: torch.Tensor, size: int, stride: int, padding: int, shape) -> list[torch.Tensor]:
    """For each row of a kernel: bytes[pixels, size * channels] that the outputs see through it."""
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
    return [part.reshape(-1, size * channels) for part in seen]


def _products(parts: list[torch.Tensor], columns: list[torch.Tensor]) -> torch.Tensor:
    """int64: g[pixels, outputs].T @ [columns side by side], of the bytes of g.

    Lower bytes lie 128 too low to be signed; a column of ones gives what that takes from the sums.
    """
    (pixels, outputs), count = parts[0].shape, len(parts)
    rows = torch.empty(pixels, count * outputs + 1, dtype=torch.uint8)
    for place, part in enumerate(parts):
        into = rows[:, place * outputs : (place + 1) * outputs]
        torch.bitwise_xor(part, ZERO, out=into) if place < count - 1 else into.copy_(part)
    rows[:, -1] = 1
    rows = rows.view(torch.int8).T
    sums = torch.cat([torch._int_mm(rows, column) for column in columns], 1).long()
    missing, total = ZERO * sums[-1], 0
    for place in range(count):
        total = total + (sums[place * outputs : (place + 1) * outputs] + missing * (place < count - 1) << 8 * place)
    return total
