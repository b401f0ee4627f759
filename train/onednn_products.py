"""Exact sums over products by the CPU's 8-bit integer kernels, some times faster than float32 ones.

A kernel multiplies unsigned bytes by signed ones into 32 bits; a gradient of more than 8 bits goes byte by byte. These
are oneDNN's, as torch's quantisation uses them; `available` says whether they are exact on this machine, since those of
old CPUs saturate in 16 bits.
"""

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


def _bytes(values: torch.Tensor, count: int) -> list[torch.Tensor]:
    """The bytes of integers, low ones first: unsigned ones, and the highest signed, both as they are stored."""
    whole = values.to(torch.int16 if count <= 2 else torch.int32)
    return [(whole >> 8 * place if place else whole).to(torch.uint8) for place in range(count)]


class Integer8(Floating):
    """8-bit kernels where they are exact; what does not fit them goes the way of `Floating`."""

    def convolve(self, x, w, bias, stride, padding):
        bound = float(w.abs().sum((1, 2, 3)).max()) * ZERO + float(bias.abs().max())
        x8 = x.to(torch.int8).contiguous(memory_format=torch.channels_last)
        if bound >= FLOAT32_EXACT:
            return super().convolve(x, w, bias, stride, padding)[0], x8
        signed = bool(x.amin() < 0)
        unsigned = x8.view(torch.uint8) ^ ZERO if signed else x8.view(torch.uint8)
        return _convolution(unsigned, ZERO * signed, w.to(torch.int8), bias.float(), stride, padding), x8

    def convolve_input(self, g, w, shape, stride, padding):
        size = w.shape[2]
        if float(w.abs().sum((0, 2, 3)).max()) >= LARGEST_ROW or padding >= size or _top16(g):
            return super().convolve_input(g, w, shape, stride, padding)
        low, high = _bytes(g, 2)
        turned = w.to(torch.int8).flip(2, 3).transpose(0, 1).contiguous()
        sums = []
        for part, zero in ((low, 0), (high ^ ZERO, ZERO)):
            spread = _dilated(part, zero, stride, [n + 2 * padding - size + 1 for n in shape[2:]])
            sums.append(_convolution(spread, zero, turned, None, 1, size - 1 - padding).int())
        return sums[1].mul_(256).add_(sums[0])

    def convolve_weight(self, g, x, size, stride, padding):
        samples = max(1, PIXELS // g[0, 0].numel())
        totals = 0, 0
        for part, seen in zip(g.split(samples), x.split(samples), strict=True):
            columns = _columns(seen, size, stride, padding, part.shape[2:])
            rows = part.permute(0, 2, 3, 1).reshape(-1, part.shape[1])
            weight, bias = _products(rows, columns)
            totals = totals[0] + weight, totals[1] + bias
        outputs, channels = g.shape[1], x.shape[1]
        return totals[0].reshape(outputs, size, size, channels).permute(0, 3, 1, 2).contiguous(), totals[1]

    def dense(self, x, w, bias):
        x8 = x.to(torch.int8)
        return torch._int_mm(x8, w.to(torch.int8).T).double().add_(bias), x8

    def dense_input(self, g, w):
        if float(w.abs().sum(0).max()) >= LARGEST_ROW or _top16(g):
            return super().dense_input(g, w)
        low, high = _bytes(g, 2)
        w8 = w.to(torch.int8)
        return torch._int_mm(high.view(torch.int8), w8).mul_(256).add_(torch._int_mm(low, w8))

    def dense_weight(self, g, x):
        return _products(g, [x])


def _top16(g) -> bool:
    """Whether integers leave 16 bits."""
    return bool(g.amax() >= 1 << 15 or g.amin() < -(1 << 15))


def _dilated(part: torch.Tensor, zero: int, stride: int, size: list[int]) -> torch.Tensor:
    """Bytes with stride - 1 zeros between them, and behind them up to `size`, channels last."""
    if stride == 1:
        return part.contiguous(memory_format=torch.channels_last)
    samples, channels = part.shape[:2]
    spread = torch.full((samples, channels, *size), zero, dtype=torch.uint8).contiguous(
        memory_format=torch.channels_last)
    spread[:, :, ::stride, ::stride] = part
    return spread


def _columns(x: torch.Tensor, size: int, stride: int, padding: int, shape) -> list[torch.Tensor]:
    """For each row of a kernel: bytes[pixels, size * channels] that the outputs see through it."""
    samples, channels = x.shape[:2]
    padded = pad(x.permute(0, 2, 3, 1), (0, 0, padding, padding, padding, padding)).contiguous()
    rows, columns = padded.shape[1:3]
    across = samples * rows * columns - size + 1
    if stride == 1:  # neighbours once, then whole rows
        wide = padded.as_strided((across, size * channels), (channels, 1)).contiguous()
        run = shape[1] * size * channels
        step = columns * size * channels
        seen = [wide.as_strided((samples, shape[0], run), (rows * step, step, 1), row * step) for row in range(size)]
    else:
        steps = rows * columns * channels, stride * columns * channels, stride * channels, 1
        seen = [padded.as_strided((samples, *shape, size * channels), steps, row * columns * channels)
                for row in range(size)]
    return [part.reshape(-1, size * channels) for part in seen]


def _products(g: torch.Tensor, columns: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """int64: g[pixels, outputs].T @ [columns side by side], and the sum of g over pixels.

    Lower bytes lie 128 too low to be signed; a column of ones gives what that takes from the sums.
    """
    pixels, outputs = g.shape
    top = max(-float(g.amin()), float(g.amax()) + 1)
    count = next(n for n in range(1, 5) if top <= 1 << 8 * n - 1)
    *low, high = _bytes(g, count)
    ones = torch.ones(pixels, 1, dtype=torch.int8)
    parts = torch.cat([*((part ^ ZERO).view(torch.int8) for part in low), high.view(torch.int8), ones], 1)
    sums = torch.cat([torch._int_mm(parts.T, column) for column in columns], 1).long()
    missing, total = ZERO * sums[-1], 0
    for place in range(count):
        total = total + (sums[place * outputs : (place + 1) * outputs] + missing * (place < count - 1) << 8 * place)
    return total, _sum(g)


def _sum(g: torch.Tensor) -> torch.Tensor:
    """int64: sums of columns."""
    return g.double().sum(0).long()
