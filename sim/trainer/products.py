"""Random products for the testbench of the tensor engine, which golden executes."""

from dataclasses import dataclass, field, replace

import numpy as np
from concord.golden.trainer.core import RefusedInstruction, TrainerCore
from concord.golden.trainer.product import product
from concord.sim.stimulus.trainer_parts import SMALL, TrainerPart
from concord.sim.trainer.jobs.products import product_job
from concord.spec.numbers.lazy import E_MAX, E_MIN
from concord.spec.trainer.config import LANES, NONE
from concord.spec.trainer.instructions import TrainerInstruction, TrainerOp, decode
from concord.spec.trainer.views import TrainerView

CONFIG = replace(SMALL, accumulator_rows=256)
EA, EB, EBIAS, EY = range(4)  #: Exponents of products.
_MOST = 40  #: Most rows, and most outputs.
#: Ranges of the unit of a bias above that of the sums: the bias is nothing, rounded, moved to the left, or alone.
_APART = (-12, -8), (-8, 0), (0, 40), (40, 45)


class WatchedCore(TrainerCore):
    """A core that remembers the ranges of words that its instruction reads and writes."""

    def __init__(self):
        super().__init__(config=CONFIG, server=np.zeros((0, LANES), np.uint8))
        self.reached: list[tuple[bool, range]] = []

    def check(self, seen, name, extent=None, *, written=False, **others):
        """As golden's."""
        found = TrainerCore.check(self, seen, name, extent, written=written, **others)
        self.reached.append((written, found))
        return found


@dataclass
class Case:
    """A product that golden has executed.

    Attributes:
        instruction:   The product.
        job:           Its job.
        length:        What it measures.
        reads, writes: Words of the chip.
        rows:          Rows of the accumulators.
    """

    instruction: TrainerInstruction
    job: dict
    length: int = 0
    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)
    rows: set[int] = field(default_factory=set)

    def meets(self, other: "Case") -> bool:
        """Whether one of two products must end before the other begins."""
        words = self.writes & (other.reads | other.writes) or self.reads & other.writes
        return bool(words or self.rows & other.rows)


