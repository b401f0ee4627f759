"""Takes commands from the ring, gives them to the cores, and executes those of its own."""

from amaranth import *
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out, Signature
from concord.hw.accelerator.command_check import CommandCheck
from concord.hw.accelerator.first_error import FirstError
from concord.hw.accelerator.memory_mover import MemoryMover, MoverTask
from concord.hw.accelerator.orders import Order, driver_side
from concord.hw.accelerator.processor_registers import ProcessorRegisters
from concord.hw.dram.axi import wires
from concord.hw.host.control import BUS
from concord.hw.lib.queue import Queue
from concord.spec.accelerator.accelerator import QUEUE, Accelerator
from concord.spec.accelerator.commands import BYTES, CommandError, CommandKind
from concord.spec.accelerator.registers import AcceleratorStatus

INDEX = 16  #: Most bits of the number of a command in the ring.


class State(enum.Enum):
    """What becomes of the present command."""

    IDLE = 0  #: There is none.
    FETCH = 1  #: It comes from the ring.
    CHECK = 2  #: Its error is found.
    JUDGE = 3  #: The error is known.
    GIVE = 4  #: It waits for room in the queue of its core.
    WAIT = 5  #: It waits for cores.
    BEGIN = 6  #: It is given to the mover.
    MOVE = 7  #: The mover executes it.
    FAIL = 8  #: It has an error.


