# amaranth: UnusedElaboratable=no
"""Testbench of hw.trainer.tensor_engine: products beside each other, all of both memories against golden."""

from dataclasses import replace

import cocotb
import numpy as np
from concord.hw.trainer.tensor_engine import MULTIPLIERS, TensorEngine
from concord.hw.trainer.wires import Ended, ProductJob
from concord.sim.drivers.bench import CONFIG as MACHINE
from concord.sim.drivers.bench import Packer, assert_equal
from concord.sim.drivers.stream import StreamSource, clock, every_cycle, reset, start, until
from concord.sim.trainer.memories import Memories
from concord.sim.trainer.products import CONFIG, EA, EB, EBIAS, EY, Case, Products
from concord.sim.trainer.stand import Stand
from concord.spec.machine.config import preset
from concord.spec.trainer.config import LANES
from concord.spec.trainer.instructions import TrainerInstruction, TrainerOp, instruction
from concord.spec.trainer.views import TrainerView

CONFIGURATIONS = ("tiny", "serial", "wide")
TESTED = ("tiny",)
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"file": "hw/trainer/tap_walker.py", "old": "(self.c1, middle, end2, end1)", "new": "(self.c1, middle, 1, end1)"},
    {"file": "hw/trainer/block_loader.py", "old": "(k != 1) | empty | self.release", "new": "1"},
    {"file": "hw/trainer/block_loader.py", "old": "~job.mode | rows.last | behind", "new": "~job.mode | rows.last"},
    {"file": "hw/trainer/block_loader.py", "old": "behind | ~rows.inside", "new": "~rows.inside"},
    {"file": "hw/trainer/block_loader.py", "old": "behind | ~rows.inside", "new": "behind"},
    {"file": "hw/trainer/block_loader.py", "old": "there.eq(~behind)", "new": "there.eq(1)"},
    {"file": "hw/trainer/block_loader.py", "old": "self.answer.valid | last)", "new": "self.answer.valid)"},
    {"file": "hw/trainer/vector_reader.py", "old": " & ~(self.read.valid & vector.begins)", "new": ""},
    {"file": "hw/trainer/vector_reader.py", "old": "return count != self.room", "new": "return Const(1)"},
    {"file": "hw/trainer/vector_reader.py", "old": "asked.zeros.eq(~rows.inside)", "new": "asked.zeros.eq(0)"},
    {"file": "hw/trainer/vector_reader.py", "old": "opens & (job.mode | self.taps.first)", "new": "opens"},
    {"file": "hw/trainer/vector_reader.py", "old": "job.sum & self.taps.first", "new": "job.sum"},
    {"file": "hw/trainer/vector_reader.py", "old": "self.begins & short", "new": "0"},
    {"file": "hw/trainer/vector_reader.py", "old": "Mux(self.block.ends, 0, chunk + LANES)", "new": "chunk + LANES"},
    {"file": "hw/trainer/block_product.py", "old": "byte[-1] & ~self.low", "new": "byte[-1]"},
    {"file": "hw/trainer/block_product.py", "old": "Mux(row.there, each, 0)", "new": "each"},
    {"file": "hw/trainer/row_adds.py", "old": "add.valid.eq(~purpose.low)", "new": "add.valid.eq(1)"},
    {"file": "hw/trainer/row_adds.py", "old": "(since == ROW_ADDS - 1) & ~add.valid", "new": "free"},
    {"file": "hw/trainer/bias_lanes.py", "old": "Mux(byte < 0, -nearest, nearest)", "new": "nearest"},
    {"file": "hw/trainer/bias_lanes.py", "old": "halves + 1", "new": "halves"},
    {"file": "hw/trainer/drain.py", "old": "Mux(job.bias_only, 0, job.bias_right)", "new": "job.bias_right"},
    {"file": "hw/trainer/drain.py", "old": " & (~job.bias_only).replicate(len(held))", "new": ""},
    {"file": "hw/trainer/drain.py", "old": "~self.read.valid & (pause == 0)", "new": "~self.read.valid"},
    {"file": "hw/trainer/drain.py", "old": "waits & ~self.read.valid", "new": "waits"},
    {"file": "hw/trainer/drain.py", "old": "self.some & words.room &", "new": "self.some &"},
    {"file": "hw/trainer/drain.py", "old": "read.zeros.eq(~self.mask.inside)", "new": "read.zeros.eq(0)"},
    {"file": "hw/trainer/mantissa_words.py", "old": "~byte[-1] & byte.any()", "new": "~byte[-1]"},
    {"file": "hw/trainer/mantissa_words.py", "old": "self.relu & mantissa[-1]", "new": "self.relu & ~mantissa[-1]"},
    {"file": "hw/trainer/mantissa_words.py", "old": "now.eq(now >> _BYTE)", "new": "now.eq(now)"},
    {"old": "given | Cat(", "new": "Cat("},
)
COUNT = 48  #: Products of a run, or more until all kinds were met.
TOGETHER = 8  #: Products between two looks at the memories.
FILL = 80  #: Most cycles of two products beside those of their blocks: the first block, the pipeline, and the end.
JOB, ENDED = Packer(ProductJob), Packer(Ended)


