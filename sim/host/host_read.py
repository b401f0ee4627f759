"""Testbench of hw.host.host_read: the words that a READ asks for, with their place in the answer."""

import os
import random

import cocotb
from cocotb.triggers import RisingEdge
from concord.hw.lib import message_payloads
from concord.hw.lib.payloads import INDEX
from concord.sim.drivers.configs import from_text
from concord.sim.drivers.record import Record
from concord.sim.drivers.stream import Sink, Source, start
from concord.sim.reference.vector_memory import Vectors
from concord.spec.memories import VRFS, depth

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "(self.i.p.count - offset)[:32]", "new": "self.i.p.count"},
)

CONFIG = from_text(os.environ["CONFIG"])
READ, REPLY = Record(message_payloads.Read), Record(message_payloads.reply(CONFIG))


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.5])
async def answers(dut, stall):
    """Reads of any length from any address, from no word to a whole memory."""
    chance, seed = random.Random(cocotb.RANDOM_SEED), cocotb.RANDOM_SEED
    source, sink = Source(dut, "i", seed=seed, stall=stall), Sink(dut, "o", seed=seed, stall=stall)
    vectors = Vectors(dut, CONFIG, seed=seed, stall=stall)
    await start(dut)
    wanted = []
    for _ in range(40):
        mem = chance.choice(VRFS)
        address = chance.choice((0, chance.randrange(depth(CONFIG, mem))))
        count = chance.choice((0, depth(CONFIG, mem) - address, chance.randint(1, 3)))
        count = min(count, depth(CONFIG, mem) - address)
        source.put(READ.join({"memory": mem, "address": address, "count": count}))
        for k in range(count):
            words = Record(message_payloads.reply(CONFIG).members["word"]).of(vectors.contents[INDEX[mem]][address + k])
            wanted.append({"word": words, "memory": mem, "address": address, "remaining": count - k})
    cycles = 0
    while len(sink.queue) < len(wanted):
        await RisingEdge(dut.clk)
        cycles += 1
    assert [REPLY.of(payload) for payload in await sink.receive(len(wanted))] == wanted
    await source.drain()
    assert stall or cycles <= len(wanted) + 60
