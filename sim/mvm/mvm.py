"""Testbench of hw.mvm.mvm, the whole matrix-vector multiplier, against golden.mvm.mvm."""

import cocotb
import numpy as np
from concord.sim.drivers.bench import CONFIG
from concord.sim.drivers.stream import clock, until
from concord.sim.reference.entry_traffic import EntryTraffic
from concord.sim.reference.product_traffic import ProductTraffic
from concord.sim.stimulus import products
from concord.spec.isa.chain import Registers

CONFIGURATIONS = ("tiny", "serial", "wide", "tiny_float")
TESTED = ("tiny", "serial", "wide")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "delay(m, beat.integer, self.operand_after + rotator.latency)",
     "new": "delay(m, beat.integer, rotator.latency)"},
    {"old": "delay(m, sequencer.beat.from_entries, self.operand_after)", "new": "sequencer.beat.from_entries"},
)


async def serve(dut, *, stall: float, slow: float) -> ProductTraffic:
    """Reset the unit, and begin to serve its ports."""
    run = ProductTraffic(dut, CONFIG, np.random.default_rng(cocotb.RANDOM_SEED), stall=stall, slow=slow)
    await run.begin()
    return run


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize((("stall", "slow", "begin"), [(0.0, 0.0, False), (0.3, 0.3, True), (0.1, 0.95, False)]))
async def matches_golden(dut, stall, slow, begin):
    """Products of all sizes in both modes, while tiles for the next ones are loaded.

    The first tiles are packed, with exponents even in integer mode, which must ignore them. With `slow` results the
    result queue fills up.
    """
    run = await serve(dut, stall=stall, slow=slow)
    await run.load_bias()
    rng, half, queued = run.rng, CONFIG.matrix_tiles // 2, 0
    await run.load_packed(0, half, begin)
    for turn in range(6):
        integer, there = bool(turn & 1) ^ begin, turn % 2 * half
        want = []
        for _ in range(4):
            columns = int(rng.integers(1, min(CONFIG.operand_columns, half) + 1))
            row_tiles = int(rng.integers(1, min(half // columns, CONFIG.bias_words // CONFIG.vector_words) + 1))
            rows = row_tiles * CONFIG.native_dim - int(rng.integers(CONFIG.native_dim))
            tile = there + int(rng.integers(half - row_tiles * columns + 1))
            want.append(run.multiply(tile, rows, columns, int(rng.integers(1, 4)), integer))
        queued += len(want)
        loaded = run.count["load_done"]
        run.load_words(half - there, half, not integer)
        for each in want:
            await run.results(*each)
        while run.count["load_done"] < loaded + half or run.count["product_done"] < queued:
            await clock(dut)
    await run.settle()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def modes_alternate(dut):
    """Products of the two modes follow each other without a gap: rows of tiles hide the arrival of the next operand."""
    run = await serve(dut, stall=0.0, slow=0.0)
    half = CONFIG.matrix_tiles // 2
    for first in (0, half):
        await run.load_packed(first, half, first > 0)
    await run.load_bias()
    for each in [run.multiply(k % 2 * half, 4 * CONFIG.native_dim, 1 + k % 3, 1, bool(k % 2)) for k in range(20)]:
        await run.results(*each)
    await run.settle()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def engines_never_wait(dut):
    """Products in a row keep the engines busy in every cycle, once the first operand is there."""
    run = await serve(dut, stall=0.0, slow=0.0)
    # So many columns that the converter keeps up, so many rows of tiles that the next operand arrives in time.
    columns = CONFIG.tile_engines * max(1, CONFIG.vector_words // CONFIG.groups)
    row_tiles = max(1, CONFIG.vector_words * CONFIG.tile_engines // CONFIG.groups)
    await run.load_packed(0, row_tiles * columns, False, full=True)
    want = [run.multiply(0, row_tiles * CONFIG.native_dim, columns, 3, False) for _ in range(5)]
    for each in want:
        await run.results(*each)
    await run.settle()
    beats = row_tiles * CONFIG.groups * columns // CONFIG.tile_engines  # beats of one iteration
    assert len(run.busy) == 5 * 3 * beats
    assert run.busy[-1] - run.busy[beats] == 14 * beats - 1


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize((("stall", "slow"), [(0.0, 0.0), (0.3, 0.3), (0.05, 0.95)]))
async def entries_match_golden(dut, stall, slow):
    """Products from VectorRf among fetched ones, while chains write the entries that products read before and after."""
    run = await serve(dut, stall=stall, slow=slow)
    await run.load_bias()
    await run.load_packed(0, CONFIG.matrix_tiles, False)
    entries, want = EntryTraffic(dut, CONFIG, run.rng, stall=stall), []
    await entries.fill()
    for _ in range(60):
        kind = run.rng.random()
        if kind < 0.4:
            entries.write()
        elif kind < 0.8:
            want.append(run.multiply_entries(entries, products.random_entry_product(CONFIG, run.rng)))
        else:
            columns = int(run.rng.integers(1, CONFIG.operand_columns + 1))
            rows = int(run.rng.integers(1, CONFIG.native_dim + 1))
            tile = int(run.rng.integers(CONFIG.matrix_tiles - columns + 1))
            want.append(run.multiply(tile, rows, columns, int(run.rng.integers(1, 3)), bool(run.rng.integers(2))))
    for each in want:
        await run.results(*each)
    await until(dut, lambda: entries.idle and run.count["product_done"] >= len(want))
    run.expected["vectors"] += entries.blocks
    run.expected["entries_written"] = entries.blocks
    run.invalid["vector"] |= entries.invalid
    await run.settle()
    assert entries.landed == [entries.entry(address) for address in range(CONFIG.vector_rf)]
    assert entries.checked > 50


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(pixels=[False, True])
async def engines_never_wait_for_entries(dut, pixels):
    """Products in a row from VectorRf keep the engines busy in every cycle; windows have a pixel for each engine."""
    run = await serve(dut, stall=0.0, slow=0.0)
    steps = max(2, CONFIG.vector_words // CONFIG.groups)  # so many that the converter keeps up
    columns, row_tiles = CONFIG.tile_engines * steps, 2
    await run.load_packed(0, row_tiles * columns, False, full=True)
    entries = EntryTraffic(dut, CONFIG, run.rng, stall=0.0)
    await entries.fill()
    engines = CONFIG.tile_engines
    window = {"window_vectors": engines, "window_x": steps, "window_step": engines} if pixels else {}
    chain = products.entry_product(CONFIG, 0, 0, window=pixels, integer=False, inc=True, registers=Registers(
        rows=row_tiles * CONFIG.native_dim, columns=columns, iterations=6, iterations_x=3, stride_x=1, stride_y=4,
        stride_out=1, **window))
    want = [run.multiply_entries(entries, chain) for _ in range(5)]
    for each in want:
        await run.results(*each)
    await run.settle()
    beats = 5 * 6 * row_tiles * CONFIG.groups * steps
    assert len(run.busy) == beats
    assert run.busy[-1] - run.busy[0] == beats - 1
