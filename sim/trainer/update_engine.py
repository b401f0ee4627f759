# amaranth: UnusedElaboratable=no
"""Testbench of hw.trainer.update_engine: random updates, all of the memory and the summary against golden."""

from collections import Counter
from dataclasses import asdict, replace
from itertools import pairwise

import cocotb
import numpy as np
from concord.golden.lazy.tensor_layers import whole
from concord.golden.trainer.core import TrainerCore
from concord.golden.trainer.exponents import Exponent
from concord.golden.trainer.memory import Seen, planes_of, write_parts
from concord.golden.trainer.summary import FORMAT, Summary
from concord.golden.trainer.update import update
from concord.hw.trainer.update_engine import UpdateEngine
from concord.hw.trainer.wires import Ended, UpdateJob
from concord.hw.trainer.wires import Summary as SummaryWires
from concord.sim.drivers.bench import Packer, assert_equal
from concord.sim.drivers.stream import StreamSource, clock, every_cycle, reset, start, until
from concord.sim.trainer.jobs.updates import update_job
from concord.sim.trainer.memories import Memories
from concord.sim.trainer.stand import Stand
from concord.spec.numbers.lazy import E_MAX, E_MIN
from concord.spec.trainer.config import LANES, TrainerConfig
from concord.spec.trainer.instructions import TrainerInstruction, TrainerOp, instruction
from concord.spec.trainer.views import TrainerView

CONFIGURATIONS = ("tiny",)
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "new.i.valid.eq(made.valid & go)", "new": "new.i.valid.eq(made.valid)"},
    {"old": "room.eq(inside != AHEAD)", "new": "room.eq(1)"},
    {"old": "go.eq(inside < AHEAD - _MARGIN)", "new": "go.eq(1)"},
    {"old": "self.read.p.zeros.eq(~step.p.inside)", "new": "self.read.p.zeros.eq(0)"},
    {
        "file": "hw/trainer/parameter_gather.py",
        "old": "(~there | last) & (self.bias | summed)",
        "new": "(~there | last)",
    },
    {"file": "hw/trainer/parameter_gather.py", "old": "self.go & (~self.bias | summed)", "new": "self.go"},
    {"file": "hw/trainer/parameter_gather.py", "old": "there & self.go & (", "new": "there & ("},
    {"file": "hw/trainer/parameter_gather.py", "old": "Mux(self.bias, leaves, moves)", "new": "moves"},
    {"file": "hw/trainer/parameter_words.py", "old": "Cat(*lanes), plane)", "new": "Cat(*lanes), max(plane - 1, 0))"},
    {
        "file": "hw/trainer/update_lanes.py",
        "old": "swap.eq(job.kept_right < 0)",
        "new": "swap.eq(job.kept_right <= 0)",
    },
    {
        "file": "hw/trainer/update_lanes.py",
        "old": 'half ^ e["negative"])',
        "new": "half)",
    },
    {
        "file": "hw/trainer/update_lanes.py",
        "old": "clamp(job.p_right + limit, 0, limit + FORMAT.update + 1)",
        "new": "clamp(job.p_right + limit, 0, limit + FORMAT.update - 1)",
    },
    {
        "file": "hw/trainer/update_lanes.py",
        "old": "late = self.before_update + self.joint - 2",
        "new": "late = self.before_update + self.joint - 1",
    },
    {"file": "hw/trainer/update_summary.py", "old": "Mux(found[-1], last, 0)", "new": "last"},
    {
        "file": "hw/trainer/update_summary.py",
        "old": 'self.clear if name == "product" else self.begin',
        "new": "self.begin",
    },
    {"file": "hw/trainer/update_summary.py", "old": "flags.valid & flags[name]", "new": "flags[name]"},
    {"file": "hw/trainer/update_summary.py", "old": "kept.eq(function(kept, found))", "new": "kept.eq(found)"},
)
COUNT = 80  #: Tensors of a run.
CONFIG = TrainerConfig(words=512, accumulator_rows=128)
JOB, ENDED, SUMMARY = Packer(UpdateJob), Packer(Ended), Packer(SummaryWires)
EW, EV, EG = range(3)


def component(_) -> Stand:
    """The engine with its memories, which no machine changes."""
    return Stand(UpdateEngine(), CONFIG)


