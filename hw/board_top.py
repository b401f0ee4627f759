"""A machine on a board: its clock, its reset, its memory, and the pins."""

from dataclasses import dataclass

from amaranth import *
from amaranth.hdl import IOPort
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Member, Out
from concord.hw.boards import pll
from concord.hw.boards.board import Board
from concord.hw.dram.axi import bus
from concord.hw.host.uart_receiver import uart_step
from concord.hw.sdram.core_text import core_text
from concord.hw.sdram.sdram_controller import SdramController
from concord.hw.sdram.sdram_pads import pins
from concord.hw.serial_nnp import SerialNNP, require_memory
from concord.spec.machine.config import Config

DATA = ("dq", "released", "read")  #: Wires of an SDRAM that are one pin each together.


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of a machine on a board.

    Attributes:
        mhz:   What it is, in MHz.
        ratio: How the phase-locked loop makes it; None where it is the clock of the board.
    """

    mhz: float
    ratio: pll.Ratio | None


def modules(config: Config, board: Board, clock: Clock) -> str:
    """Verilog of the modules that `BoardTop` has as instances.

    Raises:
        ValueError: LiteDRAM is not installed, or the clock is too fast for the SDRAM.
    """
    return core_text(board.sdram.described, config.dram_bus, clock.mhz) if config.dram_words else ""


def clock_on(board: Board, mhz: float, sdram: bool = False) -> Clock:
    """The fastest clock of at most `mhz` MHz on a board; that of the board itself needs no phase-locked loop, unless an
    SDRAM needs the same clock later.

    Raises:
        ValueError: the chip does not make such a clock, or it is too slow for the serial port.
    """
    ratio = None if mhz == board.clock and not sdram else pll.ratio(board.clock, mhz)
    made = Clock(ratio.clock if ratio else mhz, ratio)
    uart_step(made.mhz, board.baud)
    return made


class BoardTop(wiring.Component):
    """The top of a bitstream.

    Args:
        config: The machine.
        board:  The board.
        clock:  Clock of the machine, of `clock_on(board, ...)`, and of its SDRAM.

    Members:
        clock: In(1). Clock of the board. button: In(1). Resets the machine; its memories stay, but Dram needs
            refreshes: it is lost where the button stays pressed for longer than 64 ms.
        rx: In(1), tx: Out(1). The serial line. lights: Out. As in `SerialNNP`. high: Out. Pins that are high.
        There are no ports for which the board has no pins. A machine with Dram has those of the SDRAM, `sdram_*`;
        Amaranth adds `sdram_dq`, which goes both ways.

    Raises:
        ValueError: the board's memory is too small for the machine, or the clock has no phase-locked loop for it.
    """

    def __init__(self, config: Config, board: Board, clock: Clock):
        require_memory(config, board.memory)
        if config.dram_words and not clock.ratio:
            raise ValueError("an SDRAM needs a phase-locked loop: call clock_on with sdram=True")
        self.config, self.board, self.rate, pins = config, board, clock, board.pins
        more = {"button": In(1)} if pins.reset else {}
        more |= {name: Out(len(several)) for name, several in (("lights", pins.lights), ("high", pins.high)) if several}
        if config.dram_words:
            more |= {f"sdram_{name}": member for name, member in _outputs(board).items()} | {"sdram_clock": Out(1)}
        super().__init__({"clock": In(1), "rx": In(1, init=1), "tx": Out(1, init=1), **more})

    def elaborate(self, platform):
        m = Module()
        m.domains.sync = sync = ClockDomain()
        m.domains.always = always = ClockDomain(reset_less=True)
        locked, running = Signal(), Signal()
        quarter = Signal() if self.config.dram_words else None
        if self.rate.ratio:
            m.submodules.pll = pll.instance(self.rate.ratio, self.clock, sync.clk, locked, quarter)
        else:
            m.d.comb += [sync.clk.eq(self.clock), locked.eq(1)]
        m.submodules.reset = FFSynchronizer(
            locked & ~self.button if self.board.pins.reset else locked, running, o_domain="always", init=0)
        m.submodules.machine = machine = SerialNNP(
            self.config, self.rate.mhz, self.board.baud, self.board.memory)
        m.d.comb += [always.clk.eq(sync.clk), sync.rst.eq(~running), machine.rx.eq(self.rx), self.tx.eq(machine.tx)]
        if self.board.pins.lights:
            m.d.comb += self.lights.eq(machine.lights)
        if self.board.pins.high:
            m.d.comb += self.high.eq(-1)
        if self.config.dram_words:
            self._memory(m, machine, quarter)
        return m

    def _memory(self, m, machine, quarter):
        """Give a machine its SDRAM, whose clock is a quarter of a period later, so that pins have changed before it."""
        m.submodules.memory = memory = SdramController(self.config, self.board.sdram.described, self.rate.mhz)
        for name, member in bus(self.config).items():
            ours, theirs = getattr(machine, name), getattr(memory, name.replace("m_axi", "s_axi"))
            m.d.comb += theirs.eq(ours) if member.flow == Out else ours.eq(theirs)
        m.submodules.clock_pin = Instance(
            "ODDRX1F", i_D0=Const(1, 1), i_D1=Const(0, 1), i_SCLK=quarter, i_RST=Const(0, 1), o_Q=self.sdram_clock)
        m.d.comb += [getattr(self, f"sdram_{name}").eq(getattr(memory, name)) for name in _outputs(self.board)]
        data = IOPort(16, name="sdram_dq")
        for k in range(16):
            m.submodules += Instance("BB", i_I=memory.dq[k], i_T=memory.released[k], o_O=memory.read[k], io_B=data[k])


def _outputs(board: Board) -> dict[str, Member]:
    """Wires of a board's SDRAM that only the machine drives, but the clock."""
    return {name: member for name, member in pins(board.sdram.described).items() if name not in DATA}
