"""The phase-locked loop of an ECP5, which makes a machine's clock from that of a board."""

from dataclasses import dataclass

from amaranth import *

VCO = (400, 800)  #: Least and largest frequency of the oscillator in MHz.
CLOCKS = (10, 400)  #: Least and largest frequency in MHz that it gives.
PHASE_DETECTOR = 3.125  #: Least frequency in MHz that it compares.


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Dividers of the loop.

    Attributes:
        before:   Divider of the board's clock.
        feedback: Divider of the machine's clock, which is compared with it.
        after:    Divider of the oscillator, which gives the machine's clock.
        clock:    The machine's clock in MHz.
    """

    before: int
    feedback: int
    after: int
    clock: float


def ratio(board: float, clock: float) -> Ratio:
    """The dividers for the fastest clock up to `clock`, in MHz, from that of a board.

    Raises:
        ValueError: there are none.
    """
    found = [Ratio(before=before, feedback=feedback, after=after, clock=board / before * feedback)
             for before in range(1, int(board / PHASE_DETECTOR) + 1)
             for feedback in range(1, 81) if board / before * feedback <= clock + 1e-9
             for after in range(1, 129) if VCO[0] <= board / before * feedback * after <= VCO[1]]
    if not found or not CLOCKS[0] <= clock <= CLOCKS[1]:
        raise ValueError(f"the chip makes no clock of {clock:g} MHz from one of {board:g} MHz: choose "
                         f"{CLOCKS[0]} to {CLOCKS[1]} MHz")
    return max(found, key=lambda each: (each.clock, -each.before, -abs(each.clock * each.after - 600)))


def instance(made: Ratio, clock_in: Signal, clock_out: Signal, locked: Signal,
             quarter: Signal | None = None) -> Instance:
    """The cell of the loop, whose feedback is the machine's clock.

    Args:
        made:      The dividers.
        clock_in:  Clock of the board.
        clock_out: Clock of the machine.
        locked:    Whether the loop gives that clock.
        quarter:   The machine's clock, later by a quarter of its period, where it is needed.
    """
    eighths = 2 * made.after  # a quarter of the period, in eighths of the oscillator's period
    second = {} if quarter is None else {
        "p_CLKOS_ENABLE": "ENABLED", "p_CLKOS_DIV": made.after, "p_CLKOS_CPHASE": made.after - 1 + eighths // 8,
        "p_CLKOS_FPHASE": eighths % 8, "i_ENCLKOS": 0, "o_CLKOS": quarter}
    return Instance(
        "EHXPLLL", a_ICP_CURRENT="12", a_LPF_RESISTOR="8", a_MFG_ENABLE_FILTEROPAMP="1", a_MFG_GMCREF_SEL="2",
        p_PLLRST_ENA="DISABLED", p_INTFB_WAKE="DISABLED", p_STDBY_ENABLE="DISABLED", p_DPHASE_SOURCE="DISABLED",
        p_OUTDIVIDER_MUXA="DIVA", p_OUTDIVIDER_MUXB="DIVB", p_OUTDIVIDER_MUXC="DIVC", p_OUTDIVIDER_MUXD="DIVD",
        p_CLKI_DIV=made.before, p_CLKOP_ENABLE="ENABLED", p_CLKOP_DIV=made.after, p_CLKOP_CPHASE=made.after - 1,
        p_CLKOP_FPHASE=0, p_FEEDBK_PATH="CLKOP", p_CLKFB_DIV=made.feedback,
        i_RST=0, i_STDBY=0, i_CLKI=clock_in, o_CLKOP=clock_out, i_CLKFB=clock_out, i_PHASESEL0=0, i_PHASESEL1=0,
        i_PHASEDIR=1, i_PHASESTEP=1, i_PHASELOADREG=1, i_PLLWAKESYNC=0, i_ENCLKOP=0, o_LOCK=locked, **second)
