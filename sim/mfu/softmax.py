"""Testbench of hw.mfu.softmax against golden.mfu.softmax: messages with and without softmax, in order."""

import cocotb
import numpy as np
from cocotb.utils import get_sim_time
from concord.golden.mfu.softmax import softmax
from concord.hw.lib import message_payloads
from concord.sim.drivers.bench import CONFIG, assert_equal, pack, unpack
from concord.sim.drivers.stream import Sink, StreamSource, clock, reset, start

CONFIGURATIONS = ("tiny_softmax",)
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "(place > largest)", "new": "(place < largest)"},
    {"old": "(undefined & ~first_entered)", "new": "undefined"},
    {"old": "(sign & ~lost)", "new": "sign"},
    {"old": "undefined | (largest == _LOWEST)", "new": "undefined"},
    {"old": "Cat(rest.any(), quotient)", "new": "Cat(0, quotient)"},
    {"old": "m.d.sync += total.eq(0)", "new": "pass"},
    {"old": "filled.eq(0), out.eq(0)", "new": "filled.eq(0)"},
    {"old": "issued.eq(end_of_word)", "new": "issued.eq(0)"},
)

LANES, WORDS = CONFIG.mfu_lanes, CONFIG.softmax_words
OUTGOING, OUTPUT = message_payloads.outgoing(CONFIG), message_payloads.output(CONFIG)
SPECIAL = np.array([0x7C00, 0xFC00, 0x7E01, 0xFC01, 0x7BFF, 0xFBFF, 0, 0x8000], np.uint16)


def elements(rng, count: int) -> np.ndarray:
    """Elements of one message: of one size, or any patterns, some of them special, or nothing but -inf."""
    bits = rng.normal(0, rng.choice((2.0**-9, 0.3, 3, 30)), count).astype(np.float16).view(np.uint16)
    kind = rng.random()
    if kind < 0.2:
        bits = rng.integers(0, 1 << 16, count, dtype=np.uint16)
    if kind < 0.3:
        bits = np.where(rng.random(count) < 0.15, rng.choice(SPECIAL, count), bits)
    return np.full(count, 0xFC00, np.uint16) if 0.3 < kind < 0.35 else bits


def message(rng, asks: bool) -> tuple[list[int], np.ndarray]:
    """The payloads of a message, and its words after the unit."""
    count = int(rng.integers(1, LANES * WORDS + 1))
    words = -(-count // LANES)
    sent = np.zeros(words * LANES, np.uint16)
    sent[:count] = elements(rng, count)
    wanted = sent.copy()
    if asks:
        wanted[:count] = softmax(sent[:count])
    left = np.arange(words, 0, -1)
    payloads = pack(OUTGOING, {
        "word": sent.reshape(-1, LANES), "remaining": left, "softmax": np.full(words, int(asks)),
        "tail": np.full(words, count % LANES)})
    return payloads, wanted.reshape(-1, LANES)


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.4, 0.9])
async def matches_golden(dut, stall):
    """Messages of all lengths, most of which ask for their softmax; source and sink stall at random."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    source = StreamSource(dut, "i", stall=stall)
    sink = Sink(dut, "o", stall=stall)
    await start(dut)
    for _ in range(120):
        payloads, wanted = message(rng, bool(rng.random() < 0.8))
        source.put(*payloads)
        got = unpack(OUTPUT, await sink.receive(len(wanted)))
        assert_equal("word", got["word"], wanted)
        assert_equal("remaining", got["remaining"], np.arange(len(wanted), 0, -1))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def takes_the_cycles_that_it_says(dut):
    """A message of n elements in w words takes 16 n + 22 w + 13 cycles, the first and the last one included."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    source, sink = StreamSource(dut, "i"), Sink(dut, "o")
    await start(dut)
    for _ in range(10):
        payloads, wanted = message(rng, asks=True)
        count = (len(wanted) - 1) * LANES + ((unpack(OUTGOING, payloads)["tail"][0] - 1) % LANES + 1)
        source.put(*payloads)
        while not int(dut.i__valid.value):
            await clock(dut)
        began = get_sim_time("ns")
        await sink.receive(len(wanted))
        assert_equal("cycles", (get_sim_time("ns") - began) / 2 + 1, 16 * count + 22 * len(wanted) + 13)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def busy_until_the_last_word_is_taken(dut):
    """`busy` rises after the last word that the unit takes, and falls after the last one that it gives."""
    source, sink = StreamSource(dut, "i"), Sink(dut, "o", stall=0.5)
    await start(dut)
    payloads, wanted = message(np.random.default_rng(cocotb.RANDOM_SEED), asks=True)
    await source.send(*payloads)
    await clock(dut)
    seen = 0
    while len(sink.queue) < len(wanted):
        assert int(dut.busy.value), "busy is low while the unit holds a message"
        seen += 1
        await clock(dut)
    await clock(dut)
    assert seen > 20
    assert not int(dut.busy.value)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_reset_discards_a_message(dut):
    """In whatever step a reset comes, the message after it comes out right."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    sink = Sink(dut, "o", seed=1, stall=0.3)
    await start(dut)
    for _ in range(25):
        source = StreamSource(dut, "i")
        source.put(*message(rng, asks=True)[0])
        await clock(dut, int(rng.integers(1, 150)))
        source.task.cancel()
        source.valid.value = 0
        await reset(dut)
        await clock(dut)
        sink.queue.clear()
        source = StreamSource(dut, "i")
        payloads, wanted = message(rng, asks=True)
        await source.send(*payloads)
        assert_equal("word", unpack(OUTPUT, await sink.receive(len(wanted)))["word"], wanted)
        source.task.cancel()
