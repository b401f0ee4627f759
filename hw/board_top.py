"""A machine on a board: its clock, its reset, and the pins."""

from dataclasses import dataclass

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out
from concord.hw.boards import pll
from concord.hw.boards.board import Board
from concord.hw.host.uart_receiver import uart_step
from concord.hw.serial_nnp import SerialNNP
from concord.spec.machine.config import Config


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of a machine on a board.

    Attributes:
        mhz:   What it is, in MHz.
        ratio: How the phase-locked loop makes it; None where it is the clock of the board.
    """

    mhz: float
    ratio: pll.Ratio | None


def clock_on(board: Board, mhz: float) -> Clock:
    """The fastest clock of at most `mhz` MHz on a board; that of the board itself needs no phase-locked loop.

    Raises:
        ValueError: the chip does not make such a clock, or it is too slow for the serial port.
    """
    ratio = None if mhz == board.clock else pll.ratio(board.clock, mhz)
    made = Clock(ratio.clock if ratio else mhz, ratio)
    uart_step(made.mhz, board.baud)
    return made


class BoardTop(wiring.Component):
    """The top of a bitstream.

    Args:
        config: The machine.
        board:  The board.
        clock:  Clock of the machine, of `clock_on(board, ...)`.

    Members:
        clock: In(1). Clock of the board. button: In(1). Resets the machine; its memories stay.
        rx: In(1), tx: Out(1). The serial line. lights: Out. As in `SerialNNP`. high: Out. Pins that are high.
        There are no ports for which the board has no pins.

    """

    def __init__(self, config: Config, board: Board, clock: Clock):
        self.config, self.board, self.rate, pins = config, board, clock, board.pins
        more = {"button": In(1)} if pins.reset else {}
        more |= {name: Out(len(several)) for name, several in (("lights", pins.lights), ("high", pins.high)) if several}
        super().__init__({"clock": In(1), "rx": In(1, init=1), "tx": Out(1, init=1), **more})

    def elaborate(self, platform):
        m = Module()
        m.domains.sync = sync = ClockDomain()
        m.domains.always = always = ClockDomain(reset_less=True)
        locked, running = Signal(), Signal()
        if self.rate.ratio:
            m.submodules.pll = pll.instance(self.rate.ratio, self.clock, sync.clk, locked)
        else:
            m.d.comb += [sync.clk.eq(self.clock), locked.eq(1)]
        m.submodules.reset = FFSynchronizer(
            locked & ~self.button if self.board.pins.reset else locked, running, o_domain="always", init=0)
        m.submodules.machine = machine = SerialNNP(self.config, self.rate.mhz, self.board.baud)
        m.d.comb += [always.clk.eq(sync.clk), sync.rst.eq(~running), machine.rx.eq(self.rx), self.tx.eq(machine.tx)]
        if self.board.pins.lights:
            m.d.comb += self.lights.eq(machine.lights)
        if self.board.pins.high:
            m.d.comb += self.high.eq(-1)
        return m
