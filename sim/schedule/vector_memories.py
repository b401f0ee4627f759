# amaranth: UnusedElaboratable=no
"""Testbench of hw.schedule.vector_memories: contents against lists of words, and the priority of readers."""

import random
from collections import deque

import cocotb
from amaranth.lib import data
from concord.hw.lib import message_payloads
from concord.hw.lib.payloads import OPERANDS, VECTOR_READ, address_bits, word
from concord.hw.schedule.address_generator import read_request
from concord.hw.schedule.vector_memories import readers
from concord.hw.schedule.writeback import write_request
from concord.sim.drivers.bench import CONFIG, Packer, assert_equal
from concord.sim.drivers.stream import clock, start
from concord.spec.isa.memories import VRFS, depth

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "other.memory == want.memory", "new": "other.memory >= want.memory"},
)

READERS = readers(CONFIG)
BITS, DEPTHS = word(CONFIG).size, [depth(CONFIG, mem) for mem in VRFS]
REQUEST, LOAD = Packer(read_request(CONFIG)), Packer(message_payloads.write(CONFIG))
WRITES = Packer(data.ArrayLayout(write_request(CONFIG), len(VRFS)))
WORD = Packer(word(CONFIG))
FOUND = Packer(data.ArrayLayout(BITS, len(OPERANDS)))
ADDRESSES = Packer(data.ArrayLayout(address_bits(CONFIG), len(OPERANDS)))


class Bench:
    """The unit with random requests at all ports, and its words in lists."""

    def __init__(self, dut):
        self.dut, self.random = dut, random.Random(cocotb.RANDOM_SEED)
        self.contents: list[dict[int, int]] = [{} for _ in VRFS]
        self.reads, self.operands, self.written, self.checked = {}, {}, {}, 0

    def address(self, memory: int) -> int:
        """A random address, mostly one of a few, so that reads meet writes."""
        return self.random.randrange(min(6, DEPTHS[memory]) if self.random.random() < 0.8 else DEPTHS[memory])

    def write(self, chance: float) -> dict[int, dict]:
        """Writes of random words to some memories; `chance` is the probability of each."""
        return {v: {"valid": 1, "address": self.address(v), "word": WORD.of(self.random.getrandbits(BITS))}
                for v in range(len(VRFS)) if self.random.random() < chance}

    def drive(self):
        """Drive the requests of a cycle, and note the expected words, unless they are written in the same cycle."""
        dut, self.written = self.dut, {}
        mfu = self.write(0.3)
        copies = {v: w for v, w in self.write(0.4).items() if v not in mfu}  # a writer waits for `free`
        dut.mfu.value, dut.copies.value = WRITES.join(mfu), WRITES.join(copies)
        load = self.write(0.2) if not mfu and not copies else {}
        dut.load__valid.value = 0
        for v, write in list(load.items())[:1]:
            dut.load__valid.value = 1
            dut.load__payload.value = LOAD.join({"memory": VRFS[v], "address": write["address"], "word": write["word"]})
            mfu |= {v: write}
        self.written = {(v, w["address"]): WORD.join(w["word"]) for v, w in (mfu | copies).items()}
        self.free = sum((v not in mfu or v in load) << v for v in range(len(VRFS)))

        taken, self.reads, self.grants = set(), {}, 0
        for k, name in enumerate(READERS):
            memory = self.random.randrange(len(VRFS))
            request = {"valid": self.random.getrandbits(1), "memory": memory, "address": self.address(memory)}
            getattr(dut, f"{name}__request").value = REQUEST.join(request)
            self.grants |= (memory not in taken) << k
            if request["valid"] and memory not in taken:
                self.reads[k] = memory, request["address"]
            taken |= {memory} if request["valid"] else set()
        self.operands = {k: (v, self.address(v)) for k, v in enumerate(OPERANDS)}
        dut.addresses.value = ADDRESSES.join({k: address for k, (_, address) in self.operands.items()})

    def expected(self, addresses: dict[int, tuple[int, int]]) -> dict[int, int]:
        """The words that must come `VECTOR_READ` cycles later."""
        return {k: self.contents[v][address] for k, (v, address) in addresses.items()
                if address in self.contents[v] and (v, address) not in self.written}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def everything_at_once(dut):
    """All readers, four operands, three writers: a read finds the last word written, the first reader has priority."""
    bench, coming, found = Bench(dut), deque([{}] * VECTOR_READ), deque([{}] * VECTOR_READ)
    for name in ("mfu", "copies", "addresses", "load__valid", *(f"{name}__request" for name in READERS)):
        getattr(dut, name).value = 0
    await start(dut)
    for _ in range(4000):
        bench.drive()
        await clock(dut)
        got = {k: int(getattr(dut, f"{name}__data").value) for k, name in enumerate(READERS)}
        got_operands = FOUND.of(int(dut.operands.value))
        words, operands = coming.popleft(), found.popleft()
        assert_equal("words", got, words)
        assert_equal("operands", got_operands, operands)
        bench.checked += len(words) + len(operands)
        assert [int(getattr(dut, f"{name}__grant").value) for name in READERS] == [
            bench.grants >> k & 1 for k in range(len(READERS))]
        assert int(dut.free.value) == bench.free
        assert dut.load__ready.value
        coming.append(bench.expected(bench.reads))
        found.append(bench.expected(bench.operands))
        for (memory, address), value in bench.written.items():
            bench.contents[memory][address] = value
    assert bench.checked > 10000
