"""Testbench of hw.mvm.row_tiles against loops in Python."""

import cocotb
import numpy as np
from concord.hw.lib.payloads import Product
from concord.hw.mvm.row_tiles import column_step, row_tile
from concord.sim.drivers.bench import CONFIG, Packer, assert_equal
from concord.sim.drivers.stream import Sink, StreamSource, clock, start, until
from concord.sim.stimulus import products

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "below, config = place.row_base + p.columns,", "new": "below, config = place.row_base + p.columns + 1,"},
    {"old": "step.last & ~told)", "new": "step.last & self.step.ready)"},
)

PRODUCT, STEP, ROW_TILE = Packer(Product), Packer(column_step(CONFIG)), Packer(row_tile(CONFIG))


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.5])
async def walks_in_order(dut, stall):
    """Every step and every row of tiles of random products, in order; one step a cycle while nothing stalls."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    chosen = [products.random_product(CONFIG, rng) for _ in range(40)]
    source = StreamSource(dut, "product", stall=stall)
    sinks = {name: Sink(dut, name, stall=stall) for name in ("step", "row_tile")}
    await start(dut)
    source.put(*(PRODUCT.join(product) for product in chosen))
    walk = [step for product in chosen for step in products.steps(CONFIG, product)]
    results = [result for product in chosen for result in products.row_tiles(CONFIG, product)]
    cycles = await until(dut, lambda: len(sinks["step"].queue) >= len(walk))
    assert stall or cycles <= len(walk) + len(chosen) + 8, f"{cycles} cycles for {len(walk)} steps"
    for k, (got, want) in enumerate(zip(await sinks["step"].receive(len(walk)), walk, strict=True)):
        assert_equal(f"step {k}", STEP.of(got), want)
    for k, want in enumerate(results):
        got = ROW_TILE.of(await sinks["row_tile"].get())
        assert got | {"bias_address": got["bias"] * got["bias_address"]} == want, k
    await clock(dut, 20)
    assert not dut.active.value
    assert not any(sink.queue for sink in sinks.values())
