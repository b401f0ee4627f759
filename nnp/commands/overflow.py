"""`nnp overflow`: tells whether sums fit a narrower accumulator, and which width a model needs."""

from typing import Annotated

import typer
from concord.nnp.lib.options import AxesOrder, First, Inputs, ManySamples, Model, TestData
from concord.train.overflow.options import CountOn, OverflowOptions
from concord.workflows.storage import read_model


def overflow(
    model: Model,
    accumulator: Annotated[int | None, typer.Option(
        "--accumulator", help="Bits of the accumulator, 1 to 64; each partial sum that exceeds it is counted.",
        show_default="16")] = None,
    product: Annotated[int | None, typer.Option(
        "--product", help="Bits of a product; each product that exceeds them is counted.", show_default="32")] = None,
    output: Annotated[int | None, typer.Option(
        "--output", help="Bits of a result; each final sum that exceeds them is counted.", show_default="32")] = None,
    lanes: Annotated[int | None, typer.Option(
        "--lanes", help="Number of products that are added in one cycle; with 1, every partial sum is checked.",
        show_default="1")] = None,
    preset: Annotated[str, typer.Option(
        "--preset", "--config", metavar="MACHINE", show_default=False,
        help="Preset, or TOML file of a machine, that decides the four options above.")] = "",
    count_on: Annotated[CountOn, typer.Option(
        "--count-on", help="What counts: numpy; or the overflow counters of the simulated machine of --preset, too "
                           "(library), and the exit code is 1 if they differ.")] = CountOn.NUMPY,
    inputs: Inputs = None,
    data: TestData = None,
    order: AxesOrder = None,
    samples: ManySamples = None,
    first: First = 0,
):
    """Count overflows of a model's integer sums on its test set, and print the width that is proved to be enough."""
    from concord.datasets.measures import measure
    from concord.net import network
    from concord.net.layer_overflow import Widths, dry_run, wrapped
    from concord.verification.inputs import InputSource, read
    from concord.workflows.overflow_counts import counted
    from concord.workflows.results import described, real
    from rich.console import Console

    given = {"accumulator": accumulator, "product": product, "output": output, "lanes": lanes}
    counter = counted(OverflowOptions(count_on=count_on), preset).counter if count_on is CountOn.LIBRARY else None
    chosen = _widths(preset, {option: value for option, value in given.items() if value is not None})
    accumulator = chosen["accumulator"]
    for option in ("accumulator", "product", "output"):
        if not 1 <= chosen[option] <= 64:
            raise ValueError(f"--{option} {chosen[option]} is no width: storage has 1 to 64 bits")
    widths = Widths(sum_bits=accumulator, product_bits=chosen["product"], output_bits=chosen["output"],
                    lanes=chosen["lanes"])
    source = InputSource(inputs=inputs, data=data, samples=samples, first=first, order=order, default=200)
    loaded = read_model(model)
    given = read(loaded, source)
    tested = given.samples
    uses = dry_run(loaded, tested.inputs, tested.lengths, widths)
    console = Console()
    console.print(overflow_table(uses, widths))
    for words in given.remarks:
        typer.echo(f"nnp: {words}", err=True)
    console.print(f"{loaded.name}, {len(tested)} samples of {given.name}: {verdict(uses, accumulator)}",
                  markup=False)
    if counter:
        machines = dry_run(loaded, tested.inputs, tested.lengths, widths, counter)
        console.print(agreement(uses, machines, preset), markup=False, soft_wrap=True)
    if tested.labels is None:
        return
    exact, narrow = (described(measure(given.task, real(outputs), tested)) for outputs in (
        network.outputs(loaded, tested.inputs, tested.lengths),
        wrapped(loaded, tested.inputs, accumulator, tested.lengths)))
    console.print(f"{exact}; with sums that wrap at {accumulator} bits {narrow}")


def _widths(preset: str, given: dict[str, int]) -> dict[str, int]:
    """The widths that options give, or those of a machine; an accumulator of more than 64 bits counts as one of 64.

    Raises:
        ValueError: there is no such machine, or an option contradicts it.
    """
    if not preset:
        return {"accumulator": 16, "product": 32, "output": 32, "lanes": 1} | given
    if given:
        raise ValueError(f"--preset {preset} decides --accumulator, --product, --output and --lanes: leave out "
                         f"--{', --'.join(given)}")
    from concord.net.layer_overflow import Widths
    from concord.spec.machine.machine_file import find_config

    widths = Widths.of(find_config(preset))
    return {"accumulator": widths.sum_bits, "product": widths.product_bits, "output": widths.output_bits,
            "lanes": widths.lanes}


def overflow_table(uses, widths):
    """A table with one line for each product."""
    from rich.table import Table

    table = Table(title=f"overflows in {widths.sum_bits} bits", title_justify="left", box=None)
    for name in ("product", "partial", "share", "products", "outputs", "bits proved", "measured"):
        table.add_column(name, justify="left" if name == "product" else "right", no_wrap=True)
    for use in uses:
        events, share = use.count.events, use.count.events.partial / use.count.additions
        table.add_row(use.product.name, f"{events.partial:,}", f"{share:.2g}", f"{events.product:,}",
                      f"{events.output:,}", str(use.product.bits), str(use.count.bits))
    return table


def verdict(uses, bits: int) -> str:
    """A sentence about the accumulator width that a model needs."""
    proved, measured = (max(values) for values in zip(*((u.product.bits, u.count.bits) for u in uses), strict=True))
    if proved <= bits:
        return f"no sum overflows {bits} bits, whatever the input"
    if measured <= bits:
        return f"no sum overflowed {bits} bits; {proved} bits hold every sum, whatever the input"
    return f"sums overflow {bits} bits; these samples need {measured}, and {proved} hold every sum, whatever the input"


def agreement(uses, machines, preset: str) -> str:
    """A sentence that says that a machine's counters have counted the events and excesses that numpy counts.

    Raises:
        typer.Exit: they have not; what differs is printed.
    """
    differing = [(one, other) for one, other in zip(uses, machines, strict=True)
                 if (one.count.events, one.count.rows.tolist()) != (other.count.events, other.count.rows.tolist())]
    for one, other in differing:
        typer.echo(f"nnp: {one.product.name}: numpy counts {one.count.events}, and {preset} counts "
                   f"{other.count.events}", err=True)
    if differing:
        raise typer.Exit(1)
    events, excess = sum(use.count.number for use in machines), max(use.count.excess for use in machines)
    return (f"the counters of {preset} agree with numpy in every row of {len(machines)} products: {events:,} events, "
            f"largest excess {excess} bits")
