"""`nnp cycles`: clock cycles of a network, and what each unit of the machine waits for."""

from typing import TYPE_CHECKING, Annotated

import typer
from concord.net.quantize.widths import NetworkArithmetic
from concord.nnp.lib.options import Preset
from concord.workflows.storage import fetched

if TYPE_CHECKING:
    from concord.firmware.timing import Timed
    from concord.spec.machine.config import Config


def cycles(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            show_default=False,
            help="Firmware, a quantised model, or a network in float32: an ONNX file, or what `nnp import` wrote.",
        ),
    ],
    other: Annotated[
        str,
        typer.Option("--compare", metavar="FILE", show_default=False, help="Another such file, for a second column."),
    ] = "",
    preset: Preset = "",
    steps: Annotated[
        int,
        typer.Option("--steps", min=1, help="Number of time steps of a sample, where the firmware does not fix it."),
    ] = 10,
    layers: Annotated[bool, typer.Option("--layers", help="Print cycles and waits of each layer, too.")] = False,
    clock: Annotated[
        float | None,
        typer.Option(
            "--clock",
            metavar="MHZ",
            min=0.001,
            help="Clock of the machine in MHz, for its time.",
            show_default="that which place and route for a board reached",
        ),
    ] = None,
    arithmetic: Annotated[
        NetworkArithmetic,
        typer.Option(help="Quantise networks in float32 to integers, or to block floating point (bfp)."),
    ] = NetworkArithmetic.INTEGER,
):
    """Print the clock cycles of one sample, and the share in which each unit works or waits.

    They are those of the hardware, from a simulation without its numbers. A network in float32 is quantised by random
    samples, which change no times.
    """
    from concord.firmware.timing import timed
    from concord.lib.progress import Steps
    from concord.verification.tables import layer_table, rows_of_costs
    from concord.verification.timed_firmware import firmware_at
    from rich.console import Console

    steps_, found = Steps(Console(stderr=True), 2 * (1 + bool(other))), []
    for name in filter(None, (file, other)):
        with fetched(name) as path:
            with steps_.step(f"compile {path.name}"):
                firmware = firmware_at(path, preset, arithmetic)
            firmware.config.require_hardware()
            with steps_.step("run", announce="a minute, where no such machine has been built before"):
                found.append(timed(firmware, steps, layers=layers))
    console = Console()
    console.print(_table(found, clock))
    for one in found if layers else ():
        console.print(layer_table(f"layers of {one.firmware.name}", rows_of_costs(one.costs, one.firmware.config)))


def _table(found: "list[Timed]", clock: float | None):
    """A table with a column for each firmware."""
    from concord.firmware.layer_costs import STATES, UNITS
    from concord.spec.machine.config import preset_name
    from rich.markup import escape
    from rich.table import Table

    table = Table("", title="cycles", title_justify="left")
    for one in found:
        table.add_column(escape(one.firmware.name), justify="right", overflow="fold")
    configs = [one.firmware.config for one in found]
    table.add_row("machine", *(preset_name(config) or f"{config.digest:08x}" for config in configs))
    table.add_row("cycles", *(f"{one.whole.cycles:,}{_change(one, found[0])}" for one in found))
    clocks = [clock or _measured(config) for config in configs]
    if any(clocks):
        table.add_row("time", *(_time(one, mhz) for one, mhz in zip(found, clocks, strict=True)))
    table.add_row(
        "MVM utilisation",
        *(f"{one.whole.busy(config):.1%}" for one, config in zip(found, configs, strict=True)),
        end_section=True,
    )
    for unit, counters in UNITS.items():
        for state, counter in zip(STATES, counters, strict=True):
            if counter is not None and any(one.counters[counter] for one in found):
                table.add_row(f"{unit}: {state}", *(f"{one.counters[counter] / one.whole.cycles:.1%}" for one in found))
    return table


def _measured(config: "Config") -> float | None:
    """The clock in MHz that was measured of a machine; None if none was."""
    from concord.spec.machine.clocks import measured_clock

    found = measured_clock(config)
    return found.median if found else None


def _time(one: "Timed", mhz: float | None) -> str:
    """The time of a sample; a dash for a machine without a clock."""
    return f"{one.whole.cycles / mhz:,.1f} us at {mhz:g} MHz" if mhz else "-"


def _change(one: "Timed", first: "Timed") -> str:
    """By how much the cycles differ from those of the first firmware; empty for that one."""
    return "" if one is first else f" ({one.whole.cycles / first.whole.cycles - 1:+.1%})"
