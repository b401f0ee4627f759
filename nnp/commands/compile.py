"""`nnp compile`: compiles a quantised model into firmware."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from concord.nnp.lib.options import Batch, Cut, FirstState, Machines, Model, Preset
from concord.workflows.storage import file_name, read_model

if TYPE_CHECKING:
    from concord.compiler.network import Compiled
    from rich.console import Console

WIDEST = 400  #: Most characters of a line.


def compile_model(
    model: Model,
    output: Annotated[
        Path | None, typer.Option(
            "--out", "-o", help="Firmware file. If not given: MODEL.PRESET.safetensors in this folder; with "
                                "--weights-from, MODEL.trained.safetensors beside MODEL.", show_default=False)
    ] = None,
    preset: Preset = "",
    precise: Annotated[bool, typer.Option(
        "--full-precision", help="Keep the numbers before any rounding in the firmware file, too, for `nnp run "
                                 "--unquantised`.")] = False,
    listing: Annotated[bool, typer.Option("--listing", help="Print the program text.")] = False,
    explain: Annotated[bool, typer.Option(
        "--explain", help="Print each layer's chains, addresses in memories and beats, and the cycles that it takes.")
    ] = False,
    machines: Machines = 1,
    cut: Cut = "",
    batch: Batch = 1,
    first_state: FirstState = "",
    weights_from: Annotated[Path | None, typer.Option(
        "--weights-from", metavar="TWIN", show_default=False,
        help="Tensors of a trained twin, as its `save` writes them; MODEL is then the firmware that `nnp twin` read, "
             "and its program stays as it is.")] = None,
):
    """Compile a quantised model for one machine, and print its memory usage and whether a sum may overflow.

    With --machines, the model is cut: each machine sends its results to the next one.
    """
    from concord.compiler.network import full_precision
    from concord.firmware.cascade import Cascade
    from concord.firmware.firmware_file import save_cascade
    from concord.lib.files import check_writable
    from concord.workflows.cascades import Wish, compile_cascade
    from concord.workflows.first_states import started
    from concord.workflows.presets import golden_only
    from rich.console import Console

    if weights_from:
        if preset or explain or precise or machines > 1 or cut or first_state or batch != 1:
            raise ValueError("--weights-from keeps the program and the machine of the firmware: besides it, only -o "
                             "and --listing may be given")
        _with_weights(Path(model), weights_from, output, listing)
        return
    wish = Wish(machines=machines, cut=cut, batch=batch)
    if machines > 1 and precise:
        raise ValueError("firmware of several machines has no numbers in full precision: leave out --full-precision "
                         "or --machines")
    if output:
        check_writable(output)
    loaded = started(read_model(model, preset), first_state)
    name, compiled = compile_cascade(loaded, preset, wish, model)
    cascade = compiled.cascade
    if precise:
        cascade = Cascade.of(replace(cascade.first, full_precision=full_precision(loaded, cascade.first)))
    where = "-".join(([str(machines)] if machines > 1 else []) + name.split(", "))
    output = output or Path(f"{Path(file_name(model)).stem}.{where}.safetensors")
    check_writable(output)
    save_cascade(cascade, output)
    console = Console()
    for k, part in enumerate(compiled.parts, 1):
        if machines > 1:
            _title(console, k, part)
        _show(console, part, listing, explain)
    words = sum(len(part.instruction_words) for part in cascade.parts)
    said = "" if preset else golden_only(name)
    cuts = f", {machines} machines, cut after {', '.join(cascade.cuts)}" if machines > 1 else ""
    console.print(f"{output}: {words} instructions for {name}{cuts}{said}", markup=False, soft_wrap=True)


def _title(console: "Console", number: int, part: "Compiled"):
    """Print the layers of one of several machines."""
    layers = list(dict.fromkeys(section.layer for section in part.firmware.sections if section.layer))
    console.rule(f"machine {number}: {layers[0]} to {layers[-1]}")
    console.print(f"{len(part.firmware.instruction_words)} instructions")


def _show(console: "Console", compiled: "Compiled", listing: bool, explain: bool):
    """Print what is compiled for a machine."""
    from concord.verification.tables import bound_table, explain_table, usage_table
    from rich.console import Console

    if listing:
        typer.echo(compiled.firmware.text)
    if explain:
        table = explain_table(compiled)
        # A name or an address that is cut off says nothing, so the lines may be longer than the terminal is wide.
        width = Console(width=WIDEST).measure(table).maximum
        Console(width=max(console.width, width)).print(table)
        _print_cycles(console, compiled)
    console.print(usage_table(compiled), bound_table(compiled))


def _print_cycles(console: "Console", compiled: "Compiled"):
    """Print the cycles of each layer, of one time step where their number is open; or why there are none."""
    from concord.lib.extras import require
    from concord.lib.progress import Steps
    from concord.verification.tables import layer_table, rows_of_costs
    from rich.console import Console

    firmware = compiled.firmware
    try:
        firmware.config.require_hardware()
        require("sim")
        from concord.firmware.timing import timed

        with Steps(Console(stderr=True), 1).step("run", announce="a minute, where no such machine was built before"):
            costs = timed(firmware, 1, layers=True).costs
    except ValueError as error:
        console.print(f"layers have no cycles: {error}", markup=False, soft_wrap=True)
        return
    step = " in a time step" * (firmware.loop is not None)
    console.print(layer_table(f"cycles{step}", rows_of_costs(costs, firmware.config)))


def _with_weights(path: Path, weights: Path, output: Path | None, listing: bool):
    """Write firmware with the tensors of a trained twin, and compare both on random inputs."""
    import numpy as np
    from concord.firmware.firmware_file import load_firmware, save_firmware
    from concord.lib.files import check_writable
    from concord.lib.tensor_file import read_arrays
    from concord.twin.weights import twin_script, with_tensors
    from concord.verification.twins import differing_bits
    from concord.workflows.storage import FileKind, kind_of

    output = output or path.with_name(f"{path.stem}.trained.safetensors")
    check_writable(output)
    if kind_of(path) is FileKind.MODEL and path.is_file():
        raise ValueError(f"{path}: with --weights-from, name the firmware that `nnp twin` read instead of the model")
    old = load_firmware(path)
    given = read_arrays(weights, "`save` of a trained twin writes the file that --weights-from takes")
    try:
        found = with_tensors(old, given)
    except ValueError as error:
        if given and all(values.dtype == np.float64 for values in given.values()):
            raise ValueError(f"{weights}: its numbers are float64, as those of a twin without quantisers, which no "
                             "firmware holds; train the twin that `nnp twin` writes without --unquantised") from error
        raise ValueError(f"{weights}: {error}") from error
    bits = differing_bits(found, twin_script(old, given), given)
    changed = np.count_nonzero(found.tiles.mantissas != old.tiles.mantissas)
    if not bits:
        save_firmware(found, output)
    if listing:
        typer.echo(found.text)
    typer.echo(f"{output}: {changed:,} of {found.tiles.mantissas.size:,} mantissas have changed; {bits} differing bits "
               "between golden and the twin, on random inputs")
    if bits:
        typer.echo("nnp: the firmware was not written: this twin's tensors stand for more numbers of the firmware than "
                   "they name; train those of its `trainable` only", err=True)
        raise typer.Exit(1)
