"""A machine at a serial line: the processor, its UART, and lights."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from concord.hw.dram.axi import bus
from concord.hw.host.serial_link import SerialLink
from concord.hw.host.uart_receiver import UartReceiver, uart_step
from concord.hw.host.uart_sender import UartSender
from concord.hw.nnp import NNP
from concord.spec.machine.config import Config

SHOWN = 22  #: Bits of the counter by which the lights show short events, and that the machine has a clock.


def require_memory(config: Config, size: int) -> None:
    """Check that the memory of a board is as large as the Dram of a machine.

    Args:
        config: The machine.
        size:   Bytes of that memory; 0 where the board has none.

    Raises:
        ValueError: it is too small.
    """
    word, words = 2 * config.mfu_lanes, config.dram_words
    if words and not size:
        raise ValueError(f"a board has no memory for this machine's {words:,} words of Dram: choose a machine whose "
                         "dram_words is 0")
    if words * word > size:
        raise ValueError(f"this machine's {words:,} words of Dram are {words * word:,} bytes, and the board has a "
                         f"memory of {size:,}: choose a machine whose dram_words is at most {size // word}")


class SerialNNP(wiring.Component):
    """A neural network processor whose host is at a serial line.

    Args:
        config: The machine.
        clock:  Clock in MHz.
        baud:   Bits per second of the line.
        memory: Bytes of the memory at the port of Dram; 0 where there is none.

    Members:
        rx: In(1), tx: Out(1). The line.
        lights: Out(8). The clock runs (blinks); a host has opened the link; a byte has come; a byte has gone; a message
            waits for the machine; the machine has a message; a frame was damaged; a register was accessed.
        m_axi_*: The port of Dram, on machines with it.

    Raises:
        ValueError: the memory is too small for the machine.
    """

    def __init__(self, config: Config, clock: float, baud: int = 3_000_000, memory: int = 0):
        require_memory(config, memory)
        self.config, self.step = config, uart_step(clock, baud)
        super().__init__({"rx": In(1, init=1), "tx": Out(1, init=1), "lights": Out(8),
                          **(bus(config) if config.dram_words else {})})

    def elaborate(self, platform):
        m = Module()
        m.submodules.nnp = nnp = NNP(self.config)
        m.submodules.link = link = SerialLink(self.config)
        m.submodules.receiver = receiver = UartReceiver(self.step)
        m.submodules.sender = sender = UartSender(self.step)
        wiring.connect(m, link.line, sender.i)
        to, of = link.to_machine, link.from_machine
        m.d.comb += [
            receiver.rx.eq(self.rx), self.tx.eq(sender.tx), link.valid.eq(receiver.valid), link.byte.eq(receiver.byte),
            nnp.s_axis_tdata.eq(to.p.data), nnp.s_axis_tlast.eq(to.p.last), nnp.s_axis_tvalid.eq(to.valid),
            to.ready.eq(nnp.s_axis_tready), of.p.data.eq(nnp.m_axis_tdata), of.p.last.eq(nnp.m_axis_tlast),
            of.valid.eq(nnp.m_axis_tvalid), nnp.m_axis_tready.eq(of.ready)]
        for name, member in (bus(self.config) if self.config.dram_words else {}).items():
            ours, theirs = getattr(self, name), getattr(nnp, name)
            m.d.comb += theirs.eq(ours) if member.flow == In else ours.eq(theirs)
        self._access(m, nnp, link)

        time = Signal(SHOWN + 3)
        events = Cat(receiver.valid, sender.i.valid, link.access.valid)
        seen, shown = Signal.like(events), Signal.like(events)
        m.d.sync += [time.eq(time + 1), seen.eq(seen | events)]
        with m.If(time[:SHOWN] == 0):
            m.d.sync += [shown.eq(seen), seen.eq(events)]
        m.d.comb += self.lights.eq(Cat(
            time[-1], link.opened, shown[0], shown[1], link.waits, of.valid, link.dropped, shown[2]))
        return m

    def _access(self, m, nnp, link):
        """Read and write the registers of the machine, one access at a time."""
        access, address_taken, data_taken = link.access.p, Signal(), Signal()
        m.d.comb += [
            nnp.s_axil_awaddr.eq(access.address), nnp.s_axil_araddr.eq(access.address),
            nnp.s_axil_wdata.eq(access.value), nnp.s_axil_wstrb.eq(15), link.value.eq(nnp.s_axil_rdata)]
        with m.FSM(name="access"):
            with m.State("IDLE"):
                with m.If(link.access.valid):
                    m.d.sync += [address_taken.eq(0), data_taken.eq(0)]
                    m.next = "WRITE"
                with m.If(link.access.valid & ~access.write):
                    m.next = "READ"
            with m.State("WRITE"):
                m.d.comb += [nnp.s_axil_awvalid.eq(~address_taken), nnp.s_axil_wvalid.eq(~data_taken),
                             nnp.s_axil_bready.eq(1)]
                with m.If(nnp.s_axil_awready):
                    m.d.sync += address_taken.eq(1)
                with m.If(nnp.s_axil_wready):
                    m.d.sync += data_taken.eq(1)
                with m.If(nnp.s_axil_bvalid):
                    m.next = "DONE"
            with m.State("READ"):
                m.d.comb += nnp.s_axil_arvalid.eq(1)
                with m.If(nnp.s_axil_arready):
                    m.next = "VALUE"
            with m.State("VALUE"):
                m.d.comb += nnp.s_axil_rready.eq(1)
                with m.If(nnp.s_axil_rvalid):
                    m.d.comb += link.finished.eq(1)
                    m.d.comb += link.access.ready.eq(1)
                    m.next = "IDLE"
            with m.State("DONE"):
                m.d.comb += [link.finished.eq(1), link.access.ready.eq(1)]
                m.next = "IDLE"
