"""Resets of many flip-flops come from global wires, all others as before."""

from concord.handover.global_resets import FEWEST, MOST, global_resets


def registers(*sizes: int) -> dict:
    """A module with so many flip-flops at each of several resets, which are bits 2 up, and one without reset."""
    resets = [reset for reset, size in enumerate(sizes, 2) for _ in range(size)]
    cells = {f"r{k}": {"type": "TRELLIS_FF", "connections": {"LSR": [reset], "Q": [100 + k]}}
             for k, reset in enumerate([*resets, "0"])}
    return {"ports": {}, "cells": cells | {"table": {"type": "LUT4", "connections": {"A": [2], "Z": [3]}}}}


def test_large_resets_alone_are_global():
    module = registers(FEWEST, FEWEST - 1, FEWEST + 5)
    assert global_resets(module) == 2
    buffers = {name: cell for name, cell in module["cells"].items() if cell["type"] == "DCCA"}
    assert [cell["connections"]["CLKI"] for cell in buffers.values()] == [[4], [2]]  # the largest one first
    behind = {cell["connections"]["CLKI"][0]: cell["connections"]["CLKO"][0] for cell in buffers.values()}
    found = [cell["connections"]["LSR"][0] for cell in module["cells"].values() if cell["type"] == "TRELLIS_FF"]
    assert found == [*[behind[2]] * FEWEST, *[3] * (FEWEST - 1), *[behind[4]] * (FEWEST + 5), "0"]
    assert module["cells"]["table"]["connections"]["A"] == [2]
    assert len(set(behind.values()) | {100 + k for k in range(len(found))} | {2, 3, 4}) == len(found) + 5


def test_there_are_not_more_than_the_chip_has():
    module = registers(*[FEWEST] * (MOST + 2))
    assert global_resets(module) == MOST


def test_a_small_machine_has_none():
    module = registers(5)
    before = str(module)
    assert global_resets(module) == 0
    assert str(module) == before
