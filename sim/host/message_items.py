"""Testbench of hw.host.message_items: payloads of every kind become their items."""

import cocotb
import numpy as np
from concord.hw.lib import message_payloads
from concord.sim.drivers.bench import CONFIG, Packer
from concord.sim.drivers.stream import Sink, StreamSource, clock, every_cycle, start, until
from concord.sim.stimulus.message_cases import items, message, to_machine
from concord.spec.host.messages import Message, MessageKind, item_bytes, pack, record_bytes

CONFIGURATIONS = ("tiny", "serial", "wide", "vision")  # the last one has the widest words

HEADER = Packer(message_payloads.header(CONFIG))
OUTS = tuple(message_payloads.items(CONFIG))
KINDS = tuple(kind for kind in to_machine(CONFIG) if kind != MessageKind.READ)


class Bench:
    """The unit with the payload of a message at its input and sinks instead of the memories."""

    def __init__(self, dut, stall: float):
        self.dut = dut
        self.sinks = {name: Sink(dut, name, stall=stall) for name in OUTS}
        self.source = StreamSource(dut, "i", stall=stall)
        dut.start.value = dut.restart.value = dut.reset.value = 0

    async def begin(self, packet: Message) -> None:
        """Wait until no item is left, then give the unit the header of a message."""
        await until(self.dut, lambda: not self.dut.waiting.value)
        self.dut.header.value = HEADER.join({
            "kind": packet.kind, "memory": packet.memory, "integer": packet.integer, "address": packet.address,
            "count": packet.count})
        self.dut.start.value = 1
        await clock(self.dut)
        self.dut.start.value = 0

    async def payload(self, units: list[int]) -> list[bool]:
        """Send message units, and return for each whether `last` was high when it was taken."""
        self.seen, watch = [], every_cycle(self.dut, self._watch)
        await self.source.send(*units)
        watch.cancel()
        await clock(self.dut)
        return self.seen

    def _watch(self) -> None:
        if self.source.valid.value and self.source.ready.value:
            self.seen.append(bool(self.dut.last.value))

    async def taken(self) -> dict[str, list[int]]:
        """Wait until no item is left, then return the items of each output stream."""
        quiet = 0
        while quiet < 4:
            await clock(self.dut)
            quiet = 0 if self.dut.waiting.value else quiet + 1
        outs = {name: list(sink.queue) for name, sink in self.sinks.items()}
        for sink in self.sinks.values():
            sink.queue.clear()
        return outs


def units(packet: Message, rng: np.random.Generator) -> list[int]:
    """The payload of a message, cut into units; narrow ones have noise above them."""
    size = record_bytes(CONFIG) if packet.kind == MessageKind.PACKED else item_bytes(CONFIG, packet.kind, packet.memory)
    width, wide = message_payloads.unit_bits(CONFIG, size) // 8, message_payloads.wide_unit(CONFIG) // 8
    return [int.from_bytes(packet.payload[k:k + width] + rng.bytes(wide - width), "little")
            for k in range(0, len(packet.payload), width)]


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.5])
async def every_kind(dut, stall):
    """Items come out in order, each once; the last unit of a payload is marked."""
    rng, bench = np.random.default_rng(cocotb.RANDOM_SEED), Bench(dut, stall)
    await start(dut)
    for kind in rng.permutation(np.repeat(KINDS, 8)):
        packet = message(CONFIG, rng, MessageKind(kind))
        await bench.begin(packet)
        marks = await bench.payload(units(packet, rng))
        assert marks == [False] * (len(marks) - 1) + [True], packet.kind.name
        want = items(CONFIG, pack(CONFIG, packet))
        assert await bench.taken() == {name: want[name] for name in OUTS}, packet.kind.name


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_broken_payload_leaves_nothing(dut):
    """After a `restart` or a reset in the middle of an item, the next payload is intact."""
    rng, bench = np.random.default_rng(cocotb.RANDOM_SEED), Bench(dut, 0.2)
    await start(dut)
    for number, kind in enumerate(rng.permutation(np.repeat(KINDS, 6))):
        broken, whole = message(CONFIG, rng, MessageKind(kind)), message(CONFIG, rng, MessageKind(rng.choice(KINDS)))
        await bench.begin(broken)
        await bench.payload(units(broken, rng)[:-1])
        strobe = dut.restart if number % 2 else dut.reset
        if strobe is dut.reset:  # it drops a complete item, which sinks do not allow
            await until(dut, lambda: not dut.waiting.value)
        strobe.value = 1
        await clock(dut)
        strobe.value = 0
        await clock(dut)
        await bench.taken()
        await bench.begin(whole)
        await bench.payload(units(whole, rng))
        want = items(CONFIG, pack(CONFIG, whole))
        assert await bench.taken() == {name: want[name] for name in OUTS}, (broken.kind.name, whole.kind.name)
