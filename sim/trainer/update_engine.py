# amaranth: UnusedElaboratable=no
"""Testbench of hw.trainer.update_engine: random updates, all of the memory and the summary against golden."""

from collections import Counter
from dataclasses import asdict, replace

import cocotb
import numpy as np
from concord.golden.lazy.tensor_layers import whole
from concord.golden.trainer.core import TrainerCore
from concord.golden.trainer.exponents import Exponent
from concord.golden.trainer.memory import Seen, planes_of, write_parts
from concord.golden.trainer.summary import FORMAT, Summary
from concord.golden.trainer.update import update
from concord.hw.trainer.update_engine import UpdateEngine
from concord.hw.trainer.wires import LENGTH, Ended, UpdateJob
from concord.hw.trainer.wires import Summary as SummaryWires
from concord.sim.drivers.bench import Packer, assert_equal
from concord.sim.drivers.stream import StreamSource, clock, every_cycle, start, until
from concord.sim.trainer.jobs.updates import update_job
from concord.sim.trainer.memories import Memories
from concord.sim.trainer.stand import Stand
from concord.spec.numbers.lazy import E_MAX, E_MIN
from concord.spec.trainer.config import LANES, TrainerConfig
from concord.spec.trainer.instructions import TrainerInstruction, TrainerOp, instruction
from concord.spec.trainer.views import TrainerView

CONFIGURATIONS = ("tiny",)
CONFIG = TrainerConfig(words=1024, accumulator_rows=64)
JOB, ENDED, SUMMARY = Packer(UpdateJob), Packer(Ended), Packer(SummaryWires)
EW, EV, EG = range(3)


def component(_) -> Stand:
    """The engine with its memories, which no machine changes."""
    return Stand(UpdateEngine(), CONFIG)


