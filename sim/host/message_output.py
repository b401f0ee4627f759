# amaranth: UnusedElaboratable=no
"""Testbench of hw.host.message_output against spec.host.messages."""

from typing import Self

import cocotb
import numpy as np
from cocotbext.axi import AxiStreamSink
from concord.hw.host.axi_streams import AxiStreams
from concord.hw.host.message_output import MessageOutput
from concord.hw.lib import message_payloads
from concord.sim.drivers.axi_stream import monitor, stream_end
from concord.sim.drivers.bench import CONFIG, pack
from concord.sim.drivers.stream import StreamSource, clock, start, until
from concord.sim.stimulus.message_cases import entry_bits
from concord.spec.host.messages import Message, MessageKind, entry_bytes, unpack
from concord.spec.host.messages import pack as message_bytes
from concord.spec.isa.memories import VRFS, Mem

CONFIGURATIONS = ("tiny", "serial", "wide", "vision")  # the last one has the widest words


def component(config) -> AxiStreams:
    """The unit, whose beats leave over AXI4-Stream."""
    return AxiStreams(MessageOutput(config), {"o": "m_axis"})


class Bench:
    """The unit with queues of words at its inputs and a host at its output."""

    def __init__(self, dut, stall: float = 0.0):
        self.dut, self.stall = dut, stall
        self.rng = np.random.default_rng(cocotb.RANDOM_SEED)
        self.attach()
        dut.reset.value = dut.peer.value = 0
        self.peer = 0

    def attach(self):
        """Connect new sources to the inputs."""
        self.net, self.reply, self.entry_reply, self.updated = self.sources = [
            StreamSource(self.dut, name, stall=self.stall) for name in ("net", "reply", "entry_reply", "updated")]

    def detach(self):
        """Drop what the sources hold, as queues do in a reset."""
        for source in self.sources:
            source.task.cancel()
            source.valid.value = 0

    async def start(self) -> Self:
        await start(self.dut)
        self.host = stream_end(AxiStreamSink, self.dut, "m_axis", cocotb.RANDOM_SEED, self.stall)
        cocotb.start_soon(monitor(self.dut, "m_axis"))
        return self

    async def receive(self) -> bytes:
        """The next packet, with the padding bytes of its last beat."""
        return bytes((await self.host.recv(compact=False)).tdata)

    def message(self, source: StreamSource, shape, kind: MessageKind, fields: dict[str, int], **header) -> bytes:
        """Queue the items of a message, some random words with these fields, and return the bytes expected."""
        words = self.rng.integers(0, 65536, (self.rng.integers(1, 8), CONFIG.mfu_lanes))
        left = np.arange(len(words), 0, -1)
        source.put(*pack(shape(CONFIG), {
            "word": words, "remaining": left, **{name: np.full_like(left, value) for name, value in fields.items()}}))
        sent = Message(kind=kind, count=len(words), payload=words.astype("<u2").tobytes(), **header)
        return message_bytes(CONFIG, sent, digest=self.peer or None if source is self.net else None)

    def output(self) -> bytes:
        """Queue the words of one OUTPUT message, and return the bytes expected."""
        kind = MessageKind.INPUT if self.peer else MessageKind.OUTPUT
        return self.message(self.net, message_payloads.output, kind, {})

    def answer(self) -> bytes:
        """Queue the words that answer a READ, and return the bytes expected."""
        memory = self.rng.choice(VRFS + (Mem.DRAM,) * (4 * bool(CONFIG.dram_words)))
        fields = {"address": int(self.rng.integers(1 << (32 if memory == Mem.DRAM else 16))), "memory": int(memory)}
        return self.message(self.reply, message_payloads.reply, MessageKind.READ, fields, **fields)

    def entries(self) -> bytes:
        """Queue the entries that answer a READ, and return the bytes expected; a machine without VectorRf has none."""
        if not CONFIG.vector_rf:
            return self.answer()
        address, bits, size = int(self.rng.integers(1 << 16)), entry_bits(CONFIG), entry_bytes(CONFIG)
        count = int(self.rng.integers(1, 6))
        values = [int.from_bytes(self.rng.bytes(size), "little") & (1 << bits) - 1 for _ in range(count)]
        self.entry_reply.put(*(value | address << bits | count - k << bits + 16 for k, value in enumerate(values)))
        return message_bytes(CONFIG, Message(
            kind=MessageKind.READ, memory=Mem.VECTOR_RF, address=address, count=count,
            payload=b"".join(value.to_bytes(size, "little") for value in values)))

    def parameters(self) -> bytes:
        """Queue the words of an UPDATED message, and return the bytes expected."""
        address = int(self.rng.integers(1 << 16))
        return self.message(self.updated, message_payloads.updated, MessageKind.UPDATED, {"exponents": address},
                            address=address)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.5], peer=[0, 0x90000000])
async def every_kind(dut, stall, peer):
    """Messages of each source arrive whole and in order, at any activity of the other sources, and with any peer."""
    bench = Bench(dut, stall)
    dut.peer.value = bench.peer = peer
    await bench.start()
    makers = (bench.output, bench.answer, bench.entries, bench.parameters)
    waiting = [[make() for _ in range(100)] for make in makers]
    for _ in range(len(makers) * 100):
        data = await bench.receive()
        next(queue for queue in waiting if queue and queue[0] == data).pop(0)
    assert not any(waiting)
    await clock(dut, 2)
    assert not dut.busy.value


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def one_word_a_cycle(dut):
    """Words leave without idle cycles, apart from those that the unit documents."""
    bench = await Bench(dut).start()
    sent = [unpack(CONFIG, bench.output(), to_machine=False).count for _ in range(50)]
    cycles = await until(dut, lambda: bench.host.count() >= len(sent))
    word, beat = 2 * CONFIG.mfu_lanes, CONFIG.message_bytes
    padding = [-count * word % beat // 4 for count in sent]
    assert cycles <= sum(sent) * max(1, word // beat) + sum(padding) + (4 + beat // 4 + 2) * len(sent) + 8


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def busy_until_taken(dut):
    """`busy` holds from the first word to the last beat."""
    bench = await Bench(dut).start()
    bench.host.clear_pause_generator()
    bench.host.pause = True
    sent = bench.output()
    await clock(dut, 100)
    assert dut.busy.value
    bench.host.pause = False
    assert await bench.receive() == sent


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.5])
async def reset_at_any_time(dut, stall):
    """A reset cuts the message under way, so that its CRC is wrong; the next message is intact."""
    bench = await Bench(dut, stall).start()
    for cycles in range(1, 80):
        lost = (bench.output, bench.answer, bench.entries, bench.parameters)[cycles % 4]()
        await clock(dut, cycles)
        dut.reset.value = 1
        bench.detach()
        await clock(dut, 1)
        dut.reset.value = 0
        bench.attach()
        await clock(dut, 1)
        sent = bench.output()
        data = await bench.receive()
        if data != sent:
            try:
                unpack(CONFIG, data, to_machine=False)
                assert data == lost, cycles
            except ValueError:
                pass
            data = await bench.receive()
        assert data == sent, cycles
        await clock(dut, 4)
        assert bench.host.empty()
