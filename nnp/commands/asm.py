"""`nnp asm`: program text to instruction words."""

from pathlib import Path
from typing import Annotated

import typer


def asm(
    source: Annotated[Path, typer.Argument(metavar="TEXT", help="Program text.", show_default=False)],
    output: Annotated[Path | None, typer.Option("-o", help="Where the words go: TEXT with .bin, if not given.")] = None,
    preset: Annotated[str, typer.Option("--preset", help="Check that the program is legal on this machine.")] = "",
):
    """Assemble program text into 64-bit little-endian instruction words."""
    from concord.nnp.lib.files import read_text, write_all
    from concord.spec import config
    from concord.spec.assembler import assemble
    from concord.spec.check import check

    try:
        words = assemble(read_text(source))
    except ValueError as error:
        raise ValueError(str(error) if str(error).startswith(str(source)) else f"{source}: {error}") from error
    if preset:
        violation = check(words, config.preset(preset))
        if violation:
            raise ValueError(f"{source}: {violation}")
    output = output or source.with_suffix(".bin")
    write_all(output.parent, {output.name: b"".join(word.to_bytes(8, "little") for word in words)})
    typer.echo(f"{output}: {len(words)} instructions")
