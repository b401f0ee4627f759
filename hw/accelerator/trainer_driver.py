"""Executes the commands of a core that trains."""

from amaranth import *
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from concord.hw.accelerator.core_port import CorePort, Write
from concord.hw.accelerator.driver import SETTLE
from concord.hw.accelerator.orders import Ending, driver_side
from concord.hw.dram.axi import INCR, BusWords, wires
from concord.hw.dram.burst_reader import LONGEST, BurstReader
from concord.hw.host.control import BUS
from concord.hw.trainer.instruction_buffer import ProgramWord
from concord.hw.trainer.trainer_registers import Watch
from concord.spec.accelerator.commands import CommandError, CommandKind
from concord.spec.host.registers import Control, Register
from concord.spec.trainer.config import LANES
from concord.spec.trainer.instructions import TrainerError

WORDS = BusWords(dram_bus=LANES, mfu_lanes=LANES // 2)  #: Words of 16 bytes on a bus of 16 bytes.
BYTE_BITS = exact_log2(LANES)  #: Bits of a byte in a word.


class State(enum.Enum):
    """What the driver does."""

    FREE = 0  #: It waits for a command.
    SET = 1  #: A register is written.
    LOAD = 2  #: A program is read.
    RUN = 3  #: A program runs.
    FAILED = 4  #: A command had an error: nothing more is done before a reset.
    RESET = 5  #: The core is reset.
    CLEAR = 6  #: What was under way at the reset ends.


class TrainerDriver(wiring.Component):
    """Executes LOAD, RUN and SET for a core that trains, one after the other.

    Members:
        commands: what `hw.accelerator.orders.driver_side` has.
        s_axil_*: AXI4-Lite, registers of the core for the host.
        m_axi_*: AXI4 of 16 bytes, from which programs are read.
        core_axil_*: the wires s_axil_* of the core.
        load, first, second: Out. watch: In(Watch). Those of `hw.trainer.trainer_core.TrainerCore`.

    Timing:
        A SET takes 8 cycles. A LOAD takes 10 cycles and an answer of the memory more than its words, and a RUN 10
        cycles more than its program.
    """

    def __init__(self):
        super().__init__({
            "commands": Out(wiring.Signature(driver_side())), **BUS, "watch": In(Watch),
            **{f"m_axi_{name}": member for name, member in wires(LANES, 1).items()},
            **{name.replace("s_axil_", "core_axil_"): member.flip() for name, member in BUS.items()},
            "load": Out(stream.Signature(ProgramWord, always_ready=True)), "first": Out(32), "second": Out(32)})

    def of_core(self, name: str):
        """The wire that meets a port of the core, but for those of server memory."""
        if name.startswith("s_axil_"):
            return getattr(self, name.replace("s_axil_", "core_axil_"))
        wires_of_load = {"load__valid": self.load.valid, "load__payload": Value.cast(self.load.p)}
        return wires_of_load[name] if name in wires_of_load else Value.cast(getattr(self, name))

    def elaborate(self, platform):
        m = Module()
        m.submodules.reader = self.reader = BurstReader(WORDS, beats=2 * LONGEST)
        m.submodules.port = self.port = CorePort()
        self.state, self.index = Signal(State), Signal(32)  # of the command
        self.writing, self.write = Signal(), Signal(Write)  # a register is to be written
        self.asked, self.failed = Signal(), Signal()  # the words of a LOAD are asked for; a burst has failed
        self._connect(m)
        self._execute(m, self._settled(m))
        return m

    def _connect(self, m):
        """Connect the core's registers, and the reader with the memory and the core."""
        reader, port = self.reader, self.port
        for name, member in BUS.items():
            ours, host = getattr(self, name), getattr(port, name)
            m.d.comb += host.eq(ours) if member.flow == In else ours.eq(host)
            core = getattr(self, name.replace("s_axil_", "core_axil_"))
            out = getattr(port, name.replace("s_axil_", "core_"))
            m.d.comb += core.eq(out) if member.flow == In else out.eq(core)
        m.d.comb += [
            self.m_axi_arsize.eq(exact_log2(LANES)), self.m_axi_arburst.eq(INCR),
            self.m_axi_araddr.eq(reader.ar.p.addr), self.m_axi_arlen.eq(reader.ar.p.len),
            self.m_axi_arvalid.eq(reader.ar.valid), reader.ar.ready.eq(self.m_axi_arready),
            reader.r.valid.eq(self.m_axi_rvalid), self.m_axi_rready.eq(reader.r.ready),
            reader.r.p.data.eq(self.m_axi_rdata), reader.r.p.resp.eq(self.m_axi_rresp),
            reader.r.p.last.eq(self.m_axi_rlast), self.m_axi_bready.eq(1), reader.reset.eq(self.commands.reset),
            reader.o.ready.eq(1), self.load.valid.eq(reader.o.valid), self.load.p.last.eq(reader.o.p.last),
            self.load.p.word.eq(Value.cast(reader.o.p.word))]

    def _settled(self, m):
        """Write the register that is to be written. Returns whether none is, and whether its effect is seen."""
        settling = Signal(range(SETTLE + 1))
        m.d.comb += [self.port.write.valid.eq(self.writing), self.port.write.p.eq(self.write)]
        m.d.sync += settling.eq(Mux(self.writing, SETTLE, settling - settling.any()))
        with m.If(self.port.write.ready):
            m.d.sync += self.writing.eq(0)
        return ~self.writing & (settling == 0)

    def _execute(self, m, settled):
        """Take commands, do what each state says, and reset the core in any state."""
        state, reader, reset, taken = self.state, self.reader, self.commands.reset, Signal()
        m.d.comb += [
            self.commands.order.ready.eq((state == State.FREE) & ~self.commands.stop & ~reset),
            taken.eq(self.commands.order.valid & self.commands.order.ready),
            self.commands.idle.eq(((state == State.FREE) | (state == State.FAILED)) & reader.idle)]
        m.d.sync += [self.failed.eq(self.failed | reader.error.valid), self.asked.eq(self.asked & ~reader.range.ready)]
        self._begin(m, taken)
        with m.Switch(state):
            with m.Case(State.SET):
                self._end(m, settled, CommandError.NONE)
            with m.Case(State.LOAD):
                m.d.comb += reader.range.valid.eq(self.asked)
                self._end(m, reader.o.valid & reader.o.p.last, Mux(self.failed, CommandError.MEMORY, CommandError.NONE))
            with m.Case(State.RUN):
                broken = self.watch.error != TrainerError.NONE
                self._end(m, settled & ~self.watch.running,
                          Mux(broken, CommandError.PROGRAM, CommandError.NONE))
            with m.Case(State.RESET):
                with m.If(~self.writing):
                    m.d.sync += [self.writing.eq(1), self.write.address.eq(Register.CONTROL),
                                 self.write.value.eq(Control.RESET), state.eq(State.CLEAR)]
            with m.Case(State.CLEAR):
                with m.If(settled & reader.idle & self.watch.idle):
                    m.d.sync += state.eq(State.FREE)
        with m.If(reset):
            m.d.sync += [state.eq(State.RESET), self.asked.eq(0)]

    def _begin(self, m, taken):
        """Begin with a command."""
        order, range_ = self.commands.order.p, self.reader.range.p
        m.d.comb += [range_.first.eq(self.first), range_.count.eq(self.second), range_.last.eq(1)]
        with m.If(taken):
            loads, runs = (order.kind == kind for kind in (CommandKind.LOAD, CommandKind.RUN))
            m.d.sync += [
                self.index.eq(order.index), self.failed.eq(0), self.asked.eq(loads), self.writing.eq(~loads),
                self.write.address.eq(Mux(runs, Register.CONTROL, order.first)),
                self.write.value.eq(Mux(runs, Control.START, order.second)),
                self.state.eq(Mux(runs, State.RUN, Mux(loads, State.LOAD, State.SET)))]
            # Of a LOAD, the first word and the number of words; of a RUN, words from DRAM_BASE, with their sign.
            base = Mux(loads, 0, self.watch.base)
            for kept, address in ((self.first, order.first), (self.second, Mux(loads, order.count, order.second))):
                m.d.sync += kept.eq((address - base).as_signed() >> BYTE_BITS)

    def _end(self, m, ends, error):
        """Where the command ends, tell how."""
        code, end = Signal(Ending["error"].shape), self.commands.ended
        with m.If(ends):
            m.d.comb += [code.eq(error), end.valid.eq(~self.commands.reset), end.p.index.eq(self.index),
                         end.p.error.eq(code)]
            m.d.sync += self.state.eq(Mux(code == CommandError.NONE, State.FREE, State.FAILED))
            with m.If(code == CommandError.PROGRAM):
                m.d.comb += [end.p.core_error.eq(self.watch.error), end.p.address.eq(self.watch.address)]
