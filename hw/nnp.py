"""The neural network processor: host ports around the core."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from concord.hw.accelerator.core_ports import core_ports, ports
from concord.hw.core import Core, counted
from concord.hw.dram.axi import bus
from concord.hw.dram.dram_port import DramPort
from concord.hw.dram.transfers import port_side
from concord.hw.host.control import BUS, Control
from concord.hw.host.counters import EventCounters
from concord.hw.host.message_input import MessageInput
from concord.hw.host.message_output import MessageOutput
from concord.hw.lib.reset_domain import reset_too
from concord.spec.host.registers import Status
from concord.spec.machine.config import Config


class NNP(wiring.Component):
    """A block floating point neural network processor.

    Args:
        config: The machine. Its dimensions are powers of two.
        watched: The machine is a core of an accelerator, whose driver watches it.

    Members:
        s_axis_*: AXI4-Stream, messages from the host.
        m_axis_*: AXI4-Stream, messages to the host.
        s_axil_*: AXI4-Lite, the registers of `spec.host.registers`.
        m_axi_*: AXI4, the memory outside the chip, on machines with Dram.
        watch: Out(`hw.host.watch.Watch`), with `watched`.

    Raises:
        ValueError: hardware is not generated for such a machine.
    """

    def __init__(self, config: Config, *, watched: bool = False):
        config.require_hardware()
        self.config, self.watched = config, watched
        super().__init__(core_ports(config) if watched else ports(config))

    def elaborate(self, platform):
        m = Module()
        config, control, core = self.config, Control(self.config), Core(self.config, watched=self.watched)
        m.submodules.control = control
        m.submodules.message_input = inward = MessageInput(config)
        m.submodules.message_output = outward = MessageOutput(config)
        m.submodules.counters = counters = EventCounters(counted(config))
        m.submodules.core = reset_too(m, "core", control.reset)(core)
        self.core = core
        for name, member in BUS.items():
            ours, theirs = getattr(self, name), getattr(control, name)
            m.d.comb += theirs.eq(ours) if member.flow == In else ours.eq(theirs)

        m.d.comb += [
            inward.i.p.data.eq(self.s_axis_tdata), inward.i.p.last.eq(self.s_axis_tlast),
            inward.i.valid.eq(self.s_axis_tvalid), self.s_axis_tready.eq(inward.i.ready),
            self.m_axis_tdata.eq(outward.o.p.data), self.m_axis_tlast.eq(outward.o.p.last),
            self.m_axis_tvalid.eq(outward.o.valid), outward.o.ready.eq(self.m_axis_tready),
            inward.reset.eq(control.reset), outward.reset.eq(control.reset), outward.peer.eq(control.peer)]
        outside = ["outside"] * bool(config.dram_words)
        if config.dram_words:
            settled, busy = self._outside(m, core, control)
        for name in ("net", "write", "program", "bias", "packed", "update", "read", *outside):
            wiring.connect(m, getattr(inward, name), getattr(core, name))
        wiring.connect(m, core.out, outward.net)
        wiring.connect(m, core.reply, outward.reply)
        if config.vector_rf:
            wiring.connect(m, inward.entry_write, core.entry_write)
            wiring.connect(m, core.entry_reply, outward.entry_reply)
        wiring.connect(m, core.updated, outward.updated)

        # A start waits for messages under way; other messages than INPUT wait for a program that runs or is to start.
        starting, refused = Signal(), Signal()
        m.d.sync += [starting.eq((starting | control.start) & ~core.running & ~control.reset & ~refused),
                     refused.eq((refused | inward.error) & ~control.reset)]
        ready = ~inward.busy & settled if config.dram_words else ~inward.busy
        m.d.comb += [core.start.eq(starting & ready), inward.idle.eq(~core.running & ~starting),
                     core.message_error.eq(refused), core.sent.eq(~outward.busy)]

        status = {Status.RUNNING: core.running | starting, Status.DONE: core.done & ~starting,
                  Status.WAIT_INPUT: core.wait_input, Status.WAIT_OUTPUT: core.wait_output,
                  Status.INVALID_VECTOR: core.invalid_vector, Status.INVALID_MATRIX: core.invalid_matrix,
                  **({Status.DRAM_BUSY: busy | ~core.settled} if config.dram_words else {})}
        m.d.comb += [control.status[bit.bit_length() - 1].eq(flag) for bit, flag in status.items()]
        m.d.comb += [control.error.eq(core.error), control.error_address.eq(core.error_address),
                     counters.clear.eq(control.clear), counters.add.eq(core.events)]
        wiring.connect(m, control.counter, counters.counter)
        m.d.comb += control.count.eq(counters.count)
        if self.watched:
            lands = inward.busy | ~core.settled | busy if config.dram_words else inward.busy
            m.d.comb += self.watch.eq(Cat(
                core.running | starting, refused, core.wait_input, core.unused, outward.busy, lands, core.error,
                core.error_address))
        return m

    def _outside(self, m, core, control):
        """Connect the port of Dram, which a reset leaves alive until all responses have come.

        Returns:
            Whether a program may start: no access is under way, and what the host wrote is there; and whether one is.
        """
        m.submodules.port = port = DramPort(self.config)
        for name, member in bus(self.config).items():
            ours, theirs = getattr(self, name), getattr(port, name)
            m.d.comb += theirs.eq(ours) if member.flow == In else ours.eq(theirs)
        for name, member in port_side(self.config).items():
            ours, theirs = getattr(core, name), getattr(port, name)
            if not member.is_port:
                wiring.connect(m, ours, theirs)
            else:
                m.d.comb += ours.eq(theirs)
        m.d.comb += [port.base.eq(Cat(Const(0, 12), control.dram_base[12:])), port.reset.eq(control.reset),
                     core.memory_error.eq(port.error)]
        return port.idle & core.settled, ~port.idle
