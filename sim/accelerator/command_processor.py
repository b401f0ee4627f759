# amaranth: UnusedElaboratable=no
"""Testbench of hw.accelerator.command_processor with a memory, cores that only wait, and a host."""

from dataclasses import replace

import cocotb
from concord.hw.accelerator.command_processor import CommandProcessor
from concord.sim.accelerator.processor_bench import RING, RING_SIZE, SOURCES, TARGETS, Failing, ProcessorBench
from concord.sim.drivers.bench import CONFIG
from concord.sim.drivers.stream import clock, start, until
from concord.spec.accelerator.accelerator import QUEUE, Accelerator
from concord.spec.accelerator.commands import BYTES, PROCESSOR, Command, CommandError, CommandKind, refused
from concord.spec.accelerator.registers import AcceleratorControl, AcceleratorRegister, AcceleratorStatus
from concord.spec.machine.config import Config

CONFIGURATIONS = ("tiny", "wide")
TESTED = ("tiny",)
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "self.mover.reset.eq(reset)", "new": "self.mover.reset.eq(0)"},
    {"old": "self.errors.reset.eq(reset)", "new": "self.errors.reset.eq(0)"},
    {"old": "self.registers.reset | self.registers.reset_cores[number]", "new": "self.registers.reset"},
    {"old": "self.registers.reset | self.registers.reset_cores[number]", "new": "self.registers.reset_cores[number]"},
    {"old": "errors.failed & ~earlier", "new": "errors.failed"},
    {"old": "errors.failed & ~earlier", "new": "0"},
    {"old": "errors.failed & ~(queue.o.valid & earlier)", "new": "errors.failed"},
    {"old": "queue.o.ready.eq(taken | forgotten)", "new": "queue.o.ready.eq(taken)"},
    {"old": "under_way | errors.pending[number]", "new": "under_way"},
    {"old": "queue.level.any() | under_way |", "new": "queue.level.any() |"},
    {"old": "queue.level.any() | under_way |", "new": "under_way |"},
    {"old": "(taken | (under_way & ~driver.ended.valid)) & ~reset", "new": "taken | (under_way & ~driver.ended.valid)"},
    {"old": "all() & ~self.memory_busy", "new": "all()"},
    {"old": "Cat(driver.idle for driver in self.drivers).all() &", "new": ""},
    {"old": "bit & (self.registers.size > k)", "new": "bit"},
    {"old": "Cat(fails, fault, self.head)", "new": "Cat(fails, fault)"},
    {"old": "\"index\": self.head", "new": "\"index\": C(0)"},
    {"old": "(self.head != self.registers.tail) & ~failed &", "new": "(self.head != self.registers.tail) &"},
    {"old": "~failed & self.settled", "new": "~failed"},
    {"old": "Mux(mover.error, State.FAIL, State.CHECK)", "new": "State.CHECK"},
    {"old": "(command.value[:self.cores] & self.busy).any()", "new": "self.busy.any()"},
    {"old": "mover.ended & ~mover.error", "new": "mover.ended"},
    {"old": "done & signals", "new": "done"},
    {"old": "((self.head != registers.tail) & ~failed)", "new": "(self.head != registers.tail)"},
    {"old": "busy | (failed & ~told)", "new": "busy"},
    {"old": "(self.interrupt & ~registers.acknowledge)", "new": "self.interrupt"},
    {"old": "(fails & ~told)", "new": "fails"},
    {"old": "told.eq(0), self.interrupt.eq(0)", "new": "told.eq(0)"},
    {"file": "hw/accelerator/first_error.py",
     "old": "pending.eq(one.p.error != CommandError.NONE)", "new": "pending.eq(1)"},
    {"file": "hw/accelerator/first_error.py", "old": "seen.any() & (earlier | ~self.failed)", "new": "seen.any()"},
    {"file": "hw/accelerator/first_error.py",
     "old": "seen.any() & (earlier | ~self.failed)", "new": "seen.any() & ~self.failed"},
    {"file": "hw/accelerator/first_error.py",
     "old": "origin = PROCESSOR if number == self.sources - 1 else number", "new": "origin = number"},
    {"file": "hw/accelerator/first_error.py",
     "old": "turn == self.sources - 1, 0", "new": "turn == self.sources - 2, 0"},
    {"file": "hw/accelerator/processor_registers.py", "old": "& ~self.s_axil_bvalid", "new": ""},
    {"file": "hw/accelerator/processor_registers.py",
     "old": "with m.If(self.s_axil_wstrb[k // 8]):", "new": "with m.If(1):"},
    {"file": "hw/accelerator/processor_registers.py",
     "old": "Mux(chosen, data & strobes, 0)", "new": "Mux(chosen, data, 0)"},
    {"file": "hw/accelerator/processor_registers.py", "old": "self.tail.eq(0)", "new": "self.tail.eq(self.tail)"},
    {"file": "hw/accelerator/processor_registers.py",
     "old": "self.s_axil_arready.eq(~self.s_axil_rvalid)", "new": "self.s_axil_arready.eq(1)"},
)
STATUS, HEAD = AcceleratorRegister.STATUS, AcceleratorRegister.HEAD
FAILURE = tuple(AcceleratorRegister[name] for name in (
    "ERROR", "ERROR_INDEX", "ERROR_ORIGIN", "CORE_ERROR", "ERROR_ADDRESS"))
