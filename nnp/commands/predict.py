"""`nnp predict`: runs a quantised network on input data in golden arithmetic."""

from pathlib import Path
from typing import Annotated

import typer
from concord.nnp.lib.options import (
    OUTPUTS,
    AxesOrder,
    First,
    FirstState,
    Inputs,
    KeepState,
    Model,
    Quiet,
    Samples,
    TestData,
)
from concord.workflows.storage import read_model


def predict(
    model: Model,
    inputs: Inputs = None,
    data: TestData = None,
    order: AxesOrder = None,
    samples: Samples = None,
    first: First = 0,
    first_state: FirstState = "",
    keep_state: KeepState = False,
    output: Annotated[Path | None, typer.Option(
        "--out", "-o", help=OUTPUTS)] = None,
    quiet: Quiet = False,
):
    """Predict classes, numbers or scores in the machine's arithmetic, also for a model that no preset can run."""
    from concord.lib.files import check_writable
    from concord.net import network
    from concord.net.layers.joins import Softmax
    from concord.verification.inputs import InputSource, read
    from concord.workflows.first_states import started
    from concord.workflows.results import lines, summary, write_outputs

    source = InputSource(inputs=inputs, data=data, samples=samples, first=first, order=order, default=10)
    if output:
        check_writable(output)
    loaded = started(read_model(model), first_state)
    given = read(loaded, source)
    for words in given.remarks:
        typer.echo(f"nnp: {words}", err=True)
    run = network.outputs_of_parts if keep_state else network.outputs
    results = run(loaded, given.samples.inputs, given.samples.lengths)
    probable = isinstance(loaded.layers[-1], Softmax)
    if not quiet:
        for row, (index, _) in enumerate(given):
            for said in lines(
                    index, results[row], loaded.classes, given.samples, row, given.task, loaded.results,
                    probable=probable):
                typer.echo(said)
    typer.echo(summary(results, given.samples, given.task))
    if output:
        write_outputs(output, results, loaded.classes, given.samples, given.chosen.start, loaded.results)
