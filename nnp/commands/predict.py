"""`nnp predict`: a quantised network on input data, in golden arithmetic."""

from pathlib import Path
from typing import Annotated

import typer
from concord.nnp.lib.options import First, Model, Samples
from concord.nnp.lib.storage import read_model


def predict(
    model: Model,
    inputs: Annotated[
        Path | None, typer.Option("--inputs", help="A .npy of real inputs instead of the test set.")
    ] = None,
    samples: Samples = "10",
    first: First = 0,
    output: Annotated[Path | None, typer.Option("-o", help="Write the outputs as .npy of binary16.")] = None,
):
    """Predict classes, layer by layer as the machine computes: any model, those that no preset takes among them."""
    import io

    import numpy as np
    from concord.model import dataset, network
    from concord.nnp.lib.files import write_all
    from concord.nnp.lib.options import sample_range
    from concord.nnp.verify.inputs import read_array

    loaded = read_model(model)
    if inputs:
        x, lengths, labels = read_array(loaded, inputs), None, None
    else:
        data = dataset.load(loaded.data)
        x, lengths, labels = data.inputs, data.lengths, data.labels
    chosen = sample_range(samples, first, len(x))
    results = network.outputs(loaded, x[chosen], None if lengths is None else lengths[chosen])
    classes = network.classes(results)
    for index, kind in enumerate(classes, chosen.start):
        name = f" {loaded.classes[kind]}" if loaded.classes else ""
        wanted = "" if labels is None or labels[index] == kind else f" (is {loaded.classes[labels[index]]})"
        typer.echo(f"{index}: {kind}{name}{wanted}")
    if labels is not None:
        typer.echo(f"{np.mean(classes == labels[chosen]):.2%} of {len(classes)} right")
    if output:
        stream = io.BytesIO()
        np.save(stream, results.view(np.float16))
        write_all(output.parent, {output.name: stream.getvalue()})
