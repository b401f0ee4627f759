"""Registers into the block RAM and the multipliers of an ECP5 that they stand beside.

There they take no flip-flops and no wires: a block RAM with an output register gives its words early in a cycle, and a
multiplier has registers at its factors and at its product.
"""

from collections import defaultdict

#: A cell of a netlist, as Yosys's JSON has it.
Cell = dict
#: A register that takes each value and starts with 0; what it has without a parameter is the same.
_PLAIN = {"CLKMUX": "CLK", "CEMUX": "1", "LSRMUX": "LSR", "REGSET": "RESET"}
_WIDE = 36  #: Number of bits of the words for which both ports of a block RAM are one.


def registers_inside(module: dict) -> int:
    """Move registers into block RAM and multipliers.

    A register moves if it starts with 0 and has neither enable nor reset, and only together with all bits beside it.
    The two factors of a multiplier go together: nextpnr knows no delays for one with one of them.

    Args:
        module: The module, as Yosys's JSON has it; its cells change.

    Returns:
        The number of flip-flops that are gone.
    """
    netlist, count = _Netlist(module), len(module["cells"])
    for cell in [cell for cell in module["cells"].values() if cell["type"] == "DP16KD"]:
        for sides in ("AB",) if int(cell["parameters"]["DATA_WIDTH_A"], 2) == _WIDE else ("A", "B"):
            netlist.behind_memory(cell, sides)
    for cell in [cell for cell in module["cells"].values() if cell["type"] == "MULT18X18D"]:
        netlist.around_multiplier(cell)
    return count - len(module["cells"])


class _Netlist:
    """The cells of a module, and what each bit comes from and goes to.

    Attributes:
        users:   Names of the cells to which each bit goes, once for each port; those of ports of the module are empty.
        sources: Names of the registers from which bits come.
    """

    def __init__(self, module: dict):
        self.cells: dict[str, Cell] = module["cells"]
        self.users, self.sources = defaultdict(list), {}
        for port in module["ports"].values():
            for bit in port["bits"]:
                self.users[bit].append("")
        for name, cell in self.cells.items():
            for port, bits in cell["connections"].items():
                for bit in bits:
                    if cell["port_directions"][port] == "input":
                        self.users[bit].append(name)
                    elif cell["type"] == "TRELLIS_FF":
                        self.sources[bit] = name

    def behind_memory(self, cell: Cell, sides: str):
        """Move what stands behind the outputs at some sides of a block RAM."""
        found = self._behind(cell, [f"DO{side}{k}" for side in sides for k in range(18)])
        clocks = [cell["connections"][f"CLK{side}"] for side in sides]
        if found and all(clock == self._clock(found.values()) for clock in clocks):
            self._move_behind(cell, found)
            cell["parameters"] |= {f"REGMODE_{side}": "OUTREG" for side in sides}
            cell["connections"] |= {f"OCE{side}": ["1"] for side in sides}

    def around_multiplier(self, cell: Cell):
        """Move what stands before the factors and behind the product of a multiplier."""
        factors = self._before(cell, [f"{port}{k}" for port in "AB" for k in range(18)])
        product = self._behind(cell, [f"P{k}" for k in range(36)])
        if (clock := self._clock([*factors.values(), *product.values()])) is None:
            return
        for port, name in factors.items():
            cell["connections"][port] = self.cells[name]["connections"]["DI"]
        for name in set(factors.values()):
            del self.cells[name]
        self._move_behind(cell, product)
        for pins in ("INPUTA", "INPUTB") * bool(factors) + ("OUTPUT",) * bool(product):
            cell["parameters"] |= {f"REG_{pins}_CLK": "CLK0", f"REG_{pins}_CE": "CE0", f"REG_{pins}_RST": "RST0"}
        # The constants are given, because an input to which nothing leads is 1 on the chip, a reset, too.
        cell["connections"] |= {"CLK0": clock, "CE0": ["1"], "RST0": ["0"]}
        cell["port_directions"] |= dict.fromkeys(("CLK0", "CE0", "RST0"), "input")

    def _behind(self, cell: Cell, ports: list[str]) -> dict[str, str]:
        """For each output that goes anywhere, the register to which alone it goes; empty if one goes elsewhere."""
        ends = {port: self.users[bit] for port in ports for bit in cell["connections"].get(port, [])}
        found = {port: names for port, names in ends.items() if names}
        plain = all(len(names) == 1 and self._plain(names[0]) for names in found.values())
        return {port: names[0] for port, names in found.items()} if plain else {}

    def _before(self, cell: Cell, ports: list[str]) -> dict[str, str]:
        """For each input that is not always 0, the register that drives nothing but inputs of this cell; empty if one
        has another source."""
        bits = {port: bit for port in ports for bit in cell["connections"].get(port, ["0"]) if bit not in ("0", "x")}
        found = {port: self.sources.get(bit, "") for port, bit in bits.items()}
        own = all(self._plain(name) and all(self.cells.get(user) is cell for user in self.users[bits[port]])
                  for port, name in found.items())
        return found if own else {}

    def _plain(self, name: str) -> bool:
        """Whether a cell is a register that takes each value and starts with 0."""
        cell = self.cells.get(name, {"type": ""})
        return (cell["type"] == "TRELLIS_FF" and cell["connections"].get("LSR", ["0"]) == ["0"] and all(
            cell["parameters"].get(key, value).rstrip() == value for key, value in _PLAIN.items()))

    def _clock(self, names) -> list[int | str] | None:
        """The clock of registers, or None if there are none, or several clocks."""
        clocks = [self.cells[name]["connections"]["CLK"] for name in names]
        return clocks[0] if clocks and clocks.count(clocks[0]) == len(clocks) else None

    def _move_behind(self, cell: Cell, found: dict[str, str]):
        """Take registers away, and connect outputs to where these led."""
        for port, name in found.items():
            cell["connections"][port] = self.cells.pop(name)["connections"]["Q"]
