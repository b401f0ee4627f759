"""Testbench of hw.host.host_read: the words and entries that a READ asks for, with their place in the answer."""

import os
import random

import cocotb
from amaranth.lib import data
from cocotb.triggers import RisingEdge
from concord.hw.lib import message_payloads
from concord.hw.lib.payloads import INDEX, address_bits, entry
from concord.sim.drivers.configs import from_text
from concord.sim.drivers.record import Record
from concord.sim.drivers.stream import Sink, Source, start
from concord.sim.reference.vector_memory import Vectors
from concord.sim.stimulus.message_cases import readable
from concord.spec.memories import VRFS, Mem, depth

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "left.eq(self.i.p.count - offset)", "new": "left.eq(self.i.p.count)"},
    {"old": "~coming & ~self.entry_o.valid", "new": "~coming"},
)

CONFIG = from_text(os.environ["CONFIG"])
READ, REPLY = Record(message_payloads.Read), Record(message_payloads.reply(CONFIG))
ENTRY, ENTRY_REPLY = Record(entry(CONFIG)), Record(message_payloads.entry_reply(CONFIG))
ENTRY_READ = Record(data.StructLayout({"valid": 1, "address": address_bits(CONFIG)}))


async def entry_memory(dut, entries: list[int], chance: random.Random, stall: float):
    """VectorRf at the ports `entry_read`, `entry_grant` and `entry`; an entry that was not requested is noise."""
    dut.entry_grant.value = 0
    while True:
        await RisingEdge(dut.clk)
        request = ENTRY_READ.of(int(dut.entry_read.value))
        dut.entry.value = chance.getrandbits(ENTRY.width)
        if request["valid"] and dut.entry_grant.value:
            dut.entry.value = entries[request["address"]]
        dut.entry_grant.value = int(chance.random() >= stall)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.5])
async def answers(dut, stall):
    """Reads of any length from any address, from no word or entry to a whole memory."""
    chance, seed = random.Random(cocotb.RANDOM_SEED), cocotb.RANDOM_SEED
    source, sink = Source(dut, "i", seed=seed, stall=stall), Sink(dut, "o", seed=seed, stall=stall)
    vectors, entry_sink = Vectors(dut, CONFIG, seed=seed, stall=stall), Sink(dut, "entry_o", seed=seed, stall=stall)
    entries = [chance.getrandbits(ENTRY.width) for _ in range(CONFIG.vector_rf)]
    cocotb.start_soon(entry_memory(dut, entries, chance, stall))
    await start(dut)
    wanted, wanted_entries = [], []
    for _ in range(40):
        mem = chance.choice(readable(CONFIG))
        address = chance.choice((0, chance.randrange(depth(CONFIG, mem))))
        count = chance.choice((0, depth(CONFIG, mem) - address, chance.randint(1, 3)))
        count = min(count, depth(CONFIG, mem) - address)
        source.put(READ.join({"memory": mem, "address": address, "count": count}))
        for k in range(count) if mem == Mem.VECTOR_RF else ():
            wanted_entries.append({
                "entry": ENTRY.of(entries[address + k]), "address": address, "remaining": count - k})
        for k in range(count) if mem in VRFS else ():
            words = Record(message_payloads.reply(CONFIG).members["word"]).of(vectors.contents[INDEX[mem]][address + k])
            wanted.append({"word": words, "memory": mem, "address": address, "remaining": count - k})
    cycles = 0
    while len(sink.queue) < len(wanted) or len(entry_sink.queue) < len(wanted_entries):
        await RisingEdge(dut.clk)
        cycles += 1
    assert [REPLY.of(payload) for payload in await sink.receive(len(wanted))] == wanted
    got = [ENTRY_REPLY.of(payload) for payload in await entry_sink.receive(len(wanted_entries))]
    assert got == wanted_entries
    await source.drain()
    assert stall or cycles <= len(wanted) + 3 * len(wanted_entries) + 60
