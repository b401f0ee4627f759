"""Chains of carry cells before and after their ends moved inside: the same bits, whatever comes into them."""

from itertools import count

import numpy as np
import pytest
from concord.hw.cell_carries import shorten_chains

BEGINS = ("0", "1", "net", "x")  #: What carry comes into a chain.


def chain(rng: np.random.Generator, begins: str) -> dict:
    """A module with one chain of random tables, some of whose sums and whose last carry leave the module or do not."""
    bits, cells, outputs = count(2), {}, []
    inputs = [next(bits) for _ in range(6)]
    carry = next(bits) if begins == "net" else begins
    inputs += [carry] * (begins == "net")
    for number in range(rng.integers(1, 5)):
        ports = {f"{name}{half}": [constant if rng.random() < 0.6 and name in "CD" else int(rng.choice(inputs))]
                 for half in range(2) for name in "ABCD" for constant in [str(rng.integers(2))]}
        made = {name: [next(bits)] for name in ("S0", "S1", "COUT")}
        outputs += [made[name][0] for name in ("S0", "S1") if rng.random() < 0.6]
        cells[str(number)] = {
            "type": "CCU2C", "connections": ports | {"CIN": [carry]} | made,
            "parameters": {f"INIT{half}": f"{rng.integers(1 << 16):016b}" for half in range(2)} | {
                "INJECT1_0": "NO", "INJECT1_1": "NO"},
            "port_directions": dict.fromkeys([*ports, "CIN"], "input") | dict.fromkeys(made, "output")}
        carry = made["COUT"][0]
    outputs += [carry] * int(rng.integers(2))
    return {"cells": cells, "ports": {"i": {"direction": "input", "bits": inputs},
                                      "o": {"direction": "output", "bits": outputs}}}


def outputs(module: dict, given: list[np.ndarray], unknown: int) -> list[np.ndarray]:
    """What leaves the module; a carry to which nothing leads is `unknown`."""
    zeros = np.zeros_like(given[0])
    known = dict(zip(module["ports"]["i"]["bits"], given, strict=True))
    known |= {"0": zeros, "1": zeros + 1, "x": zeros + unknown}
    left = list(module["cells"].values())
    while left:
        cell = next(cell for cell in left if all(bits[0] in known for port, bits in cell["connections"].items()
                                                 if cell["port_directions"][port] == "input"))
        left.remove(cell)
        ends = {port: bits[0] for port, bits in cell["connections"].items()}
        halves = [("INIT", "", "Z")] if cell["type"] == "LUT4" else [("INIT0", "0", "S0"), ("INIT1", "1", "S1")]
        carry, found = known[ends.get("CIN", "0")], {}
        for key, half, total in halves:
            table, (a, b, c, d) = int(cell["parameters"][key], 2), (known[ends[f"{name}{half}"]] for name in "ABCD")
            value = table >> (8 * d + 4 * c + 2 * b + a) & 1
            found[ends[total]] = value ^ carry
            carry = np.where(value, carry, table >> (2 * b + a) & 1)
        made = {bit: value for bit, value in (found | {ends.get("COUT", "x"): carry}).items() if bit != "x"}
        assert not made.keys() & known.keys()  # a bit has one source
        known |= made
    return [known[bit] for bit in module["ports"]["o"]["bits"]]


@pytest.mark.parametrize("begins", BEGINS)
def test_a_chain_gives_the_same_bits(begins):
    rng, gone = np.random.default_rng(BEGINS.index(begins)), 0
    for _ in range(200):
        module = chain(rng, begins)
        given = list(rng.integers(0, 2, (len(module["ports"]["i"]["bits"]), 64)))
        before = [outputs(module, given, unknown) for unknown in range(2)]
        gone += shorten_chains(module)
        for unknown in range(2):
            np.testing.assert_array_equal(outputs(module, given, unknown), before[unknown if begins == "x" else 0])
    assert gone > 50


def test_a_carry_that_goes_elsewhere_within_its_chain_stays():
    rng = np.random.default_rng(9)
    module = next(made for made in (chain(rng, "0") for _ in range(100)) if len(made["cells"]) > 1)
    module["ports"]["o"]["bits"].append(module["cells"]["0"]["connections"]["COUT"][0])
    before = {name: cell["connections"] for name, cell in module["cells"].items()}
    assert shorten_chains(module) == 0
    assert {name: cell["connections"] for name, cell in module["cells"].items()} == before
