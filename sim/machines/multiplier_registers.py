"""The registers of an ECP5's multipliers as flip-flops: tables have multipliers without."""

from collections.abc import Iterator
from itertools import count

#: Ports at which a parameter puts registers, for each parameter.
_REGISTERS = {"REG_INPUTA": [f"A{k}" for k in range(18)], "REG_INPUTB": [f"B{k}" for k in range(18)],
           "REG_OUTPUT": [f"P{k}" for k in range(36)]}


def registers_outside(module: dict) -> dict:
    """The same module, in which multipliers have no registers.

    Args:
        module: The module, as Yosys's JSON has it.

    Raises:
        ValueError: a multiplier has registers that are not enabled always, or that are reset.
    """
    ends = [*(port["bits"] for port in module["ports"].values()),
            *(bits for cell in module["cells"].values() for bits in cell["connections"].values())]
    nets, cells = count(1 + max((bit for bits in ends for bit in bits if isinstance(bit, int)), default=0)), {}
    for name, cell in module["cells"].items():
        cells |= dict(_apart(name, cell, nets)) if cell["type"] == "MULT18X18D" else {name: cell}
    return module | {"cells": cells}


def _apart(name: str, cell: dict, nets: Iterator[int]) -> Iterator[tuple[str, dict]]:
    """A multiplier without registers, and flip-flops instead of them."""
    ends, kept = dict(cell["connections"]), dict(cell["parameters"])
    for register, ports in _REGISTERS.items():
        clock, enable, reset = (kept.pop(f"{register}_{what}", default)
                                for what, default in (("CLK", "NONE"), ("CE", "CE0"), ("RST", "RST0")))
        if clock == "NONE":
            continue
        if (ends.get(enable), ends.get(reset)) != (["1"], ["0"]):
            raise ValueError(f"{register} of a MULT18X18D is not always enabled, or is reset, which has no table")
        for port in ports:
            bit = ends.get(port, ["x"])[0]
            if isinstance(bit, int):
                ends[port] = [inner := next(nets)]
                end = {"Q": [bit], "DI": [inner]} if register == "REG_OUTPUT" else {"Q": [inner], "DI": [bit]}
                yield f"{name}.{port}", _flip_flop(end | {"CLK": cell["connections"][clock], "LSR": ["0"]})
    yield name, cell | {"connections": ends, "parameters": kept}


def _flip_flop(connections: dict) -> dict:
    """A flip-flop that takes each value, and starts with 0."""
    return {"type": "TRELLIS_FF", "parameters": {"CEMUX": "1", "CLKMUX": "CLK", "LSRMUX": "LSR", "REGSET": "RESET"},
            "port_directions": {port: "output" if port == "Q" else "input" for port in connections},
            "connections": connections}
