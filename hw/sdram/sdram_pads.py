"""Registers at the pins of an SDRAM."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Member, Out
from concord.hw.lib.ecp5 import Ecp5
from concord.hw.sdram.chip import SdramChip

HIGH = ("cs_n", "ras_n", "cas_n", "we_n")  #: Wires that are 1 while nothing happens.


def pins(chip: SdramChip) -> dict[str, Member]:
    """Wires of a chip, as the controller sees them. Each pin of DQ is driven while its bit of `released` is off."""
    return {"cke": Out(1), **{name: Out(1) for name in HIGH}, "a": Out(chip.row_bits), "ba": Out(2), "dqm": Out(2),
            "dq": Out(16), "released": Out(16, init=-1), "read": In(16)}


class SdramPads(wiring.Component):
    """One register for each wire between a controller and its chip; on an ECP5, in the cell of its pin.

    Members:
        cke ... released: In. read: Out. As in `pins`, for the controller.
        chip_cke ... chip_released: Out. chip_read: In. The same for the chip, one cycle later.
    """

    def __init__(self, chip: SdramChip):
        self.wires = pins(chip)
        super().__init__({name: member.flip() for name, member in self.wires.items()}
                         | {f"chip_{name}": member for name, member in self.wires.items()})

    def elaborate(self, platform):
        m = Module()
        for name, member in self.wires.items():
            inside, outside = getattr(self, name), getattr(self, f"chip_{name}")
            if member.flow == In:
                self._registered(m, platform, outside, inside, "IFS1P3DX", "CD")
            elif name in (*HIGH, "released"):
                self._registered(m, platform, inside, outside, "OFS1P3BX", "PD")  # begins with 1
            else:
                self._registered(m, platform, inside, outside, "OFS1P3DX", "CD")
        return m

    def _registered(self, m, platform, source, target, cell: str, clear: str):
        """Let `target` be `source` one cycle later, by cells whose input `clear` is not used."""
        if isinstance(platform, Ecp5):
            for k in range(len(source)):
                m.submodules += Instance(cell, i_D=source[k], i_SP=Const(1, 1), i_SCLK=ClockSignal(),
                                         **{f"i_{clear}": Const(0, 1)}, o_Q=target[k])
            return
        later = Signal(len(source), init=-(clear == "PD"), reset_less=True)
        m.d.sync += later.eq(source)
        m.d.comb += target.eq(later)
