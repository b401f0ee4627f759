"""The control port, which implements spec.host.registers."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.host.counters import LATE
from concord.spec.host import registers
from concord.spec.host.registers import Register
from concord.spec.isa.instructions import END_BITS
from concord.spec.machine.config import Config

#: Wires of the AXI4-Lite bus.
BUS = {
    "s_axil_awaddr": In(12), "s_axil_awprot": In(3), "s_axil_awvalid": In(1), "s_axil_awready": Out(1),
    "s_axil_wdata": In(32), "s_axil_wstrb": In(4), "s_axil_wvalid": In(1), "s_axil_wready": Out(1),
    "s_axil_bresp": Out(2), "s_axil_bvalid": Out(1), "s_axil_bready": In(1),
    "s_axil_araddr": In(12), "s_axil_arprot": In(3), "s_axil_arvalid": In(1), "s_axil_arready": Out(1),
    "s_axil_rdata": Out(32), "s_axil_rresp": Out(2), "s_axil_rvalid": Out(1), "s_axil_rready": In(1),
}


class Control(wiring.Component):
    """Registers over AXI4-Lite.

    An unknown address reads as 0, and writing it has no effect; every response is OKAY. The low two bits of an address
    are ignored. A command is executed when its byte of CONTROL is written with its strobe.

    Args:
        config: Configuration; read-only registers hold some of its values.

    Members:
        s_axil_...: AXI4-Lite, 12-bit byte addresses, 32-bit data.
        start, reset, clear: Out(1). Pulses of the commands of `spec.host.registers.Control`.
        status: In. Bits of `spec.host.registers.Status`.
        error: In(4). Code of `spec.isa.instructions.Error`.
        peer: Out(32). Register PEER. dram_base: Out(32). Register DRAM_BASE, on machines with Dram.
        error_address: In. Address of an instruction, or the end of the instruction buffer.
        counter: Out(stream index). Request to read a counter; taken when it can be read now.
        count: In(32). Value of that counter, `counters.LATE` cycles later.

    Timing:
        A write takes 2 cycles, a read 3 cycles, and a read of a counter 6 or more.
    """

    codes = (Register,)

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            **BUS,
            "start": Out(1), "reset": Out(1), "clear": Out(1), "peer": Out(32),
            "status": In(7 if config.dram_words else 6), "error": In(4), "error_address": In(END_BITS),
            "counter": Out(stream.Signature(range(len(registers.counters(self.config))))), "count": In(32),
            **({"dram_base": Out(32)} if config.dram_words else {}),
        })

    def elaborate(self, platform):
        m = Module()
        self._write(m)
        self._read(m)
        return m

    def _write(self, m):
        """Take address and data together; respond, and give the pulses, in the next cycle."""
        take = Signal()
        m.d.comb += [
            take.eq(self.s_axil_awvalid & self.s_axil_wvalid & ~self.s_axil_bvalid),
            self.s_axil_awready.eq(take), self.s_axil_wready.eq(take),
        ]
        command = take & (self.s_axil_awaddr[2:] == Register.CONTROL >> 2) & self.s_axil_wstrb[0]
        held = {Register.PEER: self.peer} | ({Register.DRAM_BASE: self.dram_base} if self.config.dram_words else {})
        for register, value in held.items():
            with m.If(take & (self.s_axil_awaddr[2:] == register >> 2)):
                for k, strobe in enumerate(self.s_axil_wstrb):
                    with m.If(strobe):
                        m.d.sync += value.word_select(k, 8).eq(self.s_axil_wdata.word_select(k, 8))
        pulses = Signal(registers.Control.CLEAR.bit_length())
        m.d.sync += pulses.eq(Mux(command, self.s_axil_wdata, 0))
        m.d.comb += [
            self.start.eq((pulses & registers.Control.START).any()),
            self.reset.eq((pulses & registers.Control.RESET).any()),
            self.clear.eq((pulses & registers.Control.CLEAR).any()),
        ]
        with m.If(take):
            m.d.sync += self.s_axil_bvalid.eq(1)
        with m.Elif(self.s_axil_bready):
            m.d.sync += self.s_axil_bvalid.eq(0)

    def _read(self, m):
        """Take an address, look up the register or request a counter, and respond."""
        address, value, waited = Signal(10), Signal(32), Signal(range(LATE))
        first = Register.COUNTERS >> 2
        is_counter = (address >= first) & (address < first + len(registers.counters(self.config)))
        with m.Switch(address):
            for register, source in self._registers().items():
                with m.Case(register >> 2):
                    m.d.comb += value.eq(source)
        m.d.comb += self.counter.p.eq(address - first)
        with m.FSM():
            with m.State("ADDRESS"):
                m.d.comb += self.s_axil_arready.eq(1)
                m.d.sync += address.eq(self.s_axil_araddr[2:])
                with m.If(self.s_axil_arvalid):
                    m.next = "LOOK"
            with m.State("LOOK"):
                m.d.sync += self.s_axil_rdata.eq(value)
                m.d.comb += self.counter.valid.eq(is_counter)
                with m.If(~is_counter):
                    m.next = "ANSWER"
                with m.Elif(self.counter.ready):
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.sync += waited.eq(waited + 1)
                with m.If(waited == LATE - 2):
                    m.d.sync += waited.eq(0)
                    m.next = "COUNT"
            with m.State("COUNT"):
                m.d.sync += self.s_axil_rdata.eq(self.count)
                m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += self.s_axil_rvalid.eq(1)
                with m.If(self.s_axil_rready):
                    m.next = "ADDRESS"

    def _registers(self):
        """Value of each register except the counters."""
        config = self.config
        return {
            Register.STATUS: self.status, Register.ERROR: self.error, Register.ERROR_ADDRESS: self.error_address,
            Register.DIGEST: config.digest, Register.NATIVE_DIM: config.native_dim, Register.LANES: config.lanes,
            Register.TILE_ENGINES: config.tile_engines, Register.MFU_LANES: config.mfu_lanes,
            Register.MATRIX_TILES: config.matrix_tiles, Register.INSTRUCTIONS: config.instructions,
            Register.COUNTER_COUNT: len(registers.counters(self.config)), Register.PEER: self.peer,
            **({Register.DRAM_BASE: self.dram_base} if config.dram_words else {}),
        }
