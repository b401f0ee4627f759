"""`nnp compile`: compiles a quantised model into firmware."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from concord.compiler.network import Compiled
    from concord.nnp.lib.cascades import Wish
    from rich.console import Console
from concord.nnp.lib.options import Cut, Machines, Model, Preset
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
    machines: Machines = 1,
    cut: Cut = "",
):
    """Compile a quantised model for one machine, and print its memory usage and whether a sum may overflow.

    With --machines, the model is cut: each machine sends its results to the next one.
    """
    from concord.compiler.network import full_precision
    from concord.golden.host.firmware_file import save_firmware
    from concord.nnp.lib.cascades import Wish
    from concord.nnp.lib.files import check_writable
    from concord.nnp.lib.presets import compile_for
    from rich.console import Console

    if output:
        check_writable(output)
    wish = Wish(machines=machines, cut=cut)
    if machines > 1:
        if precise:
            raise ValueError("firmware of several machines has no numbers in full precision: leave out one of both")
        _compile_cascade(model, output, preset, wish, listing, explain)
        return
    loaded = read_model(model)
    name, compiled = compile_for(loaded, preset, model)
    firmware = compiled.firmware
    if precise:
        firmware = replace(firmware, full_precision=full_precision(loaded, firmware))
    output = output or Path(f"{Path(file_name(model)).stem}.{name}.safetensors")
    check_writable(output)
    save_firmware(firmware, output)
    console = Console()
    _show(console, compiled, listing, explain)
    console.print(f"{output}: {len(compiled.firmware.instruction_words)} instructions for {name}")


def _show(console: "Console", compiled: "Compiled", listing: bool, explain: bool):
    """Print what is compiled for a machine."""
    from concord.nnp.verify.tables import bound_table, explain_table, usage_table
    from rich.console import Console

    if listing:
        typer.echo(compiled.firmware.text)
    if explain:
        table = explain_table(compiled)
        # A name or an address that is cut off says nothing, so the lines may be longer than the terminal is wide.
        width = Console(width=WIDEST).measure(table).maximum
        Console(width=max(console.width, width)).print(table)
    console.print(usage_table(compiled), bound_table(compiled))


def _compile_cascade(model: str, output: Path | None, preset: str, wish: "Wish", listing: bool, explain: bool):
    """Compile for several machines into one file."""
    from concord.compiler.explain import explain as works
    from concord.golden.host.cascade_file import save_cascade
    from concord.nnp.lib.cascades import compile_cascade
    from concord.nnp.lib.files import check_writable
    from rich.console import Console

    name, compiled = compile_cascade(read_model(model), preset, wish)
    where = "-".join(name.split(", "))
    output = output or Path(f"{Path(file_name(model)).stem}.{wish.machines}-{where}.safetensors")
    check_writable(output)
    save_cascade(compiled.cascade, output)
    console = Console()
    for k, part in enumerate(compiled.parts):
        layers = list(dict.fromkeys(section.layer for section in part.firmware.sections if section.layer))
        console.rule(f"machine {k + 1}: {layers[0]} to {layers[-1]}")
        _show(console, part, listing, explain)
        cycles = sum(work.cycles for work in works(part.firmware))
        console.print(f"{len(part.firmware.instruction_words)} instructions, about {cycles:,} cycles"
                      + " in each time step" * (part.firmware.loop is not None))
    cuts = ", ".join(compiled.cascade.cuts)
    console.print(f"{output}: {wish.machines} machines, {name}, cut behind {cuts}", soft_wrap=True)
