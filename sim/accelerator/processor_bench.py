"""A command processor between a host, a memory and cores that only wait: what a testbench knows of its lists."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import cocotb
from cocotbext.axi import AxiResp
from concord.hw.accelerator.orders import Ending, Order
from concord.sim.drivers.axi_memory import AxiMemory
from concord.sim.drivers.axi_monitor import AxiMonitor
from concord.sim.drivers.axi_stream import lite_master
from concord.sim.drivers.bench import Packer
from concord.sim.drivers.stream import clock, every_cycle, start
from concord.spec.accelerator.accelerator import ALIGNED, Accelerator
from concord.spec.accelerator.commands import BYTES, Command, CommandError, CommandKind
from concord.spec.accelerator.registers import AcceleratorControl, AcceleratorRegister, AcceleratorStatus
from concord.spec.host.registers import Control, Register

ORDER, ENDING = Packer(Order), Packer(Ending)
RING, RING_SIZE = 0x400, 3
SOURCES, TARGETS = 0x1000, 0x8000  #: Where a list copies from, and where each command has a region that it writes.
REGION = 0x200  #: Bytes of that region.


@dataclass(slots=True, kw_only=True)
class Failing:
    """How a command of a core ends that has an error."""

    error: CommandError
    origin: int = 0  #: Core, or the processor.
    core_error: int = 0
    address: int = 0

    def ending(self, index: int) -> int:
        """The payload."""
        return ENDING.join({"error": int(self.error), "index": index, "core_error": self.core_error,
                            "address": self.address})


@dataclass(slots=True)
class CoreModel:
    """A driver that takes orders and ends them some time later, as `failing` says by their index."""

    bench: "ProcessorBench"
    number: int
    slow: int = 60  #: Most cycles of an order.
    asleep: bool = False  #: It takes no order.
    failing: dict[int, Failing] = field(default_factory=dict)
    taken: list[dict] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    present: dict | None = None
    left: int = 0  #: Cycles of the order, or until bursts have ended.
    dead: bool = False  #: An order had an error.

    def __post_init__(self):
        self.wire("order__ready").value, self.wire("ended").value, self.wire("idle").value = 0, 0, 1

    def wire(self, name: str):
        """One of the driver's wires."""
        return getattr(self.bench.dut, f"drivers__{self.number}__{name}")

    def step(self):
        """What happens at a rising edge."""
        chance = self.bench.random
        valid, ready = bool(self.wire("order__valid").value), bool(self.wire("order__ready").value)
        assert not (valid and self.wire("stop").value), "an order is offered that must not be taken"
        self.wire("ended").value = 0
        self.left = max(0, self.left - 1)
        if self.wire("reset").value:
            self.present, self.dead, self.left = None, False, chance.randrange(40)
        elif valid and ready:
            self.present, self.left = ORDER.of(int(self.wire("order__payload").value)), chance.randrange(self.slow)
            self.taken.append(self.present)
            self.bench.all_done_before(self.present["index"])
        elif self.present and not self.left:
            index = self.present["index"]
            fails = self.failing.get(index, Failing(error=CommandError.NONE))
            self.wire("ended").value = 1 | fails.ending(index) << 1
            self.present, self.dead = None, fails.error != CommandError.NONE
            self.ended.append(index)
        free = not (self.present or self.left or self.dead)
        self.wire("order__ready").value = int(free and not self.asleep and chance.random() < 0.7)
        self.wire("idle").value = int(not self.present and not self.left)


