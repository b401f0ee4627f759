"""The host's side of the flow: elements of a sample in the words that it sends, and results in those that it gets."""

import numpy as np
from concord.firmware.firmware import Firmware
from concord.twin.recovery.nodes.elements import ZERO, Unrecognised, refs
from concord.twin.recovery.nodes.nodes import Node


def input_nodes(firmware: Firmware) -> list[Node]:
    """A node for the input, or one for each direction in which the host reads a sequence.

    Images have their elements by row, column and channel, sequences by time step.
    """
    if firmware.recurrent:
        places = 1 if firmware.steps is None else firmware.steps
        return [Node(op="input", places=places, width=firmware.inputs) for _ in firmware.directions]
    if firmware.image:
        channels, rows, columns = firmware.image
        return [Node(op="input", places=rows * columns, width=channels)]
    return [Node(op="input", places=1, width=firmware.inputs)]


def input_content(firmware: Firmware, nodes: list[int], words: int) -> np.ndarray:
    """References to the elements of the words that the host sends, element by element.

    Args:
        nodes: The nodes of `input_nodes`.
        words: Number of words that the program takes.
    """
    config, layout = firmware.config, firmware.input_layout
    wanted = words * config.mfu_lanes
    if layout:
        order = layout.order().reshape(-1)
        content = np.where(order < 0, ZERO, refs(nodes[0], _by_pixel(layout)[order]))
    else:
        lanes = (firmware.input_words or config.vectors_of(firmware.inputs) * config.vector_words) * config.mfu_lanes
        steps = (firmware.steps or -(-wanted // (lanes * len(nodes)))) if firmware.recurrent else 1
        content = np.full((steps, len(nodes), lanes), ZERO, np.int64)
        elements = np.arange(firmware.inputs) + np.arange(steps)[:, None] * firmware.inputs
        for direction, node in enumerate(nodes):
            content[:, direction, :firmware.inputs] = refs(node, elements)
        content = content.reshape(-1)
    if len(content) < wanted:
        raise Unrecognised("the program takes more words than the host sends for one input")
    return content[:wanted]


def _by_pixel(layout) -> np.ndarray:
    """Index by row, column and channel of each element by channel, row and column."""
    shape = layout.channels, layout.rows, layout.columns
    channel, row, column = np.indices(shape)
    return ((row * layout.columns + column) * layout.channels + channel).reshape(-1)


def outputs(firmware: Firmware, content: np.ndarray) -> np.ndarray:
    """References to the results, from those to all elements that the host gets."""
    layout = firmware.output_layout
    if layout:
        order, result = layout.order().reshape(-1), np.zeros(layout.size, np.int64)
        result[order[order >= 0]] = content[:len(order)][order >= 0]
        return result
    return content[:firmware.outputs]