def component(config) -> Stand:
    """The engine with its memories; only the number of its multipliers changes."""
    multipliers = {preset("serial"): 0, preset("wide"): 11 * LANES}.get(config, MULTIPLIERS)
    return Stand(TensorEngine(multipliers), CONFIG, ("drain_read", "block_read", "vector_read"))


DUT = component(MACHINE)


class Bench:
    """The engine in its stand, and golden's core with the same memories."""

    def __init__(self, dut, refused: int = 0):
        self.dut, self.refused = dut, refused
        self.products = Products(np.random.default_rng(cocotb.RANDOM_SEED))
        self.memories, self.jobs = Memories(dut, self.products.core), StreamSource(dut, "job")
        self.waits: list[Case] = []
        every_cycle(dut, self._watch)

    def _watch(self):
        ended = ENDED.of(int(self.dut.ended.value))
        if ended["valid"]:
            case = self.waits.pop(0)
            assert_equal("length", ended["length"], case.length, job=str(case.job))

    async def start(self):
        """Reset the stand, and fill its memories, which the test before may have left in any state."""
        await start(self.dut)
        await self.memories.read()
        await self.memories.write()

    async def run(self, cases: list[Case]) -> int:
        """Execute products; each begins as soon as none under way is in its way. Returns cycles."""
        self.dut.refused.value = self.refused
        cycles = 0
        for case in cases:
            cycles += await until(self.dut, lambda case=case: not any(case.meets(other) for other in self.waits))
            self.waits.append(case)
            self.jobs.put(JOB.join(case.job))
        cycles += await until(self.dut, lambda: not self.waits)
        self.dut.refused.value = 0
        await self.memories.check(jobs=str([case.job for case in cases]))
        return cycles

    def made(self, views: dict[str, TrainerView], **fields: int) -> TrainerInstruction:
        """A product of these views, which are all that there is."""
        self.products.core.views = dict(enumerate(views.values()))
        exponents = {"ea": EA, "eb": EB, "ebias": EBIAS, "ey": EY}
        numbers = {name: number for number, name in enumerate(views)}
        return instruction(TrainerOp.PRODUCT, **numbers, **exponents, **{"n0": 1, "n1": 1, "n2": 1} | fields)


def bins(case: Case) -> dict[str, bool]:
    """What a product may meet, by name."""
    job, y, rows = case.job, bool(case.job["y"]), len(case.rows)
    drained = y and not job.get("bias_only")
    return {
        "rows": not job["mode"],
        "turned": job["turned"] > 0,
        "columns": job["mode"] > 0,
        "plain sums": job["sum"] > 0,
        "plain sums of two planes": job["sum"] > 0 and job["a"]["planes"] == 2,
        "outputs of several blocks": job["outputs"] > LANES,
        "sums that stay": job["keep"] > 0,
        "two planes": job["a"]["planes"] == 2,
        "several blocks": job["n0"] * job["n1"] * job["n2"] > 4,
        "few rows": rows < 4,
        "many rows": rows > LANES,
        "padding": job["a"]["limit1"] > 0 or job["b"]["limit1"] > 0,
        "no y": not y,
        **{f"y of {planes}": y and job["y"]["view"]["planes"] == planes for planes in (1, 2, 4)},
        "relu": job["relu"] > 0,
        "a mask": bool(job["mask"]),
        "a mask with a border": bool(job["mask"]) and job["mask"]["view"]["limit1"] > 0,
        "a bias to the left": drained and job.get("bias_right", 0) < 0,
        "a rounded bias": drained and 0 < job.get("bias_right", 0) < 9,
        "a bias of nothing": drained and job.get("bias_right", 0) == 9,
        "a bias alone": y and job.get("bias_only", 0) > 0,
        "mantissas to the left": y and job["right"] < 0,
        "sums of more than 32 bits": case.length > 32,
    }


