"""Files of networks in float32: safetensors with a JSON header, without pickle."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from concord.lib import tensor_file
from concord.lib.several import from_record
from concord.net.graph import Graph, Node, naming
from concord.net.ops.recurrent import Recurrence
from concord.net.ops.registry import restored
from concord.net.ops.sequences import Last

KIND = tensor_file.TensorFileKind(
    key="concord float network", version=1, name="imported network", remedy="import it again",
    command="`nnp import`")


def save(network: Graph, path: Path):
    """Write a network; the file appears whole or not at all."""
    tensor_file.write(KIND, path, *packed(network))


def packed(network: Graph) -> tuple[dict, dict[str, np.ndarray]]:
    """A network as JSON values and arrays by name."""
    arrays, records = {}, []
    for node in network.nodes:
        # The names of nodes may hold any character, so a number finds their tensors.
        arrays |= {f"{len(records)}.{key}": value for key, value in node.op.tensors().items()}
        records.append({
            "name": node.name, "op": node.op.kind, "sources": node.sources, "attributes": node.op.attributes()})
    if network.table is not None:
        arrays["table"] = network.table
    record = {
        "name": network.name, "shape": network.shape, "sequence": network.sequence, "axes": network.axes,
        "nodes": records, "notes": network.notes, "origin": dict(network.origin),
        **({"softmax": True} if network.softmax else {}), "file_shape": network.file_shape,
        **({"classes": network.classes} if network.classes else {}),
        **({"results": network.results} if network.results else {})}
    return record, arrays


def digest(network: Graph) -> str:
    """A digest of what a network computes: of its nodes and their numbers."""
    record, arrays = packed(network)
    made = hashlib.sha256(json.dumps(record["nodes"]).encode())
    for name, array in arrays.items():
        made.update(repr((name, array.shape, array.dtype.str)).encode() + array.tobytes())
    return made.hexdigest()[:32]


def load(path: Path) -> Graph:
    """Read a network and check all of it.

    Raises:
        ValueError: the file is missing, truncated, or of another kind; an operator is unknown, its tensors have other
            shapes than it needs, or hold values that are not finite.
    """
    header, arrays = tensor_file.read(KIND, path)
    try:
        return unpacked(header, arrays)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, ArithmeticError) as error:
        reason = f"the header lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path}: {reason}; import the network again") from error


def unpacked(record: dict, arrays: dict[str, np.ndarray]) -> Graph:
    """The network of JSON values and arrays that `packed` gave.

    Raises:
        ValueError, TypeError, KeyError, AttributeError, IndexError, ArithmeticError: they are no network.
    """
    nodes = []
    for index, node in enumerate(record["nodes"]):
        nodes.append(_node(index, node, arrays, nodes))
    return Graph(
        name=str(record["name"]), shape=tuple(record["shape"]), sequence=bool(record["sequence"]),
        axes=tuple(record["axes"]), nodes=tuple(nodes), notes=tuple(record["notes"]), origin=dict(record["origin"]),
        softmax=bool(record.get("softmax", False)), file_shape=tuple(record.get("file_shape", ())),
        classes=tuple(map(str, record.get("classes", ()))),
        results=from_record(record.get("results")), table=arrays.get("table"))


def _node(index: int, record: dict, arrays: dict[str, np.ndarray], before: Sequence[Node]) -> Node:
    prefix = f"{index}."
    tensors = {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}
    with naming(name := str(record["name"])):
        op, sources = restored(record["op"], record["attributes"], tensors), tuple(record["sources"])
    if isinstance(op, Last) and "backward" not in record["attributes"]:  # files that leave it to the source
        source = next((node.op for node in before if node.name == sources[0]), None)
        both = isinstance(source, Recurrence) and source.bidirectional
        op = Last(backward=source.hidden if both else 0)
    return Node(name=name, op=op, sources=sources)
