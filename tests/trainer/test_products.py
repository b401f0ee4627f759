"""`product` in both of its modes, with random guesses of exponents, beside the layers of golden.lazy."""

from dataclasses import replace

import numpy as np
import pytest
from concord.golden.lazy import tensor_layers
from concord.golden.lazy.tensor import TrainingTensor
from concord.golden.trainer.memory import joined
from concord.spec.trainer.instructions import TrainerError, TrainerOp
from concord.spec.trainer.views import TrainerView
from concord.tests.trainer.bench import Bench, image, tapped, to_images, to_rows


def exponent_of(tensor: TrainingTensor) -> int:
    return int(tensor.exponent.item())


class Convolution:
    """A random convolution in the memory of a bench."""

    def __init__(self, bench: Bench):
        rng = self.rng = bench.rng
        while True:
            self.size, self.stride, self.padding = (int(rng.integers(low, 4)) for low in (1, 1, 0))
            self.samples, self.inputs, self.outputs = (int(rng.integers(1, top)) for top in (4, 40, 40))
            self.rows, self.columns = (int(rng.integers(1, 20)) for _ in range(2))
            self.positions = [(n + 2 * self.padding - self.size) // self.stride + 1 for n in (self.rows, self.columns)]
            pixels = self.samples * self.rows * self.columns
            self.output_blocks, self.input_blocks = -(-self.outputs // 16), -(-self.inputs // 16)
            if min(self.positions) >= 1 and pixels <= 256 and self.samples * np.prod(self.positions) <= 256:
                break
        self.x = TrainingTensor(
            rng.integers(-128, 128, (self.samples, self.inputs, self.rows, self.columns)),
            np.full((1,) * 4, rng.integers(-9, 9)),
            8,
        )
        self.weight = TrainingTensor(
            rng.integers(-128, 128, (self.outputs, self.inputs, self.size, self.size)),
            np.full((1,) * 4, rng.integers(-9, 9)),
            8,
        )
        self.bias = TrainingTensor(rng.integers(-128, 128, self.outputs), np.full(1, rng.integers(-60, 60)), 8)
        shape = self.samples, self.outputs, *self.positions
        self.gradient = TrainingTensor(
            rng.integers(-1 << 15, 1 << 15, shape), np.full((1,) * 4, rng.integers(-9, 9)), 16
        )
        self.x_view, self.g_view = (
            bench.put(to_rows(self.x.mantissas), 1),
            bench.put(to_rows(self.gradient.mantissas), 2),
        )
        self.w_view = bench.put(tapped(self.weight.mantissas), 1)
        self.b_view = bench.put(self.bias.mantissas[None], 1)
        tensors = self.x, self.weight, self.bias, self.gradient
        self.ex, self.ew, self.eb, self.eg = (bench.exponent(exponent_of(tensor)) for tensor in tensors)

    @property
    def seen(self) -> TrainerView:
        """The input as the positions of the kernel see it."""
        view = image(self.x_view, (self.samples, self.rows, self.columns))
        pads = {"origin1": -self.padding, "origin2": -self.padding, "limit1": self.rows, "limit2": self.columns}
        return replace(
            view, n1=self.positions[0], n2=self.positions[1], step1=self.stride, step2=self.stride, block=0, **pads
        )

    def taps(self, offset: int, block: int, first=(0, 0), step: int = 1) -> TrainerView:
        """Blocks of the weights: `block` words from c0 to c0 + 1, taps from `first` on."""
        pitch = self.input_blocks * self.output_blocks * 16
        offset += self.w_view.offset + pitch * (self.size * first[0] + first[1])
        return TrainerView(offset=offset, s0=block, pitch1=step * self.size * pitch, pitch2=step * pitch)


@pytest.mark.parametrize("seed", range(8))
def test_forward(seed):
    bench = Bench(seed=seed)
    one = Convolution(bench)
    relu, planes = seed % 2, 4 if seed % 3 == 0 else 1
    y = bench.room(one.samples * int(np.prod(one.positions)), one.outputs, planes)
    a, ey, begin = bench.view(one.seen), bench.exponent(), len(bench.program)
    for block in range(one.output_blocks):
        b = bench.view(one.taps(16 * block, 16 * one.output_blocks))
        out = bench.view(replace(y, offset=y.offset + block * y.block))
        bias = bench.view(replace(one.b_view, offset=one.b_view.offset + block * one.b_view.block))
        shared = {"turned": 1, "ea": one.ex, "eb": one.ew, "n1": one.size, "n2": one.size, "acc": 7}
        drain = {"y": out, "bias": bias, "relu": relu, "ey": ey, "ebias": one.eb}
        if one.input_blocks > 1:  # the blocks but the last one, and then the last one on top of them
            last = bench.view(one.taps(16 * block + 16 * one.output_blocks * (one.input_blocks - 1), 0))
            end = bench.view(replace(one.seen, offset=one.seen.offset + (one.input_blocks - 1) * one.x_view.block))
            bench.do(TrainerOp.PRODUCT, a=a, b=b, n0=one.input_blocks - 1, a_s0=one.x_view.block, **shared)
            bench.do(TrainerOp.PRODUCT, a=end, b=last, n0=1, keep=1, **shared, **drain)
        else:
            bench.do(TrainerOp.PRODUCT, a=a, b=b, n0=1, **shared, **drain)
    bench.repeated(begin, e=ey)
    assert bench.run() == TrainerError.NONE
    wanted = tensor_layers.convolve(one.x, one.weight, one.bias, one.stride, one.padding, 8 * planes)
    wanted = tensor_layers.relu(wanted) if relu else wanted
    found = to_images(bench.get(y, one.outputs), wanted.mantissas.shape)
    assert (found == wanted.mantissas).all()
    assert bench.core.exponents[ey].now == exponent_of(wanted)
    assert bench.trainer.repeats <= 1


@pytest.mark.parametrize("seed", range(8))
def test_gradients_of_inputs(seed):
    bench = Bench(seed=seed)
    one = Convolution(bench)
    y = bench.room(one.samples * one.rows * one.columns, one.inputs, 2)
    mask = bench.put(to_rows(bench.rng.integers(-2, 3, one.x.mantissas.shape)), 1)
    ey, begin = bench.exponent(), len(bench.program)
    for block in range(one.input_blocks):
        for row in range(min(one.stride, one.rows)):
            for column in range(min(one.stride, one.columns)):
                residue(bench, one, y, mask, ey, block, (row, column))
    bench.repeated(begin, e=ey)
    assert bench.run() == TrainerError.NONE
    wanted = tensor_layers.convolve_back(one.x, one.weight, one.gradient, one.stride, one.padding).inputs
    kept = to_images(bench.get(mask, one.inputs), one.x.mantissas.shape)
    masked = tensor_layers.relu_back(wanted, TrainingTensor(kept, wanted.exponent, 8))
    assert (to_images(bench.get(y, one.inputs), one.x.mantissas.shape) == masked.mantissas).all()
    assert bench.core.exponents[ey].now == exponent_of(wanted)


def residue(bench: Bench, one: Convolution, y, mask, ey: int, block: int, begin: tuple[int, int]):
    """The pixels (r, c) whose remainders by the stride are `begin`: all of their taps have one remainder, too."""
    stride, counts, origins, lasts = one.stride, [], [], []
    for first, pixels in zip(begin, (one.rows, one.columns), strict=True):
        rest, ahead = (first + one.padding) % stride, (first + one.padding) // stride
        taps = len(range(rest, one.size, stride))
        counts.append((len(range(first, pixels, stride)), taps))
        origins.append(ahead - (taps - 1))
        lasts.append(rest + stride * (taps - 1))
    (rows, n1), (columns, n2) = counts
    part = {
        "n0": one.samples,
        "s0": one.rows * one.columns,
        "n1": rows,
        "pitch1": stride * one.columns,
        "n2": columns,
        "pitch2": stride,
    }
    shift = begin[0] * one.columns + begin[1]
    out = bench.view(replace(y, offset=y.offset + block * y.block + shift, blocks=1, **part))
    if not n1 * n2:
        bench.do(TrainerOp.COPY, to=out, zeros=1)
        return
    live = bench.view(replace(mask, offset=mask.offset + block * mask.block + shift, **part))
    gradient = image(one.g_view, (one.samples, *one.positions), limit1=one.positions[0], limit2=one.positions[1])
    a = bench.view(replace(gradient, n1=rows, origin1=origins[0], n2=columns, origin2=origins[1]))
    b = bench.view(one.taps(16 * one.output_blocks * block, 16, tuple(lasts), -stride))
    bench.do(
        TrainerOp.PRODUCT,
        a=a,
        b=b,
        y=out,
        mask=live,
        ea=one.eg,
        eb=one.ew,
        ey=ey,
        n0=one.output_blocks,
        n1=n1,
        n2=n2,
        a_s0=one.g_view.block,
    )


@pytest.mark.parametrize("seed", range(6))
def test_gradients_of_weights(seed):
    bench = Bench(seed=seed)
    one = Convolution(bench)
    g = bench.view(one.g_view)
    ew, eb = bench.exponent(), bench.exponent()
    held = one.size**2 * one.outputs  # a block of channels at a time: not more than 512 rows
    for block in range(one.input_blocks):
        x = bench.view(replace(one.seen, offset=one.x_view.offset + block * one.x_view.block))
        for keep in range(2):  # twice the same: sums that go on
            bench.do(
                TrainerOp.PRODUCT,
                a=g,
                b=x,
                mode=1,
                keep=keep,
                sum=int(not block),
                ea=one.eg,
                eb=one.ex,
                ey=ew,
                ebias=eb,
                outputs=one.outputs,
                n0=1,
                n1=one.size,
                n2=one.size,
            )
        to = TrainerView(space=3, planes=6, n0=held, s0=1, blocks=2)
        kept = bench.view(replace(to, space=1, offset=block * 2048, plane=2 * held, block=held))
        if 12 * held <= 2048:
            bench.do(TrainerOp.COPY, to=kept, source=bench.view(to))
    assert bench.run() == TrainerError.NONE
    sent = tensor_layers.convolve_back(one.x, one.weight, one.gradient, one.stride, one.padding, False)
    lsb = exponent_of(sent.weight) - 31
    assert bench.core.exponents[ew].lsb == tensor_layers.unit(one.gradient) + tensor_layers.unit(one.x)
    seen = tensor_layers.windows(one.x.mantissas, (one.size, one.size), one.stride, one.padding)
    exact = np.einsum("nohw,nchwij->cijo", one.gradient.mantissas, seen[:, :, : one.positions[0], : one.positions[1]])
    last = exact[16 * (one.input_blocks - 1) :].reshape(-1, held)
    assert (bench.core.accumulators[:held, : len(last)] == 2 * last.T).all()
    assert not bench.core.accumulators[:held, len(last) : 16].any()
    plain = one.gradient.mantissas.sum((0, 2, 3))
    assert (bench.core.accumulators[: one.outputs, 16] == 2 * plain).all()
    assert exponent_of(sent.bias) >= bench.core.exponents[eb].lsb + 31
    assert lsb >= bench.core.exponents[ew].lsb
    if 12 * held <= 2048:
        stored = joined(bench.trainer.core.server[: 12 * held].reshape(6, 2, held, 16))
        first = exact[:16].reshape(-1, held)
        assert (stored[0, :, : len(first)] == 2 * first.T).all()
        assert (stored[1, : one.outputs, 0] == (2 * plain)).all()
        assert not stored[1, :, 1:].any()