OF_CORES = tuple(kind for kind in CommandKind if kind.of_core)


def machine(config: Config) -> Accelerator:
    """Three cores, with a bus of 8 or of 64 bytes."""
    return Accelerator(cores=(config,) * 3, memory_bytes=1 << 16, bus=8 if config.message_bytes == 4 else 64)


def component(config: Config) -> CommandProcessor:
    """A processor of three cores."""
    return CommandProcessor(machine(config))


MACHINE = machine(CONFIG)


async def begin(dut, stall: float = 0.0) -> ProcessorBench:
    """All that is around the processor, after reset."""
    return await ProcessorBench(dut, MACHINE, stall).start()


async def failure(bench: ProcessorBench) -> list[int]:
    """The registers of an error."""
    return [await bench.read(register) for register in FAILURE]


async def works(bench: ProcessorBench, count: int = 4):
    """After a reset, a list is executed."""
    bench.put(bench.drawn(count))
    await bench.feed()
    assert not await bench.rest() & AcceleratorStatus.FAILED
    bench.expect(count)


@cocotb.test(timeout_time=40, timeout_unit="us")
@cocotb.parametrize(stall=[0.0, 0.3])
async def lists_are_executed(dut, stall):
    """Each core takes its commands in order, WAIT waits, and the processor's own are done before later ones begin."""
    bench = await begin(dut, stall)
    commands = bench.drawn(60)
    bench.put(commands)
    await bench.feed()
    signals = sum(command.kind == CommandKind.SIGNAL for command in commands)
    assert await bench.rest() == AcceleratorStatus.INTERRUPT
    bench.expect(len(commands))
    assert signals > 1
    assert (bench.interrupts, await bench.read(HEAD)) == (1, len(commands))
    await bench.write(AcceleratorRegister.CONTROL, AcceleratorControl.ACKNOWLEDGE)
    assert await bench.read(STATUS) == 0
    assert not dut.interrupt.value
    assert await failure(bench) == [0] * len(FAILURE)
    assert bench.monitor.ended


