"""`nnp export`: copies a model to a path or URL, or converts it to QONNX for other tools."""

from pathlib import Path
from typing import Annotated

import typer
from concord.lib.files import write_all
from concord.nnp.lib.options import Model
from concord.workflows.storage import fetched, is_url, written


def export(
    model: Model,
    destination: Annotated[
        str | None, typer.Argument(
            metavar="DESTINATION", help="Path or URL to which the model file is copied.", show_default=False)
    ] = None,
    qonnx: Annotated[str | None, typer.Option(
        "--qonnx", help="Path or URL to which a QONNX graph is written (needs onnx).")] = None,
    batch: Annotated[int, typer.Option("--batch", help="Number of samples that one run of the QONNX graph takes.")] = 1,
):
    """Copy a quantised model, or convert it to a QONNX graph, which returns the same bits in other tools."""
    from concord.net.model_file import load_model

    if not (destination or qonnx):
        raise ValueError("nothing to export to: name a DESTINATION, --qonnx FILE, or both")
    if batch < 1:
        raise ValueError(f"--batch {batch}: one sample at least")
    for location in filter(None, (destination, qonnx)):
        if not is_url(location) and not Path(location).parent.is_dir():
            raise ValueError(f"{location}: there is no folder {Path(location).parent}; make it first, or name "
                             "another path")
    with fetched(model) as path:
        loaded, content = load_model(path), path.read_bytes()
    graph = _graph(loaded, batch) if qonnx else None
    if destination:
        _write(destination, content)
        typer.echo(f"{destination}: {loaded.name}, {len(loaded.layers)} layers")
    if qonnx and graph:
        _write(qonnx, graph.SerializeToString(deterministic=True))
        typer.echo(f"{qonnx}: {len(graph.graph.node)} nodes, ONNX opset {graph.opset_import[0].version}")


def _graph(model, batch: int):
    from concord.lib.extras import needing

    return needing("front", "concord.compiler.qonnx.graph").qonnx_graph(model, batch)


def _write(location: str, content: bytes):
    with written(location) as path:
        write_all(path.parent, {path.name: content})
