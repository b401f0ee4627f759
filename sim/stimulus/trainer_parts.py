"""Parts of random programs for a core that trains: one thing each, with random views.

Views have any order of axes, negative strides, bases, padding, steps and taps. Golden may refuse a part. What no
instruction defines is not made: views that write a word twice.
"""

from dataclasses import replace

import numpy as np
from concord.spec.trainer.config import LANES, NONE, PATCH_ROW_BYTES, TrainerConfig
from concord.spec.trainer.instructions import MeasureKind, Space, TrainerOp, instruction
from concord.spec.trainer.views import TrainerView

#: Sizes that random programs are made for.
SMALL = TrainerConfig(words=512, accumulator_rows=64, exponents=32, instructions=2048)


class TrainerPart:
    """A part of a program: its words, and random views that it may name."""

    def __init__(self, rng: np.random.Generator):
        self.rng, self.words, self.jumps, self.views = rng, [], [], 0

    def at(self, begin: int) -> list[int]:
        """The words at an address: jumps lead to where they led from address 0."""
        words = list(self.words)
        for index, target in self.jumps:
            words[index : index + 1] = instruction(TrainerOp.REPEAT, target=target + begin).words
        return words

    def do(self, op: TrainerOp, **fields: int):
        self.words += instruction(op, **fields).words

    def repeated(self, begin: int, **fields: int):
        """`measure`, and most times `repeat`."""
        self.do(TrainerOp.MEASURE, **fields)
        if self.rng.random() < 0.8:
            self.jumps.append((len(self.words), begin))
            self.do(TrainerOp.REPEAT, target=begin)

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high))

    def exponents(self, count: int) -> list[int]:
        """Numbers of different exponents."""
        return self.rng.permutation(SMALL.exponents)[:count].tolist()

    def view(self, view: TrainerView, *, aligned: bool = False) -> int:
        """The number of a view at a random address of the on-chip memory, perhaps behind a base register."""
        extent = view.whole()
        room = SMALL.words - (extent.stop - extent.start)
        address = self.number(0, max(room, 1)) - extent.start
        address -= (address % LANES) * aligned
        base = NONE
        if self.rng.random() < 0.3:
            base = self.number(2, SMALL.bases)
            value = self.number(-1000, address + 1)
            self.do(TrainerOp.S_WR, r=base, value=value)
            address -= value
        number, self.views = self.views, self.views + 1
        self.words += replace(view, base=base, offset=max(view.offset + address, 0)).tensor(number).words
        return number

    def dense(self, shape: tuple[int, int, int], planes: int, blocks: int = 1, gap: int = 2) -> TrainerView:
        """A view that sees no word twice: axes in any order, in either direction."""
        counts, strides, stride = (
            {"plane": planes, "block": blocks, "s0": shape[0], "pitch1": shape[1], "pitch2": shape[2]},
            {},
            1,
        )
        for name in self.rng.permutation(list(counts)):
            strides[name] = stride * (-1 if name != "plane" and self.rng.random() < 0.2 else 1)
            stride *= counts[name]
            stride += self.number(0, gap)
        return TrainerView(planes=planes, n0=shape[0], n1=shape[1], n2=shape[2], blocks=blocks, **strides)

    def shape(self, most: int = 4) -> tuple[int, int, int]:
        """Counts of the three axes."""
        first, second, third = (self.number(1, most) for _ in range(3))
        return first, second, third

    def padded(self, view: TrainerView, size: int) -> TrainerView:
        """A view of images of about that size, whose positions step and overlap the border."""
        axes = {}
        for axis in (1, 2):
            axes |= {
                f"step{axis}": self.number(0, 4),
                f"origin{axis}": self.number(-2, 2),
                f"limit{axis}": self.number(1, size + 4),
            }
        return replace(view, **axes)


