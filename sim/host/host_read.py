"""Testbench of hw.host.host_read: the words and entries that a READ asks for, with their position in the answer."""

import random
from collections import deque

import cocotb
from concord.hw.dram.burst_reader import Range
from concord.hw.lib import message_payloads
from concord.hw.lib.payloads import ENTRY_READ, INDEX, entry, entry_reads
from concord.sim.drivers.bench import CONFIG, Packer
from concord.sim.drivers.stream import Sink, StreamSource, clock, every_cycle, start, until
from concord.sim.reference.hazards import Vectors
from concord.sim.stimulus.message_cases import readable
from concord.spec.isa.memories import VRFS, Mem, depth

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "left.eq(self.i.p.count - offset)", "new": "left.eq(self.i.p.count)"},
    {"old": "~coming.any() & ~self.entry_o.valid", "new": "~coming.any()"},
)
LONGEST = 100  #: Most words of Dram of one READ here.

READ, REPLY = Packer(message_payloads.read(CONFIG)), Packer(message_payloads.reply(CONFIG))
ENTRY, ENTRY_REPLY = Packer(entry(CONFIG)), Packer(message_payloads.entry_reply(CONFIG))
RANGE, WORD = Packer(Range), Packer(message_payloads.reply(CONFIG).members["word"])
READ_REQUEST = Packer(entry_reads(CONFIG).members["request"].shape)


def entry_memory(dut, entries: list[int], coming: deque[int], chance: random.Random, stall: float):
    """One cycle of VectorRf at the port `vector_rf`; an entry that was not requested is noise.

    Args:
        coming: Entries that have been read and do not show yet.
    """
    request = READ_REQUEST.of(int(dut.vector_rf__request.value))
    granted = request["valid"] and dut.vector_rf__grant.value
    coming.append(entries[request["address"]] if granted else chance.getrandbits(ENTRY.width))
    dut.vector_rf__entry.value = coming.popleft()
    dut.vector_rf__grant.value = int(chance.random() >= stall)


def outside_word(address: int) -> int:
    """What Dram holds at this address."""
    return random.Random(address).getrandbits(WORD.width)


async def outside_memory(dut, chance: random.Random, stall: float):
    """Dram at the ports `outside_range` and `outside`: each range comes at once, or some cycles after it was taken."""
    ranges, source = Sink(dut, "outside_range", stall=stall), StreamSource(dut, "outside", stall=stall)
    while True:
        asked = RANGE.of(await ranges.get())
        assert asked["last"] == 1
        assert asked["tag"] == 0
        assert not source.queue, "a range is asked for while words of another one are under way"
        await clock(dut, chance.choice((1, 1, 2, 9)))
        source.put(*(outside_word(asked["first"] + k) for k in range(asked["count"])))


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.5])
async def answers(dut, stall):
    """Reads of any length from any address, from no word or entry to a whole memory, or to many words of Dram."""
    chance, seed = random.Random(cocotb.RANDOM_SEED), cocotb.RANDOM_SEED
    source, sink = StreamSource(dut, "i", stall=stall), Sink(dut, "o", stall=stall)
    vectors, entry_sink = Vectors(dut, CONFIG, seed=seed, stall=stall), Sink(dut, "entry_o", stall=stall)
    entries = [chance.getrandbits(ENTRY.width) for _ in range(CONFIG.vector_rf)]
    coming = deque([0] * (ENTRY_READ - 1))
    every_cycle(dut, lambda: entry_memory(dut, entries, coming, chance, stall))
    if CONFIG.dram_words:
        cocotb.start_soon(outside_memory(dut, random.Random(seed), stall))
    await start(dut, "vector_rf__grant")
    wanted, wanted_entries = [], []
    for _ in range(40):
        mem = chance.choice(readable(CONFIG))
        address = chance.choice((0, chance.randrange(depth(CONFIG, mem))))
        count = chance.choice((0, depth(CONFIG, mem) - address, chance.randint(1, 3)))
        count = min(count, depth(CONFIG, mem) - address, LONGEST if mem == Mem.DRAM else count)
        source.put(READ.join({"memory": mem, "address": address, "count": count}))
        for k in range(count) if mem == Mem.VECTOR_RF else ():
            wanted_entries.append({
                "entry": ENTRY.of(entries[address + k]), "address": address, "remaining": count - k})
        for k in range(count) if mem != Mem.VECTOR_RF else ():
            word = vectors.contents[INDEX[mem]][address + k] if mem in VRFS else outside_word(address + k)
            wanted.append({"word": WORD.of(word), "memory": mem, "address": address, "remaining": count - k})
    cycles = await until(dut, lambda: len(sink.queue) >= len(wanted) and len(entry_sink.queue) >= len(wanted_entries))
    assert [REPLY.of(payload) for payload in await sink.receive(len(wanted))] == wanted
    got = [ENTRY_REPLY.of(payload) for payload in await entry_sink.receive(len(wanted_entries))]
    assert got == wanted_entries
    await source.drain()
    assert stall or cycles <= len(wanted) + (ENTRY_READ + 2) * len(wanted_entries) + (1000 if CONFIG.dram_words else 60)
