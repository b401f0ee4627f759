"""Small memories of an ECP5 (TRELLIS_DPR16X4) without wires for address bits that are always 0.

nextpnr has one cell for the constant 0, and routes it to each input that needs it, from one end of the chip to the
other; an input without a wire reads 1. A memory of fewer than 16 words has four or five such inputs for each address
bit that it does not need. They lose their wires, and the contents are those for both values of the bit.
"""

from itertools import product

MEMORY, WORDS = "TRELLIS_DPR16X4", 16
_READ, _WRITTEN = "RAD", "WAD"


def free_addresses(module: dict) -> int:
    """Disconnect address bits that are 0 for reading and writing.

    Args:
        module: The module, as Yosys's JSON has it; its cells change.

    Returns:
        The number of address bits that are gone.
    """
    gone = 0
    for cell in module["cells"].values():
        if cell["type"] != MEMORY:
            continue
        ports = cell["connections"]
        unused = [bit for bit, ends in enumerate(zip(ports[_READ], ports[_WRITTEN], strict=True)) if ends == ("0", "0")]
        for bit, port in product(unused, (_READ, _WRITTEN)):
            ports[port][bit] = "x"
        mask = sum(1 << bit for bit in unused)
        cell["parameters"]["INITVAL"] = _without(cell["parameters"]["INITVAL"], mask)
        gone += len(unused)
    return gone


def _without(contents: str, mask: int) -> str:
    """Contents, the last word first, of which each word is that whose address has 0 in the bits of a mask."""
    width = len(contents) // WORDS
    words = [contents[(WORDS - 1 - address) * width:][:width] for address in range(WORDS)]
    return "".join(words[address & ~mask] for address in reversed(range(WORDS)))
