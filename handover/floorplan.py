"""Sites of the matrix's block RAM and of the multipliers that it feeds: row by row, along the strips of an ECP5.

nextpnr spreads all cells as if block RAM and multipliers could stand anywhere, and then moves each to a free site of
its strips, one after another. The rows of a large machine fill most of these sites, and what comes last crosses the
chip.
"""

import re
from collections import defaultdict
from dataclasses import dataclass
from itertools import product

MEMORY, MULTIPLIER = "DP16KD", "MULT18X18D"
FULL = 0.5  #: Share of the sites of a kind from which on sites are given.
_ROW = re.compile(r"matrix_rf\.bank(\d+)_row(\d+)\.")
#: The four sites of a block: tiles from its start, and the number in nextpnr's name of the site.
_OFFSETS = _MEMORY_SITES, _MULTIPLIER_SITES = ((0, 0), (2, 1), (4, 2), (6, 3)), ((0, 0), (1, 1), (4, 4), (5, 5))
_PAST = (1 << 30, 0)  #: After all banks.


@dataclass(frozen=True, slots=True)
class Strips:
    """Where a chip has its block RAM and multipliers, in tiles.

    Attributes:
        columns:     Where each block of four sites begins in a strip, in x.
        memories:    The strips of block RAM, in y.
        multipliers: The strips of multipliers, in y.
    """

    columns: tuple[int, ...]
    memories: tuple[int, ...]
    multipliers: tuple[int, ...]

    @property
    def memory_sites(self) -> list[str]:
        """nextpnr's names of the sites of block RAM: along the first strip, back along the second one, and so on."""
        return _snake(self.columns, self.memories, _MEMORY_SITES, "EBR")

    @property
    def multiplier_sites(self) -> list[str]:
        """The same of multipliers."""
        return _snake(self.columns, self.multipliers, _MULTIPLIER_SITES, "MULT18_")


def _snake(columns, strips, sites, kind) -> list[str]:
    found = []
    for k, y in enumerate(strips):
        row = [f"X{x + step}/Y{y}/{kind}{number}" for x, (step, number) in product(columns, sites)]
        found += row if k % 2 == 0 else row[::-1]
    return found


#: The chips by the names of nextpnr-ecp5.
STRIPS = {
    "12k": Strips((4, 13, 22, 33, 42, 51, 60), (25, 37), (13,)),
    "25k": Strips((4, 13, 22, 33, 42, 51, 60), (25, 37), (13,)),
    "45k": Strips((4, 13, 22, 31, 42, 51, 60, 69, 78), (10, 34, 58), (22, 46)),
    "85k": Strips((4, 13, 22, 31, 40, 49, 58, 69, 78, 87, 96, 105, 114), (22, 46, 70, 82), (10, 34, 58))}


def fix_blocks(module: dict, device: str) -> int:
    """Give a site to each block RAM of the matrix, and to each multiplier that it feeds; returns how many got one.

    Rows that share multipliers stand side by side with these, if each row has some and the strips have room for all of
    them. Otherwise neighbours in the order of rows are neighbours on the chip, also where one strip ends and the next
    one begins, whatever multipliers do. Other cells stay free, and take the sites that are left. Where less than half
    of the sites of each kind would be taken, all cells stay free.

    Args:
        module: The module of a netlist in Yosys's JSON; attributes of its cells change.
        device: The chip, as nextpnr-ecp5 names it.
    """
    strips, cells = STRIPS[device], module["cells"]
    memories = {name: (int(found[1]), int(found[2])) for name, cell in cells.items()
                if cell["type"] == MEMORY and (found := _ROW.search(name))}
    multipliers = _fed_by(cells, memories)
    kinds = (memories, strips.memory_sites), (multipliers, strips.multiplier_sites)
    if all(len(rows) < FULL * len(sites) for rows, sites in kinds):
        return 0
    chosen = _side_by_side(memories, multipliers, strips) or {
        name: site for rows, sites in kinds  # nextpnr refuses a machine that has more
        for name, site in zip(_ordered(rows), sites, strict=False)}
    for name, site in chosen.items():
        cells[name].setdefault("attributes", {})["BEL"] = site
    return len(chosen)


def _side_by_side(memories: dict, multipliers: dict, strips: Strips) -> dict[str, str]:
    """A site for each cell, those of rows that share multipliers in the same blocks of two strips; empty if none fit.

    Args:
        memories, multipliers: Bank and row of each cell; of a multiplier, the first ones that it serves.
    """
    firsts = sorted(set(multipliers.values()))
    shared = {first: ([name for name in _ordered(memories) if first <= memories[name] < after],
                      [name for name in _ordered(multipliers) if multipliers[name] == first])
              for first, after in zip(firsts, [*firsts[1:], _PAST], strict=True)}
    sizes = {-(-max(map(len, both)) // 4) for both in shared.values()}
    if len(sizes) != 1 or min(memories.values()) not in shared:
        return {}
    (size,), rows, found = sizes, list(shared.values()), {}
    beside = list(zip(strips.memories, strips.multipliers, strict=False))
    each = len(strips.columns) // size
    if len(rows) > each * len(beside):
        return {}
    for k, lines in enumerate(beside):
        part = rows[k * each:(k + 1) * each]
        columns = strips.columns[:size * each] if len(part) == each else strips.columns[-size * len(part):]
        for index, both in enumerate(part[::-1] if k % 2 else part):
            blocks = columns[size * index:size * (index + 1)]
            for names, line, offsets, kind in zip(both, lines, _OFFSETS, ("EBR", "MULT18_"), strict=True):
                found |= zip(names, _snake(blocks, (line,), offsets, kind), strict=False)
    return found


def _ordered(rows: dict) -> list[str]:
    """Names of cells in the order of their rows."""
    return sorted(rows, key=lambda name: (rows[name], _numbers(name)))


def _fed_by(cells: dict, memories: dict) -> dict:
    """The first bank and row of each multiplier that block RAM of the matrix drives."""
    drivers = {net: name for name in memories for port, nets in cells[name]["connections"].items()
               if cells[name]["port_directions"][port] == "output" for net in nets}
    found = defaultdict(list)
    for name, cell in cells.items():
        if cell["type"] == MULTIPLIER:
            for net in (net for nets in cell["connections"].values() for net in nets if net in drivers):
                found[name].append(memories[drivers[net]])
    return {name: min(rows) for name, rows in found.items()}


def _numbers(name: str) -> list[int]:
    """The numbers in a name, which order the parts of a row."""
    return [int(number) for number in re.findall(r"\d+", name)]
