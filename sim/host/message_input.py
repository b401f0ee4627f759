# amaranth: UnusedElaboratable=no
"""Testbench of hw.host.message_input against spec.host.messages."""

from typing import Self

import cocotb
import numpy as np
from cocotbext.axi import AxiStreamSource
from concord.hw.host.axi_streams import AxiStreams
from concord.hw.host.message_header import check_cycles
from concord.hw.host.message_input import MessageInput
from concord.hw.lib import message_payloads
from concord.sim.drivers.axi_stream import stream_end
from concord.sim.drivers.bench import CONFIG
from concord.sim.drivers.stream import Sink, clock, every_cycle, start, until
from concord.sim.stimulus.message_cases import items, malformed, message, to_machine
from concord.spec.host.messages import MessageKind, pack

CONFIGURATIONS = ("tiny", "serial", "wide", "vision")  # the last one has the widest words


def component(config) -> AxiStreams:
    """The unit, whose beats come over AXI4-Stream."""
    return AxiStreams(MessageInput(config), {"i": "s_axis"})


OUTS = (*message_payloads.items(CONFIG), "read")


class Bench:
    """The unit with a host at its input, sinks at its outputs, and a counter of its errors."""

    def __init__(self, dut, stall: float = 0.0):
        self.dut, self.errors = dut, 0
        self.rng = np.random.default_rng(cocotb.RANDOM_SEED)
        self.sinks = {name: Sink(dut, name, stall=stall) for name in OUTS}
        dut.idle.value, dut.reset.value, self.stall = 1, 0, stall

    async def start(self) -> Self:
        await start(self.dut)
        self.host = stream_end(AxiStreamSource, self.dut, "s_axis", cocotb.RANDOM_SEED, self.stall)
        every_cycle(self.dut, self._count_errors)
        return self

    async def send(self, *packets: bytes):
        """Send packets, and wait until every item has been taken."""
        for data in packets:
            await self.host.send(data)
        await self.host.wait()
        await self.settle()

    async def settle(self):
        """Wait until every item has been taken."""
        quiet = 0
        while quiet < 8:
            await clock(self.dut)
            busy = self.dut.busy.value or any(sink.valid.value for sink in self.sinks.values())
            quiet = 0 if busy else quiet + 1

    def taken(self) -> dict[str, list[int]]:
        """The items of each output stream since the last call."""
        outs = {name: list(sink.queue) for name, sink in self.sinks.items()}
        for sink in self.sinks.values():
            sink.queue.clear()
        return outs

    def _count_errors(self):
        self.errors += int(self.dut.error.value)


def joined(packets) -> dict[str, list[int]]:
    """The items of several messages, joined for each output stream."""
    each = [items(CONFIG, data) for data in packets]
    return {name: [item for outs in each for item in outs[name]] for name in OUTS}


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.5])
async def every_kind(dut, stall):
    """Well-formed messages come out as their items, back to back."""
    bench = await Bench(dut, stall).start()
    packets = [pack(CONFIG, message(CONFIG, bench.rng, MessageKind(kind)))
               for kind in bench.rng.choice(to_machine(CONFIG), 200)]
    await bench.send(*packets)
    assert bench.taken() == joined(packets)
    assert bench.errors == 0


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.4])
async def every_fault(dut, stall):
    """A malformed message raises one error and gives the items that golden gives; the next message is intact."""
    bench = await Bench(dut, stall).start()
    for name, data in (case for _ in range(4) for case in malformed(CONFIG, bench.rng).items()):
        packets = [data, pack(CONFIG, message(CONFIG, bench.rng, MessageKind.INPUT))]
        before = bench.errors
        await bench.send(*packets)
        assert bench.errors == before + 1, name
        assert bench.taken() == joined(packets), name


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def one_word_a_cycle(dut):
    """A word of INPUT leaves in every cycle, or as often as beats can bring one."""
    bench = await Bench(dut).start()
    data = pack(CONFIG, message(CONFIG, bench.rng, MessageKind.INPUT, most=400))
    cocotb.start_soon(bench.host.send(data))
    wanted = len(items(CONFIG, data)["net"])
    cycles = await until(dut, lambda: len(bench.sinks["net"].queue) >= wanted)
    bound = wanted * max(1, 2 * CONFIG.mfu_lanes // CONFIG.message_bytes) + 8 + check_cycles(CONFIG)
    assert cycles <= bound, f"{cycles} cycles for {wanted} words"


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def waits_for_the_machine(dut):
    """While a program runs, INPUT messages pass and other kinds wait; a malformed message is reported at once."""
    bench = await Bench(dut).start()
    dut.idle.value = 0
    first, second = (pack(CONFIG, message(CONFIG, bench.rng, kind)) for kind in (MessageKind.INPUT, MessageKind.BIAS))
    for data in (first, second):
        await bench.host.send(data)
    await clock(dut, 200)
    assert bench.taken() == joined([first])
    assert not dut.busy.value
    dut.idle.value = 1
    await bench.send()
    assert bench.taken() == joined([second])
    dut.idle.value = 0
    await bench.send(malformed(CONFIG, bench.rng)["BIAS beyond"])
    assert bench.errors == 1


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_read_holds_the_next_message(dut):
    """The message after a READ waits until the READ has been taken."""
    bench = await Bench(dut).start()
    bench.sinks["read"].stall = 1.0
    await clock(dut, 2)
    packets = [pack(CONFIG, message(CONFIG, bench.rng, kind)) for kind in (MessageKind.READ, MessageKind.WRITE)]
    for data in packets:
        await bench.host.send(data)
    await clock(dut, 100)
    assert dut.busy.value
    assert dut.read__valid.value
    assert not bench.sinks["write"].queue
    bench.sinks["read"].stall = 0.0
    await bench.send()
    assert bench.taken() == joined(packets)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def reset_between_any_two_units(dut):
    """A reset discards a partly received message without an error; the next message is intact."""
    bench = await Bench(dut).start()
    for cycles in range(1, 60):
        kind = MessageKind(bench.rng.choice([kind for kind in to_machine(CONFIG) if kind != MessageKind.READ]))
        lost = pack(CONFIG, message(CONFIG, bench.rng, kind))
        await bench.host.send(lost)
        await clock(dut, cycles)
        dut.reset.value = 1
        await clock(dut, 1 + cycles % 3)
        dut.reset.value = 0
        await bench.send()
        came, whole = bench.taken(), items(CONFIG, lost)
        assert all(came[name] == whole[name][:len(came[name])] for name in OUTS), cycles
        data = pack(CONFIG, message(CONFIG, bench.rng, MessageKind.WRITE))
        await bench.send(data)
        assert bench.taken() == items(CONFIG, data), cycles
    assert bench.errors == 0
