"""`nnp ranges`: the smallest and largest numbers of each layer, and of the gates of recurrent layers."""

import typer
from concord.nnp.lib.options import AxesOrder, First, Inputs, ManySamples, Model, TestData
from concord.workflows.storage import read_model


def ranges(
    model: Model,
    inputs: Inputs = None,
    data: TestData = None,
    order: AxesOrder = None,
    samples: ManySamples = None,
    first: First = 0,
):
    """Measure the ranges of each layer in golden arithmetic, beside those that the model recorded when it was made."""
    from concord.net.ranges import measured
    from concord.verification.inputs import InputSource, read
    from rich.console import Console
    from rich.table import Table

    loaded = read_model(model)
    given = read(loaded, InputSource(
        inputs=inputs, data=data, samples=samples, first=first, order=order, default=200))
    found = measured(loaded, given.samples.inputs, given.samples.lengths)
    for words in given.remarks:
        typer.echo(f"nnp: {words}", err=True)
    table = Table(box=None, title_justify="left",
                  title=f"{loaded.name}, {len(given.samples)} samples of {given.name}, golden, real units")
    for name in ("layer", "numbers", "smallest", "largest", "in the model"):
        table.add_column(name, justify="left" if name in ("layer", "numbers") else "right")
    for layer in loaded.layers:
        kept = getattr(layer, "ranges", {})
        for name, (low, high) in found[layer.name].items():
            recorded = "{:.4g} .. {:.4g}".format(*kept[name]) if name in kept else "-"
            table.add_row(layer.name, name, f"{low:.4g}", f"{high:.4g}", recorded)
    Console().print(table)