class Products(TrainerPart):
    """Random products in a core full of random numbers."""

    def __init__(self, rng: np.random.Generator):
        super().__init__(rng)
        self.core = core = WatchedCore()
        self.biases = 0
        words, extremes = rng.integers(0, 256, core.chip.shape), rng.choice([0, 127, 128, 255], core.chip.shape)
        core.chip[:] = np.where(rng.random((len(core.chip), 1)) < 0.4, extremes, words)
        self.fill()

    def fill(self):
        """Fill the accumulators with sums of all sizes: products leave small ones."""
        rows, half = self.core.accumulators, np.int64(1) << 47
        rows[:] = self.rng.integers(-half, half, rows.shape) >> self.rng.integers(0, 48, (len(rows), 1))

    def next(self) -> Case:
        """The next product; golden has executed it."""
        while True:
            self.words, self.views = [], 0
            for exponent in self.core.exponents[:4]:
                exponent.now = self.number(-40, 40) if self.number(0, 4) else self.number(E_MIN, E_MAX + 1)
            (self._rows if self.rng.random() < 0.6 else self._columns)()
            case = self._executed()
            if case:
                return case

    def execute(self, made: TrainerInstruction) -> Case:
        """The case of a product; golden executes it."""
        core = self.core
        case = Case(made, product_job(core, made))
        core.reached.clear()
        for exponent in core.exponents[:4]:
            exponent.written, exponent.length = False, 0
        product(core, made)
        case.length = core.exponents[EY].length if made["y"] != NONE else 0
        for written, words in core.reached:
            (case.writes if written else case.reads).update(words)
        counts = ("n0", "n1", "n2", "outputs") if made["mode"] else ()
        rows = int(np.prod([made[name] for name in counts])) if counts else core.views[made["a"]].rows
        case.rows.update(range(made["acc"], made["acc"] + rows))
        return case

    def _executed(self) -> Case | None:
        """The case of the words that were made; None where golden refuses it."""
        words, address = self.words, 0
        while True:
            found = decode(words, address)
            assert found
            address += len(found.words)
            if found.op == TrainerOp.TENSOR:
                self.core.views[found["v"]] = TrainerView.of(found)
            elif found.op == TrainerOp.S_WR:
                self.core.bases[found["r"]] = found["value"]
            else:
                break
        try:
            if found["y"] != NONE:
                self._guess(found)
            return self.execute(found)
        except RefusedInstruction:
            return None

    def _guess(self, made: TrainerInstruction):
        """Make the guess of y one under which most mantissas are of their bits, or any."""
        ey = self.core.exponents[EY]
        right = self.number(0, 32) if self.rng.random() < 0.6 else self.number(-40, 70)
        ey.next = _limited(ey.next - product_job(self.core, made)["right"] + right)

    def _size(self, most: int) -> tuple[int, int, int]:
        """Counts of three axes, whose product is at most `most`."""
        while True:
            first, second, third = (self.number(1, int(self.rng.choice([2, 4, 7, most + 1]))) for _ in range(3))
            if first * second * third <= most:
                return first, second, third

    def _rows(self):
        shape, counts, core = self._size(_MOST), self._size(9), self.core
        view = self.dense(shape, self.number(1, 3))
        blocks = self.dense(counts, 1, gap=1)
        pitches = {name: 16 * self.number(-2, 3) for name in ("pitch1", "pitch2")}
        blocks = replace(blocks, s0=16 * self.number(0, 3), step1=self.number(0, 3), **pitches)
        fields = {"a": self.view(self._around(view)), "b": self.view(blocks, aligned=True)}
        unit = core.exponents[EA].unit(view.planes) + core.exponents[EB].unit(1)
        if self.number(0, 5):
            planes = int(self.rng.choice([1, 2, 4]))
            fields |= {"y": self.view(self.dense(shape, planes)), "relu": self.number(0, 2)}
            if self.number(0, 2):
                fields["bias"] = self.view(TrainerView())
                low, high = _APART[self.biases % len(_APART)]
                self.biases += 1
                core.exponents[EBIAS].now = _limited(unit + 7 + self.number(low, high))
            if self.number(0, 2):
                first, second, third = self.rng.permutation(shape).tolist()
                mask = self.dense((first, second, third), 1)
                fields["mask"] = self.view(self._around(mask) if self.number(0, 2) else mask)
        self._product(counts, **fields, turned=self.number(0, 2))

    def _columns(self):
        shape, counts, outputs = self._size(_MOST), self._size(6), self.number(1, int(self.rng.choice([4, 18, 41])))
        blocks = -(-outputs // LANES)
        a = TrainerView(planes=self.number(1, 3), plane=48 * blocks, block=48, blocks=blocks)
        fields = {"a": self.view(a, aligned=True), "b": self.view(self._around(self.dense(shape, 1)))}
        self._product(counts, **fields, mode=1, sum=self.number(0, 2), outputs=outputs)

    def _around(self, view: TrainerView) -> TrainerView:
        """Half of the views are those of an image with a border, in steps."""
        axes = {}
        for axis, count in (1, view.n1), (2, view.n2):
            step = self.number(1, 4) if self.number(0, 8) else 0
            limit = self.number(1, step * count + 4) if self.number(0, 4) else 0
            axes |= {f"step{axis}": step, f"origin{axis}": self.number(-3, 2), f"limit{axis}": limit}
        return replace(view, **axes) if self.number(0, 2) else view

    def _product(self, counts: tuple[int, int, int], **fields: int):
        n0, n1, n2 = counts
        fields |= {"n0": n0, "n1": n1, "n2": n2, "ea": EA, "eb": EB, "ebias": EBIAS, "ey": EY}
        acc = self.number(0, CONFIG.accumulator_rows - _MOST + 8)
        self.do(TrainerOp.PRODUCT, **fields, keep=self.number(0, 2), acc=acc, a_s0=self.number(-20, 20))


def _limited(exponent: int) -> int:
    return min(max(exponent, E_MIN), E_MAX)