@cocotb.test(timeout_time=40, timeout_unit="us")
async def queues_have_room(dut):
    """A core that takes nothing holds `QUEUE` commands, and the next one for it stops the list; a WAIT for others does
    not.
    """
    bench = await begin(dut)
    bench.cores[1].asleep = True
    order = Command(kind=CommandKind.SET, core=1, first=0x30)
    other = replace(order, core=0)
    bench.put([*[order] * (QUEUE - 1), Command(kind=CommandKind.WAIT, value=0b101), order, other, order, other])
    await bench.feed()
    await clock(dut, 400)
    assert await bench.read(HEAD) == QUEUE + 2
    assert await bench.read(STATUS) == AcceleratorStatus.BUSY
    assert await bench.read(AcceleratorRegister.BUSY_CORES) == 0b010
    assert len(bench.cores[0].taken) == 1
    bench.cores[1].asleep = False
    await bench.rest()
    bench.expect(len(bench.listed))


@cocotb.test(timeout_time=40, timeout_unit="us")
async def a_refused_command_ends_the_list(dut):
    """What comes before it is executed, and nothing behind it; the interrupt comes when all has ended."""
    bench = await begin(dut)
    right = bench.drawn(1, OF_CORES[:1])[0]
    bad = {CommandError.KIND: right.pack()[:31] + b"\1", CommandError.CORE: replace(right, core=3),
           CommandError.ALIGNMENT: replace(right, first=1), CommandError.RANGE: replace(right, first=1 << 31),
           CommandError.REGISTER: Command(kind=CommandKind.SET, first=4)}
    for code, command in bad.items():
        index, count = bench.random.randrange(8), 10
        commands = [*bench.drawn(index, OF_CORES), command, *bench.drawn(count)]
        bench.put(commands)
        assert refused(MACHINE, command if isinstance(command, bytes) else command.pack()) == code
        before = bench.interrupts
        await bench.feed()
        while not dut.interrupt.value:
            assert bench.interrupts == before
            await clock(dut)
        assert not any(core.present or core.wire("order__valid").value for core in bench.cores)
        assert await bench.rest() == AcceleratorStatus.FAILED | AcceleratorStatus.INTERRUPT
        bench.expect(index)
        assert await failure(bench) == [code, index, PROCESSOR, 0, 0]
        assert await bench.read(HEAD) == index
        asked = len(bench.monitor.asked)
        await clock(dut, 60)
        assert len(bench.monitor.asked) == asked, "a command is read after the error"
        await bench.write(AcceleratorRegister.CONTROL, AcceleratorControl.ACKNOWLEDGE)
        assert await bench.rest() == AcceleratorStatus.FAILED
        await bench.reset()
        assert await failure(bench) == [0] * len(FAILURE)
        await works(bench)
        await bench.reset()


@cocotb.test(timeout_time=40, timeout_unit="us")
async def the_earliest_error_stays(dut):
    """Of errors of several cores and of the processor, in whatever order they come: all before it is executed."""
    bench = await begin(dut)
    bench.cores[0].slow, bench.cores[2].slow = 300, 20
    for number in range(10):
        bench.put(bench.drawn(16, OF_CORES + (CommandKind.WAIT,) * (number % 2)))
        errors = {}
        for core in bench.random.sample(bench.cores, bench.random.randint(1, 3)):
            index = bench.random.choice(bench.orders(core.number, 16) or [15])
            errors[index] = core.failing[index] = Failing(
                error=CommandError.PROGRAM, origin=core.number, core_error=bench.random.randint(1, 9),
                address=bench.random.getrandbits(20))
        if bench.random.random() < 0.4 or not bench.listed[15].kind.of_core:
            bench.listed[15] = bytes(BYTES)
            errors[15] = Failing(error=CommandError.KIND, origin=PROCESSOR)
        await bench.feed()
        assert await bench.rest() == AcceleratorStatus.FAILED | AcceleratorStatus.INTERRUPT
        first = min(errors)
        bench.expect(first, alone=errors[first].origin == PROCESSOR)
        told = [errors[first].error, first, errors[first].origin, errors[first].core_error, errors[first].address]
        assert await failure(bench) == told
        here = errors[first].origin
        if here != PROCESSOR:  # later ones of this core are not to be taken, and those behind a WAIT for it
            assert max(one["index"] for one in bench.cores[here].taken) == first
            waits = (index for index, one in enumerate(bench.listed) if index > first and isinstance(one, Command)
                     and one.kind == CommandKind.WAIT and one.value >> here & 1)
            end = min(waits, default=16)
            assert all(one["index"] < end for core in bench.cores for one in core.taken)
        await bench.write(AcceleratorRegister.RESET_CORES, 0b111)
        assert await failure(bench) == told
        await bench.reset()
    for _ in range(12):  # the host never sees that all has ended before it sees the error
        bench.put(bench.drawn(1, OF_CORES))
        bench.cores[bench.listed[0].core].failing[0] = Failing(error=CommandError.STARVED)
        await bench.feed()
        assert await bench.rest() == AcceleratorStatus.FAILED | AcceleratorStatus.INTERRUPT
        await bench.reset()
    await works(bench)


