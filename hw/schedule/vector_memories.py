"""The vector memories and the arbitration of their ports."""

from amaranth import *
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib import message_payloads
from concord.hw.lib.payloads import OPERANDS, VECTOR_READ, address_bits, word
from concord.hw.lib.pipeline import delay
from concord.hw.schedule.address_generator import vector_reads
from concord.hw.schedule.writeback import write_request
from concord.spec.isa.memories import VRFS, depth
from concord.spec.machine.config import Config


def readers(config: Config) -> tuple[str, ...]:
    """The readers in falling priority: the tile engines are to be busy first."""
    return "fetch", "issue", "copy", *["gather"] * bool(config.vector_rf), "host"


class VectorMemories(wiring.Component):
    """Each vector memory has one source port and one write port. Those that feed a stage have an operand port as well.

    Members:
        fetch, issue, copy, gather, host: In(`vector_reads`). Reads at the source ports.
        addresses: In. Addresses of operands. operands: Out. Words of operands, `VECTOR_READ` cycles later.
        mfu: In. Writes of the multi-function units, always taken.
        copies: In. Writes of the copy pipeline. free: Out. Memories that take a copy now.
        load: In(stream). Words from the host, while no program runs.

    Timing:
        Words come `VECTOR_READ` cycles after their grant, and operands as long after their address, since a block RAM
        is slow and its words are registered. A word can be read in the cycle after its write. Reset does not change
        the memories.
    """

    def __init__(self, config: Config):
        self.config, self.readers = config, readers(config)
        writes = data.ArrayLayout(write_request(config), len(VRFS))
        super().__init__({
            **{reader: In(vector_reads(config)) for reader in self.readers},
            "addresses": In(data.ArrayLayout(address_bits(config), len(OPERANDS))),
            "operands": Out(data.ArrayLayout(word(config), len(OPERANDS))),
            "mfu": In(writes), "copies": In(writes), "free": Out(len(VRFS)),
            "load": In(stream.Signature(message_payloads.write(config)))})

    def elaborate(self, platform):
        m = Module()
        memories = [memory.Memory(shape=word(self.config), depth=depth(self.config, mem), init=[]) for mem in VRFS]
        for mem, words in zip(VRFS, memories, strict=True):
            m.submodules[mem.name.lower()] = words
        reads = [words.read_port() for words in memories]
        self._source_ports(m, reads)
        for k, v in enumerate(OPERANDS):
            operand = memories[v].read_port()
            later = delay(m, operand.data, VECTOR_READ - 1)
            m.d.comb += [operand.addr.eq(self.addresses[k]), self.operands[k].eq(later)]
        m.d.comb += self.load.ready.eq(1)
        for v, words in enumerate(memories):
            self._write_port(m, v, words.write_port())
        return m

    def _source_ports(self, m, reads):
        """Give the source port of each memory to the first reader that requests it."""
        ports = [getattr(self, reader) for reader in self.readers]
        wants = [port.request for port in ports]
        words = [delay(m, Value.cast(read.data), VECTOR_READ - 1) for read in reads]
        for k, (port, want) in enumerate(zip(ports, wants, strict=True)):
            taken = Cat(other.valid & (other.memory == want.memory) for other in wants[:k]).any()
            m.d.comb += port.grant.eq(~taken)
            with m.Switch(delay(m, want.memory, VECTOR_READ)):
                for v, found in enumerate(words):
                    with m.Case(v):
                        m.d.comb += port.data.eq(found)
        for v, read in enumerate(reads):
            for want in reversed(wants):
                with m.If(want.valid & (want.memory == v)):
                    m.d.comb += read.addr.eq(want.address)

    def _write_port(self, m, v, write):
        """Write for the multi-function units first, then for the copy pipeline, then for the host."""
        mfu, copy, load = self.mfu[v], self.copies[v], self.load.p
        m.d.comb += [self.free[v].eq(~mfu.valid), write.addr.eq(load.address), write.data.eq(load.word),
                     write.en.eq(mfu.valid | copy.valid | (self.load.valid & (load.memory == VRFS[v])))]
        with m.If(mfu.valid):
            m.d.comb += [write.addr.eq(mfu.address), write.data.eq(mfu.word)]
        with m.Elif(copy.valid):
            m.d.comb += [write.addr.eq(copy.address), write.data.eq(copy.word)]
