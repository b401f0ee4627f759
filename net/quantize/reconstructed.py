"""Integers of a network whose layers are reconstructed one after the other.

Source: paragraph [0118] of the first document: post-training quantisation that itself trains quantised values.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from concord.net.graph import INPUT, Node
from concord.net.ops.operator import Operator
from concord.net.ops.recurrent import Recurrence
from concord.net.ops.weighted import NodeLinear
from concord.net.quantize import reconstruction, tensors
from concord.net.quantize.integers import Integers
from concord.net.quantize.node_results import outputs
from concord.net.quantize.plan import WEIGHTED, Part


class Reconstructed(Integers):
    """The layers of a network in integers that bring the results of each layer closest to its float results.

    Arguments are those of `Integers`. `take` needs what the layers before make of the calibration set in quantised
    form, and the results of the float layer. Recurrent layers, products with the matrix of a graph and layers of very
    many columns are quantised as without reconstruction.
    """

    def take(self, part: Part, x: np.ndarray, made: np.ndarray) -> str:
        lost, rows = super().take(part, x, made), self.rows.get(part.name)
        kept = isinstance(part.op, Recurrence | NodeLinear) or rows.inputs is None or not rows.inputs.unsigned
        wide = isinstance(part.op, WEIGHTED) and part.op.weight[0].size > reconstruction.COLUMNS
        if kept or wide or rows.narrow and not rows.divided:
            return lost
        if rows.divided:
            part, x = replace(part, op=rows.op), rows.narrow.applied(x)
        inputs = reconstruction.ranged(part, rows.inputs, x, made)
        if part.sources == (INPUT,) and not rows.divided:
            inputs = reconstruction.ranged_by_outputs(inputs, x, self._outputs)
        found = replace(rows, inputs=inputs)
        loss = replace(self.losses[part.name], **inputs.lost(x.reshape(len(x), -1)))
        if isinstance(part.op, WEIGHTED) and rows.weights is not None:
            weights, gain, constant, results = reconstruction.rows(
                part, rows.op, inputs.quantized(x), made, rows.grid, self.recipe)
            found = replace(found, weights=weights, gain=gain, constant=constant)
            loss = replace(loss, results=results, weights=tensors.decibels(
                rows.op.weight.reshape(weights.shape), gain[:, None] * weights))
        self.rows[part.name], self.losses[part.name] = found, loss
        return str(loss)

    def _outputs(self, x: np.ndarray) -> np.ndarray:
        """float32[samples, outputs] of the float network for numbers in the order in which its first layer has them."""
        graph = self.plan.graph
        return outputs(graph, x.reshape(len(x), *graph.shape))

    def operator(self, parts: dict[str, Part], wanted: Callable[[], np.ndarray], said: Callable[[Part, str], None]
                 ) -> Callable[[Node, list[np.ndarray]], Operator]:
        """What computes a node in quantised form, which takes a layer when its inputs are there.

        Args:
            parts:  Layers with quantisers, by the names of their nodes.
            wanted: Gives the results of the next node of the float network.
            said:   Is told what is found of a layer.
        """
        def of(node: Node, inputs: list[np.ndarray]) -> Operator:
            made, part = wanted(), parts.get(node.name)
            if part is None:
                return node.op
            said(part, self.take(part, inputs[0], made))
            return self.simulated(part)

        return of