class Updates:
    """Random updates of numbers and exponents that lie near each other, or anywhere."""

    def __init__(self, core: TrainerCore, rng: np.random.Generator):
        self.core, self.rng = core, rng

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def next(self) -> TrainerInstruction:
        """The next update, with its rates, exponents, gradients and old parameters."""
        core, bias = self.core, self.number(0, 1)
        rows = self.number(1, 3 if bias else 20)
        taken = rows * LANES if bias else rows
        self._exponents()
        acc = self.number(0, CONFIG.accumulator_rows - taken)
        bits = self.number(0, 47)
        core.accumulators[acc : acc + taken] = self.rng.integers(-(1 << bits), 1 << bits, (taken, LANES + 1))
        self._views(rows)
        numbers = {"ew": EW, "ev": EV, "eg": EG}
        return instruction(TrainerOp.UPDATE, old=0, new=1, acc=acc, bias=bias, **numbers)

    def _exponents(self):
        """Rates, and exponents of which sums and shifts are near, or any."""
        core, far = self.core, self.rng.random() < 0.2
        for name in ("rate", "decay"):
            mantissa = self.number(-(1 << 15), (1 << 15) - 1) if self.rng.random() < 0.5 else (1 << 15) - 1
            setattr(core, name, whole(np.array([mantissa]), self._exponent(far), 16))
        eg, ev, ew = Exponent(), Exponent(), Exponent()
        ev.set(self._exponent(far))
        eg.set(self._exponent(far) + (0 if far else self.number(0, 40)))
        if self.rng.random() < 0.3:
            ev.next = self._exponent(far)
        else:
            kept = core.decay.exponent.item() - 15 + ev.now - 15
            ev.next = min(max(kept + 30 + self.number(-8, 20), E_MIN), E_MAX)
        eg.lsb = self.number(-274, 242) if far else eg.next - 31 - self.number(-20, 20)
        up = core.rate.exponent.item() - 15 + ev.next - 15
        ew.set(
            self._exponent(far) if self.rng.random() < 0.3 else min(max(up + 22 + self.number(-8, 16), E_MIN), E_MAX)
        )
        ew.change = int(self.rng.choice([0, 0, self.number(FORMAT.changes[0], FORMAT.changes[-1])]))
        core.exponents[:3] = ew, ev, eg

    def _exponent(self, far: bool) -> int:
        return self.number(E_MIN, E_MAX + 1) if far else self.number(-10, 10)

    def _views(self, rows: int):
        """Places of the old and the new parameters, and numbers of the old ones, of which some are zeros."""
        core, rng = self.core, self.rng
        n2 = self.number(1, 4) if rows % 4 == 0 else 1
        n2 = n2 if rows % n2 == 0 else 1
        old = TrainerView(planes=5, plane=rows + self.number(0, 3), n0=rows // n2, s0=n2, pitch2=1, n2=n2)
        new = replace(old, plane=old.plane + self.number(0, 2), offset=5 * old.plane + self.number(0, 3))
        if rng.random() < 0.3:  # some rows of the old ones are zeros
            old = replace(old, origin2=-1, limit2=n2, offset=old.offset + 1)
        core.views |= {0: old, 1: new}
        core.bases[0] = self.number(0, CONFIG.words - new.extent(steps=((5, new.plane),)).stop)
        for number, view in enumerate((old, new)):
            core.views[number] = replace(view, base=0)
        shape = (rows, LANES)
        bits = [self.number(0, most) for most in (7, 14, 15)]
        parts = [rng.integers(-(1 << each), 1 << each, shape) for each in bits]
        for part in parts[:2] if rng.random() < 0.2 else ():
            part[:] = 0
        stored = [planes_of(values, count) for values, count in zip(parts, (1, 2, 2), strict=True)]
        plain = replace(old, origin2=0, limit2=0)
        write_parts(core.chip, Seen(plain, core.bases[0]), np.concatenate(stored)[:, None])


class Bench:
    """The engine in its stand, and golden's core with the same memories."""

    def __init__(self, dut, refused: int = 0):
        self.dut, self.refused, self.ends = dut, refused, []
        self.core = TrainerCore(config=CONFIG, server=np.zeros((0, LANES), np.uint8))
        self.updates = Updates(self.core, np.random.default_rng(cocotb.RANDOM_SEED))
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

    async def run(self, made: TrainerInstruction) -> int:
        """Execute an update, and compare what it leaves. Returns cycles from its start to its end."""
        core = self.core
        self.memories.dut.refused.value = 0
        await self.memories.write()
        job = update_job(core, made)
        self.dut.refused.value = self.refused
        count = len(self.ends)
        await self.jobs.send(JOB.join(job))
        cycles = await until(self.dut, lambda: len(self.ends) > count)
        ew = replace(core.exponents[EW])
        update(core, made)
        self.dut.refused.value = 0
        what = {"instruction": str(made), "ew": str(ew), "ev": str(core.exponents[EV]), "eg": str(core.exponents[EG])}
        lengths = tuple(core.exponents[number].length for number in (EG, EV))
        assert_equal("lengths of S and T", self.ends[-1], lengths, job=str(job))
        summary = SUMMARY.of(int(self.dut.summary.value))
        assert_equal("summary", summary, summary_fields(core.summary, summary), job=str(job))
        await self.memories.check(job=str(job), **what)
        return cycles

    async def clear(self):
        """Begin the summary anew."""
        self.dut.clear.value = 1
        await clock(self.dut)
        self.dut.clear.value = 0
        self.core.summary = Summary()


def summary_fields(summary: Summary, shown: dict[str, int]) -> dict[str, int]:
    """The fields of `hw.trainer.wires.Summary`; as shown where they do not count."""
    same = asdict(summary)
    found = {name: int(same[name]) for name in SUMMARY.parts if name in same}
    extremes = {"lowest": -summary.highest, "highest": -summary.lowest}
    # Where a mantissa leaves its range, nobody asks whether all are small.
    large = shown["large"] if summary.outside else int(summary.largest >= FORMAT.small)
    return found | extremes | {"large": large}


@cocotb.test(timeout_time=40, timeout_unit="ms")
@cocotb.parametrize(refused=[0, 100])
async def matches_golden(dut, refused):
    """Random updates, several to a summary, also where the memories serve others meanwhile."""
    bench = Bench(dut, refused)
    await bench.start()
    for _ in range(300):
        if bench.updates.rng.random() < 0.5:
            await bench.clear()
        else:
            bench.core.summary.exponents = None
        await bench.run(bench.updates.next())
