"""Chains of carry cells of an ECP5, without the cells that nextpnr would add to them.

A carry cell (CCU2C) has two halves. Each gives a sum bit, its table xor the carry, and hands a carry on: its own where
the table gives 0. A chain whose first carry is a constant or comes from elsewhere takes one more cell, and so does one
whose last carry goes elsewhere. Here halves do both: one that is spare because the number of bits is odd, or the first
one of a chain that begins with a constant, which makes the carry of both, while a lookup table makes its sum.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, replace

from concord.hw.cell_wires import new_wires

#: A cell of a netlist, as Yosys's JSON has it.
Cell = dict
_INPUTS = "ABCD"
_FIXED = {"INJECT1_0": "NO", "INJECT1_1": "NO"}


@dataclass(frozen=True, slots=True)
class Half:
    """Half of a carry cell.

    Attributes:
        table:  Its lookup table, of 16 bits.
        inputs: A, B, C, D, of which each is a bit of the netlist or a constant.
        sum:    Bit that it drives; x if nothing uses it.
    """

    table: int
    inputs: tuple[int | str, ...]
    sum: int | str = "x"

    @classmethod
    def first(cls, table: int, a: int | str, b: int | str) -> "Half":
        """A half that hands on `table` of a and b, whatever carry comes in."""
        return cls(table & 15, (a, b, "0", "1"))


_HANDED = 0b1010  #: Table of a and b that is a.
_IDLE = Half(0, ("1", "1", "1", "1"))  # inputs that are 1 take no wires


def shorten_chains(module: dict) -> int:
    """Let halves of carry cells begin and end chains; carries that nothing uses are disconnected.

    Args:
        module: The module, as Yosys's JSON has it; its cells change.

    Returns:
        The number of carries into chains or out of them that are gone.
    """
    cells, users = module["cells"], _users(module)
    fresh, gone = new_wires(module), 0
    for names in _chains(cells):
        begins, ends = _end(cells[names[0]], "CIN"), _end(cells[names[-1]], "COUT")
        inner = [_end(cells[name], "COUT") for name in names[:-1]]
        if any(users[bit] != 1 for bit in inner):  # a carry within the chain goes elsewhere, too
            continue
        halves = [half for name in names for half in _halves(cells[name], users)]
        if users[ends]:
            halves.append(replace(_IDLE, sum=ends))
        while len(halves) > 1 and halves[-1].sum == "x":
            halves.pop()
        halves, begun, lookup = _begun(halves, begins)
        if lookup:
            cells[f"{names[0]}.sum"] = lookup
        _rewrite(cells, names, halves, [begun, *inner, next(fresh)])
        gone += (begun != begins) + (ends != "x")
    return gone


def _users(module: dict) -> Counter:
    """The number of inputs of cells, and of ports of the module, at each bit; of all bits."""
    users = Counter(bit for port in module["ports"].values() for bit in port["bits"] if isinstance(bit, int))
    for cell in module["cells"].values():
        for port, bits in cell["connections"].items():
            for bit in bits:
                if isinstance(bit, int):
                    users[bit] += cell["port_directions"][port] == "input"
    return users


def _chains(cells: dict[str, Cell]) -> list[list[str]]:
    """Names of the carry cells of each chain, the first one first."""
    carries = {name: cell for name, cell in cells.items() if cell["type"] == "CCU2C"
               and all(cell["parameters"].get(key) == value for key, value in _FIXED.items())}
    made = {_end(cell, "COUT") for cell in carries.values()} - {"x"}
    taken = defaultdict(list)
    for name, cell in carries.items():
        taken[_end(cell, "CIN")].append(name)
    begin, found = taken.pop("x", []), []
    for first in [*begin, *(name for bit, names in taken.items() if bit not in made for name in names)]:
        found.append([first])
        while len(behind := taken[_end(cells[found[-1][-1]], "COUT")]) == 1 and behind[0] not in found[-1]:
            found[-1] += behind
    return found


def _begun(halves: list[Half], begins: int | str) -> tuple[list[Half], int | str, Cell | None]:
    """A chain that makes its first carry itself, what carry comes into it, and the lookup table that it takes."""
    first = halves[0]
    constant = begins in ("0", "1") and all(bit in ("0", "1") for bit in first.inputs[2:])
    if begins == "x" or not (constant or len(halves) % 2):
        return halves, begins, None
    if not constant or (first.sum != "x" and len(halves) % 2):
        return [Half.first(_HANDED, begins, "0"), *halves], "x", None
    carry, high = int(begins), 4 * int(first.inputs[2]) + 8 * int(first.inputs[3])
    passes = first.table >> high & 15
    makes = passes & (15 * carry) | ~passes & first.table & 15
    lookup = None if first.sum == "x" else _lookup(passes ^ 15 * carry, first.inputs[:2], first.sum)
    return [Half.first(makes, *first.inputs[:2]), *halves[1:]], "x", lookup


def _rewrite(cells: dict[str, Cell], names: list[str], halves: list[Half], carries: list[int | str]):
    """Put halves into the cells of a chain, of which the last ones go, or one is added.

    Args:
        carries: The carry into each cell, also into one that is added.
    """
    pairs = [(one, other) for one, other in zip(halves[::2], [*halves[1::2], _IDLE], strict=False)]
    for name in names[len(pairs):]:
        del cells[name]
    for index, (name, pair) in enumerate(zip([*names, f"{names[-1]}.more"], pairs, strict=False)):
        ports = {f"{port}{k}": [bit] for k, half in enumerate(pair)
                 for port, bit in (*zip(_INPUTS, half.inputs, strict=True), ("S", half.sum))}
        ports |= {"CIN": [carries[index]], "COUT": [carries[index + 1] if index + 1 < len(pairs) else "x"]}
        tables = {f"INIT{k}": f"{half.table:016b}" for k, half in enumerate(pair)}
        cells[name] = _cell("CCU2C", ports, ("S0", "S1", "COUT"), _FIXED | tables)


def _halves(cell: Cell, users: Counter) -> list[Half]:
    """Both halves of a cell."""
    return [Half(int(cell["parameters"][f"INIT{k}"], 2), tuple(_end(cell, f"{name}{k}") for name in _INPUTS),
                 bit if users[bit := _end(cell, f"S{k}")] else "x") for k in range(2)]


def _lookup(table: int, inputs: tuple, output: int | str) -> Cell:
    """A lookup table of two inputs."""
    ports = {name: [bit] for name, bit in zip(_INPUTS, (*inputs, "0", "0"), strict=True)}
    return _cell("LUT4", ports | {"Z": [output]}, ("Z",), {"INIT": f"{table & 15:016b}"})


def _cell(kind: str, ports: dict[str, list], outputs: tuple[str, ...], parameters: dict[str, str]) -> Cell:
    return {"hide_name": 0, "type": kind, "parameters": parameters, "attributes": {}, "connections": ports,
            "port_directions": {port: "output" if port in outputs else "input" for port in ports}}


def _end(cell: Cell, port: str) -> int | str:
    """The bit at a port of one bit; x where nothing is."""
    return cell["connections"].get(port, ["x"])[0]
