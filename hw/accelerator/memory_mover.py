"""What the command processor reads and writes in the memory itself."""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from concord.hw.accelerator.command_check import Fields
from concord.hw.accelerator.orders import ADDRESS
from concord.hw.dram.axi import INCR, failed, wires
from concord.hw.dram.block_queue import BlockQueue
from concord.spec.accelerator.accelerator import ALIGNED
from concord.spec.accelerator.commands import BYTES

BEATS = 64  #: Beats of the buffer, thus most beats of a burst.


class MoverTask(enum.Enum):
    """What is to be done."""

    FETCH = 0  #: Reads the command at `first`.
    COPY = 1  #: Copies `count` bytes from `first` to `second`.
    SIGNAL = 2  #: Writes the 32 bits `first` at `second`.


#: One task. Its fields are those of a command of that kind, but for SIGNAL.
MoverJob = data.StructLayout({"task": range(len(MoverTask)), "first": ADDRESS, "second": ADDRESS, "count": ADDRESS})


class State(enum.Enum):
    """What becomes of the present task."""

    FREE = 0  #: There is none.
    MEASURE = 1  #: The greatest length of the next burst is found.
    CUT = 2  #: The length of that burst is found.
    ASK = 3  #: The burst is asked for.
    READ = 4  #: Its beats come.
    PUSH = 5  #: The beat of a SIGNAL is made.
    WRITE = 6  #: A burst is written.
    ANSWER = 7  #: Its response is on its way.
    END = 8  #: The task has ended.


