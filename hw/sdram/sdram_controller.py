"""An SDRAM behind a port of AXI4: the start of the chip, LiteDRAM's controller, and registers at the pins."""

from amaranth import *
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Member
from concord.hw.dram.axi import bus
from concord.hw.sdram.chip import SdramChip
from concord.hw.sdram.core_text import CORE
from concord.hw.sdram.sdram_pads import HIGH, SdramPads, pins
from concord.spec.machine.config import Config

REFRESHES = 8  #: At the start; chips of some makers want no more than two.
QUIET = 16  #: Clock cycles before the first command, within which all commands before a reset have ended.
ALL = 1 << 10  #: PRECHARGE of all banks.


class Command(enum.Enum, shape=3):
    """RAS, CAS and WE of a command, each of which is low for 0."""

    LOAD_MODE = 0b000
    REFRESH = 0b001
    PRECHARGE = 0b010
    NOP = 0b111


def memory_side(config: Config) -> dict[str, Member]:
    """The wires of the port of a machine, with directions as the memory has them."""
    return {name.replace("m_axi", "s_axi"): member.flip() for name, member in bus(config).items()}


class SdramController(wiring.Component):
    """Reads and writes bursts of AXI4 in an SDRAM.

    The controller is LiteDRAM's, an Instance whose Verilog `core_text` gives. It answers all bursts with OKAY; an
    address behind the end of the chip is taken modulo its size.

    Args:
        config: The machine.
        chip:   The chip.
        mhz:    Clock of both.

    Members:
        s_axi_*: AXI4.
        cke ... read: The chip, as in `pins`. Its clock is this one, a part of a cycle later.

    Timing:
        A reset starts the chip anew. The time of power-up is waited for once.
    """

    def __init__(self, config: Config, chip: SdramChip, mhz: float):
        self.config, self.chip, self.mhz = config, chip, mhz
        super().__init__({**memory_side(config), **pins(chip)})

    @property
    def steps(self) -> tuple[list[tuple[int, Command, int]], int]:
        """Commands of the start, each with its cycle and address; and the cycle at which they are done."""
        chip, found, at = self.chip, [], QUIET
        cycles = {time: chip.cycles(getattr(chip, time), self.mhz) for time in ("rp", "rfc")}
        mode = chip.latency(self.mhz) << 4  # bursts of one column
        for command, address, wait in (
                (Command.PRECHARGE, ALL, cycles["rp"]), *[(Command.REFRESH, 0, cycles["rfc"])] * REFRESHES,
                (Command.LOAD_MODE, mode, chip.mrd)):
            found.append((at, command, address))
            at += wait
        return found, at

    def elaborate(self, platform):
        m = Module()
        m.submodules.pads = pads = SdramPads(self.chip)
        for name, member in pins(self.chip).items():
            ours, theirs = getattr(self, name), getattr(pads, f"chip_{name}")
            m.d.comb += theirs.eq(ours) if member.flow == In else ours.eq(theirs)
        ready = self._start(m, pads)
        m.submodules.core, phase = self._core(m, ready, pads)
        mask = Mux(phase["wrdata_en"], phase["wrdata_mask"], 0)
        with m.If(ready):
            m.d.comb += [
                *(getattr(pads, name).eq(phase[name]) for name in HIGH), pads.a.eq(phase["address"]),
                pads.ba.eq(phase["bank"]), pads.dq.eq(phase["wrdata"]), pads.dqm.eq(mask),
                pads.released.eq((~phase["wrdata_en"]).replicate(16))]
        return m

    def _start(self, m, pads) -> Signal:
        """Give the commands of the start; whether they are done."""
        steps, end = self.steps
        wait = self.chip.cycles(1000 * self.chip.power_up, self.mhz)
        waited, at, ready = Signal(range(wait + 1), reset_less=True), Signal(range(end + 1)), Signal()
        command = Signal(Command, init=Command.NOP)
        m.d.comb += [
            ready.eq(at == end), pads.cke.eq(1), Cat(pads.we_n, pads.cas_n, pads.ras_n).eq(command),
            pads.cs_n.eq(command == Command.NOP), pads.released.eq(-1)]
        with m.If(waited != wait):
            m.d.sync += waited.eq(waited + 1)
        with m.Elif(~ready):
            m.d.sync += at.eq(at + 1)
        with m.Switch(at):
            for when, one, address in steps:
                with m.Case(when):
                    m.d.comb += [command.eq(one), pads.a.eq(address)]
        return ready

    def _core(self, m, ready, pads) -> tuple[Instance, dict[str, Signal]]:
        """LiteDRAM's controller, in reset until the chip is ready, and the wires of its commands."""
        widths = {"cs_n": 1, "ras_n": 1, "cas_n": 1, "we_n": 1, "address": self.chip.row_bits, "bank": 2, "wrdata": 16,
                  "wrdata_en": 1, "wrdata_mask": 2}
        phase, wires = {name: Signal(width, name=f"dfi_{name}") for name, width in widths.items()}, {}
        for name, member in memory_side(self.config).items():
            channel, ours = name.removeprefix("s_axi_"), getattr(self, name)
            theirs = Signal(member.shape, name=f"axi_{channel}")
            held = channel.endswith(("valid", "ready"))  # nothing moves while the core is in reset
            if member.flow == In:
                m.d.comb += theirs.eq(ours & ready if held else ours)
            else:
                m.d.comb += ours.eq(theirs & ready if held else theirs)
            kind = "i" if member.flow == In else "o"
            size = address_bits(self.chip) if channel.endswith("addr") else len(theirs)
            wires[f"{kind}_axi_{channel}"] = theirs[:size]
        return Instance(
            CORE, i_sys_clk=ClockSignal(), i_sys_rst=ResetSignal() | ~ready, i_dfi_rddata=pads.read, **wires,
            **{f"o_dfi_{name}": wire for name, wire in phase.items()}), phase


def address_bits(chip: SdramChip) -> int:
    """Bits of the address of a byte of a chip."""
    return (chip.bytes - 1).bit_length()
