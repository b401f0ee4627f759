"""Resets of many flip-flops on the chip's global wires, which otherwise only clocks take.

nextpnr routes a reset as it routes data: to thousands of flip-flops, over wires that a full chip does not have to
spare. A net behind a DCCA goes on a global wire.
"""

from collections import defaultdict

from concord.hw.cell_wires import new_wires

REGISTER, BUFFER = "TRELLIS_FF", "DCCA"
FEWEST = 1000  #: Flip-flops from which on a reset gets a global wire.
MOST = 6  #: Global wires that resets take: eight reach the resets of flip-flops, and a board has some clocks.


def global_resets(module: dict) -> int:
    """Put the resets with the most flip-flops on global wires.

    Args:
        module: The module of a netlist in Yosys's JSON; its cells change.

    Returns:
        The number of these resets.
    """
    cells = module["cells"]
    users: dict[int, list[dict]] = defaultdict(list)
    for cell in cells.values():
        for bit in cell["connections"].get("LSR", ()) if cell["type"] == REGISTER else ():
            if isinstance(bit, int):
                users[bit].append(cell)
    many = sorted((bit for bit, found in users.items() if len(found) >= FEWEST), key=lambda bit: -len(users[bit]))
    fresh = new_wires(module)
    for number, bit in enumerate(many[:MOST]):
        wire = next(fresh)
        cells[f"global_reset{number}"] = {
            "type": BUFFER, "parameters": {}, "attributes": {},
            "port_directions": {"CLKI": "input", "CE": "input", "CLKO": "output"},
            "connections": {"CLKI": [bit], "CE": ["1"], "CLKO": [wire]}}
        for cell in users[bit]:
            cell["connections"]["LSR"] = [wire]
    return len(many[:MOST])