@cocotb.test(timeout_time=40, timeout_unit="us")
async def answers_of_the_memory_are_errors(dut):
    """To the fetch of a command, to a COPY and to a SIGNAL."""
    bench = await begin(dut, 0.2)
    for refuse in (lambda _: RING + 2 * BYTES, lambda index: bench.target(index)):
        for kind in (CommandKind.COPY, CommandKind.SIGNAL):
            bench.put([*bench.drawn(2, OF_CORES), *bench.drawn(3, (kind,))[2:], *bench.drawn(6)[3:]])
            bench.memory.refused = [range(refuse(2), refuse(2) + 0x200)]
            await bench.feed()
            assert await bench.rest() == AcceleratorStatus.FAILED | AcceleratorStatus.INTERRUPT
            bench.expect(2)
            assert await failure(bench) == [CommandError.MEMORY, 2, PROCESSOR, 0, 0]
            assert await bench.read(HEAD) == 2
            bench.memory.refused = []
            await bench.reset()
    await works(bench)


@cocotb.test(timeout_time=40, timeout_unit="us")
@cocotb.parametrize(stall=[0.0, 0.3])
async def a_reset_leaves_nothing_behind(dut, stall):
    """At any moment: bursts end, nothing is read before that, and then lists are executed."""
    bench = await begin(dut, stall)
    for _ in range(8):
        bench.put(bench.drawn(20))
        feeding = cocotb.start_soon(bench.feed())
        await clock(dut, bench.random.randrange(20, 600))
        feeding.cancel()
        await bench.reset()
        assert [await bench.read(register) for register in (HEAD, AcceleratorRegister.TAIL, *FAILURE)] == [0] * 7
        assert not dut.interrupt.value
        await works(bench)
        await bench.reset()
    bench.put([Command(kind=CommandKind.COPY, first=SOURCES, second=TARGETS, count=0x2000)])
    await bench.give(0, 1)
    bench.monitor.wrote.clear()
    await until(dut, lambda: bench.monitor.wrote)
    await bench.reset()
    await bench.rest()
    wrote = len(bench.monitor.wrote)
    await clock(dut, 400)
    assert len(bench.monitor.wrote) == wrote, "the copy goes on"
    bench.held = True
    await bench.reset()
    bench.put(bench.drawn(4))
    asked = len(bench.monitor.asked)
    await bench.give(0, 4)
    await clock(dut, 50)
    assert await bench.read(STATUS) == AcceleratorStatus.BUSY | AcceleratorStatus.MEMORY_BUSY
    bench.cores[1].left, bench.held = 60, False
    await clock(dut, 50)
    assert len(bench.monitor.asked) == asked
    await bench.rest()
    bench.expect(4)