@cocotb.test(timeout_time=200, timeout_unit="us")
@cocotb.parametrize(refused=[0, 100])
async def matches_golden(dut, refused):
    """Products of all kinds, also where the memories serve others meanwhile."""
    bench, met, missing = Bench(dut, refused), set(), [""]
    await bench.start()
    for number in range(TOGETHER, 4 * COUNT, TOGETHER):
        bench.products.fill()
        await bench.memories.write()
        cases = [bench.products.next() for _ in range(TOGETHER)]
        await bench.run(cases)
        met.update(name for case in cases for name, hit in bins(case).items() if hit)
        missing = [name for name in bins(cases[0]) if name not in met]
        if number >= COUNT and not missing:
            break
    assert not missing, f"no example of {missing}"


@cocotb.test(timeout_time=100, timeout_unit="us")
async def multipliers_are_busy(dut):
    """A block takes as many cycles as vectors meet it, times planes, or 16, also behind another product.

    Of one plane, each row that drains takes a cycle more.
    """
    bench = Bench(dut)
    await bench.start()
    rows, few, blocks = (TrainerView(n2=n, pitch2=1) for n in (64, 10, 5))
    two, blocks = replace(rows, planes=2, plane=64), replace(blocks, offset=256, pitch2=16)
    gradient = TrainerView(planes=2, plane=64, block=32, n2=20, blocks=2)
    given = (
        ({"a": rows, "b": blocks}, {"n2": 5, "turned": 1}, 5 * 64),
        ({"a": two, "b": blocks}, {"n2": 5}, 5 * 128),
        ({"a": few, "b": replace(blocks, pitch2=0)}, {"n2": 20}, 20 * 16),
        ({"a": gradient, "b": replace(rows, offset=256)}, {"mode": 1, "outputs": 20, "sum": 1}, 4 * 40),
        ({"a": rows, "b": blocks, "y": replace(rows, offset=384)}, {"n2": 5}, 5 * 64 + 64),
        ({"a": two, "b": blocks, "y": replace(rows, offset=384)}, {"n2": 5}, 5 * 128),
        ({"a": two, "b": blocks, "y": replace(two, offset=384, plane=0)}, {"n2": 5}, 5 * 128),
    )
    for views, fields, cycles in given:
        cases = []
        for k in range(2):
            now = views | {"y": replace(views["y"], offset=384 + 64 * k)} if "y" in views else views
            cases.append(bench.products.execute(bench.made(now, **fields, acc=128 * k)))
        taken = await bench.run(cases)
        assert taken <= 2 * cycles + FILL, f"two products with {fields} take {taken} cycles"


@cocotb.test(timeout_time=100, timeout_unit="us")
async def words_wait_for_a_memory_that_serves_others(dut):
    """Rows of four words, which the memory seldom takes: those that wait are not more than there is room for."""
    bench = Bench(dut, 230)
    await bench.start()
    rows = TrainerView(n2=64, pitch2=1)
    views = {"a": rows, "b": TrainerView(offset=400), "y": replace(rows, planes=4, plane=64, offset=128)}
    await bench.run([bench.products.execute(bench.made(views))])


@cocotb.test(timeout_time=200, timeout_unit="us")
async def a_reset_leaves_nothing_behind(dut):
    """At any moment; then products are right."""
    bench = Bench(dut, 60)
    await bench.start()
    for _ in range(6):
        await bench.memories.write()
        bench.waits = [bench.products.next()]
        await bench.jobs.send(JOB.join(bench.waits[0].job))
        await clock(dut, bench.products.number(1, 300))
        await reset(dut)
        bench.waits.clear()
        await bench.memories.read()
        await bench.memories.write()
        await bench.run([bench.products.next()])