def _copies(made: TrainerPart) -> TrainerPart:
    shape, planes, blocks = made.shape(), int(made.rng.choice([1, 2, 4, 5, 6])), made.number(1, 3)
    views = [made.dense(shape, planes, blocks) for _ in range(2)]
    way = made.number(0, 4)
    source = made.padded(views[1], 3) if way == 1 else views[1]
    to, source = made.view(views[0]), made.view(source)
    if way == 2:
        outside = replace(views[1], space=Space.SERVER, offset=1500 + made.number(0, 100))
        made.words += outside.tensor(8).words
        to, source = (8, source) if made.number(0, 2) else (to, 8)
    if way == 3:
        rows = TrainerView(
            space=Space.ACCUMULATORS,
            planes=planes,
            n0=shape[0] * shape[1] * shape[2],
            s0=1,
            offset=made.number(0, 40),
            blocks=blocks,
        )
        made.words += rows.tensor(9).words
        to, source = (9, source) if made.number(0, 2) else (to, 9)
    zeros = made.number(0, 5) == 0
    made.do(TrainerOp.COPY, to=to, source=NONE if zeros else source, zeros=zeros, add=int(to == 9 and not zeros))
    return made


def _patches(made: TrainerPart) -> TrainerPart:
    size = made.number(1, 4)
    channels = made.number(1, min(LANES // size**2, PATCH_ROW_BYTES) + 1)
    shape, width = made.shape(), made.number(1, 12)
    words = -(-width * channels // LANES)
    source = made.padded(TrainerView(n0=shape[0], s0=6 * words, n1=shape[1], pitch1=words, n2=shape[2]), 6)
    to = made.view(made.dense(shape, 1))
    made.do(
        TrainerOp.COPY, to=to, source=made.view(replace(source, limit2=width)), patches=1, size=size, channels=channels
    )
    return made


def _products(made: TrainerPart) -> TrainerPart:
    shape, counts = made.shape(), tuple(made.number(1, 3) for _ in range(3))
    ea, eb, ebias, ey = made.exponents(4)
    begin = len(made.words)
    view = made.dense(shape, made.number(1, 3))
    a = made.view(made.padded(view, 3) if made.number(0, 2) else view)
    b = made.view(
        replace(
            made.dense(counts, 1, gap=1),
            s0=16 * made.number(0, 3),
            pitch1=16 * made.number(-2, 3),
            pitch2=16 * made.number(-2, 3),
        ),
        aligned=True,
    )
    drain = {}
    if made.number(0, 4):
        drain = {"y": made.view(made.dense(shape, int(made.rng.choice([1, 2, 4])))), "relu": made.number(0, 2)}
        drain["bias"] = made.view(TrainerView()) if made.number(0, 2) else NONE
        drain["mask"] = made.view(made.dense(shape, 1)) if made.number(0, 2) else NONE
    made.do(
        TrainerOp.PRODUCT,
        a=a,
        b=b,
        **drain,
        turned=made.number(0, 2),
        keep=made.number(0, 2),
        acc=made.number(0, 40),
        ea=ea,
        eb=eb,
        ebias=ebias,
        ey=ey,
        n0=counts[0],
        n1=counts[1],
        n2=counts[2],
        a_s0=made.number(-20, 20),
    )
    if drain:
        made.repeated(begin, e=ey)
    return made


def _updates(made: TrainerPart) -> TrainerPart:
    ea, eb, es, esb, ew, ev = made.exponents(6)
    shape, outputs = made.shape(), made.number(1, 9)
    view = made.padded(made.dense(shape, 1), 3)
    blocks, n1 = -(-outputs // LANES), made.number(1, 3)
    a = TrainerView(planes=made.number(1, 3), plane=48, block=16, n0=1, s0=0, pitch1=0, blocks=blocks)
    a, b = made.view(a, aligned=True), made.view(view)
    made.do(
        TrainerOp.PRODUCT,
        a=a,
        b=b,
        mode=1,
        sum=1,
        acc=16,
        ea=ea,
        eb=eb,
        ebias=esb,
        ey=es,
        outputs=outputs,
        n0=1,
        n1=n1,
        n2=1,
        a_s0=0,
    )
    made.do(TrainerOp.MEASURE, e=esb)
    bias, begin = made.number(0, 2), len(made.words)
    record = made.dense((1, 1, 1) if bias else (n1, 1, outputs), 5)
    old, new = made.view(record), made.view(record)
    made.do(TrainerOp.UPDATE, old=old, new=new, acc=16, bias=bias, ew=ew, ev=ev, eg=esb if bias else es)
    made.repeated(begin, kind=MeasureKind.UPDATE, e=ev, ew=ew, eg=esb if bias else es)
    return made


def _pools(made: TrainerPart) -> TrainerPart:
    ex, ey = made.exponents(2)
    shape, size, mean, blocks = made.shape(), made.number(1, 4), made.number(0, 2), made.number(1, 3)
    shared = {"size": size, "mean": mean, "ex": ex, "ey": ey}
    shared |= {"reciprocal": made.number(0, 1 << 16), "shift": made.number(0, 24)} if mean else {}
    begin = len(made.words)
    chosen = NONE if mean else made.view(made.dense(shape, 1, blocks))
    if made.number(0, 2):
        x = made.view(made.padded(made.dense(shape, 1, blocks), 3))
        made.do(
            TrainerOp.POOL,
            y=made.view(made.dense(shape, 1, blocks)),
            x=x,
            chosen=chosen,
            relu=made.number(0, 2),
            **shared,
        )
    else:
        pixels = shape[0], made.number(1, 6), made.number(1, 6)
        x, y = made.view(made.dense(shape, 2, blocks)), made.view(made.dense(pixels, 2, blocks))
        mask = made.view(made.dense(pixels, 1, blocks)) if made.number(0, 2) else NONE
        made.do(TrainerOp.POOL_BACK, y=y, x=x, chosen=chosen, mask=mask, stride=made.number(1, 4), **shared)
    made.repeated(begin, e=ey)
    return made


def _sums(made: TrainerPart) -> TrainerPart:
    ea, eb, ey = made.exponents(3)
    shape, planes, blocks, begin = made.shape(), made.number(1, 3), made.number(1, 3), len(made.words)
    y, a, b = (made.view(made.dense(shape, planes, blocks)) for _ in range(3))
    mask = made.view(made.dense(shape, 1, blocks)) if made.number(0, 2) else NONE
    made.do(
        TrainerOp.ADD,
        y=y,
        a=y if made.number(0, 4) == 0 else a,
        b=b,
        mask=mask,
        relu=made.number(0, 2),
        ea=ea,
        eb=eb,
        ey=ey,
    )
    if y == a:
        made.do(TrainerOp.MEASURE, e=ey)
    else:
        made.repeated(begin, e=ey)
    return made


def _loops(made: TrainerPart) -> TrainerPart:
    """Sums along a tensor, by a base that moves; the base is set anew ahead of the loop."""
    ea, eb, ey = made.exponents(3)
    r, step, count = made.number(2, SMALL.bases), made.number(-9, 10), made.number(1, 5)
    rows = made.number(1, 6)
    offsets = [made.number(0, 400) for _ in range(3)]
    begin = len(made.words)
    made.do(TrainerOp.S_WR, r=r, value=made.number(0, 60))
    for number, offset in enumerate(offsets):
        made.words += TrainerView(base=r, offset=offset, n0=rows, s0=1).tensor(number).words
    made.do(TrainerOp.LOOP, count=count)
    made.do(TrainerOp.ADD, y=0, a=1, b=2, ea=ea, eb=eb, ey=ey)
    made.do(TrainerOp.S_ADD, r=r, value=step)
    made.do(TrainerOp.END_LOOP)
    made.do(TrainerOp.SWAP, r=r, q=made.number(2, SMALL.bases))
    made.repeated(begin, e=ey)
    return made


#: What makes parts; two in eight are products.
PARTS = (_copies, _patches, _products, _products, _updates, _pools, _sums, _loops)
