"""`nnp disasm`: converts instruction words into program text."""

from pathlib import Path
from typing import Annotated

import typer


def disasm(
    source: Annotated[Path, typer.Argument(
        metavar="FILE", help="Firmware, or a .bin file of instruction words from `nnp asm`.")],
    addresses: Annotated[bool, typer.Option(
        "--addresses", help="Print address, instruction word and layer beside each line.")] = False,
):
    """Print a program as canonical text, which `nnp asm` takes; of several machines, one after the other."""
    from concord.spec.isa.disassembler import disassemble_word

    for title, words, layer_at in _programs(source):
        if title:
            typer.echo(f"# {title}")
        for address, word in enumerate(words):
            text = disassemble_word(word)
            typer.echo(f"{text:<40} # {address:5} {word:016x} {layer_at(address)}".rstrip() if addresses else text)


def _programs(source: Path):
    """For each program of a file: a title, its instruction words, and a function that gives the layer of an address."""
    if not source.is_file():
        raise ValueError(f"{source}: there is no such file")
    data = source.read_bytes()
    # In a safetensors file, JSON follows the 8 bytes of its length; no opcode has the code of its first character.
    if data[8:9] == b"{":
        from concord.firmware.firmware_file import load_cascade

        parts = load_cascade(source).parts
        return [(f"machine {k} of {len(parts)}" if len(parts) > 1 else "", part.program(), part.layer_at)
                for k, part in enumerate(parts, 1)]
    if not data or len(data) % 8:
        raise ValueError(f"{source}: {len(data)} bytes are not a whole number of 8-byte instructions")
    words = [int.from_bytes(data[k : k + 8], "little") for k in range(0, len(data), 8)]
    return [("", words, lambda address: "")]
