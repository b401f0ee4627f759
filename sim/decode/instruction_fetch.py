"""Testbench of hw.decode.instruction_fetch: instructions come in order, and from the target after a jump."""

import random

import cocotb
from concord.hw.lib import message_payloads
from concord.hw.lib.payloads import Fetched
from concord.sim.drivers.bench import CONFIG, Packer
from concord.sim.drivers.stream import Sink, StreamSource, clock, start
from concord.spec.isa.instructions import WORD

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "following.eq(self.target)", "new": "following.eq(self.target + 1)"},
)

SIZE = CONFIG.instructions
WRITE = Packer(message_payloads.Program)
INSTRUCTION = Packer(Fetched)


class Bench:
    """The unit, and its instruction buffer as a list; instructions are written through the port `program`."""

    def __init__(self, dut, stall: float):
        self.dut, self.stall, self.random = dut, stall, random.Random(cocotb.RANDOM_SEED)
        self.source = StreamSource(dut, "program", stall=stall)
        self.buffer = [0] * SIZE
        dut.run.value = dut.jump.value = 0

    async def write(self, addresses):
        """Write new random instructions at these addresses."""
        for address in addresses:
            self.buffer[address] = self.random.getrandbits(WORD)
        await self.source.send(*(WRITE.join({"address": a, "data": self.buffer[a]}) for a in addresses))
        await clock(self.dut, 1)

    async def run(self, count: int, jumps: float):
        """Take `count` instructions from address 0 on; each may jump, and one beyond the buffer must."""
        dut, taken, address, gap = self.dut, 0, 0, 3
        sink = Sink(dut, "o", seed=self.random.random(), stall=self.stall)
        dut.run.value = 1
        since = 0
        while taken < count:
            # The jump is driven whether the instruction is taken or not; it counts only if the instruction is taken.
            jump = address == SIZE or self.random.random() < jumps
            target = self.random.choice((0, SIZE, SIZE - 1, self.random.randrange(SIZE)))
            dut.jump.value, dut.target.value = int(jump), target
            await clock(dut)
            since += 1
            if not (dut.o__valid.value and dut.o__ready.value):
                continue
            assert INSTRUCTION.of(int(dut.o__payload.value)) | {"word": 0} == {
                "address": address, "word": 0, "outside": address == SIZE}
            if address < SIZE:
                assert INSTRUCTION.of(int(dut.o__payload.value))["word"] == self.buffer[address]
            assert self.stall or taken == 0 or since == gap, f"instruction {taken} came after {since} cycles"
            taken, since, gap = taken + 1, 0, 3 if jump else 2
            address = target if jump else address + 1
        sink.task.cancel()
        dut.run.value = dut.o__ready.value = 0
        await clock(dut, 2)
        assert not dut.o__valid.value


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.5])
async def reads_in_order(dut, stall):
    """Programs with no, few or many jumps; some instructions are replaced between runs; every run begins at 0."""
    bench = Bench(dut, stall)
    await start(dut)
    await bench.write(bench.random.sample(range(SIZE), SIZE))
    for jumps in (0.0, 0.05, 0.5, 1.0) * 2:
        await bench.run(SIZE + 5 if not jumps else 150, jumps)
        await bench.write([bench.random.randrange(SIZE) for _ in range(20)])
