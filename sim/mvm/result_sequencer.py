# amaranth: UnusedElaboratable=no
"""Testbench of hw.mvm.result_sequencer: every word of every row of tiles is picked up once its totals are ready."""

import cocotb
import numpy as np
from concord.hw.mvm import converter
from concord.hw.mvm.result_sequencer import ResultSequencer
from concord.hw.mvm.row_tiles import row_tile
from concord.sim.drivers.bench import CONFIG, Packer
from concord.sim.drivers.stream import StreamSource, clock, start
from concord.sim.stimulus import products

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "Mux(rows > lanes, lanes, rows)", "new": "lanes"},
)


def component(config) -> ResultSequencer:
    """A sequencer with little room for results."""
    return ResultSequencer(config, 4)


ROW_TILE, CONVERSION = Packer(row_tile(CONFIG)), Packer(converter.conversion(CONFIG))
ADDRESSES = 1 << (CONFIG.bias_words - 1).bit_length()
SETTLE = 4  #: Cycles after which a row of tiles is at the head of the queue.


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.4])
async def picks_up_every_word(dut, stall):
    """Totals come as closely as the words allow, or later; rows of tiles arrive long before them or just in time."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    waiting = [result for _ in range(60) for result in products.row_tiles(CONFIG, products.random_product(CONFIG, rng))]
    count = len(waiting)
    source = StreamSource(dut, "i", stall=stall)
    await start(dut, "totals")
    source.put(*(ROW_TILE.join(result) for result in waiting))
    schedule, told, taken, free, cycle = {}, 0, [], 0, 0
    address = select = 0
    while waiting or schedule:
        await clock(dut)
        cycle += 1
        got = CONVERSION.of(int(dut.o.value))
        want = schedule.pop(cycle, None)
        assert got["valid"] == (want is not None), cycle
        if want:
            assert (got, address, select) == want
        address, select = int(dut.address.value), int(dut.select.value)
        if dut.i__valid.value and dut.i__ready.value:
            taken.append(cycle)
        # The pulse shows at the next edge, the first word's address and select at the second, its result at the third.
        ready = len(taken) > told and cycle >= max(taken[told] + SETTLE, free)
        pulse = ready and rng.random() >= stall
        dut.totals.value = int(pulse)
        if pulse:
            head = waiting.pop(0)
            for k in range(head["words"]):
                conversion = {"valid": 1, "lanes": min(head["rows"] - k * CONFIG.mfu_lanes, CONFIG.mfu_lanes),
                              **{name: head[name] for name in ("bias", "integer", "out_scale")}}
                schedule[cycle + 3 + k] = conversion, (head["bias_address"] + k) % ADDRESSES, k
            told, free = told + 1, cycle + head["words"]
    assert told == count
