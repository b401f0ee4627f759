"""`nnp import`: reads a network that was trained elsewhere."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from concord.frontends.onnx.read import Imported
    from concord.net.graph import Graph
    from rich.table import Table


def import_network(
    network: Annotated[str, typer.Argument(
        metavar="FILE", help="Path or URL of an ONNX file.", show_default=False)],
    out: Annotated[str | None, typer.Option(
        "--out", "-o", help="File of the network in float32, for `nnp quantize` and `nnp train`.",
        show_default="FILE with the ending .safetensors, in this folder")] = None,
    shape: Annotated[str | None, typer.Option(
        "--shape", help="Sizes of one sample, such as 3,32,32, where the file leaves them open.",
        show_default=False)] = None,
    output: Annotated[str | None, typer.Option(
        "--output", help="Name of the output that the machine gives, if the file has several, or of a tensor inside; "
        "or several names with commas between them, whose tensors become one vector.",
        show_default=False)] = None,
    steps: Annotated[Path | None, typer.Option(
        "--steps", metavar="FOLDER", help="Folder for the network as the file has it, and after each pass that "
        "simplifies it; every command reads these files.", show_default=False)] = None,
):
    """Read a network from an ONNX file, list what cannot be computed, and compare it with onnxruntime."""
    from concord.lib.extras import needing
    from concord.lib.files import check_writable
    from concord.net.graph_file import save
    from concord.workflows.imports import sizes
    from concord.workflows.original import at_random
    from concord.workflows.storage import fetched, file_name, is_url, written
    from rich.console import Console

    given = sizes(shape)
    if Path(network).is_dir():  # whose name may have no ending to change, as `.` has
        raise ValueError(f"{network}: it is a folder; name the ONNX file in it")
    location = out or str(Path(file_name(network)).with_suffix(".safetensors"))
    if not location.endswith(".safetensors"):
        raise ValueError(f"-o {location}: name a file with the ending .safetensors, by which other commands know it")
    if not is_url(location):
        check_writable(Path(location))
    front = needing("front", "concord.frontends.onnx.read")
    with fetched(network) as path:
        imported = front.read(path, given, output, _saver(steps))
    console = Console()
    console.print(table(imported))
    for note in imported.network.notes:
        console.print(f"Note: {note}", markup=False)
    console.print(at_random(imported)[1], markup=False)
    with written(location) as path:
        save(imported.network, path)
    console.print(f"{location}: {_summary(imported)}", markup=False, soft_wrap=True)


def _saver(folder: Path | None) -> Callable[[str, "Graph"], None]:
    """A function that saves the network of each step under its number and name; without a folder, it does nothing."""
    from concord.net.graph_file import save

    if folder is None:
        return lambda name, graph: None
    if not folder.parent.is_dir():
        raise ValueError(f"--steps {folder}: there is no folder {folder.parent}; make it first")
    folder.mkdir(exist_ok=True)
    number = count()
    return lambda name, graph: save(graph, folder / f"{next(number)}_{name}.safetensors")


def table(imported: "Imported") -> "Table":
    """The nodes of a network, with the shapes that they give and their parameters."""
    from rich.table import Table

    found = Table("node", "operation", "gives", "parameters", title=imported.network.name, title_justify="left")
    given = imported.network.shapes
    for node in imported.network.nodes:
        count = sum(tensor.size for tensor in node.op.tensors().values())
        found.add_row(node.name, node.op.label, " x ".join(map(str, given[node.name])), f"{count:,}" if count else "")
    return found


def _summary(imported: "Imported") -> str:
    network = imported.network
    sizes = " x ".join(map(str, network.shape))
    takes = f"sequences of {sizes} elements" if network.sequence else f"inputs of {sizes}"
    return f"{len(network.nodes)} node{'s' * (len(network.nodes) != 1)}, {takes}"
