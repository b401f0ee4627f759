"""`product`: blocks of 16 x 16 numbers are multiplied by vectors; sums go to accumulators and then to mantissas."""

from dataclasses import replace

import numpy as np
from concord.golden.lazy.tensor_layers import whole, with_bias
from concord.golden.trainer.core import TrainerCore, check_apart, masked, refuse, wrapped
from concord.golden.trainer.memory import Seen, joined, planes_of, read_parts, write_parts
from concord.spec.numbers.lazy import Width
from concord.spec.trainer.config import LANES, PLAIN_LANE
from concord.spec.trainer.instructions import TrainerError, TrainerInstruction
from concord.spec.trainer.views import TrainerView


def product(core: TrainerCore, i: TrainerInstruction):
    """Execute a `product`, in one of its two modes."""
    a, b = core.seen(i["a"], (1, 2), "a"), core.seen(i["b"], (1,), "b")
    refuse(not i["n0"] * i["n1"] * i["n2"], TrainerError.SIZE, "n0, n1 or n2 is 0")
    (_columns if i["mode"] else _rows)(core, i, a, b)


def _rows(core: TrainerCore, i: TrainerInstruction, a: Seen, b: Seen):
    y = core.optional(i["y"], (1, 2, 4), "y")
    mask, bias = core.optional(i["mask"], (1,), "mask"), core.optional(i["bias"], (1,), "bias")
    for name, seen in ("y", y), ("mask", mask):
        refuse(seen and seen.view.rows != a.view.rows, TrainerError.SIZE, f"{name} has other rows than a")
    reads = _check_rows(core, i, a, b)
    if y:
        written = core.check(y, "y", _one_block(y), written=True)
        reads += [core.check(mask, "mask", _one_block(mask))] if mask else []
        if bias:
            refuse(bias.view.limited, TrainerError.RANGE, "bias has limits")
            reads.append(core.check(bias, "bias", range(bias.first, bias.first + 1)))
        for read in reads:
            check_apart(written, read, "an operand")
    lsb = core.exponents[i["ea"]].unit(a.view.planes) + core.exponents[i["eb"]].unit(1)
    tensor = None
    if bias:
        exponent = core.exponents[i["ebias"]].now
        tensor = whole(joined(core.chip[bias.first][None]), exponent, Width.PARAMETER)
    unit = with_bias(np.zeros(1, np.int64), lsb, tensor)[1] if tensor else lsb
    if y:
        core.check_unit(i["ey"], unit)
    rows = slice(i["acc"], i["acc"] + a.view.rows)
    old = core.accumulators[rows, :LANES] if i["keep"] else 0
    sums = core.accumulators[rows, :LANES] = wrapped(old + _row_sums(core, i, a, b))
    if y:
        # What is measured are the sums before relu and mask, as golden measures a tensor before both.
        total = wrapped(with_bias(sums, lsb, tensor)[0]) if tensor else sums
        found = core.exponents[i["ey"]].convert(total, unit, y.view.planes)
        live = joined(read_parts(core.chip, _first_block(mask)))[0] if mask else None
        write_parts(core.chip, _first_block(y), planes_of(masked(found, live, i["relu"])[None], y.view.planes))


def _check_rows(core: TrainerCore, i: TrainerInstruction, a: Seen, b: Seen) -> list[range]:
    """Ranges that are read in mode rows; refuses others."""
    core.check_rows(i["acc"], a.view.rows)
    taps = i["n1"], i["n2"]
    read = core.check(
        a, "a", a.view.extent(a.base, taps=taps, steps=((a.view.planes, a.view.plane), (i["n0"], i["a_s0"])))
    )
    refuse(b.view.limited, TrainerError.RANGE, "b has limits, which blocks have only in mode columns")
    blocks = _blocks(i, b.view).whole(b.base)
    words, _ = Seen(_blocks(i, b.view), b.base).rows()
    refuse((words % LANES).any(), TrainerError.RANGE, f"a block of b does not begin at a multiple of {LANES} words")
    return [read, core.check(b, "b", range(blocks.start, blocks.stop + LANES - 1))]


