"""`nnp import`: reads a network that was trained elsewhere."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from concord.front.read import Imported
    from rich.table import Table

CLOSE = 1e-4  #: Largest difference from the file, relative to the largest output, before the command warns.


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
        "--output", help="Name of the output that the machine gives, if the file has several.",
        show_default=False)] = None,
):
    """Read a network from an ONNX file, list what cannot be computed, and compare it with onnxruntime."""
    from concord.model.floating.file import save
    from concord.nnp.lib.files import check_writable
    from concord.nnp.lib.front import needing_onnx, sizes
    from concord.nnp.lib.storage import fetched, file_name, is_url, written
    from rich.console import Console

    given = sizes(shape)
    place = out or str(Path(file_name(network)).with_suffix(".safetensors"))
    if not place.endswith(".safetensors"):
        raise ValueError(f"--out {place}: name a file with the ending .safetensors, by which other commands know it")
    if not is_url(place):
        check_writable(Path(place))
    front = needing_onnx("concord.front.read")
    with fetched(network) as path:
        imported = front.read(path, given, output)
    console = Console()
    console.print(table(imported))
    for note in imported.network.notes:
        console.print(f"Note: {note}", markup=False)
    console.print(_compared(imported), markup=False)
    with written(place) as path:
        save(imported.network, path)
    console.print(f"{place}: {_summary(imported)}", markup=False, soft_wrap=True)


def table(imported: "Imported") -> "Table":
    """The nodes of a network, with the shapes that they give and their parameters."""
    from concord.model.floating.shapes import shapes
    from rich.table import Table

    found = Table("node", "operation", "gives", "parameters", title=imported.network.name, title_justify="left")
    given = shapes(imported.network)
    for node in imported.network.nodes:
        count = sum(tensor.size for tensor in node.tensors.values())
        found.add_row(node.name, str(node.op), " x ".join(map(str, given[node.name])), f"{count:,}" if count else "")
    return found


def _compared(imported: "Imported") -> str:
    """A sentence on the difference from the file, which onnxruntime runs.

    Raises:
        ValueError: the import is wrong.
    """
    from concord.front.compare import difference

    try:
        worst = difference(imported)
    except ModuleNotFoundError:
        return "Not compared with the file, because onnxruntime is not installed (pip install onnxruntime==1.31.1)."
    except ValueError as error:
        return f"Not compared with the file: {error}."
    if not worst <= CLOSE:
        raise ValueError(f"{imported.network.origin['file']}: the import differs from what onnxruntime computes by "
                         f"{worst:.2g} of the largest output; please report this, with the file")
    return f"On random inputs, outputs differ from onnxruntime's by at most {worst:.1e} of the largest output."


def _summary(imported: "Imported") -> str:
    network = imported.network
    sizes = " x ".join(map(str, network.shape))
    takes = f"sequences of {sizes} elements" if network.sequence else f"inputs of {sizes}"
    return f"{len(network.nodes)} node{'s' * (len(network.nodes) != 1)}, {takes}"