class CommandProcessor(wiring.Component):
    """Executes the commands of a list, as `spec.accelerator` defines them.

    A command is read when the one before is taken. Commands of cores go to queues, one for each core; the others are
    executed to their end. After an error no later command is taken, and later ones in queues are forgotten; those
    before the command with the error are executed. So the registers tell in the end which command of the list is the
    first one with an error, whatever time each takes.

    Args:
        accelerator: Cores and memory.

    Members:
        s_axil_...: AXI4-Lite, the registers of `spec.accelerator.registers`, with addresses of 12 bits.
        m_axi_...: AXI4, the port of its own bursts. IDs have 1 bit.
        drivers: Array of the other side of `hw.accelerator.orders.driver_side`, one for each core.
        memory_busy: In(1). Bursts of anybody are under way.
        interrupt: Out(1). The interrupt.

    Timing:
        A command of a core takes 8 cycles and a read of the memory. After a reset, the next command is read when no
        burst is under way.
    """

    def __init__(self, accelerator: Accelerator):
        self.accelerator, self.cores = accelerator, len(accelerator.cores)
        super().__init__({
            **BUS, **{f"m_axi_{name}": member for name, member in wires(accelerator.bus, 1).items()},
            "drivers": In(Signature(driver_side())).array(self.cores), "memory_busy": In(1), "interrupt": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = self.registers = ProcessorRegisters(self.accelerator)
        m.submodules.mover = self.mover = MemoryMover(self.accelerator.bus)
        m.submodules.check = self.check = CommandCheck(self.accelerator)
        m.submodules.errors = self.errors = FirstError(self.cores)
        self._join(m, self.registers, BUS)
        self._join(m, self.mover, [name for name in self.signature.members if name.startswith("m_axi_")])
        self.state, self.head, self.command = Signal(State), Signal(32), self.mover.command
        self.busy = Signal(self.cores)
        reset = self.registers.reset
        m.d.comb += [self.check.command.eq(self.command), self.mover.reset.eq(reset), self.errors.reset.eq(reset)]
        queues = [self._core(m, number) for number in range(self.cores)]
        self._settle(m)
        self._execute(m, queues)
        self._tell(m)
        with m.If(reset):
            m.d.sync += [self.state.eq(State.IDLE), self.head.eq(0)]
        return m

    def _join(self, m, part, names):
        """Connect wires of a part that are those of the processor."""
        for name in names:
            ours, theirs = getattr(self, name), getattr(part, name)
            m.d.comb += theirs.eq(ours) if self.signature.members[name].flow == In else ours.eq(theirs)

    def _core(self, m, number: int):
        """The queue of a core and its way to the driver. Returns the queue's input."""
        driver, errors = self.drivers[number], self.errors
        reset, earlier, forgotten, taken, under_way = (Signal(name=f"{name}_{number}") for name in (
            "reset", "earlier", "forgotten", "taken", "under_way"))
        m.submodules[f"queue{number}"] = queue = ResetInserter(reset)(Queue(Order, QUEUE))
        m.d.comb += [
            reset.eq(self.registers.reset | self.registers.reset_cores[number]), driver.reset.eq(reset),
            earlier.eq((queue.o.p.index - errors.failure.index)[31]), forgotten.eq(errors.failed & ~earlier),
            driver.stop.eq(errors.failed & ~(queue.o.valid & earlier)), driver.order.p.eq(queue.o.p),
            driver.order.valid.eq(queue.o.valid & ~forgotten), taken.eq(driver.order.valid & driver.order.ready),
            queue.o.ready.eq(taken | forgotten),
            errors.ended[number].eq(driver.ended),
            self.busy[number].eq(queue.level.any() | under_way | errors.pending[number])]
        m.d.sync += under_way.eq((taken | (under_way & ~driver.ended.valid)) & ~reset)
        return queue.i

    def _settle(self, m):
        """After a reset, wait until no burst is under way."""
        self.settled, quiet = Signal(init=1), Signal()
        m.d.comb += quiet.eq(Cat(driver.idle for driver in self.drivers).all() & ~self.memory_busy)
        m.d.sync += self.settled.eq((self.settled | quiet) & ~self.registers.reset)

    def _address(self):
        """Address of the next command in the ring."""
        index = Cat(bit & (self.registers.size > k) for k, bit in enumerate(self.head[:INDEX]))
        return self.registers.ring + index * BYTES

    def _execute(self, m, queues):
        """Take one command after the other."""
        mover, command, state, failed = self.mover, self.command, self.state, self.errors.failed
        kind, done, fault = command.kind, Signal(), Signal.like(self.check.error)
        signals = kind == CommandKind.SIGNAL
        job, own = mover.job, self.errors.ended[self.cores]
        fails = (state == State.FAIL) & (fault != CommandError.NONE)
        m.d.comb += Value.cast(own).eq(Cat(fails, fault, self.head))  # `valid`, `error`, `index`
        order = {name: command[name] for name in Order.members if name != "index"} | {
            "index": self.head, "second": command.second | command.value}
        for number, queue in enumerate(queues):
            m.d.comb += [queue.p[name].eq(value) for name, value in order.items()]
            m.d.comb += queue.valid.eq((state == State.GIVE) & (command.core == number))
        given = Cat(queue.valid & queue.ready for queue in queues).any()
        m.d.comb += [job.p.count.eq(command.count), job.p.second.eq(Mux(signals, command.first, command.second))]
        with m.Switch(state):
            with m.Case(State.IDLE):
                m.d.comb += [job.p.task.eq(MoverTask.FETCH), job.p.first.eq(self._address()),
                             job.valid.eq((self.head != self.registers.tail) & ~failed & self.settled)]
                with m.If(job.valid & job.ready):
                    m.d.sync += state.eq(State.FETCH)
            with m.Case(State.FETCH):
                with m.If(mover.ended):
                    m.d.sync += [state.eq(Mux(mover.error, State.FAIL, State.CHECK)), fault.eq(CommandError.MEMORY)]
            with m.Case(State.CHECK):  # the command stands since the cycle in which the mover ended
                m.d.sync += state.eq(State.JUDGE)
            with m.Case(State.JUDGE):
                m.d.sync += [fault.eq(self.check.error), state.eq(self._next())]
            with m.Case(State.GIVE):
                m.d.comb += done.eq(given)
            with m.Case(State.WAIT):
                m.d.comb += done.eq(~(command.value[:self.cores] & self.busy).any())
            with m.Case(State.BEGIN):
                m.d.comb += [job.p.task.eq(Mux(signals, MoverTask.SIGNAL, MoverTask.COPY)),
                             job.p.first.eq(Mux(signals, command.value, command.first)), job.valid.eq(~failed)]
                m.d.sync += state.eq(State.MOVE)
            with m.Case(State.MOVE):
                m.d.comb += done.eq(mover.ended & ~mover.error)
                with m.If(mover.ended & mover.error):
                    m.d.sync += [state.eq(State.FAIL), fault.eq(CommandError.MEMORY)]
            with m.Case(State.FAIL):
                m.d.sync += fault.eq(CommandError.NONE)
                with m.If(failed):
                    m.d.sync += state.eq(State.IDLE)
        # An error of a core ends what has not begun. What is just given to a queue is forgotten there.
        with m.If(failed & (state != State.MOVE) & (state != State.FAIL)):
            m.d.sync += state.eq(State.IDLE)
        with m.Elif(done):
            m.d.sync += [self.head.eq(self.head + 1), state.eq(State.IDLE)]
        self.signalled = done & signals

    def _next(self):
        """What follows for a command whose error is known."""
        kind = self.command.kind
        own = Mux(kind == CommandKind.WAIT, State.WAIT, State.BEGIN)
        return Mux(self.check.error != CommandError.NONE, State.FAIL,
                   Mux(kind <= max(kind for kind in CommandKind if kind.of_core), State.GIVE, own))

    def _tell(self, m):
        """State for the host, and the interrupt: after a SIGNAL, and when all has ended after an error."""
        registers, failed, told, busy = self.registers, self.errors.failed, Signal(), Signal()
        m.d.comb += [
            busy.eq((self.state != State.IDLE) | self.busy.any() | ((self.head != registers.tail) & ~failed)),
            registers.head.eq(self.head), registers.busy_cores.eq(self.busy),
            registers.failure.eq(self.errors.failure)]
        # The host never sees that all has ended before it sees the interrupt.
        flags = {
            AcceleratorStatus.BUSY: busy | (failed & ~told), AcceleratorStatus.FAILED: failed,
            AcceleratorStatus.INTERRUPT: self.interrupt, AcceleratorStatus.MEMORY_BUSY: self.memory_busy}
        m.d.comb += [registers.status[bit.bit_length() - 1].eq(flag) for bit, flag in flags.items()]
        fails = failed & ~busy
        m.d.sync += [told.eq(fails), self.interrupt.eq(
            (self.interrupt & ~registers.acknowledge) | self.signalled | (fails & ~told))]
        with m.If(registers.reset):
            m.d.sync += [told.eq(0), self.interrupt.eq(0)]
