"""Testbench of hw.dram.gearbox: the same bits in the same order, at full rate, and nothing of them after `clear`."""

import random

import cocotb
from concord.hw.dram.gearbox import Gearbox
from concord.sim.drivers.bench import CONFIG
from concord.sim.drivers.stream import Sink, StreamSource, clock, start

TESTED = ("tiny", "serial", "wide")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "self.i.ready.eq(at >= self.taken)", "new": "self.i.ready.eq(1)"},
    {"old": "at <= steps - self.given", "new": "at < steps - self.given"},
    {"old": "// self.taken) + 2", "new": "// self.taken) + 1"},
    {"old": "m.d.sync += [at.eq(steps), self.o.valid.eq(0)]", "new": "m.d.sync += at.eq(steps)"},
    {"old": "m.d.sync += [at.eq(steps), self.o.valid.eq(0)]", "new": "m.d.sync += self.o.valid.eq(0)"},
)

#: Bits in and out, by native dimension: neither divides the other, and the input is wider; fields of odd width from
#: numbers; a whole number of payloads in for each one out.
WIDTHS = {8: (32, 24), 4: (16, 5), 16: (8, 40)}


def component(config) -> Gearbox:
    """A gearbox with the widths of this run."""
    return Gearbox(*WIDTHS[config.native_dim])


TAKEN, GIVEN = WIDTHS[CONFIG.native_dim]


def cut(payloads, bits: int) -> list[int]:
    """The payloads of `bits` bits that payloads in fill."""
    value = sum(payload << k * TAKEN for k, payload in enumerate(payloads))
    return [value >> k * bits & (1 << bits) - 1 for k in range(len(payloads) * TAKEN // bits)]


@cocotb.test(timeout_time=200, timeout_unit="us")
@cocotb.parametrize(stall=[(0.0, 0.0), (0.5, 0.0), (0.0, 0.5), (0.3, 0.3)])
async def bits_keep_their_order(dut, stall):
    """All bits of random payloads, which fill a whole number of payloads out."""
    chance = random.Random(cocotb.RANDOM_SEED)
    source, sink = StreamSource(dut, "i", stall=stall[0]), Sink(dut, "o", stall=stall[1])
    await start(dut, "clear")
    payloads = [chance.getrandbits(TAKEN) for _ in range(495)]
    source.put(*payloads)
    expected = cut(payloads, GIVEN)
    assert await sink.receive(len(expected)) == expected


@cocotb.test(timeout_time=200, timeout_unit="us")
async def one_payload_a_cycle(dut):
    """The side with the narrower payloads moves one in each cycle."""
    sink = Sink(dut, "o")
    await start(dut, "clear")
    dut.i__valid.value = 1
    await clock(dut, 20)
    cycles, before = 400, len(sink.queue)
    await clock(dut, cycles)
    assert abs(len(sink.queue) - before - cycles * min(1, TAKEN / GIVEN)) <= 2


@cocotb.test(timeout_time=200, timeout_unit="us")
@cocotb.parametrize(busy=[0.3, 0.6, 0.95])
async def clear_leaves_nothing(dut, busy):
    """In random cycles: bits in and out are those of a queue that is empty after each `clear`."""
    chance, bits, count = random.Random(cocotb.RANDOM_SEED), 0, 0
    dut.i__valid.value = dut.o__ready.value = 0
    await start(dut, "clear")
    for _ in range(4000):
        await clock(dut)
        if dut.o__valid.value and dut.o__ready.value:
            assert count >= GIVEN
            assert int(dut.o__payload.value) == bits & (1 << GIVEN) - 1
            bits, count = bits >> GIVEN, count - GIVEN
        if dut.i__valid.value and dut.i__ready.value:
            bits, count = bits | int(dut.i__payload.value) << count, count + TAKEN
        if dut.clear.value:
            bits = count = 0
        dut.i__valid.value, dut.i__payload.value = int(chance.random() < busy), chance.getrandbits(TAKEN)
        dut.o__ready.value, dut.clear.value = int(chance.random() < 0.6), int(chance.random() < 0.05)