class UpdateJobs:
    """Random updates of numbers and exponents that lie near each other, or anywhere."""

    def __init__(self, core: TrainerCore, rng: np.random.Generator):
        self.core, self.rng = core, rng

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def next(self, rows: int = 0, bias: int | None = None) -> list[TrainerInstruction]:
        """The updates of the next tensor, with its rates, exponents, gradients and parameters.

        Args:
            rows: Their number, in one update; otherwise a random number in up to three updates.
            bias: Whether it is a bias; otherwise either.
        """
        core, rng = self.core, self.rng
        bias = self.number(0, 1) if bias is None else bias
        parts = self.number(0, 0 if rows else 2)
        rows = rows or self.number(1, 8 if bias else 20)
        taken, bits = rows * LANES if bias else rows, self.number(0, 47)
        self._exponents()
        acc = self.number(0, CONFIG.accumulator_rows - taken)
        core.accumulators[acc : acc + taken] = rng.integers(-(1 << bits), 1 << bits, (taken, LANES + 1))
        old, new = self._views(rows)
        self._fill(replace(old, origin2=0, limit2=0))
        ends = sorted({0, rows, *(self.number(1, rows) for _ in range(parts) if old.n2 == 1)})
        core.views.clear()
        return [self._part(old, new, *part, acc, bias) for part in pairwise(ends)]

    def _part(self, old: TrainerView, new: TrainerView, first: int, end: int, acc: int, bias: int):
        """The update of some of the rows."""
        views, number = self.core.views, len(self.core.views)
        if old.n2 == 1:
            old, new = (replace(view, offset=view.offset + first, n0=end - first) for view in (old, new))
        views |= {number: old, number + 1: new}
        acc += first * (LANES if bias else 1)
        return instruction(TrainerOp.UPDATE, old=number, new=number + 1, acc=acc, bias=bias, ew=EW, ev=EV, eg=EG)

    def _exponents(self):
        """Rates, and exponents of which sums and shifts are near, or any."""
        core, far = self.core, self.rng.random() < 0.2
        for name in ("rate", "decay"):
            ends = -(1 << 15), (1 << 15) - 1
            mantissa = self.number(*ends) if self.rng.random() < 0.5 else int(self.rng.choice(ends))
            setattr(core, name, whole(np.array([mantissa]), self._exponent(far), 16))
        eg, ev, ew = Exponent(), Exponent(), Exponent()
        ev.set(self._exponent(far))
        kept = core.decay.exponent.item() - 15 + ev.now - 15
        eg.set(self._exponent(far) if far else _limited(kept + 31 + self.number(-25, 25)))
        near = max(kept, eg.next - 31) + 30 + self.number(-45, 10)
        ev.next = self._exponent(far) if self.rng.random() < 0.2 else _limited(near)
        eg.lsb = self.number(-274, 242) if far else eg.next - 31 - self.number(-20, 20)
        up = core.rate.exponent.item() - 15 + ev.next - 15
        ew.set(self._exponent(far) if self.rng.random() < 0.2 else _limited(up + 22 + self.number(-8, 16)))
        ew.change = int(self.rng.choice([0, 0, -1, self.number(1, FORMAT.changes[-1])]))
        core.exponents[:3] = ew, ev, eg

    def _exponent(self, far: bool) -> int:
        return self.number(E_MIN, E_MAX + 1) if far else self.number(-10, 10)

    def _views(self, rows: int) -> tuple[TrainerView, TrainerView]:
        """Views of old and new parameters; some of the old ones have rows outside their limits, which are zeros."""
        n2 = self.number(1, 2) if rows % 2 == 0 else 1
        old = TrainerView(planes=5, plane=rows + self.number(0, 3), n0=rows // n2, s0=n2, pitch2=1, n2=n2, base=0)
        new = replace(old, plane=old.plane + self.number(0, 2), offset=5 * old.plane + self.number(0, 3))
        if self.rng.random() < 0.3:
            old = replace(old, origin2=-1, limit2=n2, offset=old.offset + 1)
        last = new.extent(steps=((5, new.plane),))[-1]
        self.core.bases[0] = self.number(0, CONFIG.words - 1 - last)
        return old, new

    def _fill(self, view: TrainerView):
        """Old parameters of few or many bits, or of zeros."""
        rng, bits = self.rng, [self.number(0, most) for most in (7, 14, 15)]
        parts = [rng.integers(-(1 << each), 1 << each, (view.rows, LANES)) for each in bits]
        for part in parts[:2] if rng.random() < 0.2 else ():
            part[:] = 0
        stored = [planes_of(values, count) for values, count in zip(parts, (1, 2, 2), strict=True)]
        write_parts(self.core.chip, Seen(view, self.core.bases[0]), np.concatenate(stored)[:, None])


def _limited(exponent: int) -> int:
    return min(max(exponent, E_MIN), E_MAX)


class Bench:
    """The engine in its stand, and golden's core with the same memories."""

    def __init__(self, dut, refused: int = 0):
        self.dut, self.refused, self.ends, self.met = dut, refused, [], Counter()
        self.core = TrainerCore(config=CONFIG, server=np.zeros((0, LANES), np.uint8))
        self.updates = UpdateJobs(self.core, np.random.default_rng(cocotb.RANDOM_SEED))
        self.memories = Memories(dut, self.core)
        self.jobs = StreamSource(dut, "job")
        dut.clear.value = 0
        every_cycle(dut, self._watch)

    def _watch(self):
        ended = ENDED.of(int(self.dut.ended.value))
        if ended["valid"]:
            self.ends.append((ended["length"], int(self.dut.momentum.value)))

    async def start(self):
        """Reset the stand, and fill its memories, which the test before may have left in any state."""
        await start(self.dut)
        self.memories.chip[:], self.memories.rows[:] = ~self.core.chip, ~self.core.accumulators
        await self.memories.write()

    async def run(self, updates: list[TrainerInstruction]) -> int:
        """Execute updates one behind the other, and compare what they leave. Returns cycles from start to end."""
        dut, core = self.dut, self.core
        await self.memories.write()
        jobs = [update_job(core, each) for each in updates]
        dut.refused.value = self.refused
        self.ends.clear()
        self.jobs.put(*map(JOB.join, jobs))
        cycles = await until(dut, lambda: len(self.ends) == len(jobs))
        dut.refused.value = 0
        for each, job, lengths in zip(updates, jobs, self.ends, strict=True):
            core.exponents[EG].length = core.exponents[EV].length = 0
            update(core, each)
            want = core.exponents[EG].length, core.exponents[EV].length
            assert_equal("lengths of S and T", lengths, want, job=str(job))
            self.met.update(name for name, hit in bins(core, job, want).items() if hit)
        summary = SUMMARY.of(int(dut.summary.value))
        assert_equal("summary", summary, summary_fields(core.summary, summary), jobs=str(jobs))
        await self.memories.check(jobs=str(jobs))
        return cycles

    async def clear(self):
        """Begin the summary anew."""
        self.dut.clear.value = 1
        await clock(self.dut)
        self.dut.clear.value = 0
        self.core.summary = Summary()
        await clock(self.dut)
        assert not int(self.dut.summary.value)


def bins(core: TrainerCore, job: dict, lengths: tuple[int, int]) -> dict[str, bool]:
    """What an update may meet, by name."""
    summary = core.summary
    found = {
        f"{name} to the {side}": job[name] < 0 if side == "left" else job[name] > 0
        for name in ("g_right", "v_right", "p_right")
        for side in ("left", "right")
    }
    return found | {
        "T left, g right": job["gradient_right"] > 0,
        "T left, M right": job["kept_right"] > 0,
        "T with M to the left": job["kept_right"] < 0,
        "T with g to the left": job["gradient_right"] < 0,
        "bias": job["bias"] > 0,
        "no bias": job["bias"] == 0,
        "limits": job["old"]["limit2"] > 0,
        "two axes": job["old"]["n2"] > 1,
        "falls": job["change"] < 0,
        "rises": job["change"] > 0,
        "no change": job["change"] == 0,
        "S beyond 32 bits": lengths[0] > 32,
        "no T": lengths[1] == 0,
        "no P": summary.length == 0,
        "largest P": summary.length == 31,
        "outside": summary.outside,
        "small": summary.largest < FORMAT.small,
        "zeros": not summary.holds,
        "rounded": summary.rounded > 0,
        "saturations": summary.saturations > 0,
        "negative": summary.lowest < -(1 << 22),
        "positive": summary.highest > 1 << 22,
    }


def summary_fields(summary: Summary, shown: dict[str, int]) -> dict[str, int]:
    """The fields of `hw.trainer.wires.Summary`; as shown where they do not count."""
    same = asdict(summary)
    found = {name: int(same[name]) for name in SUMMARY.parts if name in same}
    extremes = {"lowest": -summary.highest, "highest": -summary.lowest}
    # Where a mantissa leaves its range, nobody asks whether all are small.
    large = shown["large"] if summary.outside else int(summary.largest >= FORMAT.small)
    return found | extremes | {"large": large}


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(refused=[0, 160])
async def matches_golden(dut, refused):
    """Random updates, several to a summary, also where the memories serve others meanwhile."""
    bench = Bench(dut, refused)
    await bench.start()
    for _ in range(COUNT):
        if bench.updates.rng.random() < 0.8:
            await bench.clear()
        await bench.run(bench.updates.next())
    missing = [
        name
        for name in bins(bench.core, update_job(bench.core, bench.updates.next()[0]), (0, 0))
        if not bench.met[name]
    ]
    assert not missing, f"no example of {missing} in {bench.met}"


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(bias=[0, 1])
async def takes_eight_cycles_a_row(dut, bias):
    """And 69 for a job; with `bias`, 48 a row, as sums of a group come one behind the other."""
    bench = Bench(dut)
    await bench.start()
    for rows in (1, 2, 8) if bias else (1, 2, 40):
        await bench.clear()
        assert await bench.run(bench.updates.next(rows, bias)) <= 69 + (48 * rows + 1 if bias else 8 * rows)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_reset_leaves_nothing_behind(dut):
    """At any moment within a job: the next one is right, and so is its summary."""
    bench = Bench(dut)
    await bench.start()
    for cycles in range(3, 120, 9):
        bench.core.summary = Summary()
        updates = bench.updates.next(20, 0)
        await bench.memories.write()
        bench.jobs.put(JOB.join(update_job(bench.core, updates[0])))
        await clock(dut, cycles)
        await reset(dut)
        bench.memories.chip[:] = ~bench.core.chip
        await bench.run(updates)
