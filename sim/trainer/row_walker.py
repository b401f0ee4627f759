# amaranth: UnusedElaboratable=no
"""Testbench of hw.trainer.row_walker: rows of random views are those of golden.trainer.memory."""

import random

import cocotb
from concord.golden.trainer.memory import Seen
from concord.hw.trainer.row_walker import RowWalker
from concord.hw.trainer.wires import ADDRESS, STRIDE, View
from concord.sim.drivers.bench import Packer, assert_equal
from concord.sim.drivers.stream import clock, start
from concord.sim.trainer.jobs.views import view_fields
from concord.spec.trainer.views import TrainerView

CONFIGURATIONS = ("tiny",)
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "Mux(~end1, middle, slow)", "new": "slow"},
    {"old": "Mux(~end1, view.jump1, view.s0)", "new": "view.jump1"},
    {"old": "(end1 & end2, end2, 1)", "new": "(end1 & end2, 1, 1)"},
    {"old": "(end1 & end2, end2, 1)", "new": "(end2, end2, 1)"},
    {"old": "loaded(self.start, view.first", "new": "loaded(0, view.first"},
    {"old": "loaded(self.start | ends, count", "new": "loaded(self.start, count"},
    {"old": "loaded(self.start | ends, count", "new": "loaded(ends, count"},
    {"old": "loaded(self.start | ends, origin", "new": "loaded(self.start, origin"},
    {"old": "~limit.any() | (", "new": "("},
    {"old": "(seen[:COUNT] < limit)", "new": "(seen[:COUNT] <= limit)"},
    {"old": "seen.eq(u + tap)", "new": "seen.eq(u)"},
    {"old": "self.step & end2 & end1)", "new": "self.step & end2)"},
    {"old": "end0 & end1 & end2", "new": "end1 & end2"},
    {"old": "~seen[COUNT:].any() & ", "new": ""},
    {"old": "_U = 16", "new": "_U = 15"},
)
VIEW = Packer(View)


def component(_) -> RowWalker:
    """The unit, which no machine changes."""
    return RowWalker()


def random_view(rng: random.Random, counts: tuple[int, ...] | None = None) -> TrainerView:
    """A view of few rows, with strides and limits of all sizes; or one with these counts and the largest steps."""

    def stride() -> int:
        return rng.choice([0, 1, rng.randrange(-1 << STRIDE - 1, 1 << STRIDE - 1)])

    n0, n1, n2 = counts or [rng.choice([1, 2, rng.randint(1, 6)]) for _ in range(3)]
    axes = {
        f"{name}{axis}": value
        for axis in (1, 2)
        for name, value in {
            "pitch": stride(),
            "step": 15 if counts else rng.choice([1, 2, rng.randrange(16)]),
            "origin": rng.choice([0, -1, rng.randrange(-128, 128)]),
            "limit": (1 << 12) - 1 if counts else rng.choice([0, rng.randrange(30), rng.randrange(1 << 12)]),
        }.items()
    }
    return TrainerView(offset=rng.randrange(1 << ADDRESS), n0=n0, s0=stride(), n1=n1, n2=n2, **axes)


async def walk(dut, rng: random.Random, view: TrainerView, stall: float):
    """Compare all rows of a view with golden."""
    offset = rng.randrange(-1 << ADDRESS - 1, 1 << ADDRESS - 1)
    taps = tuple(rng.choice([0, 1, rng.randrange(64)]) for _ in range(2))
    for name, value in {"view": VIEW.join(view_fields(Seen(view, 0))), "c1": taps[0], "c2": taps[1]}.items():
        getattr(dut, name).value = value
    dut.offset.value = offset % (1 << ADDRESS)
    dut.start.value, dut.step.value = 1, rng.getrandbits(1)
    await clock(dut)
    dut.start.value = 0
    words, inside = Seen(view, 0).rows()[0], Seen(view, 0).rows(taps)[1]
    found = []
    while len(found) < len(words):
        step = dut.step.value = int(rng.random() >= stall)
        await clock(dut)
        row = int(dut.word.value), int(dut.inside.value), int(dut.last.value)
        found += [row] * step
    last = [k == len(words) - 1 for k in range(len(words))]
    expected = [(int(word) + offset) % (1 << ADDRESS) for word in words]
    for k, values in enumerate((expected, [int(each) for each in inside], last)):
        assert_equal(("word", "inside", "last")[k], [row[k] for row in found], values, view=view, taps=taps)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.4])
async def rows_are_those_of_golden(dut, stall):
    """Views of all kinds, one after the other, also before all rows of the last one are there."""
    rng = random.Random(cocotb.RANDOM_SEED)
    await start(dut, "start", "step")
    for _ in range(400):
        await walk(dut, rng, random_view(rng), stall)
        dut.step.value = 0
        await clock(dut, rng.randrange(3))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def the_largest_counts(dut):
    """Axes with as many rows as their fields hold."""
    rng = random.Random(cocotb.RANDOM_SEED)
    await start(dut, "start", "step")
    for counts in (1, 1, 4095), (1, 4095, 1), (4095, 1, 1):
        await walk(dut, rng, random_view(rng, counts), 0.0)
