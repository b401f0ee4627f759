"""The registers of the command processor."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from concord.hw.accelerator.first_error import Failure
from concord.hw.accelerator.orders import ADDRESS
from concord.hw.host.control import BUS
from concord.spec.accelerator.accelerator import ALIGNED, Accelerator
from concord.spec.accelerator.registers import AcceleratorControl, AcceleratorRegister, AcceleratorStatus

SIZE_BITS = 5  #: Bits of RING_SIZE.


class ProcessorRegisters(wiring.Component):
    """Registers over AXI4-Lite, which implement `spec.accelerator.registers`.

    An unknown address reads as 0, and writing it has no effect; every response is OKAY. The low two bits of an address
    are ignored. A register takes the bytes whose strobe is set.

    Args:
        accelerator: Cores and memory.

    Members:
        s_axil_...: AXI4-Lite, 12-bit byte addresses, 32-bit data.
        reset, acknowledge: Out(1). Pulses of the commands of `AcceleratorControl`. TAIL is 0 after `reset`.
        reset_cores: Out, one bit for each core. Pulses.
        ring: Out(32). size: Out(5). tail: Out(32). Registers RING, RING_SIZE, TAIL.
        head: In(32). Register HEAD.
        status: In. Bits of `AcceleratorStatus`.
        busy_cores: In, one bit for each core.
        failure: In(Failure). The error.

    Timing:
        A write takes 2 cycles, and so does a read.
    """

    def __init__(self, accelerator: Accelerator):
        self.accelerator = accelerator
        cores = len(accelerator.cores)
        super().__init__({
            **BUS, "reset": Out(1), "acknowledge": Out(1), "reset_cores": Out(cores), "ring": Out(ADDRESS),
            "size": Out(SIZE_BITS, init=1), "tail": Out(32), "head": In(32),
            "status": In(max(AcceleratorStatus).bit_length()), "busy_cores": In(cores), "failure": In(Failure)})

    def elaborate(self, platform):
        m = Module()
        self._write(m)
        self._read(m)
        return m

    def _write(self, m):
        """Take address and data together; respond, and give the pulses, in the next cycle."""
        take, data = Signal(), self.s_axil_wdata
        m.d.comb += [take.eq(self.s_axil_awvalid & self.s_axil_wvalid & ~self.s_axil_bvalid),
                     self.s_axil_awready.eq(take), self.s_axil_wready.eq(take)]
        ring = self.ring[exact_log2(ALIGNED):]
        written = {AcceleratorRegister.RING: (ring, exact_log2(ALIGNED)), AcceleratorRegister.TAIL: (self.tail, 0),
                   AcceleratorRegister.RING_SIZE: (self.size, 0)}
        strobes = Cat(strobe.replicate(8) for strobe in self.s_axil_wstrb)
        for register, (value, low) in written.items():
            with m.If(take & (self.s_axil_awaddr[2:] == register >> 2)):
                for k in range(0, 32, 8):
                    first, last = max(k, low) - low, min(k + 8 - low, len(value))
                    if first < last:
                        with m.If(self.s_axil_wstrb[k // 8]):
                            m.d.sync += value[first:last].eq(data[first + low:last + low])
        pulses = Signal(AcceleratorControl.ACKNOWLEDGE.bit_length())
        given = {AcceleratorRegister.CONTROL: pulses, AcceleratorRegister.RESET_CORES: self.reset_cores}
        for register, value in given.items():
            chosen = take & (self.s_axil_awaddr[2:] == register >> 2)
            m.d.sync += value.eq(Mux(chosen, data & strobes, 0))
        m.d.comb += [self.reset.eq((pulses & AcceleratorControl.RESET).any()),
                     self.acknowledge.eq((pulses & AcceleratorControl.ACKNOWLEDGE).any())]
        with m.If(self.reset):
            m.d.sync += self.tail.eq(0)
        with m.If(take):
            m.d.sync += self.s_axil_bvalid.eq(1)
        with m.Elif(self.s_axil_bready):
            m.d.sync += self.s_axil_bvalid.eq(0)

    def _read(self, m):
        """Take an address, and respond with the register in the next cycle."""
        value = Signal(32)
        with m.Switch(self.s_axil_araddr[2:]):
            for register, source in self._registers().items():
                with m.Case(register >> 2):
                    m.d.comb += value.eq(source)
        m.d.comb += self.s_axil_arready.eq(~self.s_axil_rvalid)
        with m.If(self.s_axil_arready):
            m.d.sync += [self.s_axil_rdata.eq(value), self.s_axil_rvalid.eq(self.s_axil_arvalid)]
        with m.Elif(self.s_axil_rready):
            m.d.sync += self.s_axil_rvalid.eq(0)

    def _registers(self) -> dict:
        """Value of each register that does not read as 0."""
        register, failure = AcceleratorRegister, self.failure
        return {
            register.STATUS: self.status, register.ERROR: failure.error, register.ERROR_INDEX: failure.index,
            register.ERROR_ORIGIN: failure.origin, register.CORE_ERROR: failure.core_error,
            register.ERROR_ADDRESS: failure.address, register.RING: self.ring, register.RING_SIZE: self.size,
            register.HEAD: self.head, register.TAIL: self.tail, register.BUSY_CORES: self.busy_cores,
            register.CORE_COUNT: len(self.accelerator.cores), register.DIGEST: self.accelerator.digest,
            register.MEMORY: self.accelerator.memory_bytes - 1}
