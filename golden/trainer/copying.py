"""`copy` and `sum`: words between memories, exponents and accumulators, and patches of images."""

from dataclasses import replace

import numpy as np
from concord.golden.trainer.core import TrainerCore, check_apart, check_equal, refuse, wrapped
from concord.golden.trainer.memory import Seen, joined, planes_of, read_parts, write_parts
from concord.spec.trainer.config import LANES, NONE, PARAMETER_PLANES, PATCH_ROW_BYTES, PLAIN_LANE, SUM_PLANES
from concord.spec.trainer.instructions import Space, TrainerError, TrainerInstruction

_SPACES = tuple(Space)
_ANY = (1, 2, 4, PARAMETER_PLANES, SUM_PLANES)
_PLANES = {
    Space.CHIP: _ANY,
    Space.SERVER: _ANY,
    Space.EXPONENTS: (1,),
    Space.ACCUMULATORS: (SUM_PLANES,),
}


def copy(core: TrainerCore, i: TrainerInstruction):
    """Execute a `copy`."""
    to, source = _seen(core, i["to"], "to"), None if i["zeros"] else _seen(core, i["source"], "source")
    if i["patches"]:
        _patches(core, i, to, source)
        return
    check_equal(to, source, "source")
    refuse(source and source.view.planes != to.view.planes, TrainerError.SIZE, "to and source have other planes")
    refuse(i["add"] and to.view.space != Space.ACCUMULATORS, TrainerError.RANGE, "only accumulators take add")
    written = core.check(to, "to", written=True, spaces=_SPACES)
    if source:
        outside = to.view.space == Space.SERVER
        read = core.check(source, "source", spaces=tuple(s for s in Space if not (outside and s == Space.SERVER)))
        if source.view.space == to.view.space:
            check_apart(written, read, "source")
        parts = _read(core, source)
    else:
        parts = np.zeros((to.view.planes, to.view.blocks, to.view.rows, LANES), np.uint8)
    _write(core, to, parts, i["add"])


def _seen(core: TrainerCore, number: int, name: str) -> Seen:
    seen = core.seen(number, _ANY, name)
    view = seen.view
    refuse(
        view.planes not in _PLANES[view.space],
        TrainerError.SIZE,
        f"{name} has {view.planes} planes, which {view.space.name} does not have",
    )
    refuse(view.space == Space.ACCUMULATORS and view.blocks > 2, TrainerError.SIZE, f"{name} has more than two blocks")
    return seen


def _read(core: TrainerCore, seen: Seen) -> np.ndarray:
    """The bytes of a view of any memory, uint8[planes, blocks, rows, 16]."""
    if seen.view.space != Space.ACCUMULATORS:
        return read_parts(core.words(seen.view.space), seen)
    rows, inside = seen.rows()
    found = np.zeros((2, len(rows), LANES), np.int64)
    found[0, inside] = core.accumulators[rows[inside], :LANES]
    found[1, inside, 0] = core.accumulators[rows[inside], PLAIN_LANE]
    return planes_of(found[: seen.view.blocks], SUM_PLANES)


def _write(core: TrainerCore, to: Seen, parts: np.ndarray, added: int):
    """Write the bytes of a view of any memory; with `added`, add them to accumulators."""
    if to.view.space != Space.ACCUMULATORS:
        write_parts(core.words(to.view.space), to, parts)
        return
    rows, values = to.rows()[0], joined(parts)
    for lanes, block in zip((slice(LANES), slice(PLAIN_LANE, PLAIN_LANE + 1)), values, strict=False):
        block = block[:, :1] if lanes.start else block
        core.accumulators[rows, lanes] = wrapped((core.accumulators[rows, lanes] if added else 0) + block)


def _patches(core: TrainerCore, i: TrainerInstruction, to: Seen, source: Seen | None):
    """What a convolution over few channels sees, as words: `golden.lazy.tensor_layers.windows`."""
    assert source is not None
    size, channels, view = i["size"], i["channels"], source.view
    refuse(
        not 0 < size * channels <= PATCH_ROW_BYTES or size * size * channels > LANES,
        TrainerError.SIZE,
        f"a patch of {size} x {size} pixels of {channels} channels does not fit a word",
    )
    refuse(
        (to.view.planes, to.view.blocks, view.planes, view.blocks) != (1, 1, 1, 1) or not view.limit2,
        TrainerError.SIZE,
        "patches are made of one plane and block to one, and limit2 is the width of the image",
    )
    check_equal(to, source, "source")
    # Axis 2 counts pixels of a raster row: its words are ceil(width * channels / 16), one behind the other.
    width = -(-view.limit2 * channels // LANES)
    raster = replace(view, n2=1, step2=1, origin2=0, pitch2=1, limit2=0)
    written = core.check(to, "to", written=True)
    read = core.check(source, "source", raster.extent(source.base, taps=(size, width)))
    check_apart(written, read, "source")
    columns = view.origin2 + view.step2 * np.arange(view.n2)
    found = np.zeros((to.view.rows, LANES), np.uint8)
    for row in range(size):
        lines = np.stack(
            [read_parts(core.chip, Seen(raster, source.base), (row, word))[0, 0] for word in range(width)], 1
        )
        lines = lines.reshape(len(lines), -1)[:, : view.limit2 * channels].reshape(len(lines), view.limit2, channels)
        for column in range(size):
            u2 = columns + column
            inside = (u2 >= 0) & (u2 < view.limit2)
            pixels = np.where(inside[:, None], lines[:, np.clip(u2, 0, view.limit2 - 1)], 0)
            lane = (row * size + column) * channels
            found[:, lane : lane + channels] = pixels.reshape(-1, channels)
    write_parts(core.chip, to, found[None, None])


def shares(core: TrainerCore, i: TrainerInstruction) -> list[Seen]:
    """The regions of all members of a `sum` in server memory, after its checks."""
    x, members = core.seen(i["x"], (SUM_PLANES,), "x"), i["cores"].bit_count()
    refuse(
        x.view.blocks != 2 or x.view.n0 != members,
        TrainerError.SIZE,
        f"x has two blocks, and axis 0 is {members} members",
    )
    core.check(x, "x", written=True, spaces=(Space.SERVER,))
    core.check_rows(i["acc"], x.view.n1 * x.view.n2)
    return [Seen(replace(x.view, n0=1, offset=x.view.offset + k * x.view.s0), x.base) for k in range(members)]


def exchanged(core: TrainerCore, i: TrainerInstruction, share: Seen, added: bool):
    """Store the rows of a `sum` to a region, or add those that lie there."""
    view = replace(
        share.view,
        space=Space.ACCUMULATORS,
        base=NONE,
        offset=i["acc"],
        plane=0,
        block=0,
        s0=0,
        origin1=0,
        pitch1=share.view.n2,
        step1=1,
        origin2=0,
        pitch2=1,
        step2=1,
    )
    rows = Seen(view, 0)
    source, to = (share, rows) if added else (rows, share)
    _write(core, to, _read(core, source), added)
