"""`nnp compile`: compiles a quantised model into firmware."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from concord.nnp.lib.options import Model, Preset
from concord.nnp.lib.storage import file_name, read_model

WIDEST = 400  #: Most characters of a line.


def compile_model(
    model: Model,
    output: Annotated[
        Path | None, typer.Option("-o", help="Firmware file; MODEL.PRESET.safetensors in this folder if not given.")
    ] = None,
    preset: Preset = "",
    precise: Annotated[bool, typer.Option(
        "--full-precision", help="Keep the numbers before any rounding in the firmware file, too, for `nnp run "
                                 "--unquantised`.")] = False,
    listing: Annotated[bool, typer.Option("--listing", help="Print the program text.")] = False,
    explain: Annotated[bool, typer.Option(
        "--explain", help="Print each layer's chains, places in memories, beats and estimated clock cycles.")] = False,
):
    """Compile a quantised model for one machine, and print its memory usage and whether a sum may overflow."""
    from concord.compiler.network import full_precision
    from concord.golden.host.firmware_file import save_firmware
    from concord.nnp.lib.files import check_writable
    from concord.nnp.lib.presets import compile_for
    from concord.nnp.verify.tables import bound_table, explain_table, usage_table
    from rich.console import Console

    if output:
        check_writable(output)
    loaded = read_model(model)
    name, compiled = compile_for(loaded, preset, model)
    firmware = compiled.firmware
    if precise:
        firmware = replace(firmware, full_precision=full_precision(loaded, firmware))
    output = output or Path(f"{Path(file_name(model)).stem}.{name}.safetensors")
    check_writable(output)
    save_firmware(firmware, output)
    if listing:
        typer.echo(compiled.firmware.text)
    console = Console()
    if explain:
        table = explain_table(compiled)
        # A name or an address that is cut off says nothing, so the lines may be longer than the terminal is wide.
        width = Console(width=WIDEST).measure(table).maximum
        Console(width=max(console.width, width)).print(table)
    console.print(usage_table(compiled), bound_table(compiled))
    console.print(f"{output}: {len(compiled.firmware.instruction_words)} instructions for {name}")
