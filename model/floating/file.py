"""Files of networks in float32: safetensors with a JSON header, without pickle."""

from pathlib import Path

import numpy as np
from concord.golden.lib import tensor_file
from concord.model.floating.checks import check
from concord.model.floating.network import FloatNetwork, Node, Op

KIND = tensor_file.Kind(
    key="concord float network", version=1, name="imported network", remedy="import it again",
    command="`nnp import`")


def save(network: FloatNetwork, path: Path):
    """Write a network; the file appears whole or not at all."""
    arrays, records = {}, []
    for node in network.nodes:
        # The names of nodes may hold any character, so a number finds their tensors.
        arrays |= {f"{len(records)}.{key}": np.asarray(value, np.float32) for key, value in node.tensors.items()}
        records.append({"name": node.name, "op": str(node.op), "sources": node.sources, "attributes": node.attributes})
    header = {
        "name": network.name, "shape": network.shape, "sequence": network.sequence, "axes": network.axes,
        "nodes": records, "notes": network.notes, "origin": dict(network.origin),
        **({"softmax": True} if network.softmax else {})}
    tensor_file.write(KIND, path, header, arrays)


def load(path: Path) -> FloatNetwork:
    """Read a network and check all of it.

    Raises:
        ValueError: the file is missing, truncated, or of another kind; a node is unknown, its tensors have other
            shapes than it needs, or hold values that are not finite.
    """
    header, arrays = tensor_file.read(KIND, path)
    try:
        nodes = tuple(_node(index, record, arrays) for index, record in enumerate(header["nodes"]))
        network = FloatNetwork(
            name=str(header["name"]), shape=tuple(header["shape"]), sequence=bool(header["sequence"]),
            axes=tuple(header["axes"]), nodes=nodes, notes=tuple(header["notes"]), origin=dict(header["origin"]),
            softmax=bool(header.get("softmax", False)))
        check(network)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, ArithmeticError) as error:
        reason = f"the header lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path}: {reason}; import the network again") from error
    return network


def _node(index: int, record: dict, arrays: dict[str, np.ndarray]) -> Node:
    prefix = f"{index}."
    tensors = {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}
    attributes = {key: tuple(value) if isinstance(value, list) else value
                  for key, value in record["attributes"].items()}
    return Node(name=str(record["name"]), op=Op(record["op"]), sources=tuple(record["sources"]),
                attributes=attributes, tensors=tensors)
