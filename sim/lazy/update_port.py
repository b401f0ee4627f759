"""Testbench of hw.lazy.update_port: tensors of UPDATE messages become the UPDATED words of golden.machine."""

import cocotb
import numpy as np
from concord.golden.host.messages import words_of
from concord.golden.lazy.lazy_update import Parameters, one_pass
from concord.golden.lazy.update_messages import update_message, update_of, updated_message
from concord.hw.lazy.update_port import UpdatePort
from concord.hw.lib import message_payloads
from concord.sim.drivers.bench import CONFIG, Packer, assert_equal, pack, unpack
from concord.sim.drivers.stream import Sink, StreamSource, clock, every_cycle, start
from concord.spec.host.messages import unpack as message_of
from concord.spec.numbers.lazy import LazyFormat

CONFIGURATIONS = ("tiny", "trainer")

FULL = LazyFormat()
EVENTS = Packer(UpdatePort(CONFIG).events.shape())


def blocks(rng, count: int):
    """UPDATE messages of tensors of all sizes; some ask for a change of the exponent."""
    for _ in range(count):
        size = int(rng.integers(1, 6 * CONFIG.mfu_lanes))
        old = Parameters(rng.integers(-128, 128, size) >> rng.integers(0, 8), rng.integers(-(1 << 14), 1 << 14, size),
                         int(rng.integers(-40, 40)), FULL)
        update = rng.integers(-(1 << 31), 1 << 31, size) >> rng.integers(0, 16)
        change = int(rng.choice([0, 0, 0, *FULL.changes]))
        yield message_of(CONFIG, update_message(
            CONFIG, old, update, old.exponent + int(rng.integers(-24, 14)), change), to_machine=True)


def items(message) -> list[int]:
    """The items that `hw.host.message_input` makes of a message."""
    words = words_of(CONFIG, message).reshape(-1, 4, CONFIG.mfu_lanes)
    count = len(words)
    return pack(message_payloads.update(CONFIG), {
        "exponents": np.full(count, message.address), "change": np.full(count, message.memory),
        "remaining": np.arange(count, 0, -1), "words": words.astype(np.int64)})


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.4])
async def matches_golden(dut, stall):
    """The UPDATED words, and the events of each tensor's last pass, are golden's."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    source, sink = StreamSource(dut, "i", stall=stall), Sink(dut, "o", stall=stall)
    await start(dut)
    counted = dict.fromkeys(EVENTS.parts, 0)

    def count():
        for name, value in EVENTS.of(int(dut.events.value)).items():
            counted[name] += value

    every_cycle(dut, count)
    expected, kinds = dict.fromkeys(counted, 0), set()
    for message in blocks(rng, 120):
        source.put(*items(message))
        *block, change = update_of(CONFIG, message)
        done = one_pass(*block, change)
        reply = message_of(CONFIG, updated_message(CONFIG, message.address, done), to_machine=False)
        got = unpack(message_payloads.updated(CONFIG), await sink.receive(reply.count))
        assert_equal("word", got["word"], words_of(CONFIG, reply))
        assert_equal("exponents", got["exponents"], np.full(len(got["exponents"]), message.address))
        assert_equal("remaining", got["remaining"], np.arange(reply.count, 0, -1))
        kinds.add((int(done.repeat), change != 0))
        if not done.repeat:
            for name in ("steps", "rounded", "saturations"):
                expected[name] += getattr(done, name)
            expected["changes"] += change != 0
    await clock(dut, 2)
    assert counted == expected
    assert {(0, False), (0, True), (1, False)} <= kinds