@cocotb.test(timeout_time=40, timeout_unit="us")
async def a_core_is_reset_alone(dut):
    """Its commands are forgotten, at any moment; the other cores go on, and then all cores take commands."""
    bench = await begin(dut)
    for _ in range(8):
        bench.put(bench.drawn(24, OF_CORES))
        feeding = cocotb.start_soon(bench.feed(16))
        await clock(dut, bench.random.randrange(20, 500))
        mask = bench.random.randrange(1, 8)
        await bench.write(AcceleratorRegister.RESET_CORES, mask)
        await feeding
        assert await bench.rest() == 0
        await bench.feed(24, 16)
        assert await bench.rest() == 0
        for core in bench.cores:
            found, wanted = [one["index"] for one in core.taken], bench.orders(core.number, 24)
            assert set(found) <= set(wanted)
            assert sorted(found) == found
            assert {index for index in wanted if index >= 16 or not mask >> core.number & 1} <= set(found)
        await bench.reset()
    bench.put([Command(kind=CommandKind.SET, core=1, first=0x30)] * 3)
    bench.cores[1].asleep = True
    await bench.feed()
    while await bench.read(HEAD) < 3:
        pass
    await bench.write(AcceleratorRegister.RESET_CORES, 0b010)
    assert await bench.rest() == 0
    bench.cores[1].asleep = False
    await clock(dut, 60)
    assert not bench.cores[1].taken


@cocotb.test(timeout_time=40, timeout_unit="us")
async def registers(dut):
    """Every address reads as spec.accelerator.registers says; registers take the bytes of their strobes."""
    bench = await begin(dut, 0.2)
    known = {AcceleratorRegister.CORE_COUNT: 3, AcceleratorRegister.DIGEST: MACHINE.digest,
             AcceleratorRegister.MEMORY: MACHINE.memory_bytes - 1, AcceleratorRegister.RING: RING,
             AcceleratorRegister.RING_SIZE: RING_SIZE}
    written = {register for register in AcceleratorRegister if register.access != "read"}
    for address in (*range(0, 0x100, 4), 0x400, 0xFFC):
        if address not in written:
            await bench.write(address, 0xFFFFFFFF)
        assert await bench.read(address) == known.get(address, 0), hex(address)
    bench.held = True  # nothing is read after the reset
    await bench.reset()
    for register, mask in ((AcceleratorRegister.RING, 0xFFFFFFC0), (AcceleratorRegister.RING_SIZE, 0x1F),
                           (AcceleratorRegister.TAIL, 0xFFFFFFFF)):
        await bench.write(register, 0xFFFFFFFF)
        assert await bench.read(register) == mask
        for byte in range(4):
            await bench.host.write(register + byte, bytes([0x55 + byte]))
        assert await bench.read(register) == 0x58575655 & mask
    await bench.host.write(AcceleratorRegister.CONTROL + 1, b"\xff\xff\xff")
    assert await bench.read(AcceleratorRegister.TAIL) == 0x58575655
    await bench.reset()
    assert await bench.read(AcceleratorRegister.TAIL) == 0
    assert await bench.read(AcceleratorRegister.RING) == 0x58575640


@cocotb.test(timeout_time=40, timeout_unit="us")
async def commands_of_the_host_want_their_strobe(dut):
    """A byte of CONTROL or RESET_CORES whose strobe is low is ignored, whatever its wires hold."""
    bench = ProcessorBench(dut, MACHINE, 0.0)
    for wire in ("awprot", "arvalid", "bready"):
        getattr(dut, f"s_axil_{wire}").value = int(wire == "bready")
    await start(dut)
    dut.s_axil_wdata.value = 0xFFFFFFFF
    for register, strobe in ((register, strobe) for register in (
            AcceleratorRegister.CONTROL, AcceleratorRegister.RESET_CORES) for strobe in range(16)):
        dut.s_axil_awaddr.value, dut.s_axil_wstrb.value = register, strobe
        dut.s_axil_awvalid.value = dut.s_axil_wvalid.value = 1
        await clock(dut)
        dut.s_axil_awvalid.value = dut.s_axil_wvalid.value = 0
        resets = 0
        for _ in range(4):
            await clock(dut)
            resets += sum(int(core.wire("reset").value) for core in bench.cores)
        assert resets == 3 * (strobe & 1), strobe