class MemoryMover(wiring.Component):
    """Executes one task after the other. A copy reads a burst into the buffer, and then writes it.

    Each burst of a copy ends at a multiple of the buffer's size, in both ranges, or with them.

    Args:
        size: Bytes of the bus.

    Members:
        job: In(stream MoverJob). Tasks. Their addresses and number of bytes are aligned as those of commands.
        ended: Out(1). Pulse: the task has ended, and what it wrote is answered.
        error: Out(1). With `ended`: the memory has answered a burst with an error, or with a wrong number of beats. A
            copy ends with such a burst.
        command: Out(Fields). What FETCH has read, until the next one.
        m_axi_...: The port; its IDs have 1 bit, and are 0. R and B never wait.
        reset: In(1). Forgets the task. A burst that was asked for ends; what it writes is written.
        idle: Out(1). There is no task, and no burst is under way.

    Timing:
        A burst of n beats of a copy takes 2 n + 9 cycles and the latencies of a read and a write.
    """

    def __init__(self, size: int):
        self.size = size
        super().__init__({
            "job": In(stream.Signature(MoverJob)), "ended": Out(1), "error": Out(1), "command": Out(Fields),
            **{f"m_axi_{name}": member for name, member in wires(size, 1).items()}, "reset": In(1), "idle": Out(1)})

    def elaborate(self, platform):
        m = Module()
        self.state, self.lost, self.task = Signal(State), Signal(), Signal(MoverTask)  # `lost`: the task is forgotten
        self.source, self.target = Signal(ADDRESS), Signal(ADDRESS)
        self.left = Signal(ADDRESS - exact_log2(ALIGNED))  # of the copy, in units of ALIGNED bytes
        self.piece = Signal(range(self.size + 1))  # units of the present burst; the buffer holds `size` of them
        self.last, self.count, self.wrong = Signal(range(BEATS)), Signal(range(BEATS)), Signal()  # of the burst
        m.submodules.buffer = self.buffer = ResetInserter(self.state == State.FREE)(BlockQueue(8 * self.size, BEATS))
        m.d.comb += [self.idle.eq(self.state == State.FREE), self.job.ready.eq(self.idle & ~self.reset)]
        for channel in ("ar", "aw"):
            for wire, value in {"size": exact_log2(self.size), "burst": INCR, "len": self.last}.items():
                m.d.comb += self._wire(channel + wire).eq(value)
        with m.If(self.reset):
            m.d.sync += self.lost.eq(1)
        with m.Switch(self.state):
            for state, step in ((State.FREE, self._begin), (State.MEASURE, self._measure), (State.CUT, self._cut),
                                (State.ASK, self._ask), (State.READ, self._read), (State.PUSH, self._push),
                                (State.WRITE, self._write), (State.ANSWER, self._answer), (State.END, self._end)):
                with m.Case(state):
                    step(m)
        m.d.comb += [self.m_axi_rready.eq(1), self.m_axi_bready.eq(1)]
        self._data(m)
        return m

    def _wire(self, name: str) -> Signal:
        return getattr(self, f"m_axi_{name}")

    def _go(self, m, state):
        m.d.sync += self.state.eq(Mux(self.lost | self.reset, State.FREE, state))

    def _begin(self, m):
        job = self.job.p
        m.d.sync += [
            self.lost.eq(0), self.wrong.eq(0), self.count.eq(0), self.task.eq(job.task), self.source.eq(job.first),
            self.target.eq(job.second), self.left.eq(job.count >> exact_log2(ALIGNED)),
            self.last.eq(Mux(job.task == MoverTask.FETCH, max(1, BYTES // self.size) - 1, 0))]
        with m.If(self.job.valid & self.job.ready):
            with m.Switch(job.task):
                with m.Case(MoverTask.FETCH):
                    m.d.sync += self.state.eq(State.ASK)
                with m.Case(MoverTask.COPY):
                    m.d.sync += self.state.eq(State.MEASURE)
                with m.Default():
                    m.d.sync += self.state.eq(State.PUSH)

    def _measure(self, m):
        """The smaller one of the distances to the next multiple of the buffer's size."""
        unit, bits = exact_log2(ALIGNED), exact_log2(self.size)
        source, target = (address[unit:unit + bits] for address in (self.source, self.target))
        m.d.sync += self.piece.eq(self.size - Mux(source > target, source, target))
        self._go(m, State.CUT)

    def _cut(self, m):
        """The burst ends with the range, if it is not longer."""
        piece = Signal.like(self.piece)
        m.d.comb += piece.eq(Mux(self.left < self.piece, self.left, self.piece))
        m.d.sync += [self.piece.eq(piece), self.last.eq(piece * (ALIGNED // self.size) - 1),
                     self.left.eq(self.left - piece)]
        self._go(m, State.ASK)

    def _ask(self, m):
        m.d.comb += self.m_axi_arvalid.eq(1)
        with m.If(self.m_axi_arready):
            m.d.sync += self.state.eq(State.READ)

    def _read(self, m):
        """Take beats up to RLAST; those beyond the burst are lost."""
        ends, over = self.count == self.last, Signal()
        with m.If(self.m_axi_rvalid):
            m.d.comb += self.buffer.i.valid.eq((self.task == MoverTask.COPY) & ~over)
            m.d.sync += [self.count.eq(self.count + 1), over.eq(over | ends),
                         self.wrong.eq(self.wrong | failed(self.m_axi_rresp) | over | (self.m_axi_rlast != ends))]
            with m.If((self.task == MoverTask.FETCH) & ~over):
                m.d.sync += Value.cast(self.command).eq(self._fetched())
            with m.If(self.m_axi_rlast):
                bad = self.wrong | failed(self.m_axi_rresp) | over | ~ends
                m.d.sync += [self.count.eq(0), over.eq(0)]
                self._go(m, Mux((self.task == MoverTask.FETCH) | bad, State.END, State.WRITE))

    def _fetched(self):
        """The command after one more beat."""
        bits, beat = 8 * BYTES, self.m_axi_rdata
        if len(beat) <= bits:
            return Cat(self.command, beat)[len(beat):]
        return beat.word_select(self.source[exact_log2(BYTES):exact_log2(self.size)], bits)

    def _push(self, m):
        m.d.comb += self.buffer.i.valid.eq(1)
        self._go(m, State.WRITE)

    def _write(self, m):
        """Give the burst, and its beats."""
        asked, given = Signal(), Signal()
        m.d.comb += [self.m_axi_awvalid.eq(~asked), self.m_axi_wvalid.eq(self.buffer.o.valid & ~given),
                     self.m_axi_wlast.eq(self.count == self.last), self.buffer.o.ready.eq(self.m_axi_wready & ~given)]
        address, sent, done = self.m_axi_awready | asked, Signal(), Signal()
        m.d.comb += [sent.eq(self.m_axi_wvalid & self.m_axi_wready),
                     done.eq(address & (given | (sent & self.m_axi_wlast)))]
        m.d.sync += [asked.eq(address & ~done), given.eq((given | (sent & self.m_axi_wlast)) & ~done),
                     self.count.eq(Mux(done, 0, self.count + sent))]
        with m.If(done):
            m.d.sync += self.state.eq(State.ANSWER)

    def _answer(self, m):
        with m.If(self.m_axi_bvalid):
            more, units = self.left.any() & ~failed(self.m_axi_bresp), exact_log2(ALIGNED)
            m.d.sync += [self.wrong.eq(failed(self.m_axi_bresp)),
                         *(one[units:].eq(one[units:] + self.piece) for one in (self.source, self.target))]
            self._go(m, Mux(more, State.MEASURE, State.END))

    def _end(self, m):
        m.d.comb += [self.ended.eq(~self.lost & ~self.reset), self.error.eq(self.wrong)]
        m.d.sync += self.state.eq(State.FREE)

    def _data(self, m):
        """Addresses of beats, data and strobes."""
        low, word = exact_log2(self.size), self.source
        signals = self.task == MoverTask.SIGNAL
        lane = self.target[2:low]
        strobes = Signal(self.size)
        m.d.comb += [
            self.m_axi_araddr[low:].eq(self.source[low:]), self.m_axi_awaddr[low:].eq(self.target[low:]),
            self.buffer.i.p.eq(Mux(signals, word.replicate(self.size // 4), self.m_axi_rdata)),
            self.m_axi_wdata.eq(self.buffer.o.p), strobes.eq(0xF << (lane << 2) if low > 2 else 0xF),
            self.m_axi_wstrb.eq(Mux(signals, strobes, -1))]
