# amaranth: UnusedElaboratable=no
"""Testbench of hw.mvm.beat_sequencer: beats in order, none before its operand is complete and its result has room."""

from collections import deque

import cocotb
import numpy as np
from amaranth.lib import data
from concord.hw.lib.payloads import Product
from concord.hw.mvm.beat_sequencer import BeatSequencer, beat
from concord.hw.mvm.row_tiles import row_tile
from concord.sim.drivers.bench import CONFIG, Packer
from concord.sim.drivers.stream import Sink, StreamSource, clock, start
from concord.sim.stimulus import products

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "(self.complete >= step.needed)", "new": "(self.complete + 1 >= step.needed)"},
    {"old": "(free >= step.words)", "new": "(free != 0)"},
    {"old": "Mux(step.from_entries, self.entries, ", "new": "Mux(self.entries, 1, "},
)


def component(config) -> BeatSequencer:
    """A sequencer with little room for results."""
    return BeatSequencer(config, 2 * config.vector_words + 3)


ENGINES, SPACE = CONFIG.tile_engines, component(CONFIG).space
PRODUCT, BEAT, ROW_TILE = Packer(Product), Packer(beat(CONFIG)), Packer(row_tile(CONFIG))
MARKS = Packer(data.ArrayLayout(range(CONFIG.groups + 1), ENGINES))


def beats(marks: np.ndarray, chosen: list[dict]):
    """Tuples (step, lane group, whether it is the last of the step, busy engines) of all beats of the products."""
    for product in chosen:
        for step in products.steps(CONFIG, product):
            here = marks[step["tile"]:step["tile"] + step["columns"]]
            count = max(1, int(here.max()))
            for group in range(count):
                yield step, group, group == count - 1, int((here > group).sum())


class Bench:
    """The unit, with models of the operand buffer, the mark table and the result queue around it."""

    def __init__(self, dut, rng, chosen, pace: float):
        self.dut, self.rng, self.pace = dut, rng, pace
        self.marks = rng.integers(0, CONFIG.groups + 1, CONFIG.matrix_tiles)
        self.beats = deque(beats(self.marks, chosen))
        self.operands = deque(p["columns"] for p in chosen for _ in range(p["iterations"]) if not p["from_entries"])
        self.columns = [0, 0]  # complete columns of the operand being read and of the next one
        # Words in the result queue; cycles since the last beat of a row of tiles, and the number of that row's words.
        self.held, self.since, self.gap = 0, 0, 0
        self.lasts, self.due = 0, None

    def drive(self):
        """Drive the inputs of the next cycle."""
        dut, rng = self.dut, self.rng
        for k, limit in enumerate(list(self.operands)[:2]):
            if self.columns[k] < limit and rng.random() < self.pace and (k == 0 or self.columns[0] == self.operands[0]):
                self.columns[k] += 1
        dut.entries.value = int(rng.random() < self.pace)
        whole = bool(self.operands) and self.columns[0] == self.operands[0]
        dut.whole.value, dut.complete.value = int(whole), 0 if whole else self.columns[0]
        freed = self.held > 0 and rng.random() < self.pace
        dut.freed.value = int(freed)
        first = int(dut.mark_tile.value)
        table = dict.fromkeys(range(ENGINES), int(rng.integers(CONFIG.groups + 1)))  # noise in unused banks
        table |= {t % ENGINES: int(self.marks[t]) for t in range(first, min(first + ENGINES, CONFIG.matrix_tiles))}
        dut.marks.value = MARKS.join(table)

    def check(self, row_tiles: int):
        """Check one cycle: the beat announced in the last cycle, and the announcement of this one."""
        dut = self.dut
        shown = BEAT.of(int(dut.beat.value))
        assert bool(shown["valid"]) == (self.due is not None)
        if self.due:
            step, group, last, done = self.due
            assert shown == {"valid": 1, "last": last and step["last"], "group": group,
                             **{name: step[name] for name in ("from_entries", "tile", "columns", "integer", "rows")}}
            assert bool(dut.done.value) == done
            self.lasts += shown["last"]
            assert row_tiles >= self.lasts, "the row of tiles is announced after its last beat"
        assert int(dut.busy.value) + int(dut.wait_operand.value) + int(dut.wait_output.value) <= 1
        self.held, self.since, self.due = self.held - int(dut.freed.value), self.since + 1, None
        if not dut.busy.value:
            assert {int(port.value) for port in (dut.beats, dut.tiles, dut.release, dut.read)} == {0}
            return
        step, group, last, count = self.beats.popleft()
        end = last and step["last"]
        self._check_operand(step, group, last)
        assert (int(dut.beats.value), int(dut.tiles.value)) == (count, step["columns"] * last)
        self.due = step, group, last, end and step["product"]
        if end:
            assert self.since >= self.gap, "totals would be overwritten before they have been picked up"
            self.held, self.since, self.gap = self.held + step["words"], 0, step["words"]
            assert self.held <= SPACE, "the result queue would overflow"
        if dut.release.value:
            self.operands.popleft()
            self.columns = [self.columns[1], 0]

    def _check_operand(self, step: dict, group: int, last: bool):
        """Check that the columns of a beat are there, and how it reads them."""
        dut, release = self.dut, last and step["last"] and step["iteration"] and not step["from_entries"]
        assert (int(dut.group.value), bool(dut.end.value), bool(dut.release.value)) == (group, last, release)
        assert bool(dut.read.value) == step["from_entries"]
        if step["from_entries"]:
            assert dut.entries.value, "a beat came before its entries"
        else:
            assert self.columns[0] >= step["needed"], "a beat came before its columns"
            assert int(dut.step.value) == step["step"]


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(pace=[1.0, 0.15])
async def beats_in_order(dut, pace):
    """Random products and zero marks; operands arrive and results leave at once, or slowly."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    chosen = [products.random_product(CONFIG, rng) for _ in range(25)]
    source = StreamSource(dut, "product", stall=1 - pace)
    sink = Sink(dut, "row_tile", stall=(1 - pace) / 2)
    bench = Bench(dut, rng, chosen, pace)
    await start(dut, "marks", "complete", "whole", "entries", "freed")
    source.put(*(PRODUCT.join(product) for product in chosen))
    while bench.beats or bench.due:
        await clock(dut)
        bench.check(len(sink.queue))
        bench.drive()
    results = [result for product in chosen for result in products.row_tiles(CONFIG, product)]
    got = [ROW_TILE.of(payload) for payload in sink.queue]
    assert [each | {"bias_address": each["bias"] * each["bias_address"]} for each in got] == results
