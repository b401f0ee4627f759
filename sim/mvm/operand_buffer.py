"""Testbench of hw.mvm.operand_buffer: one operand is read while the next one fills, against lists."""

from collections import deque

import cocotb
import numpy as np
from amaranth.lib import data
from concord.hw.mvm.operand_buffer import OperandBuffer, operand
from concord.hw.mvm.quantizer import quantized
from concord.sim.drivers.bench import CONFIG, Packer, assert_equal, pack, stored
from concord.sim.drivers.stream import StreamSource, clock, start
from concord.sim.stimulus.random_values import block_fields, mantissas

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "Cat(read_line, self.step[:high], reading)", "new": "Cat(read_line, self.step[:high], filling)"},
)

N, LANES, ENGINES, WORDS = CONFIG.native_dim, CONFIG.lanes, CONFIG.tile_engines, CONFIG.vector_words
OUT = Packer(data.ArrayLayout(operand(CONFIG), ENGINES))


class Operand:
    """The columns of one iteration, and the number of their words that have been taken."""

    def __init__(self, rng):
        fmt, columns = CONFIG.activations, int(rng.integers(1, CONFIG.operand_columns + 1))
        self.mantissas = stored(mantissas(rng, fmt, (columns, N)), fmt)
        self.exponents = rng.integers(0, fmt.e_max - fmt.e_min + 1, columns)
        self.columns, self.taken = columns, 0

    @property
    def payloads(self) -> list[int]:
        last = np.arange(1, self.columns * WORDS + 1) == self.columns * WORDS
        return pack(quantized(CONFIG.activations, CONFIG.mfu_lanes), {
            "mantissas": self.mantissas.reshape(-1, CONFIG.mfu_lanes), "exponent": self.exponents.repeat(WORDS),
            "end": np.arange(1, len(last) + 1) % WORDS == 0, "last": last})

    @property
    def whole(self) -> bool:
        return self.taken == self.columns * WORDS

    def read(self, step: int, group: int) -> dict:
        """The elements that each engine must see, as far as columns are complete."""
        columns = range(step * ENGINES, min((step + 1) * ENGINES, self.taken // WORDS))
        part = slice(group * LANES, (group + 1) * LANES)
        return {c % ENGINES: block_fields(self.mantissas[c, part], self.exponents[c]) for c in columns}


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.5])
async def keeps_two_operands(dut, stall):
    """While words come, every complete column and group can be read; a third operand waits for a release."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    source = StreamSource(dut, "i", stall=stall)
    operands = [Operand(rng) for _ in range(40)]
    await start(dut, "step", "group", "release")
    source.put(*(payload for each in operands for payload in each.payloads))
    reading, filling, checked = 0, 0, 0
    due = deque({} for _ in range(OperandBuffer.latency))  # what reads must show, the oldest one first
    while reading < len(operands):
        await clock(dut)
        now = operands[reading]
        want = due.popleft()
        assert_equal("o", OUT.of(int(dut.o.value)), want)
        checked += len(want)
        due.append(now.read(int(dut.step.value), int(dut.group.value)))
        assert bool(dut.whole.value) == now.whole
        assert now.whole or int(dut.complete.value) == now.taken // WORDS
        assert bool(dut.i__ready.value) == (filling < reading + 2)
        if dut.i__valid.value and dut.i__ready.value:
            operands[filling].taken += 1
            filling += operands[filling].whole
        reading += int(dut.release.value)
        now = operands[min(reading, len(operands) - 1)]
        dut.release.value = int(now.whole and rng.random() < 0.05)
        columns = max(1, now.taken // WORDS)
        latest = columns - 1 if rng.random() < 0.3 else int(rng.integers(columns))
        dut.step.value, dut.group.value = latest // ENGINES, int(rng.integers(CONFIG.groups))
    assert checked > 500
