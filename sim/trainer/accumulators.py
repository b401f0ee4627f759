# amaranth: UnusedElaboratable=no
"""Testbench of hw.trainer.accumulators: random reads and adds at all ports, beside a model of one array."""

import random
from collections import deque

import cocotb
import numpy as np
from concord.golden.trainer.core import wrapped
from concord.hw.trainer.accumulators import Accumulators
from concord.hw.trainer.wires import ROW_ADDS, ROW_LATENCY, RowAdd, RowAnswer
from concord.sim.drivers.bench import Packer, assert_equal
from concord.sim.drivers.stream import clock, reset, start
from concord.spec.numbers.lazy import ACCUMULATOR_BITS
from concord.spec.trainer.config import LANES

CONFIGURATIONS = ("tiny",)
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "(port.p.fresh | ~Cat(read).any())", "new": "~Cat(read).any()"},
    {"old": "(port.p.fresh | ~Cat(read).any())", "new": "1"},
    {"old": "~add.fresh", "new": "Const(1, 1)"},
    {"old": "taken & delay(m, add[name], 1)", "new": "taken"},
    {"old": "taken & delay(m, add[name], 1)", "new": "delay(m, add[name], 1)"},
    {"old": "[:ACCUMULATOR_BITS]\n", "new": "[1:ACCUMULATOR_BITS + 1]\n"},
    {"old": "delay_control(m, Cat(added).any(), 4)", "new": "delay(m, Cat(added).any(), 4)"},
)
ROWS, READERS, ADDERS = 32, 2, 2
ADD, ANSWER = Packer(RowAdd), Packer(RowAnswer)
LATENCY = Accumulators.latency
PORTS = [f"{kind}{k}__valid" for kind, count in (("row", READERS), ("row_add", ADDERS)) for k in range(count)]


def component(_) -> Accumulators:
    """Few rows, so that the same one comes often."""
    return Accumulators(ROWS, READERS, ADDERS)


class Bench:
    """The accumulators, requests that wait at their ports, and answers that are due."""

    def __init__(self, dut, reads: float, adds: float):
        self.dut, self.random, self.shares = dut, random.Random(cocotb.RANDOM_SEED), (reads, adds)
        self.rows = np.zeros((ROWS, LANES + 1), np.int64)
        self.reads, self.adds = [None] * READERS, [None] * ADDERS
        self.due = [deque([None] * ROW_LATENCY) for _ in range(READERS)]
        self.free = np.zeros(ROWS, int)  # cycles from which a row may be read or added to again
        self.now = self.answered = 0

    def _row(self) -> int | None:
        """A row that no add is at."""
        row = self.random.randrange(ROWS)
        asked = {add["row"] for add in self.adds if add}
        return row if self.free[row] <= self.now and row not in asked else None

    def _add(self) -> dict | None:
        row, top = self._row(), 1 << ACCUMULATOR_BITS - 1
        sums = [self.random.choice([self.random.randrange(-top, top), -top, top - 1, 1]) for _ in range(LANES + 1)]
        marks = {"fresh": self.random.random() < 0.3, "lanes": self.random.random() < 0.8}
        return None if row is None else {"row": row, "sums": sums, "plain": self.random.random() < 0.8, **marks}

    def ask(self):
        """Drive all ports; what is read is what no add is at when the read is taken."""
        for k in range(ADDERS):
            if self.adds[k] is None and self.random.random() < self.shares[1]:
                self.adds[k] = self._add()
                getattr(self.dut, f"row_add{k}__payload").value = ADD.join(self.adds[k] or {})
            getattr(self.dut, f"row_add{k}__valid").value = int(self.adds[k] is not None)
        for k in range(READERS):
            if self.reads[k] is None and self.random.random() < self.shares[0]:
                self.reads[k] = self._row()
                getattr(self.dut, f"row{k}__payload").value = self.reads[k] or 0
            getattr(self.dut, f"row{k}__valid").value = int(self.reads[k] is not None)

    def step(self):
        """See who is served in this cycle, and which answers come."""
        reading = next((k for k in range(READERS) if self.reads[k] is not None), None)
        adding = next((k for k, add in enumerate(self.adds) if add and (add["fresh"] or reading is None)), None)
        for kind, waiting, served in ("row", self.reads, reading), ("row_add", self.adds, adding):
            for k, request in enumerate(waiting):
                ready = bool(getattr(self.dut, f"{kind}{k}__ready").value)
                assert request is None or ready == (k == served), f"{kind}{k}: {request}"
        for k, due in enumerate(self.due):
            answer, want = ANSWER.of(int(getattr(self.dut, f"sums{k}").value)), due.popleft()
            assert answer["valid"] == (want is not None)
            if want is not None:
                assert_equal(f"sums{k}", np.array([answer["sums"][lane] for lane in range(LANES + 1)]), want)
                self.answered += 1
            due.append(self.rows[self.reads[k]].copy() if k == reading else None)
        if reading is not None:
            self.reads[reading] = None
        if adding is not None:
            self._store(self.adds[adding])
            self.adds[adding] = None
        self.now += 1

    def _store(self, add: dict):
        row, touched = self.rows[add["row"]], np.array([add["lanes"]] * LANES + [add["plain"]])
        row[:] = np.where(touched, wrapped((0 if add["fresh"] else row) + np.array(add["sums"])), row)
        self.free[add["row"]] = self.now + LATENCY


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(reads=[0.2, 0.9], adds=[0.4, 1.0])
async def reads_see_what_was_added(dut, reads, adds):
    """Adds and reads of all kinds, as soon as a row takes them again; ports are served in their order."""
    assert LATENCY <= ROW_ADDS
    bench = Bench(dut, reads, adds)
    await start(dut, *PORTS)
    for row in range(ROWS):  # the rows are what they were before the reset
        dut.row_add0__valid.value = 1
        dut.row_add0__payload.value = ADD.join({"row": row, "fresh": 1, "lanes": 1, "plain": 1})
        await clock(dut)
    dut.row_add0__valid.value = 0
    await clock(dut, LATENCY)
    for _ in range(800):
        bench.ask()
        await clock(dut)
        bench.step()
    assert bench.answered > 100


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_reset_ends_adds_and_answers(dut):
    """Adds and reads that are under way do nothing more."""
    await start(dut, *PORTS)
    one = {"row": 3, "sums": [1] * (LANES + 1), "lanes": 1, "plain": 1}
    for fresh in 1, 0:
        dut.row_add0__valid.value, dut.row_add0__payload.value = 1, ADD.join(one | {"fresh": fresh})
        await clock(dut)
        dut.row_add0__valid.value = 0
        await clock(dut, LATENCY if fresh else 1)
    dut.row0__valid.value, dut.row0__payload.value = 1, 3
    await clock(dut)
    await reset(dut, cycles=1)
    dut.row0__valid.value = 0
    for _ in range(ROW_LATENCY):
        await clock(dut)
        assert not int(dut.sums0.value) & 1
    dut.row0__valid.value = 1
    await clock(dut)
    dut.row0__valid.value = 0
    await clock(dut, ROW_LATENCY)
    assert ANSWER.of(int(dut.sums0.value)) == {"valid": 1, "sums": dict.fromkeys(range(LANES + 1), 1)}
