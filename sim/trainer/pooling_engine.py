# amaranth: UnusedElaboratable=no
"""Testbench of hw.trainer.pooling_engine: random instructions, and all of the memory against golden."""

from dataclasses import replace

import cocotb
import numpy as np
from concord.golden.lazy.tensor_layers import REACH
from concord.golden.trainer.core import TrainerCore
from concord.golden.trainer.pooling import add, pool, pool_back
from concord.hw.trainer.pooling_engine import PoolingEngine
from concord.hw.trainer.wires import ADD, POOL, POOL_BACK, ChipWrite, Ended, PoolingJob
from concord.sim.drivers.bench import Packer, assert_equal
from concord.sim.drivers.stream import StreamSource, clock, every_cycle, reset, start, until
from concord.sim.stimulus.trainer_parts import TrainerPart
from concord.sim.trainer.jobs.pooling import pooling_job
from concord.sim.trainer.memories import Memories
from concord.sim.trainer.stand import Stand
from concord.spec.numbers.lazy import E_MAX, E_MIN
from concord.spec.trainer.config import LANES, NONE, TrainerConfig
from concord.spec.trainer.instructions import TrainerInstruction, TrainerOp, instruction
from concord.spec.trainer.views import TrainerView

CONFIGURATIONS = ("tiny",)
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "lanes.o.valid & job.converts", "new": "lanes.o.valid"},
    {"file": "hw/trainer/tap_walker.py", "old": "Mux(ends, 0, count + 1)", "new": "count + 1"},
    {"file": "hw/trainer/pooling_reads.py", "old": "self.final & early.any()", "new": "0"},
    {"file": "hw/trainer/pooling_reads.py", "old": "2 * GROUPS - 1, GROUPS", "new": "GROUPS - 1, GROUPS"},
    {"file": "hw/trainer/pooling_reads.py", "old": "(rows != ROWS)", "new": "1"},
    {"file": "hw/trainer/pooling_reads.py", "old": "with m.Elif(windows.same):", "new": "with m.Elif(0):"},
    {
        "file": "hw/trainer/pooling_windows.py",
        "old": "self.some & ~columns.moves & apart",
        "new": "~columns.moves & apart",
    },
    {"file": "hw/trainer/pooling_windows.py", "old": "self.some & ~columns.moves & apart", "new": "self.some & apart"},
    {
        "file": "hw/trainer/pooling_windows.py",
        "old": "rest.eq(left - (axis.moves & left.any()))",
        "new": "rest.eq(left - axis.moves)",
    },
    {
        "file": "hw/trainer/pooling_windows.py",
        "old": "(axis.place >= stride) & (axis.left > 1)",
        "new": "axis.place >= stride",
    },
    {"file": "hw/trainer/pooling_lanes.py", "old": "(byte.as_signed() > ", "new": "(byte.as_signed() >= "},
    {"file": "hw/trainer/pooling_lanes.py", "old": "~chooses | apart | is_chosen", "new": "~chooses | is_chosen"},
    {"file": "hw/trainer/pooling_lanes.py", "old": "~byte[-1] & byte.any()", "new": "byte.any()"},
    {"file": "hw/trainer/pooling_sums.py", "old": 'rest[0] & (~rest[-1] | lane["lost"])', "new": "rest[0]"},
    {"file": "hw/trainer/pooling_sums.py", "old": 'lane["lost"] | lost', "new": "lost"},
    {"file": "hw/trainer/pooling_writes.py", "old": "row.counts[k] & ~(", "new": "~("},
    {"file": "hw/trainer/pooling_writes.py", "old": "lives[k], row.mask[k]", "new": "lives[k], lives[k]"},
    {"file": "hw/trainer/pooling_sums.py", "old": "self.far.eq(self.adds & left[4])", "new": "self.far.eq(0)"},
    {"file": "hw/trainer/pooling_sums.py", "old": "active & (turn[0] | ~parts)", "new": "active"},
    {"file": "hw/trainer/pooling_writes.py", "old": "job.relu & number[-1]", "new": "number[-1]"},
    {"file": "hw/trainer/pooling_writes.py", "old": "full & self.write.ready & ending", "new": "full & ending"},
    {
        "file": "hw/trainer/all_blocks.py",
        "old": "loaded_sum(m, platform, start, view.first",
        "new": "loaded_sum(m, platform, 0, view.first",
    },
)
COUNT = 54  #: Instructions of a run, some of them executed twice.
FILL = 40  #: Most cycles of an instruction beside those of its rows.
CONFIG = TrainerConfig(words=768, accumulator_rows=16)
GOLDEN = {TrainerOp.POOL: pool, TrainerOp.POOL_BACK: pool_back, TrainerOp.ADD: add}
LAST = 255  #: The last word of the first of the memories.
JOB, ENDED, WRITE = Packer(PoolingJob), Packer(Ended), Packer(ChipWrite)
EX, EB, EY = range(3)  #: Exponents of x or a, of b, and of y.


