# amaranth: UnusedElaboratable=no
"""Testbench of hw.decode.scalar_registers against spec.isa.chain."""

import random

import cocotb
from concord.hw.decode.scalar_registers import ScalarRegisters, derived, most
from concord.sim.drivers.bench import CONFIG, Packer, assert_equal
from concord.sim.drivers.stream import clock, start
from concord.spec.isa.chain import Chain, Registers
from concord.spec.isa.instructions import Instruction, Op, Reg
from concord.spec.isa.memories import Mem

CONFIGURATIONS = ("trainer", "tiny", "serial", "wide")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "shifted >= divisor", "new": "shifted > divisor"},
    {"old": "capped.eq(product | beyond", "new": "capped.eq(product & beyond"},
    {"old": "area[REGISTER_BITS:].any()", "new": "0"},
    {"old": "begin > reached", "new": "1"},
    {"old": "(self.reaches | done) & later", "new": "self.reaches | done"},
)
#: Derived values that are right while `reaches` is high.
REACHED = ("words", "row_tiles", "span_out", "span_vec")

LATENCY = ScalarRegisters(CONFIG).latency
VALUES, MOST = Packer(derived(CONFIG)), most(CONFIG)
CHAIN = (Instruction(op=Op.V_RD, mem=Mem.INITIAL_VRF, inc=1), Instruction(op=Op.MV_MUL),
         Instruction(op=Op.V_WR, mem=Mem.VECTOR_RF, inc=1), Instruction(op=Op.V_WR, mem=Mem.INITIAL_VRF, inc=1))
WINDOWS = [name for name in Registers.__slots__ if name.startswith("window_") or name in ("stride_vec", "skip_vec")]


def expected(r: Registers) -> dict[str, int]:
    """The values that the unit must derive from the registers; a field that has no meaning is left out."""
    plain = {name: getattr(r, name) for name in Registers.__slots__}
    plain |= {"no_vectors": r.window_vectors == 0, "no_pixels": 0 in (r.window_x, r.window_y)}
    if 0 in (r.rows, r.columns, r.iterations, r.iterations_x):
        return plain | {"zero": 1}
    chain, last = Chain.resolve(CONFIG, 0, CHAIN, r), r.iterations - 1
    plain |= {"words": chain.result_words, "row_tiles": chain.row_tiles, "operand_words": chain.source_words,
              "tiles": min(len(chain.tiles), MOST), "total_words": min(chain.result_words * r.iterations, MOST),
              "span_out": min(chain.offset(chain.target, last), MOST), "zero": 0,
              "divides": int(r.iterations % r.iterations_x == 0)}
    if plain["divides"]:
        rows = r.iterations // r.iterations_x - 1
        plain |= {"passes": rows + 1} if CONFIG.dram_words else {}
        plain["span_source"] = capped((r.iterations_x - 1) * r.stride_x, rows * r.stride_y)
        if CONFIG.vector_rf:
            plain["span_vec"] = capped(last * r.stride_vec, rows * r.skip_vec)
    if CONFIG.vector_rf and not plain["no_pixels"]:
        pixels = ((r.window_x - 1) * r.window_step, (r.window_y - 1) * r.window_pitch)
        plain |= {"last_pixel": capped(*pixels), "span_group": capped((chain.row_tiles - 1) * r.window_group)}
        plain["fits"] = int(r.window_vectors * r.window_x * r.window_y == r.columns)
    return plain


def capped(*products: int) -> int:
    """The sum of products, each of which counts as MOST at most."""
    return sum(min(product, MOST) for product in products)


class Bench:
    """The unit, and the registers of the specification beside it."""

    def __init__(self, dut):
        self.dut, self.random, self.registers = dut, random.Random(cocotb.RANDOM_SEED), Registers.reset(CONFIG)
        self.since, self.early = 3, 0  # cycles since the last write; those with ends of addresses before all else
        dut.write.value = dut.clear.value = 0

    async def cycle(self):
        await clock(self.dut)
        self.dut.write.value = self.dut.clear.value = 0
        self.since += 1
        if self.since > 2 and self.dut.reaches.value:
            want = expected(self.registers)
            reached = {name: want[name] for name in REACHED if name in want}
            assert_equal("values", VALUES.of(int(self.dut.values.value)), reached, registers=self.registers)
            self.early += not self.dut.fresh.value

    async def write(self):
        """Write a random register, with a small value, as small values often divide each other, or a large one."""
        names = [name for name in Registers.__slots__ if CONFIG.vector_rf or name not in WINDOWS]
        reg = Reg[self.random.choice(names).upper()]
        if reg == Reg.OUT_SCALE:
            value = self.random.randint(-32, 31) & 0xFFFF
        else:
            few = self.random.randint(0, 12)
            value = self.random.choice((few, few, self.random.getrandbits(16), 1, self.registers.columns, 0xFFFF))
        self.dut.reg.value = reg
        await self.cycle()
        self.registers = self.registers.written(reg, value)
        self.dut.write.value, self.dut.value.value, self.since = 1, value, 0
        await self.cycle()

    async def settle(self) -> int:
        """Wait until the derived values are fresh, compare them, and return the cycles that it took."""
        cycles = 0
        while True:
            await self.cycle()
            cycles += 1
            got = VALUES.of(int(self.dut.values.value))
            assert_equal("values", got, {name: getattr(self.registers, name) for name in Registers.__slots__})
            if self.dut.fresh.value:
                break
        want = expected(self.registers)
        assert_equal("values", got, want, registers=self.registers)
        return cycles


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def follow_every_write(dut):
    """Whenever derived values are fresh they are right; they are fresh in time after writes or a clear."""
    bench = Bench(dut)
    await start(dut)
    assert await bench.settle() == 1
    for _ in range(600):
        for _ in range(bench.random.choice((1, 1, 2, 5))):
            await bench.write()
            for _ in range(bench.random.choice((0, 0, 3, 12))):
                await bench.cycle()
        if bench.random.random() < 0.1:
            bench.registers = Registers.reset(CONFIG)
            dut.clear.value, bench.since = 1, 0
            await bench.cycle()
        assert await bench.settle() <= LATENCY + (0 if bench.registers.iterations_x < 2 else 16)
    assert bench.early
