"""New wires between the cells of a netlist."""

from collections.abc import Iterator
from itertools import chain, count


def new_wires(module: dict) -> Iterator[int]:
    """Numbers of wires that a module, as Yosys's JSON has it, does not have yet."""
    users = chain((port["bits"] for port in module["ports"].values()),
                  (bits for cell in module["cells"].values() for bits in cell["connections"].values()))
    return count(1 + max((bit for bits in users for bit in bits if isinstance(bit, int)), default=0))
