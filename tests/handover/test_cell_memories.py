"""Small memories lose the wires of address bits that are always 0, and keep their contents."""

import pytest
from concord.hw.cell_memories import free_addresses


def memory(read, written, words):
    """A netlist of one memory with these address bits and words."""
    contents = "".join(f"{word:04b}" for word in reversed(words))
    return {"cells": {"one": {
        "type": "TRELLIS_DPR16X4", "parameters": {"INITVAL": contents},
        "connections": {"RAD": read, "WAD": written, "DI": [2, 3, 4, 5]}}}}


@pytest.mark.parametrize(("read", "written", "free"), [
    ([6, 7, 8, 9], [10, 11, 12, 13], []), ([6, 7, "0", "0"], [8, 9, "0", "0"], [2, 3]),
    (["0", 6, "0", 7], ["0", 8, "0", 9], [0, 2]),
    ([6, 7, "0", "0"], [8, 9, 10, "0"], [3]),  # it is written where it is never read
    (["1", 6, 7, 8], ["1", 9, 10, 11], [])])
def test_what_is_read_stays(read, written, free):
    words = [(5 * address + 3) % 16 for address in range(16)]
    module = memory(list(read), list(written), words)
    assert free_addresses(module) == len(free)
    cell = module["cells"]["one"]
    contents = cell["parameters"]["INITVAL"]
    for ends, before in (("RAD", read), ("WAD", written)):
        assert cell["connections"][ends] == ["x" if bit in free else end for bit, end in enumerate(before)]
    mask = sum(1 << bit for bit in free)
    for address in range(16):  # an input without a wire reads 1; 0 would give the same word
        end = len(contents) - 4 * address
        assert int(contents[end - 4:end], 2) == words[address & ~mask]
