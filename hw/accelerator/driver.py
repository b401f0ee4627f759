"""Executes the commands of one core."""

from amaranth import *
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from concord.hw.accelerator.answer_writer import AnswerWriter
from concord.hw.accelerator.core_port import CorePort, Write
from concord.hw.accelerator.message_reader import MessageReader
from concord.hw.accelerator.orders import Ending, driver_side
from concord.hw.dram.axi import INCR, wires
from concord.hw.host.control import BUS
from concord.hw.host.watch import Watch
from concord.spec.accelerator.commands import CommandError, CommandKind
from concord.spec.host.registers import Control, Register
from concord.spec.isa.instructions import Error
from concord.spec.machine.config import Config

#: Prefix of the wires of a driver, by that of the wires of its core.
OF_CORE = {"s_axis_": "core_axis_", "m_axis_": "core_out_", "s_axil_": "core_axil_"}
STARVED = 256  #: Cycles on end for which a program waits for input that nobody sends.
SETTLE = 4  #: Cycles from a write to a register until its effect is seen.


class State(enum.Enum):
    """What the driver does."""

    FREE = 0  #: It waits for a command.
    SET = 1  #: A register is written.
    LOAD = 2  #: Messages are sent, and answers are stored.
    RUN = 3  #: A program runs.
    FINISH = 4  #: Answers are written.
    FAILED = 5  #: A command had an error: nothing more is done before a reset.
    RESET = 6  #: The core is reset.
    CLEAR = 7  #: What was under way at the reset ends.


