"""`pool`, `pool_back` and `add`: windows of images and sums of two tensors."""

import numpy as np
from concord.golden.lazy.tensor import TrainingTensor
from concord.golden.lazy.tensor_layers import add_exact, max_pool, spread, whole
from concord.golden.trainer.core import TrainerCore, check_apart, check_equal, masked, refuse
from concord.golden.trainer.memory import Seen, planes_of, write_parts
from concord.spec.trainer.instructions import TrainerError, TrainerInstruction


def pool(core: TrainerCore, i: TrainerInstruction):
    """Execute a `pool`: the rows of y are positions of windows, whose upper left corners are rows of x."""
    y, x, chosen = (
        core.seen(i["y"], (1,), "y"),
        core.seen(i["x"], (1,), "x"),
        core.optional(i["chosen"], (1,), "chosen"),
    )
    size, lsb = i["size"], core.exponents[i["ex"]].unit(1) - i["shift"]
    refuse(not size, TrainerError.SIZE, "size is 0")
    check_equal(y, x, "x")
    check_equal(y, chosen, "chosen")
    view = x.view
    read = core.check(x, "x", view.extent(x.base, taps=(size, size), steps=((view.blocks, view.block),)))
    _check_written(core, y, chosen, [read])
    if i["mean"]:
        core.check_unit(i["ey"], lsb)
    seen = np.stack([core.values(x, (c1, c2)) for c1 in range(size) for c2 in range(size)], -1)
    if i["mean"]:
        found = core.exponents[i["ey"]].convert(seen.sum(-1) * i["reciprocal"], lsb, 1)
    else:
        # Each window is an image of its own, so that the first of several equal ones is golden's.
        largest, which = max_pool(TrainingTensor(seen.reshape(-1, 1, size, size), np.zeros(1, np.int64), 8), size, size)
        found = largest.mantissas.reshape(seen.shape[:-1])
        if chosen:
            write_parts(core.chip, chosen, planes_of(which.reshape(seen.shape[:-1]), 1))
    write_parts(core.chip, y, planes_of(masked(found, None, i["relu"]), 1))


def pool_back(core: TrainerCore, i: TrainerInstruction):
    """Execute a `pool_back`: every pixel of y gets what the windows that hold it send, and 0 where none does."""
    y, x = core.seen(i["y"], (2,), "y"), core.seen(i["x"], (2,), "x")
    chosen, mask = core.optional(i["chosen"], (1,), "chosen"), core.optional(i["mask"], (1,), "mask")
    size, stride = i["size"], i["stride"]
    refuse(not size * stride, TrainerError.SIZE, "size or stride is 0")
    refuse((y.view.n0, y.view.blocks) != (x.view.n0, x.view.blocks), TrainerError.SIZE, "x has other counts than y")
    check_equal(x, chosen, "chosen")
    check_equal(y, mask, "mask")
    # Windows are found by (p, q), not in the order of rows: x and `chosen` count alike, and have no padding.
    refuse(chosen and _counts(chosen) != _counts(x), TrainerError.SIZE, "chosen has other counts than x")
    refuse(x.view.limited or (chosen and chosen.view.limited), TrainerError.RANGE, "x or chosen has limits")
    reads = [core.check(seen, name) for name, seen in (("x", x), ("chosen", chosen), ("mask", mask)) if seen]
    _check_written(core, y, None, reads)
    lsb, exact = core.exponents[i["ex"]].unit(2) - i["shift"], not i["mean"] and stride >= size
    if not exact:
        core.check_unit(i["ey"], lsb)
    parts = core.values(x)[..., None]
    if chosen:
        which = core.values(chosen) & 0xFF
        parts = np.where(np.arange(size * size) == which[..., None], parts, 0)
    total = _spread(np.broadcast_to(parts, (*parts.shape[:-1], size * size)), x, y, size, stride)
    if not exact:
        scaled = total * i["reciprocal"] if i["mean"] else total
        total = core.exponents[i["ey"]].convert(scaled, lsb, 2)
    write_parts(core.chip, y, planes_of(masked(total, core.values(mask) if mask else None, 0), 2))


def _counts(seen: Seen) -> tuple[int, int, int]:
    return seen.view.n0, seen.view.n1, seen.view.n2


def _spread(parts: np.ndarray, x: Seen, y: Seen, size: int, stride: int) -> np.ndarray:
    """int64[blocks, rows of y, 16] from what each window of x sends to its pixels, [blocks, rows of x, 16, pixels]."""
    blocks, lanes = parts.shape[0], parts.shape[2]
    n0, rows, columns = x.view.n0, x.view.n1, x.view.n2
    images = parts.reshape(blocks, n0, rows, columns, lanes, size, size).transpose(0, 1, 4, 2, 3, 5, 6)
    images = images.reshape(blocks * n0, lanes, rows, columns, size, size)
    # Windows may end beyond the image: what they send there is lost.
    high, wide = max(y.view.n1, (rows - 1) * stride + size), max(y.view.n2, (columns - 1) * stride + size)
    total = spread(images, (blocks * n0, lanes, high, wide), stride)[:, :, : y.view.n1, : y.view.n2]
    return total.reshape(blocks, n0, lanes, -1).swapaxes(2, 3).reshape(blocks, y.view.rows, lanes)


def add(core: TrainerCore, i: TrainerInstruction):
    """Execute an `add`: the exact sum of two tensors, in the planes that both have."""
    y = core.seen(i["y"], (1, 2), "y")
    a, b = (core.seen(i[name], (y.view.planes,), name) for name in ("a", "b"))
    mask = core.optional(i["mask"], (1,), "mask")
    named = (("a", a), ("b", b), ("mask", mask))
    for name, seen in named:
        check_equal(y, seen, name)
    # An operand that is y itself is read ahead of the word that replaces it.
    reads = [core.check(seen, name) for name, seen in named if seen and (name == "mask" or i[name] != i["y"])]
    _check_written(core, y, None, reads)
    bits = 8 * y.view.planes
    first, second = (
        whole(core.values(seen), core.exponents[i[name]].now, bits) for seen, name in ((a, "ea"), (b, "eb")))
    total, lsb = add_exact(first, second)
    core.check_unit(i["ey"], lsb)
    found = core.exponents[i["ey"]].convert(total, lsb, y.view.planes)
    live = core.values(mask) if mask else None
    write_parts(core.chip, y, planes_of(masked(found, live, i["relu"]), y.view.planes))


def _check_written(core: TrainerCore, y: Seen, other: Seen | None, reads: list[range]):
    """Check the views that are written, which meet neither each other nor what is read."""
    written = core.check(y, "y", written=True)
    if other:
        second = core.check(other, "chosen", written=True)
        for each in (written, *reads):
            check_apart(second, each, "y or an operand")
    for each in reads:
        check_apart(written, each, "an operand")
