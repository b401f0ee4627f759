# amaranth: UnusedElaboratable=no
"""Testbench of hw.accelerator.driver, before a core: lists of its commands, their errors and resets, against golden."""

import random
from collections.abc import Iterable

import cocotb
import numpy as np
from amaranth import Module, Value
from amaranth.lib.wiring import Component, In, Out, Signature, connect, flipped
from concord.golden.accelerator.driver import CommandEnd
from concord.golden.accelerator.driver import Driver as GoldenDriver
from concord.golden.accelerator.memory import SharedMemory
from concord.golden.host.messages import input_message
from concord.hw.accelerator.driver import Driver
from concord.hw.accelerator.orders import Ending, Order, driver_side
from concord.hw.dram.axi import wires
from concord.hw.host.control import BUS
from concord.hw.nnp import NNP, ports
from concord.sim.drivers.axi_memory import AxiMemory
from concord.sim.drivers.axi_monitor import AxiMonitor
from concord.sim.drivers.axi_stream import lite_master
from concord.sim.drivers.bench import CONFIG, Packer
from concord.sim.drivers.stream import clock, every_cycle, start, until
from concord.sim.stimulus.message_cases import malformed, message
from concord.sim.stimulus.programs import Case, random_illegal, random_program, written_program
from concord.spec.accelerator.accelerator import ALIGNED
from concord.spec.accelerator.commands import Command, CommandError, CommandKind
from concord.spec.host.messages import MessageKind, pack
from concord.spec.host.registers import Control, Register

CONFIGURATIONS = ("tiny", "serial", "wide")
TESTED = ()  # tests/machine/test_accelerator.py runs whole lists
BUSES = {4: 16, 8: 8, 16: 64}  #: Bytes of the bus, by those of a beat of messages.
WIDTH = BUSES[CONFIG.message_bytes]
BYTES = 1 << 18
ORDER, ENDING = Packer(Order), Packer(Ending)


class DrivenCore(Component):
    """A driver with its core, which has no Dram."""

    def __init__(self, config):
        self.config, self.width = config, BUSES[config.message_bytes]
        super().__init__({
            "commands": Out(Signature(driver_side())), **BUS,
            **{f"m_axi_{name}": member for name, member in wires(self.width, 1).items()}})

    def elaborate(self, platform):
        m = Module()
        m.submodules.driver = driver = Driver(self.config, self.width)
        m.submodules.core = core = NNP(self.config, watched=True)
        connect(m, flipped(self.commands), driver.commands)
        for name, member in self.signature.members.items():
            if member.is_port:
                ours, inner = getattr(self, name), getattr(driver, name)
                m.d.comb += inner.eq(ours) if member.flow == In else ours.eq(inner)
        for name, member in ports(self.config).items():
            ours, inner = driver.of_core(name), getattr(core, name)
            m.d.comb += inner.eq(ours) if member.flow == In else ours.eq(inner)
        m.d.comb += Value.cast(driver.watch).eq(Value.cast(core.watch))
        return m


def component(config) -> DrivenCore:
    """The driver with a core."""
    return DrivenCore(config)


