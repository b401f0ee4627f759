"""`pool`, `pool_back`, `add` and `copy`, with random guesses of exponents, beside golden.lazy."""

from dataclasses import replace

import numpy as np
import pytest
from concord.golden.lazy import tensor_layers
from concord.golden.lazy.tensor import TrainingTensor, requantize
from concord.golden.trainer.memory import Seen, write_parts
from concord.spec.trainer.config import NONE
from concord.spec.trainer.instructions import Space, TrainerError, TrainerOp
from concord.spec.trainer.views import TrainerView
from concord.tests.trainer.bench import Bench, image, to_images, to_rows


class Windows:
    """A random image with windows on it, in the memory of a bench."""

    def __init__(self, bench: Bench):
        rng = bench.rng
        self.size, self.stride = int(rng.integers(1, 5)), int(rng.integers(1, 5))
        samples, channels = int(rng.integers(1, 4)), int(rng.integers(1, 40))
        rows, columns = (self.size + int(rng.integers(0, 8)) for _ in range(2))
        self.positions = [(n - self.size) // self.stride + 1 for n in (rows, columns)]
        values = rng.integers(-4, 4, (samples, channels, rows, columns))  # few, so that many are equal
        self.x = TrainingTensor(values, np.full((1,) * 4, rng.integers(-9, 9)), 8)
        gradient = rng.integers(-1 << 15, 1 << 15, (samples, channels, *self.positions))
        self.gradient = TrainingTensor(gradient, np.full((1,) * 4, rng.integers(-9, 9)), 16)
        self.x_view, self.g_view = bench.put(to_rows(values), 1), bench.put(to_rows(gradient), 2)
        self.ex, self.eg = (bench.exponent(int(each.exponent.item())) for each in (self.x, self.gradient))
        self.pixels, self.outputs = (samples, rows, columns), (samples, *self.positions)

    @property
    def seen(self) -> TrainerView:
        """The upper left corners of the windows."""
        view = image(self.x_view, self.pixels)
        return replace(view, n1=self.positions[0], n2=self.positions[1], step1=self.stride, step2=self.stride)


@pytest.mark.parametrize("relu", [0, 1])
@pytest.mark.parametrize("seed", range(6))
def test_maxima(seed, relu):
    bench = Bench(seed=seed)
    one = Windows(bench)
    channels = one.x.mantissas.shape[1]
    y, chosen = (bench.room(int(np.prod(one.outputs)), channels, 1) for _ in range(2))
    back = bench.room(int(np.prod(one.pixels)), channels, 2)
    bench.do(
        TrainerOp.POOL, x=bench.view(one.seen), y=bench.view(y), chosen=bench.view(chosen), size=one.size, relu=relu
    )
    ey, begin = bench.exponent(), len(bench.program)
    bench.do(
        TrainerOp.POOL_BACK,
        x=bench.view(image(one.g_view, one.outputs)),
        y=bench.view(image(back, one.pixels)),
        chosen=bench.view(image(chosen, one.outputs)),
        mask=bench.view(one.x_view) if relu else NONE,
        size=one.size,
        stride=one.stride,
        ex=one.eg,
        ey=ey,
    )
    if one.stride < one.size:
        bench.repeated(begin, e=ey)
    assert bench.run() == TrainerError.NONE
    wanted, which = tensor_layers.max_pool(one.x, one.size, one.stride)
    found = np.maximum(wanted.mantissas, 0) if relu else wanted.mantissas
    assert (to_images(bench.get(y, channels), found.shape) == found).all()
    assert (to_images(bench.get(chosen, channels), which.shape) == which).all()
    sent = tensor_layers.max_pool_back(one.gradient, which, one.x.mantissas.shape, one.size, one.stride)
    sent = tensor_layers.relu_back(sent, one.x) if relu else sent
    assert (to_images(bench.get(back, channels), sent.mantissas.shape) == sent.mantissas).all()
    if one.stride < one.size:
        assert bench.core.exponents[ey].now == int(sent.exponent.item())


def test_large_windows_that_end_beyond_the_image():
    bench, size = Bench(seed=1), 12
    gradient = bench.rng.integers(-99, 100, (1, 3, 2, 2))
    chosen = bench.rng.integers(size * size - 24, size * size, (1, 3, 2, 2))
    views = {
        "x": image(bench.put(to_rows(gradient), 2), (1, 2, 2)),
        "chosen": image(bench.put(to_rows(chosen), 1), (1, 2, 2)),
    }
    y = image(bench.room(12 * 12, 3, 2), (1, 12, 12))
    views = {name: bench.view(view) for name, view in (views | {"y": y}).items()}
    bench.do(TrainerOp.POOL_BACK, **views, size=size, stride=12)
    bench.do(TrainerOp.POOL_BACK, **views, size=size, stride=1, ey=bench.exponent(-124))
    assert bench.run() == TrainerError.NONE
    parts = np.where(np.arange(size * size) == chosen[..., None], gradient[..., None], 0)
    total = tensor_layers.spread(parts.reshape(*chosen.shape, size, size), (1, 3, 13, 13), 1)[:, :, :12, :12]
    wanted = requantize(total, -126 - 15, 16, exponent=-124).mantissas
    assert wanted.any()
    assert (to_images(bench.get(y, 3), wanted.shape) == wanted).all()


@pytest.mark.parametrize("seed", range(6))
def test_means(seed):
    bench = Bench(seed=seed)
    one = Windows(bench)
    channels = one.x.mantissas.shape[1]
    reciprocal, lsb = tensor_layers.reciprocal(one.size**2)
    y, back = bench.room(int(np.prod(one.outputs)), channels, 1), bench.room(int(np.prod(one.pixels)), channels, 2)
    ey, eb, shared = (
        bench.exponent(),
        bench.exponent(),
        {"size": one.size, "mean": 1, "reciprocal": reciprocal, "shift": -lsb},
    )
    begin = len(bench.program)
    bench.do(TrainerOp.POOL, x=bench.view(one.seen), y=bench.view(y), ex=one.ex, ey=ey, **shared)
    bench.repeated(begin, e=ey)
    begin = len(bench.program)
    bench.do(
        TrainerOp.POOL_BACK,
        x=bench.view(image(one.g_view, one.outputs)),
        y=bench.view(image(back, one.pixels)),
        stride=one.stride,
        ex=one.eg,
        ey=eb,
        **shared,
    )
    bench.repeated(begin, e=eb)
    assert bench.run() == TrainerError.NONE
    wanted = tensor_layers.average_pool(one.x, one.size, one.stride)
    sent = tensor_layers.average_pool_back(one.gradient, one.x.mantissas.shape, one.size, one.stride)
    for view, number, tensor in ((y, ey, wanted), (back, eb, sent)):
        assert (to_images(bench.get(view, channels), tensor.mantissas.shape) == tensor.mantissas).all()
        assert bench.core.exponents[number].now == int(tensor.exponent.item())


@pytest.mark.parametrize("planes", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_sums(seed, planes):
    bench = Bench(seed=seed)
    rows, columns = int(bench.rng.integers(1, 40)), int(bench.rng.integers(1, 40))
    a, b = (bench.tensor(rows, columns, planes) for _ in range(2))
    live = bench.tensor(rows, columns, 1)
    numbers = {name: bench.exponent(int(each.exponent.item())) for name, each in (("ea", a), ("eb", b))}
    views = {"a": bench.view(bench.put(a.mantissas, planes)), "b": bench.view(bench.put(b.mantissas, planes))}
    views["mask"] = bench.view(bench.put(live.mantissas, 1)) if seed % 2 else NONE
    y, ey = bench.room(rows, columns, planes), bench.exponent()
    begin, views["y"] = len(bench.program) + 2, bench.view(y)
    bench.do(TrainerOp.ADD, ey=ey, relu=planes % 2, **numbers, **views)
    bench.repeated(begin, e=ey)
    assert bench.run() == TrainerError.NONE
    wanted = (tensor_layers.add if planes == 1 else tensor_layers.add_gradients)(a, b)
    masked = tensor_layers.relu(wanted) if planes == 1 else wanted
    masked = tensor_layers.relu_back(masked, live) if seed % 2 else masked
    assert (bench.get(y, columns) == masked.mantissas).all()
    assert bench.core.exponents[ey].now == int(wanted.exponent.item())
    spare = bench.get(replace(y, blocks=y.blocks), 16 * y.blocks)[:, columns:]
    assert not spare.any(), "lanes behind the last column are not zeros"


@pytest.mark.parametrize("seed", range(6))
def test_patches(seed):
    bench = Bench(seed=seed)
    rng = bench.rng
    size = int(rng.integers(1, 4))
    channels, stride, padding = int(rng.integers(1, 16 // size**2 + (size > 1))), int(rng.integers(1, 4)), size // 2
    samples, rows, columns = 3, int(rng.integers(size, 12)), int(rng.integers(size, 12))
    values = rng.integers(-128, 128, (samples, channels, rows, columns))
    raster = values.transpose(0, 2, 3, 1).reshape(samples * rows, -1)
    held = bench.put(
        np.pad(raster, ((0, 0), (0, -raster.shape[1] % 16))).reshape(samples * rows, -1, 16).reshape(-1, 16), 1
    )
    seen = tensor_layers.windows(values, (size, size), stride, padding)
    width, positions = -(-columns * channels // 16), seen.shape[2:4]
    pads = {
        "origin1": -padding,
        "origin2": -padding,
        "limit1": rows,
        "limit2": columns,
        "step1": stride,
        "step2": stride,
    }
    source = TrainerView(
        offset=held.offset, n0=samples, s0=rows * width, n1=positions[0], pitch1=width, n2=positions[1], **pads
    )
    to = bench.room(samples * positions[0] * positions[1], size * size * channels, 1)
    bench.do(TrainerOp.COPY, to=bench.view(to), source=bench.view(source), patches=1, size=size, channels=channels)
    assert bench.run() == TrainerError.NONE
    wanted = seen.transpose(0, 2, 3, 4, 5, 1).reshape(-1, size * size * channels)
    assert (bench.get(to, 16)[:, : wanted.shape[1]] == wanted).all()
    assert not bench.get(to, 16)[:, wanted.shape[1] :].any()


def test_copies_between_all_memories():
    bench = Bench(seed=3)
    matrix = bench.rng.integers(-1 << 47, 1 << 47, (20, 16))
    held = bench.put(matrix, 6)
    rows = TrainerView(space=Space.ACCUMULATORS, planes=6, offset=5, n0=20, s0=1)
    outside = replace(held, space=Space.SERVER, offset=100)
    limited = replace(held, n0=1, n1=24, pitch1=1, origin1=-2, limit1=20)
    to = replace(bench.room(24, 16, 6), n0=24)
    acc, chip, server = bench.view(rows), bench.view(held), bench.view(outside)
    for add in (0, 1, 1):
        bench.do(TrainerOp.COPY, to=acc, source=chip, add=add)
    bench.do(TrainerOp.COPY, to=server, source=acc)
    bench.do(TrainerOp.COPY, to=bench.view(to), source=bench.view(limited))
    bench.do(TrainerOp.COPY, to=bench.view(replace(held, planes=1)), zeros=1)
    words = TrainerView(space=Space.EXPONENTS, n0=2, s0=1, offset=1)
    stored = TrainerView(offset=8000, n0=2, s0=1)
    bench.do(TrainerOp.COPY, to=bench.view(words), source=bench.view(stored))
    bench.do(TrainerOp.COPY, to=bench.view(replace(stored, space=Space.SERVER, offset=0)), source=bench.view(words))
    exponents = bench.rng.integers(0, 255, (2, 16), dtype=np.uint8)
    write_parts(bench.core.chip, Seen(stored, 0), exponents[None, None])
    bench.core.exponents[20].change = 3
    assert bench.run() == TrainerError.NONE
    wanted = (3 * matrix + (1 << 47)) % (1 << 48) - (1 << 47)
    assert (bench.core.accumulators[5:25, :16] == wanted).all()
    assert (bench.get(to, 16) == np.pad(matrix, ((2, 2), (0, 0)))).all()
    assert (bench.get(held, 16) == matrix & ~0xFF).all()
    assert [each.now + 126 for each in bench.core.exponents[16:48]] == exponents.ravel().tolist()
    assert (bench.core.server[:2] == exponents).all()
    assert bench.core.exponents[20].change == 0