def _blocks(i: TrainerInstruction, view: TrainerView) -> TrainerView:
    """The view of the first words of blocks: one for each c0, c1, c2, where b's own counts do not count."""
    return replace(view, n0=i["n0"], n1=i["n1"], n2=i["n2"], blocks=1, planes=1)


def _row_sums(core: TrainerCore, i: TrainerInstruction, a: Seen, b: Seen) -> np.ndarray:
    """int64[rows, 16]: sums over c0, c1, c2 and the 16 numbers of a word."""
    first = Seen(_blocks(i, b.view), b.base).rows()[0].reshape(i["n0"], i["n1"], i["n2"])
    total = np.zeros((a.view.rows, LANES))
    vectors = Seen(replace(a.view, blocks=i["n0"], block=i["a_s0"]), a.base)
    for c1 in range(i["n1"]):
        for c2 in range(i["n2"]):
            words = first[:, c1, c2, None] + np.arange(LANES)
            block = core.chip[words].view(np.int8).astype(np.float64)  # [n0, word, byte]
            block = block.swapaxes(1, 2) if i["turned"] else block
            vector = core.values(vectors, (c1, c2)).swapaxes(0, 1).reshape(a.view.rows, -1)
            total += vector.astype(np.float64) @ block.reshape(-1, LANES)  # exact: sums are below 2^53
    return total.astype(np.int64)


def _columns(core: TrainerCore, i: TrainerInstruction, a: Seen, b: Seen):
    refuse(not i["outputs"], TrainerError.SIZE, "outputs is 0")
    n0, n1, n2, outputs = (i[name] for name in ("n0", "n1", "n2", "outputs"))
    positions, rows, blocks = n0 * n1 * n2, b.view.rows, -(-outputs // LANES)
    refuse(a.view.limited, TrainerError.RANGE, "a has limits")
    core.check_rows(i["acc"], positions * outputs)
    column = Seen(
        replace(
            a.view,
            n0=1,
            n1=1,
            n2=rows,
            s0=0,
            pitch1=0,
            pitch2=1,
            origin1=0,
            origin2=0,
            step2=1,
            offset=a.first - a.base,
            blocks=blocks,
        ),
        a.base,
    )
    refuse(
        ((column.offsets + column.first) % LANES).any(),
        TrainerError.RANGE,
        f"a plane or block of a does not begin at a multiple of {LANES} words",
    )
    core.check(column, "a")
    core.check(b, "b", b.view.extent(b.base, taps=(n1, n2), steps=((n0, i["a_s0"]),)))
    unit = core.exponents[i["ea"]].unit(a.view.planes)
    lsb = unit + core.exponents[i["eb"]].unit(1)
    core.check_unit(i["ey"], lsb)
    if i["sum"]:
        core.check_unit(i["ebias"], unit)
    vectors = core.values(column).swapaxes(0, 1).reshape(rows, -1)[:, :outputs].astype(np.float64)
    shifted = Seen(replace(b.view, blocks=n0, block=i["a_s0"]), b.base)
    sums = np.zeros((n0, n1, n2, outputs, LANES))
    for c1 in range(n1):
        for c2 in range(n2):
            sums[:, c1, c2] = vectors.T @ core.values(shifted, (c1, c2)).astype(np.float64)
    _keep(core.accumulators[i["acc"] : i["acc"] + positions * outputs, :LANES], sums.reshape(-1, LANES), i["keep"])
    _unit_of(core, i["ey"], lsb)
    if i["sum"]:
        _keep(core.accumulators[i["acc"] : i["acc"] + outputs, PLAIN_LANE], vectors.sum(0), i["keep"])
        _unit_of(core, i["ebias"], unit)


def _keep(accumulators: np.ndarray, sums: np.ndarray, keep: int):
    accumulators[:] = wrapped((accumulators if keep else 0) + sums.astype(np.int64))


def _unit_of(core: TrainerCore, number: int, lsb: int):
    """Tell an exponent the unit of sums that stay in the accumulators."""
    core.exponents[number].lsb, core.exponents[number].written = lsb, True


def _one_block(seen: Seen) -> range:
    return seen.view.extent(seen.base, steps=((seen.view.planes, seen.view.plane),))


def _first_block(seen: Seen) -> Seen:
    return Seen(replace(seen.view, blocks=1), seen.base)
