"""`nnp trace`: what each unit of a machine did in each clock cycle, as a file for a viewer."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from concord.net.quantize.widths import NetworkArithmetic
from concord.nnp.lib.options import Preset
from concord.workflows.storage import FileKind, fetched, kind_of, legal

if TYPE_CHECKING:
    from concord.firmware.cascade import Cascade
    from concord.traces.spans import MachineTrace

MACHINES = ("timing", "library")  #: What `--machine` takes.
PAGE = ".html"  #: Ending of a file that nobody names.


def trace(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            show_default=False,
            help="Firmware of one or several machines, a quantised model, or a network in float32.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            show_default="NAME.html",
            help="File to write: .html is a page that shows the trace in any browser; .json (Chrome) and "
            ".perfetto-trace are for ui.perfetto.dev.",
        ),
    ] = None,
    preset: Preset = "",
    samples: Annotated[int, typer.Option("--samples", min=1, help="Number of samples, one after the other.")] = 1,
    steps: Annotated[
        int,
        typer.Option("--steps", min=1, help="Number of time steps of a sample, where the firmware does not fix it."),
    ] = 10,
    machine: Annotated[
        str,
        typer.Option(
            "--machine",
            metavar=f"[{'|'.join(MACHINES)}]",
            help="Machine that runs: the one without its numbers, or the whole one. Both have the same cycles.",
        ),
    ] = MACHINES[0],
    waves: Annotated[
        Path | None,
        typer.Option(
            "--waves",
            show_default=False,
            help="A VCD file of one machine that has run FILE, instead of a run: of `nnp run --waves`, or of a "
            "cocotb testbench.",
        ),
    ] = None,
    most: Annotated[
        int, typer.Option("--most", min=1, metavar="CYCLES", help="Largest number of cycles of a sample.")
    ] = 1_000_000,
    arithmetic: Annotated[
        NetworkArithmetic,
        typer.Option(help="Quantise networks in float32 to integers, or to block floating point (bfp)."),
    ] = NetworkArithmetic.INTEGER,
):
    """Write what each unit of the machine did in each clock cycle, what it waited for, and for which older chain.

    All numbers of the samples are 0: they do not change the time.
    """
    from concord.lib.files import check_writable, write
    from concord.lib.progress import Steps
    from rich.console import Console

    if machine not in MACHINES:
        raise ValueError(
            f"a trace comes from the machine {' or '.join(MACHINES)}, not from {machine!r}; waves of "
            "another one are read by --waves"
        )
    make = _format(output or Path(PAGE))
    steps_ = Steps(Console(stderr=True), 3)
    with fetched(file) as path:
        with steps_.step(f"compile {path.name}"):
            firmware = _firmware(path, preset, arithmetic)
        output = output or Path(legal(firmware.name) + PAGE)
        check_writable(output)
        announced = "" if waves else "a minute, where no such machine has been built before"
        with steps_.step(f"read {waves}" if waves else "run", announce=announced):
            traces = _traces(firmware, samples, steps, machine, most, waves)
        with steps_.step(f"write {output}"):
            write(output, make(traces))
    for one in traces:
        typer.echo(f"{one.name}: {one.cycles:,} cycles, {len(one.spans):,} spans")
    typer.echo(f"{output} {_opens(output)}")


def _firmware(path: Path, preset: str, arithmetic: NetworkArithmetic) -> "Cascade":
    """Firmware of one or several machines from a file of any kind."""
    from concord.firmware.cascade import Cascade
    from concord.firmware.firmware_file import load_cascade
    from concord.verification.timed_firmware import firmware_at

    if kind_of(path) is FileKind.CASCADE:
        return load_cascade(path)
    return Cascade.of(firmware_at(path, preset, arithmetic))


def _traces(
    firmware: "Cascade", samples: int, steps: int, machine: str, most: int, waves: Path | None
) -> "list[MachineTrace]":
    """What the machines did, in a run of their own or in waves."""
    from concord.lib.extras import require
    from concord.traces.record import TracedMachine, of_waves, record

    require("sim")
    if waves is None:
        return record(firmware, samples, steps, TracedMachine(machine), most)
    return [of_waves(firmware, steps, waves)]


def _format(output: Path) -> "Callable[[list[MachineTrace]], str | bytes]":
    """What makes the content of a file with this ending.

    Raises:
        ValueError: there is no such format.
    """
    from concord.lib.extras import require
    from concord.traces.chrome import chrome_text
    from concord.traces.page import page_text
    from concord.traces.perfetto import perfetto_bytes

    formats = {PAGE: page_text, ".json": chrome_text, ".perfetto-trace": perfetto_bytes}
    ending = output.suffix or output.name  # of a file without a stem, too
    if ending not in formats:
        raise ValueError(f"{output}: a trace is a file that ends with {', '.join(formats)}")
    if formats[ending] is perfetto_bytes:
        require("trace")
    return formats[ending]


def _opens(output: Path) -> str:
    return "opens in any browser" if output.suffix == PAGE else "opens in ui.perfetto.dev"
