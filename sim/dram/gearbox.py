"""Testbench of hw.dram.gearbox: the same bits in the same order, at full rate, and what `skip` leaves of them."""

import random

import cocotb
from concord.hw.dram.gearbox import Gearbox
from concord.sim.drivers.bench import CONFIG
from concord.sim.drivers.stream import Sink, StreamSource, clock, every_cycle, start
from concord.spec.machine.config import preset_name

CONFIGURATIONS = ("tiny", "serial", "wide", "speech", "ulx3s")
TESTED = ("tiny", "serial", "wide", "speech", "ulx3s")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "i.ready.eq(at >= self.taken)", "new": "i.ready.eq(1)"},
    {"old": "at <= steps - self.given", "new": "at < steps - self.given"},
    {"old": "// self.taken) + 2", "new": "// self.taken) + 1"},
    {"old": "Mux(following > k * self.taken", "new": "Mux(following >= k * self.taken"},
    {"old": "Mux(self.skip, begin, following)", "new": "following"},
    {"old": "last.eq(self.skip | (index", "new": "last.eq((index", "config": "speech"},
    {"old": "Mux(last, 0, index + 1)", "new": "index + 1", "config": "speech"},
    {"old": "i.ready.eq(~full | o.ready)", "new": "i.ready.eq(1)", "config": "wide"},
    {"old": "Mux(full & o.ready, 0, count)", "new": "Mux(full, 0, count)", "config": "wide"},
)

#: Bits in and out, and whether the sides are apart: neither divides the other, and the input is wider; fields of odd
#: width from numbers; a whole number of payloads in for each one out; of payloads out for each one in; equal widths
#: with registers between, as there is nothing to test without them.
WIDTHS = {"tiny": (32, 24, False), "serial": (16, 5, False), "wide": (8, 40, False), "speech": (40, 8, False),
          "ulx3s": (24, 24, True)}
TAKEN, GIVEN, APART = WIDTHS[preset_name(CONFIG)]


def component(config) -> Gearbox:
    """A gearbox with the widths of this run."""
    taken, given, apart = WIDTHS[preset_name(config)]
    return Gearbox(taken, given, apart=apart)


@cocotb.test(timeout_time=200, timeout_unit="us")
@cocotb.parametrize(stall=[(0.0, 0.0), (0.5, 0.0), (0.0, 0.5), (0.3, 0.3)], skips=[0.0, 0.1, 0.7])
async def bits_keep_their_order(dut, stall, skips):
    """All bits of random payloads, without those that are skipped with random payloads out."""
    chance, count, at, skipped = random.Random(cocotb.RANDOM_SEED), 495, 0, 0
    source, sink = StreamSource(dut, "i", stall=stall[0]), Sink(dut, "o", stall=stall[1])
    payloads = [chance.getrandbits(TAKEN) for _ in range(count)]
    bits = sum(payload << k * TAKEN for k, payload in enumerate(payloads))

    def step():
        nonlocal at, skipped
        while sink.queue:
            assert sink.queue.popleft() == bits >> at & (1 << GIVEN) - 1
            at += GIVEN
            if skipped:
                at += -at % TAKEN
        skipped = int(chance.random() < skips)  # of the next cycle
        dut.skip.value = skipped

    await start(dut, "skip")
    every_cycle(dut, step)
    source.put(*payloads)
    while at + GIVEN <= count * TAKEN:
        await clock(dut)
    await clock(dut, 2)
    assert not source.queue


@cocotb.test(timeout_time=200, timeout_unit="us")
async def one_payload_a_cycle(dut):
    """The side with the narrower payloads moves one in each cycle."""
    sink = Sink(dut, "o")
    await start(dut, "skip")
    dut.i__valid.value = 1
    await clock(dut, 20)
    cycles, before = 400, len(sink.queue)
    await clock(dut, cycles)
    assert abs(len(sink.queue) - before - cycles * min(1, TAKEN / GIVEN)) <= 2


@cocotb.test(timeout_time=200, timeout_unit="us", skip=not APART)
async def sides_are_apart(dut):
    """A full gearbox has room in the cycle after a payload out, not in the same one."""
    await start(dut, "skip", "o__ready")
    dut.i__valid.value = 1
    await clock(dut, 20)
    dut.o__ready.value = 1
    await clock(dut)
    assert dut.o__valid.value
    assert not dut.i__ready.value
    await clock(dut)
    assert dut.i__ready.value
