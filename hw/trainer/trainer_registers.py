"""The control port of a trainer, which implements `spec.trainer.registers`."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.host.control import BUS
from concord.hw.trainer.bases import BASE
from concord.hw.trainer.exponent_table import NUMBER
from concord.hw.trainer.wires import Word
from concord.spec.host.registers import Control, Status
from concord.spec.numbers.lazy import EXPONENT_BITS
from concord.spec.trainer.config import TrainerConfig
from concord.spec.trainer.registers import MANTISSA_BITS, TrainerCounter, TrainerRegister

COUNTER = 32  #: Bits of a counter.
INSTRUCTION_ADDRESS = 13  #: Bits of the address of an instruction, or of the end of the instruction buffer.

#: What a core shows besides its registers. `idle`: no access to server memory is under way. `base`: byte address of
#: word 0 of server memory.
Watch = data.StructLayout({
    "running": 1, "done": 1, "error": 4, "address": INSTRUCTION_ADDRESS, "idle": 1, "base": 32})
#: A learning rate or momentum.
Rate = data.StructLayout({"mantissa": signed(MANTISSA_BITS), "exponent": EXPONENT_BITS})
#: What counters add.
Events = data.StructLayout({
    "instructions": 1, "repeats": 1, "steps": COUNTER, "changes": 1, "rounded": COUNTER, "saturations": COUNTER})


class TrainerRegisters(wiring.Component):
    """Registers over AXI4-Lite.

    An unknown address reads as 0, and writing it has no effect; every response is OKAY. The low two bits of an address
    are ignored. A register takes the bytes whose strobe is set.

    Args:
        config: Sizes.

    Members:
        s_axil_...: AXI4-Lite, 12-bit byte addresses, 32-bit data.
        start, reset: Out(1). Pulses of the commands of `spec.host.registers.Control`; CLEAR clears the counters.
        dram_base, limit: Out(32). rate, decay: Out(Rate). Registers that the host writes.
        watch: In(Watch). State of the core.
        events: In(Events). What counters add.
        base_number: Out(5). base: In(32). A base register, one cycle later.
        word: Out(2). bytes: In(Word). A word of exponents, one cycle later.
        word_free: In(1). The word that was asked for in this cycle comes in the next one.

    Timing:
        A write takes 2 cycles, and a read 4 cycles; reads of exponents may take longer.
    """

    def __init__(self, config: TrainerConfig):
        self.config = config
        super().__init__({
            **BUS, "start": Out(1), "reset": Out(1), "dram_base": Out(32), "limit": Out(32), "rate": Out(Rate),
            "decay": Out(Rate), "watch": In(Watch), "events": In(Events), "base_number": Out(5), "base": In(BASE),
            "word": Out(2), "bytes": In(Word), "word_free": In(1)})

    def elaborate(self, platform):
        m = Module()
        clear = self._write(m)
        self._count(m, clear)
        self._read(m)
        return m

    def _write(self, m):
        """Take address and data together; respond, and give the pulses, in the next cycle. Returns that of CLEAR."""
        take, pulses, register = Signal(), Signal(Control.CLEAR.bit_length()), TrainerRegister
        m.d.comb += [take.eq(self.s_axil_awvalid & self.s_axil_wvalid & ~self.s_axil_bvalid),
                     self.s_axil_awready.eq(take), self.s_axil_wready.eq(take)]
        command = take & (self.s_axil_awaddr[2:] == register.CONTROL >> 2) & self.s_axil_wstrb[0]
        m.d.sync += pulses.eq(Mux(command, self.s_axil_wdata, 0))
        held = {register.DRAM_BASE: self.dram_base, register.LIMIT: self.limit, register.RATE: self.rate.as_value(),
                register.DECAY: self.decay.as_value()}
        for address, value in held.items():
            with m.If(take & (self.s_axil_awaddr[2:] == address >> 2)):
                for k in range(len(value) // 8):
                    with m.If(self.s_axil_wstrb[k]):
                        m.d.sync += value.word_select(k, 8).eq(self.s_axil_wdata.word_select(k, 8))
        m.d.comb += [self.start.eq((pulses & Control.START).any()), self.reset.eq((pulses & Control.RESET).any())]
        with m.If(take):
            m.d.sync += self.s_axil_bvalid.eq(1)
        with m.Elif(self.s_axil_bready):
            m.d.sync += self.s_axil_bvalid.eq(0)
        return (pulses & Control.CLEAR).any()

    def _count(self, m, clear):
        """Add up events, up to the largest number that a counter holds."""
        self.counters = [Signal(COUNTER, name=counter.name.lower()) for counter in TrainerCounter]
        for counter in self.counters:
            total = Signal(COUNTER + 1, name=f"{counter.name}_total")
            m.d.comb += total.eq(counter + self.events[counter.name])
            m.d.sync += counter.eq(total[:COUNTER] | total[-1].replicate(COUNTER))
            with m.If(clear):
                m.d.sync += counter.eq(0)

    def _read(self, m):
        """Take an address, look a register up, and respond."""
        address, value, register = Signal(10), Signal(32), TrainerRegister
        with m.Switch(address):
            for number, source in self._registers().items():
                with m.Case(number >> 2):
                    m.d.comb += value.eq(source)
        base, exponent = (address - (first >> 2) for first in (register.BASES, register.EXPONENTS))
        is_base = address[5:] == register.BASES >> 7
        is_exponent = (address[NUMBER:] == register.EXPONENTS >> 2 + NUMBER) & (exponent < self.config.exponents)
        m.d.comb += [self.base_number.eq(base), self.word.eq(exponent >> 4)]
        with m.FSM():
            with m.State("ADDRESS"):
                m.d.comb += self.s_axil_arready.eq(1)
                m.d.sync += address.eq(self.s_axil_araddr[2:])
                with m.If(self.s_axil_arvalid):
                    m.next = "LOOK"
            with m.State("LOOK"):
                with m.If(~is_exponent | self.word_free):
                    m.next = "TAKE"
            with m.State("TAKE"):
                m.d.sync += self.s_axil_rdata.eq(Mux(
                    is_base, self.base, Mux(is_exponent, self.bytes[exponent[:4]], value)))
                m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += self.s_axil_rvalid.eq(1)
                with m.If(self.s_axil_rready):
                    m.next = "ADDRESS"

    def _registers(self) -> dict:
        """Value of each register but bases and exponents."""
        register, watch = TrainerRegister, self.watch
        status = watch.running * Status.RUNNING | watch.done * Status.DONE | ~watch.idle * Status.DRAM_BUSY
        return {
            register.STATUS: status, register.ERROR: watch.error, register.ERROR_ADDRESS: watch.address,
            register.DIGEST: self.config.digest, register.DRAM_BASE: self.dram_base, register.LIMIT: self.limit,
            register.RATE: self.rate.as_value(), register.DECAY: self.decay.as_value(),
            **{register.COUNTERS + 4 * k: counter for k, counter in enumerate(self.counters)}}
