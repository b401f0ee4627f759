"""Twins of every kind of network beside golden, bit by bit: `nox -s twin_networks`.

Shipped networks; recurrent networks of every cell; convolutional networks of three styles; networks of floats and of
powers of two; transformers; the networks of MLPerf Tiny with random weights and, with `--models FOLDER`, as they are
published. Integers and block floating point. Each firmware becomes a twin in every framework that is installed, with
its hints and without them, and each of them runs the same samples as golden.
"""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy reads this at its import

import typer
from concord.campaigns.twin_comparison import SOURCES, ComparedNetwork, Row, TwinComparison, shipped
from concord.campaigns.twin_ways import NOT_RUN, check_device, differs, frameworks_of, lacking, ways_of
from concord.nnp.lib.errors import sentences
from concord.twin.source.frameworks import RUNTIMES, Framework, installed
from rich.console import Console
from rich.table import Table

OUT = Path("build/twin_networks")


def networks(
    models: Path | None, features: Path | None, converter: str, say: Callable[[str], None],
) -> Iterator[ComparedNetwork]:
    """All networks; those that PyTorch quantises only where it is installed."""
    yield from shipped()
    if not installed(Framework.TORCH):
        say(f"networks that PyTorch quantises are {NOT_RUN}: {RUNTIMES[Framework.TORCH].install}")
        return
    import torch
    from concord.campaigns import twin_made_cases as made
    from concord.campaigns.twin_attention import attention_networks
    from concord.campaigns.twin_made_cases import float_networks

    torch.set_num_threads(1)
    yield from made.random_networks(OUT)
    yield from float_networks(OUT)
    yield from attention_networks(OUT)
    if models is None:
        say(f"published networks of MLPerf Tiny are {NOT_RUN}: name the folder of their files by --models FOLDER")
    else:
        yield from made.published_networks(models, features, OUT, converter)


def verdict(rows: list[Row], unquantized: bool) -> tuple[str, bool]:
    """A sentence on all rows, and whether a result differs."""
    cells = [cell for row in rows for cell in row.cells]
    differ, idle = sum(map(differs, cells)), cells.count(NOT_RUN)
    what = "that are too far apart" if unquantized else "with differing bits"
    return (f"{len(rows)} networks, {len(cells) - idle} comparisons, {differ} of them {what}; {idle} {NOT_RUN}",
            bool(differ))


@sentences
def main(
    models: Annotated[Path | None, typer.Option(
        "--models", help="Folder of the .tflite or .onnx files of MLPerf Tiny, as for `nox -s bench_tiny`.",
        show_default="without the published networks")] = None,
    data: Annotated[Path | None, typer.Option(
        "--data", help="Folder of features for keyword spotting, as for `nox -s bench_tiny`.",
        show_default="inputs from a seed")] = None,
    converter: Annotated[str, typer.Option(
        help="Python that has tf2onnx and TensorFlow, for .tflite files.", show_default="this one")] = sys.executable,
    samples: Annotated[int, typer.Option(help="Number of samples of each network.", min=1)] = 100,
    rtl: Annotated[int, typer.Option(
        help="Number of these that run on the simulated hardware, too.", min=0)] = 10,
    only: Annotated[str, typer.Option(
        help="Part of the names of the networks that are taken, such as `published`.")] = "",
    frameworks: Annotated[str, typer.Option(help="Frameworks, parted by commas.",
                                            show_default="numpy,torch,tensorflow")] = "",
    eager: Annotated[bool, typer.Option(
        "--eager", help="Leave out torch.compile and graphs of TensorFlow, whose compilation takes minutes.")] = False,
    device: Annotated[str, typer.Option(
        help="Device on which twins in PyTorch run, such as cuda.", show_default="the CPU")] = "",
    dram: Annotated[bool, typer.Option(
        "--dram", help="Machines with memory outside the chip and few tiles, so that firmware loads them; no hardware "
                       "is built for these.")] = False,
    unquantized: Annotated[bool, typer.Option(
        "--unquantised", help="Compare twins without quantisers with golden without quantisers, eager.")] = False,
):
    """Compare twins with golden and with the simulated hardware, and print a table.

    The exit code is 1 if a bit differs or a run fails, and 2 if the options do not fit.
    """
    console = Console(width=None if sys.stdout.isatty() else 260)
    chosen = frameworks_of(frameworks)
    notes = lacking(chosen)
    if device:
        if Framework.TORCH not in chosen or not installed(Framework.TORCH):
            raise ValueError(f"--device is for twins in PyTorch: {RUNTIMES[Framework.TORCH].install}, or leave it out")
        check_device(device)
    OUT.mkdir(parents=True, exist_ok=True)
    if dram and unquantized:
        raise ValueError("--dram: machines that load tiles have no full precision: leave out --unquantised")
    if data and not models:
        raise ValueError("--data holds inputs of a published network: give --models, too")
    taken = [each for each in networks(models, features_of(data), converter, notes.append) if only in each.name]
    for note in notes:
        console.print(note)
    if not taken:
        raise ValueError(f"no network has {only!r} in its name, or what it needs is missing")
    ways = ways_of(chosen, eager=eager or unquantized, device=device)
    compared = TwinComparison(ways=[way for way in ways if way.hints or not unquantized], samples=samples, on_rtl=rtl,
                              out=OUT, unquantized=unquantized, say=console.print, dram=dram)
    rows = []
    for network in taken:
        rows.append(compared.row(network))
        console.print(", ".join(rows[-1].texts))
    console.print(table(compared, rows), *notes, sep="\n")
    said, wrong = verdict(rows, unquantized)
    console.print(said)
    raise typer.Exit(wrong)


def features_of(folder: Path | None) -> Path | None:
    """The folder of the features of keyword spotting in a folder."""
    if folder is None or not installed(Framework.TORCH):
        return None
    from concord.benchmarks.tiny_published import feature_folder

    return feature_folder(folder)


def table(compared: TwinComparison, rows: list[Row]) -> Table:
    """The table, whose title says what its numbers are."""
    kind = ("largest difference of twins from golden, without quantisers, divided by the largest output"
            if compared.unquantized else "differing bits of twins and of the simulated hardware from golden")
    made = Table(title=f"{kind}; published files with the first digits of their SHA-256", title_justify="left")
    for column in *SOURCES, *(column.replace(", ", "\n") for column in compared.columns):
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*row.texts)
    return made


if __name__ == "__main__":
    typer.run(main)