class ProcessorBench:
    """The processor after reset, with all that is around it."""

    def __init__(self, dut, machine: Accelerator, stall: float):
        self.dut, self.machine, self.stall = dut, machine, stall
        self.random, self.held, self.listed, self.seen = random.Random(cocotb.RANDOM_SEED), False, [], 0
        dut.memory_busy.value = 0
        self.memory = AxiMemory(dut, machine.bus, machine.memory_bytes, stall=stall, latency=20)
        self.memory.contents[:] = self.random.randbytes(machine.memory_bytes)
        self.monitor = AxiMonitor(dut, machine.bus)
        self.cores = [CoreModel(self, number) for number in range(len(machine.cores))]
        self.interrupts, self._before = 0, 0

    async def start(self) -> "ProcessorBench":
        """Reset the processor."""
        await start(self.dut)
        self.host = lite_master(self.dut, "s_axil", cocotb.RANDOM_SEED, self.stall)
        every_cycle(self.dut, self._step)
        await self.write(AcceleratorRegister.RING, RING)
        await self.write(AcceleratorRegister.RING_SIZE, RING_SIZE)
        return self

    def _step(self):
        for core in self.cores:
            core.step()
        self.dut.memory_busy.value = int(self.held or not self.memory.idle)
        now = int(self.dut.interrupt.value)
        self.interrupts += now > self._before
        self._before = now

    async def read(self, register: int) -> int:
        """A register."""
        done = await self.host.read(register, 4)
        assert done.resp == AxiResp.OKAY
        return int.from_bytes(done.data, "little")

    async def write(self, register: int, value: int):
        """Write a register."""
        done = await self.host.write(register, value.to_bytes(4, "little"))
        assert done.resp == AxiResp.OKAY

    def target(self, index: int) -> int:
        """What the command of an index may write."""
        return TARGETS + index * REGION

    def drawn(self, count: int, kinds: Sequence[CommandKind] = tuple(CommandKind)) -> list[Command]:
        """Commands that are executed; those of the processor write their own regions."""
        return [self._drawn(index, self.random.choice(kinds)) for index in range(count)]

    def _drawn(self, index: int, kind: CommandKind) -> Command:
        chance, cores = self.random, len(self.cores)
        target, size = self.target(index), ALIGNED * chance.randint(1, REGION // ALIGNED)
        first = SOURCES + chance.randrange(0, TARGETS - SOURCES - size, ALIGNED)
        match kind:
            case CommandKind.COPY:
                return Command(kind=kind, first=first, second=target, count=size)
            case CommandKind.WAIT:
                return Command(kind=kind, value=chance.randrange(1 << cores))
            case CommandKind.SIGNAL:
                return Command(kind=kind, first=target + chance.randrange(0, REGION, 4), value=chance.getrandbits(32))
            case CommandKind.SET:
                register, value = chance.choice(((Register.PEER, chance.getrandbits(32)), (
                    Register.CONTROL, Control.CLEAR)))
                return Command(kind=kind, core=chance.randrange(cores), first=register, value=value)
        return Command(kind=kind, core=chance.randrange(cores), first=first, count=size, second=target, room=size)

    def put(self, commands: Sequence[Command | bytes]):
        """Say what the list is, whose first command has the index 0."""
        self.listed, self.seen = list(commands), 0
        for core in self.cores:
            core.taken, core.ended, core.failing = [], [], {}

    async def give(self, first: int, last: int):
        """Write these commands of the list to the ring, and let them be taken."""
        for index in range(first, last):
            at, command = RING + BYTES * (index % (1 << RING_SIZE)), self.listed[index]
            self.memory.contents[at:at + BYTES] = command if isinstance(command, bytes) else command.pack()
        await self.write(AcceleratorRegister.TAIL, last)

    async def feed(self, end: int | None = None, given: int = 0):
        """Write the list up to `end` to the ring, as there is room, while no command has an error."""
        end = len(self.listed) if end is None else end
        while given < end and not await self.read(AcceleratorRegister.ERROR):
            head = await self.read(AcceleratorRegister.HEAD)
            last = min(end, head + self.random.randint(1, 1 << RING_SIZE))
            if last > given:
                await self.give(given, last)
                given = last

    async def rest(self) -> AcceleratorStatus:
        """Wait until nothing is under way."""
        while True:
            status = AcceleratorStatus(await self.read(AcceleratorRegister.STATUS))
            if not status & (AcceleratorStatus.BUSY | AcceleratorStatus.MEMORY_BUSY):
                assert not await self.read(AcceleratorRegister.BUSY_CORES)
                return status

    async def reset(self):
        """Reset all."""
        await self.write(AcceleratorRegister.CONTROL, AcceleratorControl.RESET)
        await clock(self.dut, 2)

    def all_done_before(self, index: int):
        """What the processor executes itself before the command of an index must be in the memory; a WAIT is over."""
        contents = self.memory.contents
        for before in range(self.seen, index):
            command = self.listed[before]
            if command.kind == CommandKind.COPY:
                written, read = command.written, command.read
                assert contents[written.start:written.stop] == contents[read.start:read.stop], f"command {before}"
            if command.kind == CommandKind.SIGNAL:
                assert contents[command.first:command.first + 4] == command.value.to_bytes(4, "little")
            if command.kind == CommandKind.WAIT:
                self._waited(before, command.value)
        self.seen = max(self.seen, index)

    def _waited(self, index: int, mask: int):
        """All commands of these cores before a WAIT have ended."""
        for number, core in enumerate(self.cores):
            if mask >> number & 1:
                waits = set(self.orders(number, index)) <= set(core.ended)
                assert waits, f"the WAIT {index} did not wait for core {number}"

    def orders(self, number: int, last: int) -> list[int]:
        """Indices of the commands of a core before the command `last`."""
        return [index for index, command in enumerate(self.listed[:last])
                if isinstance(command, Command) and command.kind.of_core and command.core == number]

    def expect(self, last: int, *, alone: bool = True):
        """The commands before `last` are executed, each as it stands in the list, and, if `alone`, no others are."""
        self.all_done_before(last)
        for number, core in enumerate(self.cores):
            indices = self.orders(number, last)
            assert [one["index"] for one in core.taken][:len(indices)] == indices
            assert core.ended[:len(indices)] == indices
            assert not alone or len(core.taken) == len(indices)
            for one in core.taken:
                command = self.listed[one["index"]]
                assert one == {name: int(getattr(command, name)) for name in Order.members if name != "index"} | {
                    "index": one["index"], "second": command.second | command.value}
