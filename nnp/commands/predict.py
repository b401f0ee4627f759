"""`nnp predict`: runs a quantised network on input data in golden arithmetic."""

from pathlib import Path
from typing import Annotated

import typer
from concord.nnp.lib.options import AxesOrder, First, FirstState, Inputs, KeepState, Model, Quiet, Samples, TestData
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
        "--out", "-o", help="File to write the outputs to, a .npy array of binary16; of a network with several "
                       "outputs also a .npz file with an array for each of them.")] = None,
    quiet: Quiet = False,
):
    """Predict classes, numbers or scores in the machine's arithmetic, also for a model that no preset can run."""
    from concord.lib.files import check_writable
    from concord.net import network
    from concord.net.layers.joins import Softmax
    from concord.verification.inputs import InputSource, read
    from concord.workflows.first_states import started
    from concord.workflows.results import apart, line, summary, write_arrays, write_outputs

    source = InputSource(inputs=inputs, data=data, samples=samples, first=first, order=order, default=10)
    if output:
        check_writable(output)
    loaded = started(read_model(model), first_state)
    given = read(loaded, source)
    for words in given.remarks:
        typer.echo(f"nnp: {words}", err=True)
    run = network.outputs_of_parts if keep_state else network.outputs
    results = run(loaded, given.samples.inputs, given.samples.lengths)
    several = loaded.graph.results if loaded.graph else ()
    probable = isinstance(loaded.layers[-1], Softmax)
    if not quiet:
        for place, (index, _) in enumerate(given):
            for name, values in (apart(results[place], several) or {"": results[place]}).items():
                said = line(index, values, loaded.classes, given.samples, place, given.task, probable=probable)
                typer.echo(f"{name}, {said}" if name else said)
    typer.echo(summary(results, given.samples, given.task))
    if output and several and output.suffix == ".npz":
        write_arrays(output, apart(results, several))
    elif output:
        write_outputs(output, results, loaded.classes, given.samples)
