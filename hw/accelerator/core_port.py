"""The control port of a core, which its driver and the host share."""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In
from concord.hw.host.control import BUS
from concord.spec.host.registers import Control, Register

#: A write of the driver.
Write = data.StructLayout({"address": 12, "value": 32})


class State(enum.Enum):
    """Whose write is under way."""

    FREE = 0  #: Nobody's.
    DRIVER = 1
    HOST = 2
    ANSWER = 3  #: One that the core has taken, and answers in this cycle.


class CorePort(wiring.Component):
    """Gives a core the writes of its driver and those of the host, one at a time.

    The host reads at any time. Of what it writes to CONTROL, the core gets the bit CLEAR alone.

    Members:
        s_axil_*: AXI4-Lite of the host, as a core has it. core_*: the same wires to the core, whose names end alike.
        write: In(stream {address, value}). Writes of the driver; one is taken when the core takes it.

    Timing:
        A write takes 3 cycles. The answer for the host waits here, so that a host which does not take it holds up no
        driver.
    """

    def __init__(self):
        core = {name.replace("s_axil_", "core_"): member.flip() for name, member in BUS.items()}
        super().__init__({**BUS, **core, "write": In(stream.Signature(Write))})

    def elaborate(self, platform):
        m = Module()
        state, answered = Signal(State), Signal()
        for name, member in BUS.items():
            if "_ar" in name or "_r" in name:
                ours, core = getattr(self, name), getattr(self, name.replace("s_axil_", "core_"))
                m.d.comb += core.eq(ours) if member.flow == In else ours.eq(core)
        to_control = self.s_axil_awaddr[2:] == Register.CONTROL >> 2
        masked = self.s_axil_wdata & Mux(to_control, int(Control.CLEAR), (1 << 32) - 1)
        host = state == State.HOST
        m.d.comb += [
            self.core_awaddr.eq(Mux(host, self.s_axil_awaddr, self.write.p.address)),
            self.core_wdata.eq(Mux(host, masked, self.write.p.value)),
            self.core_wstrb.eq(Mux(host, self.s_axil_wstrb, 15)), self.core_awprot.eq(self.s_axil_awprot),
            self.core_bready.eq(1), self.s_axil_bvalid.eq(answered)]
        with m.If(self.s_axil_bready):
            m.d.sync += answered.eq(0)
        with m.Switch(state):
            with m.Case(State.FREE):
                with m.If(self.write.valid):
                    m.d.sync += state.eq(State.DRIVER)
                with m.Elif(self.s_axil_awvalid & self.s_axil_wvalid & ~answered):
                    m.d.sync += state.eq(State.HOST)
            with m.Case(State.DRIVER, State.HOST):
                m.d.comb += [self.core_awvalid.eq(1), self.core_wvalid.eq(1)]
                with m.If(self.core_awready):  # the core takes address and data together
                    m.d.comb += [self.s_axil_awready.eq(host), self.s_axil_wready.eq(host), self.write.ready.eq(~host)]
                    m.d.sync += state.eq(State.ANSWER)
                    with m.If(host):
                        m.d.sync += answered.eq(1)
            with m.Case(State.ANSWER):
                m.d.sync += state.eq(State.FREE)
        return m
