"""Places of the matrix's block RAM and of the multipliers that it feeds: row by row, along the strips of an ECP5.

nextpnr spreads all cells as if block RAM and multipliers could stand anywhere, and then moves each to a free site of
its strips, one after another. The rows of a large machine fill most of these sites, and what comes last crosses the
chip.
"""

import re
from collections import defaultdict
from dataclasses import dataclass
from itertools import product

MEMORY, MULTIPLIER = "DP16KD", "MULT18X18D"
_ROW = re.compile(r"matrix_rf\.bank(\d+)_row(\d+)\.")
_RAM_STEPS, _MULTIPLIER_STEPS = (0, 2, 4, 6), (0, 1, 4, 5)  # tiles from the start of a column's block to its sites


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


#: The chips by the names of nextpnr-ecp5.
STRIPS = {
    "12k": Strips((4, 13, 22, 33, 42, 51, 60), (25, 37), (13,)),
    "25k": Strips((4, 13, 22, 33, 42, 51, 60), (25, 37), (13,)),
    "45k": Strips((4, 13, 22, 31, 42, 51, 60, 69, 78), (10, 34, 58), (22, 46)),
    "85k": Strips((4, 13, 22, 31, 40, 49, 58, 69, 78, 87, 96, 105, 114), (22, 46, 70, 82), (10, 34, 58))}


FULL = 0.5  #: Share of the sites of a kind from which on places are given.


def fix_blocks(module: dict, device: str) -> int:
    """Give a place to each block RAM of the matrix, and to each multiplier that it feeds; returns how many got one.

    Neighbours in the order of rows are neighbours on the chip, also where one strip ends and the next one begins. Other
    cells stay free, and take the sites that are left. Where less than half of the sites of each kind would be taken,
    all cells stay free.

    Args:
        module: The module of a netlist in Yosys's JSON; attributes of its cells change.
        device: The chip, as nextpnr-ecp5 names it.
    """
    strips, cells = STRIPS[device], module["cells"]
    memories = {name: (int(found[1]), int(found[2])) for name, cell in cells.items()
                if cell["type"] == MEMORY and (found := _ROW.search(name))}
    rows = _fed_by(cells, memories)
    kinds = (("EBR", list(_sites(strips.columns, strips.memories, _RAM_STEPS, (0, 1, 2, 3))), memories),
             ("MULT18_", list(_sites(strips.columns, strips.multipliers, _MULTIPLIER_STEPS, (0, 1, 4, 5))), rows))
    if all(len(chosen) < FULL * len(sites) for _, sites, chosen in kinds):
        return 0
    for kind, sites, chosen in kinds:
        ordered = sorted(chosen, key=lambda name: (chosen[name], _numbers(name)))
        for name, (x, y, number) in zip(ordered, sites, strict=False):
            cells[name].setdefault("attributes", {})["BEL"] = f"X{x}/Y{y}/{kind}{number}"
    return len(memories) + len(rows)


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


def _sites(columns, strips, steps, numbers):
    """Sites of all strips: along the first one, back along the second one, and so on."""
    for k, y in enumerate(strips):
        row = [(x + step, y, number) for x, (step, number) in product(columns, zip(steps, numbers, strict=True))]
        yield from row if k % 2 == 0 else reversed(row)


def _numbers(name: str) -> list[int]:
    """The numbers in a name, by which parts of one row are ordered."""
    return [int(number) for number in re.findall(r"\d+", name)]