class Driver(wiring.Component):
    """Executes LOAD, RUN and SET for a core, one after the other.

    A RUN ends when its program has ended and all of its messages are sent, or at once when the program has an error or
    leaves words of NetQ, or when all is sent and the program waits for more. Then its answers are complete.

    Args:
        config: Machine of the core.
        width:  Bytes of the data bus.

    Members:
        commands: what `hw.accelerator.orders.driver_side` has.
        s_axil_*: AXI4-Lite, registers of the core for the host.
        m_axi_*: AXI4, for messages and answers.
        core_axis_*, core_out_*, core_axil_*: the wires s_axis_*, m_axis_* and s_axil_* of the core.
        watch: In(`hw.host.watch.Watch`). State of the core.

    Timing:
        A SET takes 8 cycles. LOAD and RUN take 10 cycles and two answers of the memory more than their messages.
    """

    def __init__(self, config: Config, width: int):
        self.config, self.width = config, width
        bits = 8 * config.message_bytes
        super().__init__({
            "commands": Out(wiring.Signature(driver_side())), **BUS, "watch": In(Watch),
            **{f"m_axi_{name}": member for name, member in wires(width, 1).items()},
            **{name.replace("s_axil_", "core_axil_"): member.flip() for name, member in BUS.items()},
            "core_axis_tdata": Out(bits), "core_axis_tvalid": Out(1), "core_axis_tready": In(1),
            "core_axis_tlast": Out(1), "core_out_tdata": In(bits), "core_out_tvalid": In(1),
            "core_out_tready": Out(1), "core_out_tlast": In(1)})

    def of_core(self, name: str):
        """The wire that meets a port of the core, but for those of its Dram."""
        if name == "watch":
            return Value.cast(self.watch)
        prefix = next(prefix for prefix in OF_CORE if name.startswith(prefix))
        return getattr(self, OF_CORE[prefix] + name.removeprefix(prefix))

    def elaborate(self, platform):
        m = Module()
        m.submodules.reader = self.reader = MessageReader(self.config, self.width)
        m.submodules.writer = self.writer = AnswerWriter(self.config, self.width)
        m.submodules.port = self.port = CorePort()
        self.state, self.index = Signal(State), Signal(32)  # of the command
        self.writing, self.write = Signal(), Signal(Write)  # a register is to be written
        self.owed = Signal(32)  # messages that the core answers
        self.waited = Signal(range(STARVED + 1))  # cycles on end in which the program waits, and sends nothing
        self.failed, self.surplus, self.broken, self.starved = (Signal(name=name) for name in (
            "failed", "surplus", "broken", "starved"))
        self._connect(m)
        self._memory(m)
        settled = self._writes(m)
        self._execute(m, settled)
        self._restart(m, settled)
        return m

    def _connect(self, m):
        """Connect the core."""
        reader, writer, port = self.reader, self.writer, self.port
        for name, member in BUS.items():
            ours, host = getattr(self, name), getattr(port, name)
            m.d.comb += host.eq(ours) if member.flow == In else ours.eq(host)
            core = getattr(self, name.replace("s_axil_", "core_axil_"))
            out = getattr(port, name.replace("s_axil_", "core_"))
            m.d.comb += core.eq(out) if member.flow == In else out.eq(core)
        m.d.comb += [
            self.core_axis_tdata.eq(reader.o.p.data), self.core_axis_tlast.eq(reader.o.p.last),
            self.core_axis_tvalid.eq(reader.o.valid), reader.o.ready.eq(self.core_axis_tready),
            writer.i.p.data.eq(self.core_out_tdata), writer.i.p.last.eq(self.core_out_tlast),
            writer.i.valid.eq(self.core_out_tvalid), self.core_out_tready.eq(writer.i.ready),
            reader.refused.eq(self.watch.refused)]

    def _memory(self, m):
        """Connect the port to memory."""
        reader, writer = self.reader, self.writer
        for channel, asked in (("ar", reader.ar), ("aw", writer.aw)):
            values = {"size": exact_log2(self.width), "burst": INCR, "addr": asked.p.addr, "len": asked.p.len,
                      "valid": asked.valid}
            m.d.comb += [getattr(self, f"m_axi_{channel}{name}").eq(value) for name, value in values.items()]
            m.d.comb += asked.ready.eq(getattr(self, f"m_axi_{channel}ready"))
        r, w, b = reader.r, writer.w, writer.b
        m.d.comb += [
            r.valid.eq(self.m_axi_rvalid), self.m_axi_rready.eq(r.ready), r.p.data.eq(self.m_axi_rdata),
            r.p.resp.eq(self.m_axi_rresp), r.p.last.eq(self.m_axi_rlast),
            self.m_axi_wdata.eq(w.p.data), self.m_axi_wstrb.eq(w.p.strb), self.m_axi_wlast.eq(w.p.last),
            self.m_axi_wvalid.eq(w.valid), w.ready.eq(self.m_axi_wready),
            b.p.resp.eq(self.m_axi_bresp), b.valid.eq(self.m_axi_bvalid), self.m_axi_bready.eq(b.ready)]

    def _execute(self, m, settled):
        """Take commands, and do what each state says."""
        watch, writer, state, taken = self.watch, self.writer, self.state, Signal()
        m.d.comb += [
            self.commands.order.ready.eq((state == State.FREE) & ~self.commands.stop & ~self.commands.reset),
            taken.eq(self.commands.order.valid & self.commands.order.ready),
            self.commands.idle.eq(((state == State.FREE) | (state == State.FAILED)) & self.reader.idle & writer.idle)]
        self._begin(m, taken)
        sent, left = self.reader.ended & settled, Signal()  # `left`: the program has ended, and words of NetQ are left
        with m.Switch(state):
            with m.Case(State.LOAD):
                answered = (writer.messages == self.owed) & ~watch.busy & ~watch.replying
                m.d.comb += [self.reader.stop.eq(self.failed), writer.finish.eq(sent & answered)]
            with m.Case(State.RUN):
                ended, broken = settled & ~watch.running, watch.error != Error.NONE
                waits = sent & watch.running & watch.wait_input & ~self.core_out_tvalid
                m.d.comb += [left.eq(ended & ~broken & watch.unused),
                             self.reader.stop.eq(self.failed | left | (ended & broken)),
                             writer.finish.eq(sent & (ended | self.waited[-1]))]
                m.d.sync += [self.waited.eq(Mux(waits, self.waited + 1, 0)), self.surplus.eq(self.surplus | left),
                             self.broken.eq(ended & broken), self.starved.eq(self.waited[-1])]
        with m.If(writer.finish):
            m.d.sync += state.eq(State.FINISH)
        with m.If((state == State.SET) & settled | (state == State.FINISH) & writer.done):
            self._end(m)

    def _writes(self, m):
        """Write the register that is to be written. Returns whether none is, and whether its effect is seen."""
        settling = Signal(range(SETTLE + 1))
        m.d.comb += [self.port.write.valid.eq(self.writing), self.port.write.p.eq(self.write)]
        m.d.sync += settling.eq(Mux(self.writing, SETTLE, settling - settling.any()))
        with m.If(self.port.write.ready):
            m.d.sync += self.writing.eq(0)
        return ~self.writing & (settling == 0)

    def _begin(self, m, taken):
        """Begin with a command."""
        order, reads, stores = self.commands.order.p, self.reader.begin, self.writer.begin
        moves = taken & (order.kind != CommandKind.SET)
        m.d.comb += [
            reads.valid.eq(moves), reads.first.eq(order.first), reads.count.eq(order.count),
            reads.inputs.eq(order.kind == CommandKind.RUN),
            stores.valid.eq(moves), stores.first.eq(order.second), stores.room.eq(order.room)]
        m.d.sync += [self.failed.eq(self.failed | self.reader.failed | self.writer.failed),
                     self.owed.eq(self.owed + self.reader.owed)]
        with m.If(taken):
            m.d.sync += [
                self.index.eq(order.index), self.waited.eq(0), self.owed.eq(0),
                *(flag.eq(0) for flag in (self.failed, self.surplus, self.broken, self.starved)),
                self.writing.eq(order.kind != CommandKind.LOAD),
                self.write.address.eq(order.first), self.write.value.eq(order.second)]
            with m.If(order.kind == CommandKind.RUN):
                m.d.sync += [self.write.address.eq(Register.CONTROL), self.write.value.eq(Control.START)]
            with m.Switch(order.kind):
                for kind, state in ((CommandKind.LOAD, State.LOAD), (CommandKind.RUN, State.RUN),
                                    (CommandKind.SET, State.SET)):
                    with m.Case(kind):
                        m.d.sync += self.state.eq(state)

    def _end(self, m):
        """Tell how the command has ended; of several errors, the smallest."""
        found = {CommandError.ROOM: self.writer.over, CommandError.MESSAGE: self.reader.wrong | self.watch.refused,
                 CommandError.PROGRAM: self.broken, CommandError.STARVED: self.starved,
                 CommandError.MEMORY: self.failed, CommandError.SURPLUS: self.surplus}
        code, end = Signal(Ending["error"].shape), self.commands.ended
        for error in sorted(found, reverse=True):
            with m.If(found[error] & (self.state == State.FINISH)):
                m.d.comb += code.eq(error)
        m.d.comb += [end.valid.eq(~self.commands.reset), end.p.index.eq(self.index), end.p.error.eq(code)]
        m.d.sync += self.state.eq(Mux(code == CommandError.NONE, State.FREE, State.FAILED))
        with m.If(code == CommandError.PROGRAM):
            m.d.comb += [end.p.core_error.eq(self.watch.error), end.p.address.eq(self.watch.error_address)]

    def _restart(self, m, settled):
        """Reset the core, in any state, and let end what is under way."""
        reader, writer, state = self.reader, self.writer, self.state
        m.d.comb += [reader.reset.eq(self.commands.reset), writer.reset.eq(self.commands.reset),
                     writer.drop.eq((state == State.RESET) | (state == State.CLEAR))]
        with m.If((state == State.RESET) & ~self.writing):
            m.d.sync += [self.writing.eq(1), self.write.address.eq(Register.CONTROL),
                         self.write.value.eq(Control.RESET), state.eq(State.CLEAR)]
        with m.If((state == State.CLEAR) & settled):
            m.d.comb += reader.close.eq(1)
            with m.If(reader.closed & reader.idle & self.writer.idle & ~self.watch.replying & ~self.watch.busy):
                m.d.sync += state.eq(State.FREE)
        with m.If(self.commands.reset):
            m.d.sync += state.eq(State.RESET)