def component(_) -> Stand:
    """The engine with its memory, which no machine changes."""
    return Stand(PoolingEngine(), CONFIG)


class Poolings:
    """Random instructions that golden takes, on random numbers."""

    def __init__(self, core: TrainerCore, rng: np.random.Generator):
        self.core, self.rng = core, rng
        self.part, self.used, self.count, self.zeros, self.fine = TrainerPart(self.rng), 0, 0, False, False

    def next(self) -> TrainerInstruction:
        """The next instruction, which golden has not executed."""
        while True:
            self.begin()
            turn, kind = divmod(self.count, 3)
            self.zeros, self.fine = self.count % 10 == 0, False
            made = [self._pool, self._pool_back, self._add][kind](turn)
            if self.used <= CONFIG.words:
                self.count += 1
                self._guess(made)
                return made

    def begin(self):
        """Forget all views, and begin exponents anew."""
        self.core.views.clear()
        self.used = self.part.number(0, 20)
        for exponent in self.core.exponents[:3]:
            exponent.set(self.part.number(E_MIN, E_MAX + 1))
            exponent.length, exponent.written = 0, False

    def put_all(self, views: dict[str, TrainerView], taps: int) -> dict[str, int]:
        """The numbers of views, which are all that there is; x has taps."""
        self.begin()
        return {name: self._put(view, taps=taps if name == "x" else 1) for name, view in views.items()}

    def _guess(self, made: TrainerInstruction):
        """Most times, make the guess of y one of which sums are not far."""
        ey, job = self.core.exponents[EY], pooling_job(self.core, made)
        if "converts" in job and (self.fine or self.rng.random() < 0.9):
            right = self.part.number(-2, 1) if self.fine else self.part.number(-10, 40)
            ey.next = _limited(ey.next - job["right"] + right)

    def _put(self, view: TrainerView, most: int = 256, taps: int = 1) -> int:
        """The number of a view, on numbers below `most` of a kind of their own."""
        part, rng = self.part, self.rng
        extent = view.extent(taps=(taps, taps), steps=((view.planes, view.plane), (view.blocks, view.block)))
        number, base = len(self.core.views), 2 + len(self.core.views)
        begin = self.used + part.number(0, 3)
        self.used = begin + len(extent)
        self.core.views[number] = replace(view, base=base)
        self.core.bases[base] = begin - extent.start
        palettes = range(256), (0, 1, 2, 254, 255), (0, 127, 128, 255), (part.number(0, 256), 0)
        palette = (0,) if self.zeros else palettes[rng.integers(4)]
        shape = self.core.chip[begin : self.used].shape
        self.core.chip[begin : self.used] = rng.choice(np.array(palette), shape) % most
        return number

    def _shape(self) -> tuple[int, int, int]:
        part = self.part
        return (1, part.number(1, 3), part.number(1, 30)) if self.rng.random() < 0.3 else part.shape(5)

    def _scale(self) -> dict[str, int]:
        """Half of the means have a reciprocal as it is, and others any one."""
        part = self.part
        return {
            "reciprocal": part.number(0, 1 << 16) if self.rng.random() < 0.7 else 65535,
            "shift": part.number(0, 24),
        }

    def _pool(self, turn: int) -> TrainerInstruction:
        part, rng, shape = self.part, self.rng, self._shape()
        size, blocks, mean = part.number(1, 5) if rng.random() < 0.9 else 15, part.number(1, 4), int(turn % 3 == 0)
        x = part.dense(shape, 1, blocks)
        x = part.padded(x, 4) if rng.random() < 0.7 else replace(x, step1=part.number(0, 3))
        chosen = self._put(part.dense(shape, 1, blocks)) if turn % 3 == 1 else NONE
        fields = {"x": self._put(x, taps=size), "y": self._put(part.dense(shape, 1, blocks)), "chosen": chosen}
        fields |= self._scale() if mean else {}
        relu = part.number(0, 2)
        return instruction(TrainerOp.POOL, **fields, size=size, mean=mean, relu=relu, ex=EX, ey=EY)

    def _pool_back(self, turn: int) -> TrainerInstruction:
        part, rng, mean = self.part, self.rng, turn // 3 % 2
        size, stride = sorted(part.number(1, 5 if rng.random() < 0.7 else 16) for _ in range(2))
        if turn % 3:  # windows overlap, and more than four may hold a pixel
            size = max(stride, 1 + turn % 3)
            stride = part.number(1, size if turn % 3 == 1 else (size + 1) // 2)
        elif turn // 6 % 2:
            size, stride = max(size, 2), min(max(size, 2) + part.number(1, 4), 15)
        samples, blocks = part.number(1, 3), part.number(1, 3)
        pixels = samples, part.number(1, 7), part.number(1, 7 if rng.random() < 0.8 else 30)
        windows = tuple(max(1, (n - size) // stride + part.number(-2, 4)) for n in pixels[1:])
        shape = samples, *windows
        fields = {"x": self._put(part.dense(shape, 2, blocks)), "y": self._put(part.dense(pixels, 2, blocks))}
        if not mean:
            fields["chosen"] = self._put(part.dense(shape, 1, blocks), most=size * size + 1)
        if rng.random() < 0.5:
            fields["mask"] = self._put(part.dense((1, pixels[0] * pixels[1], pixels[2]), 1, blocks))
        fields |= self._scale() if mean else {}
        return instruction(TrainerOp.POOL_BACK, **fields, size=size, stride=stride, mean=mean, ex=EX, ey=EY)

    def _add(self, turn: int) -> TrainerInstruction:
        part, rng, shape = self.part, self.rng, self._shape()
        planes, blocks = 1 + turn % 2, part.number(1, 4)
        views = [part.dense(shape, planes, blocks) for _ in range(3)]
        views[1:] = [part.padded(view, 3) if rng.random() < 0.3 else view for view in views[1:]]
        y, a, b = (self._put(view) for view in views)
        mask = self._put(part.dense(shape, 1, blocks)) if rng.random() < 0.5 else NONE
        exponents = self.core.exponents
        exponents[EB].set(_limited(exponents[EX].now + part.number(-44, 45)))
        if turn % 6 in (0, 2) and not self.zeros:  # how b is rounded is seen where a is 0
            self.fine = True
            exponents[EX].set(part.number(-60, 61))
            exponents[EB].set(exponents[EX].now - REACH - part.number(1, 5))
            extent = self.core.views[a].whole(self.core.bases[self.core.views[a].base])
            self.core.chip[extent.start : extent.stop] = 0
        relu = part.number(0, 2) if not self.fine else 0
        a, b = [(a, b), (y, b), (a, b), (a, y), (a, b), (y, y)][turn % 6]
        return instruction(TrainerOp.ADD, y=y, a=a, b=b, mask=mask, relu=relu, ea=EX, eb=EB, ey=EY)


def _limited(exponent: int) -> int:
    return min(max(exponent, E_MIN), E_MAX)


class Bench:
    """The engine in its stand, and golden's core with the same memory."""

    def __init__(self, dut, refused: int = 0):
        self.dut, self.refused, self.ends, self.met = dut, refused, [], set()
        self.core = TrainerCore(config=CONFIG, server=np.zeros((0, LANES), np.uint8))
        self.poolings = Poolings(self.core, np.random.default_rng([cocotb.RANDOM_SEED, refused]))
        self.memories, self.jobs = Memories(dut, self.core), StreamSource(dut, "job")
        every_cycle(dut, self._watch)

    def _watch(self):
        ended = ENDED.of(int(self.dut.ended.value))
        if ended["valid"]:
            self.ends.append(ended["length"])

    async def start(self):
        """Reset the stand, and fill its memory, which the test before may have left in any state."""
        await start(self.dut)
        self.memories.chip[:] = ~self.core.chip
        await self.memories.write()

    async def run(self, made: TrainerInstruction, count: int = 1, waits: int = 0) -> int:
        """Execute an instruction so often, one behind the other, and compare what is left. Returns cycles.

        For some cycles, the first memory takes no word but the last one of its own.
        """
        dut, core = self.dut, self.core
        job, exponent = {"right": self.poolings.part.number(-32, 64)} | pooling_job(core, made), core.exponents[EY]
        await self.memories.write()
        dut.refused.value = self.refused
        self.ends.clear()
        self.jobs.put(*[JOB.join(job)] * count)
        if waits:
            dut.poke__payload.value = WRITE.join({"word": LAST, "bytes": core.chip[LAST].tolist()})
            dut.poke__valid.value = 1
            await clock(dut, waits)
            dut.poke__valid.value = 0
        cycles = await until(dut, lambda: len(self.ends) == count)
        dut.refused.value = 0
        for length in self.ends:
            exponent.length = 0
            GOLDEN[made.op](core, made)
            assert_equal("length", length, exponent.length, job=str(job))
        await self.memories.check(job=str(job))
        self.met.update(name for name, hit in bins(job, exponent.length).items() if hit)
        return cycles


def bins(job: dict, length: int) -> dict[str, bool]:
    """What an instruction may meet, by name."""
    back, adds, apart = job["kind"] == POOL_BACK, job["kind"] == ADD, job.get("stride", 0) >= job.get("size", 0)
    chooses, planes, masks = "chosen" in job, job["y"]["planes"], "mask" in job
    return {
        "a mean": job["kind"] == POOL and job["mean"] > 0,
        "a maximum": job["kind"] == POOL and not job["mean"] and chooses,
        "a maximum of which nobody asks where it was": job["kind"] == POOL and not job["mean"] and not chooses,
        "windows apart": back and chooses and apart,
        "means apart": back and not chooses and apart,
        "windows with gaps": back and job["stride"] > job["size"] > 1,
        "windows that overlap": back and chooses and not apart,
        "means in two parts": back and not chooses and job["size"] > 2 * job["stride"],
        "maxima in two parts": back and chooses and job["size"] > 2 * job["stride"],
        "a mask of a gradient": back and masks,
        "a to the left": adds and job["x_right"] < 0,
        "b to the left": adds and job["other_right"] < 0,
        "far to the left": adds and min(job["x_right"], job["other_right"]) <= -16,
        "rounded terms": adds and max(job["x_right"], job["other_right"]) in range(1, 16),
        "one plane": adds and planes == 1,
        "two planes": adds and planes == 2,
        "a mask of a sum": adds and masks,
        "over a": adds and job["x"] == job["y"],
        "relu": job.get("relu", 0) > 0,
        "padding": job["x"]["limit1"] > 0,
        "several blocks": job["y"]["blocks"] > 1,
        "sums of more than 32 bits": length > 32,
        "zeros": "converts" in job and not length,
    }


@cocotb.test(timeout_time=600, timeout_unit="us")
@cocotb.parametrize(refused=[0, 100])
async def matches_golden(dut, refused):
    """Instructions of all kinds, also where the memory serves others meanwhile."""
    bench = Bench(dut, refused)
    await bench.start()
    for _ in range(COUNT):
        made = bench.poolings.next()
        await bench.run(made, bench.poolings.part.number(1, 3))
    missing = [name for name in bins(pooling_job(bench.core, made), 0) if name not in bench.met]
    assert not missing, f"no example of {missing}"


@cocotb.test(timeout_time=60, timeout_unit="us")
async def a_word_every_cycle(dut):
    """Rows of 60 pixels take as many cycles as words move, or 4 to convert; a pixel's only window is read once."""
    bench, size = Bench(dut), {"size": 2, "stride": 2}
    await bench.start()
    rows = TrainerView(n2=60, pitch2=1)
    two, windows = replace(rows, planes=2, plane=60), replace(rows, n2=30)
    pairs = replace(windows, planes=2, plane=30)
    given = (
        (TrainerOp.POOL, {"y": rows, "x": replace(rows, pitch1=60), "chosen": rows}, {"size": 2}, 4),
        (TrainerOp.POOL, {"y": rows, "x": rows, "chosen": rows}, {"size": 1}, 2),
        (TrainerOp.POOL_BACK, {"y": two, "x": pairs, "chosen": windows}, size, 2),
        (TrainerOp.POOL_BACK, {"y": two, "x": pairs}, size | {"mean": 1}, 4),
        (TrainerOp.POOL_BACK, {"y": two, "x": two, "chosen": rows}, {"size": 2, "stride": 1}, 6),
        (TrainerOp.ADD, {"y": rows, "a": rows, "b": rows}, {}, 4),
        (TrainerOp.ADD, {"y": two, "a": two, "b": two, "mask": rows}, {}, 5),
    )
    for op, views, fields, cycles in given:
        numbers = bench.poolings.put_all(views, fields.get("size", 1) if op == TrainerOp.POOL else 1)
        exponents = {"ea": EX, "eb": EB} if op == TrainerOp.ADD else {"ex": EX}
        taken = await bench.run(instruction(op, **numbers, **fields, **exponents, ey=EY))
        assert taken <= cycles * rows.n2 + FILL, f"{op.name} of {fields} takes {taken} cycles"


@cocotb.test(timeout_time=60, timeout_unit="us")
async def writes_may_wait(dut):
    """Long: the engine reads no more rows than it has room for."""
    bench, rows = Bench(dut), TrainerView(n2=60, pitch2=1)
    await bench.start()
    numbers = bench.poolings.put_all({"y": rows, "a": rows, "b": rows}, 1)
    assert bench.poolings.used <= LAST
    await bench.run(instruction(TrainerOp.ADD, **numbers, ea=EX, eb=EB, ey=EY), waits=200)


@cocotb.test(timeout_time=90, timeout_unit="us")
async def a_reset_leaves_nothing_behind(dut):
    """At any moment; then instructions are right."""
    bench = Bench(dut, 60)
    await bench.start()
    for _ in range(6):
        bench.jobs.put(JOB.join(pooling_job(bench.core, bench.poolings.next())))
        await bench.memories.write()
        await bench.jobs.drain()
        await clock(dut, bench.poolings.part.number(1, 120))
        await reset(dut)
        await bench.memories.read()
        await bench.run(bench.poolings.next())
