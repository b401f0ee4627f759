"""The SDRAM of a board: its chip, and the pins between both chips."""

from dataclasses import dataclass

from concord.hw.sdram.chip import CHIPS, SdramChip

SEVERAL = {"a": None, "ba": 2, "dqm": 2, "dq": 16}  #: Number of pins of each bus; `a` has as many as a row's address.


@dataclass(frozen=True, slots=True, kw_only=True)
class SdramPins:
    """Pins of the chip with the machine.

    Attributes:
        chip:  Name of the SDRAM in `hw.sdram.chip.CHIPS`, whose times are no shorter than those of the chip.
        clock: Clock of the SDRAM.
        cke, cs_n, ras_n, cas_n, we_n: Pins of these names.
        a:     The address, its lowest bit first.
        ba:    The bank.
        dqm:   Masks of the lower and the upper byte.
        dq:    The data, their lowest bit first.
    """

    chip: str
    clock: str
    cke: str
    cs_n: str
    ras_n: str
    cas_n: str
    we_n: str
    a: tuple[str, ...]
    ba: tuple[str, ...]
    dqm: tuple[str, ...]
    dq: tuple[str, ...]

    @property
    def described(self) -> SdramChip:
        """The chip."""
        return CHIPS[self.chip]

    @property
    def ports(self) -> dict[str, str]:
        """The pin of each port of `hw.board_top.BoardTop`."""
        single = {f"sdram_{name}": getattr(self, name) for name in ("clock", "cke", "cs_n", "ras_n", "cas_n", "we_n")}
        return single | {f"sdram_{name}[{k}]": pin for name in SEVERAL for k, pin in enumerate(getattr(self, name))}

    @property
    def constraints(self) -> str:
        """Sites of these ports, in Lattice's format."""
        kind = "PULLMODE=NONE IO_TYPE=LVCMOS33 DRIVE=4 SLEWRATE=FAST"
        return "".join(f'LOCATE COMP "{port}" SITE "{pin}";\nIOBUF PORT "{port}" {kind};\n'
                       for port, pin in self.ports.items())

    def wrong(self) -> str:
        """What is wrong with it, as the end of a sentence that begins with "sdram."; empty if nothing is."""
        if self.chip not in CHIPS:
            return f"chip is {self.chip!r}, and must be one of {', '.join(CHIPS)}"
        for name, count in SEVERAL.items():
            wanted = count or self.described.row_bits
            if len(getattr(self, name)) != wanted:
                return f"{name} has {len(getattr(self, name))} pins, and must have {wanted}"
        return ""