class Bench:
    """The driver with its memory, and golden beside them.

    Args:
        stall: Probability of a cycle in which a channel of the memory rests.
    """

    def __init__(self, dut, stall: float):
        self.dut, self.random = dut, random.Random(cocotb.RANDOM_SEED)
        self.rng = np.random.default_rng(cocotb.RANDOM_SEED)
        self.memory = AxiMemory(dut, WIDTH, BYTES, stall=stall, latency=40)
        self.monitor = AxiMonitor(dut, WIDTH)
        self.shared = SharedMemory(BYTES)
        self.golden, self.index, self.ended = GoldenDriver(CONFIG, self.shared), 0, []
        dut.commands__order__valid.value = dut.commands__stop.value = dut.commands__reset.value = 0
        self.host = lite_master(dut, "s_axil", cocotb.RANDOM_SEED, stall)
        every_cycle(dut, self._watch)

    def _watch(self):
        ended = self.dut.commands__ended.value
        if ended.is_resolvable and int(ended) & 1:
            self.ended.append(ENDING.of(int(ended) >> 1))

    def put(self, address: int, data: bytes):
        """Write bytes into both memories."""
        self.memory.contents[address:address + len(data)] = data
        self.shared.write(address, data)

    def command(self, kind: CommandKind, messages: Iterable[bytes], room: int = BYTES // 2) -> Command:
        """A LOAD or RUN of messages, which are put into the memory."""
        data = b"".join(messages)
        self.put(ALIGNED, data)
        self.put(BYTES // 2, self.random.randbytes(BYTES // 2))
        return Command(kind=kind, first=ALIGNED, count=len(data), second=BYTES // 2, room=room)

    async def give(self, command: Command):
        """Hand a command to the driver."""
        self.index += 1
        self.dut.commands__order__payload.value = ORDER.join({
            "kind": command.kind, "index": self.index, "first": command.first, "count": command.count,
            "second": command.second | command.value, "room": command.room})
        self.dut.commands__order__valid.value = 1
        await clock(self.dut)
        await until(self.dut, lambda: self.dut.commands__order__ready.value)
        self.dut.commands__order__valid.value = 0

    async def check(self, command: Command, same: bool = True) -> CommandError:
        """Run a command here and on golden: the same ending and the same memory, if these are to be the `same`."""
        self.ended.clear()
        await self.give(command)
        await until(self.dut, lambda: self.ended)
        expected = self.golden.execute(command)
        if same:
            assert self.ended == [_fields(expected, self.index)]
            differing = [k for k, pair in enumerate(zip(self.memory.contents, self.shared.bytes, strict=True))
                         if pair[0] != pair[1]]
            assert not differing, f"{command}: {len(differing)} bytes differ, the first at {differing[0]:#x}"
        return CommandError(self.ended[0]["error"])

    async def program(self, case: Case, room: int = BYTES // 2) -> CommandError:
        """Load a program, run it, and read all memories."""
        assert await self.check(self.command(CommandKind.LOAD, case.setup, 0)) == CommandError.NONE
        error = await self.check(self.command(CommandKind.RUN, case.inputs, room))
        if error == CommandError.NONE:
            assert await self.check(self.command(CommandKind.LOAD, case.reads)) == CommandError.NONE
        return error

    async def reset(self):
        """Reset the core, and wait until its driver is idle."""
        self.dut.commands__reset.value = 1
        await clock(self.dut)
        self.dut.commands__reset.value = 0
        self.golden.machine.reset()
        await clock(self.dut, 2)
        await until(self.dut, lambda: self.dut.commands__idle.value)
        self.shared.write(0, bytes(self.memory.contents))


def _fields(ending: CommandEnd, index: int) -> dict[str, int]:
    return {"error": ending.error, "index": index, "core_error": ending.core_error, "address": ending.address}


async def begin(dut, stall: float = 0.0) -> Bench:
    """A bench after reset."""
    bench = Bench(dut, stall)
    await start(dut)
    return bench


@cocotb.test(timeout_time=0.1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.3])
async def programs(dut, stall):
    """Random programs: every byte of their output, and of all memories afterwards."""
    bench = await begin(dut, stall)
    for _ in range(3):
        assert await bench.program(random_program(CONFIG, bench.rng, length=6, budget=300)) == CommandError.NONE


@cocotb.test(timeout_time=0.1, timeout_unit="ms")
async def registers(dut):
    """A SET writes PEER; the host may clear, but neither start nor reset, and reads at any time."""
    bench = await begin(dut)
    await bench.check(Command(kind=CommandKind.SET, first=Register.PEER, value=0x12345678))
    assert await bench.host.read_dword(Register.PEER) == 0x12345678
    await bench.host.write_dword(Register.CONTROL, int(Control.START | Control.RESET))
    assert await bench.host.read_dword(Register.STATUS) == 0
    await bench.host.write_dword(Register.PEER, 0)
    bench.golden.machine.write_register(Register.PEER, 0)
    assert await bench.host.read_dword(Register.PEER) == 0
    assert await bench.program(random_program(CONFIG, bench.rng, length=4, budget=100)) == CommandError.NONE
    assert await bench.host.read_dword(Register.COUNTERS)
    await bench.check(Command(kind=CommandKind.SET, first=Register.CONTROL, value=Control.CLEAR))
    assert await bench.host.read_dword(Register.COUNTERS) == 0


@cocotb.test(timeout_time=0.2, timeout_unit="ms")
async def errors(dut):
    """Each error that a core has, and after a reset a program that is right."""
    bench = await begin(dut, 0.1)
    rng, wrong = bench.rng, []
    copies = written_program(CONFIG, rng, "v_rd NetQ\nv_wr NetQ\nend_chain\n" * 2 + "end", integer=False)
    one = input_message(CONFIG, copies.pool[:1])
    runs = {
        CommandError.ROOM: (copies.inputs, ALIGNED), CommandError.STARVED: ([one], BYTES // 2),
        CommandError.SURPLUS: ([*copies.inputs, one], BYTES // 2),
        CommandError.MESSAGE: ([one, one[:-4]], BYTES // 2)}
    for error, (messages, room) in runs.items():
        assert await bench.check(bench.command(CommandKind.LOAD, copies.setup, 0)) == CommandError.NONE
        ends = error in (CommandError.ROOM, CommandError.SURPLUS)  # others may have sent a part of a message
        assert await bench.check(bench.command(CommandKind.RUN, messages, room), same=ends) == error
        wrong.append(error)
        await bench.reset()
    while wrong.count(CommandError.PROGRAM) < 2:
        wrong.append(await bench.program(random_illegal(CONFIG, rng)))
        await bench.reset()
        assert await bench.program(random_program(CONFIG, rng, length=2, budget=50)) == CommandError.NONE
    bench.memory.refused = [range(ALIGNED, BYTES // 2)]
    assert await bench.check(bench.command(CommandKind.LOAD, copies.setup, 0), same=False) in (
        CommandError.MEMORY, CommandError.MESSAGE)
    bench.memory.refused = []
    await bench.reset()
    assert await bench.program(random_program(CONFIG, rng, length=2, budget=50)) == CommandError.NONE


@cocotb.test(timeout_time=0.3, timeout_unit="ms")
async def wrong_messages(dut):
    """Each malformed message, between two right ones: what was read before is answered, what comes later is not."""
    bench = await begin(dut)
    read = pack(CONFIG, message(CONFIG, bench.rng, MessageKind.READ))
    for name, data in malformed(CONFIG, bench.rng).items():
        command = bench.command(CommandKind.LOAD, [read, data, read])
        before = bytes(bench.memory.contents[BYTES // 2:])
        error = await bench.check(command, same=False)
        assert error == CommandError.MESSAGE, name
        line = bytes(bench.memory.contents[BYTES // 2:BYTES // 2 + 8])
        assert line[4:] == (1).to_bytes(4, "little"), name
        assert line != before[:8]
        await bench.reset()
    assert await bench.program(random_program(CONFIG, bench.rng, length=2, budget=50)) == CommandError.NONE


@cocotb.test(timeout_time=0.3, timeout_unit="ms")
async def resets(dut):
    """At any moment: then programs run as ever."""
    bench = await begin(dut, 0.2)
    for number in range(6):
        case = random_program(CONFIG, bench.rng, length=3, budget=100)
        if number % 3:
            await bench.give(bench.command(CommandKind.LOAD, case.setup + case.reads))
        else:
            assert await bench.check(bench.command(CommandKind.LOAD, case.setup, 0)) == CommandError.NONE
            await bench.give(bench.command(CommandKind.RUN, case.inputs))
        await clock(dut, bench.random.randrange(1, 400 if number % 3 == 0 else 4000))
        await bench.reset()
        assert bench.monitor.ended
        assert await bench.program(random_program(CONFIG, bench.rng, length=2, budget=50)) == CommandError.NONE
