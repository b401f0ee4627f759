"""Networks in block floating point: nothing is calibrated, since exponents follow the numbers.

Source: numerics.md of the specification, block floating point.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from math import prod

import numpy as np
from concord.net.arithmetic import native_vectors
from concord.net.arithmetic.native_vectors import real_blocks
from concord.net.graph import INPUT
from concord.net.layers.convolution import Along, seen
from concord.net.layers.layer import Layer
from concord.net.layers.pooling import BlockAverage, BlockQuantizedResult
from concord.net.lowering import block_lowering
from concord.net.ops.attention import Attention
from concord.net.ops.joins import Addition, Concatenation, Multiplication
from concord.net.ops.operator import Operator, Shape
from concord.net.ops.pooling import ProductResult
from concord.net.ops.recurrent import Direction, Recurrence
from concord.net.ops.reshape import Enlarging, Tokens
from concord.net.ops.sequences import Last, ToImage, ToSequence
from concord.net.ops.weighted import Convolution, Linear
from concord.net.quantize import tensors
from concord.net.quantize.attention import attention_layer, simulated_attention
from concord.net.quantize.choices import BlockFormats, Choices
from concord.net.quantize.gated import lost_weights
from concord.net.quantize.plan import QUANTIZED, WEIGHTED, Part, Plan, check_ceilings
from concord.net.quantize.simulated import Enters, PatchConvolution, Quantizer, pixels, simulated_recurrence
from concord.net.quantize.watched import WatchedRecurrence
from concord.spec.numbers.formats import Format

#: Number of samples that are quantised at once, so that their blocks stay in caches.
TOGETHER = 32
#: Signal to noise of an output layer's weights in decibels below which blocks leave next to nothing of them.
LEAST_KEPT = 3.0
#: Operators whose results lie in another order than what they read.
REORDERS = (Recurrence, Last, ToSequence)


class Blocks:
    """The layers of a network in block floating point; see `Integers`, which answers the same."""

    def __init__(self, plan: Plan, choices: Choices):
        self.plan, self.recipe, self.gates = plan, choices.recipe, choices.gates
        #: int64[gates, 3] for each direction, codes of the outputs of gates by measured ranges.
        self.outputs: dict[str, tuple[np.ndarray, ...]] = {}
        #: Recurrent layers that have noted what their gates give, by the names of nodes.
        self.watched: dict[str, WatchedRecurrence] = {}
        #: Operators with numbers that training has changed, by the names of their parts.
        self.trained: dict[str, Operator] = {}
        #: What layers lose, in words.
        self.losses: dict[str, str] = {}
        self.places = entering(plan, self.recipe.block)
        check_ceilings(plan, {})
        for part in plan.parts:
            if isinstance(part.op, Recurrence):
                self.gates.check(part.op.cell)

    def take(self, part: Part, x: np.ndarray, made: np.ndarray) -> str:
        """Say what a layer loses by its blocks. Arguments are those of `Integers.take`."""
        if isinstance(part.op, Recurrence) and self.gates.measured:
            self.outputs[part.name] = self.watched[part.node].codes(self.gates)
        self.losses[part.name] = self._lost(part, x)
        return self.losses[part.name]

    def _lost(self, part: Part, x: np.ndarray) -> str:
        """What a layer loses, in words."""
        weights_format, input_format = self.recipe.formats(part.name)
        if isinstance(part.op, Recurrence):
            return lost_weights(part.op.directions, [self._matrices(one, weights_format) for one in part.op.directions])
        whole, noise, beyond = np.zeros(3)
        for few in np.array_split(x, -(-len(x) // TOGETHER)):
            vectors = pixels(few, part.window) if self.patch(part) else few
            whole, noise = np.array([whole, noise]) + tensors.powers(vectors, self._entering(part)(few))
            beyond += np.mean(np.abs(vectors) >= 2.0**input_format.e_max) * len(few) / len(x)
        found = [f"inputs {tensors.ratio(whole, noise):.1f} dB"]
        if isinstance(part.op, WEIGHTED):
            kept = tensors.decibels(part.op.weight, self._weights(part))
            if kept < LEAST_KEPT and self.plan.graph.output.name == part.node:
                raise ValueError(
                    f"{part.name}: of its weights, {np.abs(part.op.weight).max():.2g} at most, the exponents of the "
                    f"blocks leave {kept:.1f} dB: multiply the network's last layer, and the targets, by a factor")
            found = [f"weights {kept:.1f} dB", *found, f"{beyond:.1%} beyond the exponents"]
        return ", ".join(found)

    def after(self, name: str) -> str:
        """Empty: results are in real units."""
        return ""

    def copied(self) -> "Blocks":
        """The same layers, whose numbers can be replaced without a change of these."""
        made = copy(self)
        made.trained = dict(self.trained)
        return made

    def join(self):
        """Nothing is joined: results are in real units."""

    def layers(self, part: Part) -> tuple[Layer, ...]:
        """The layer of the quantised model, or the layers of both directions."""
        if isinstance(part.op, Attention):
            return (attention_layer(part, self.formats(part)),)
        made = self._lowered(part, self.trained.get(part.name, part.op))
        if part.name not in self.trained or not isinstance(part.op, (*WEIGHTED, Recurrence)):
            return made
        operators = part.op.apart if isinstance(part.op, Recurrence) else [part.op]
        return tuple(replace(layer, float_operator=op) for layer, op in zip(made, operators, strict=True))

    def _lowered(self, part: Part, op: Operator) -> tuple[Layer, ...]:
        """The layers of a part with the numbers of an operator."""
        weights_format, input_format = self.recipe.formats(part.name)
        same = {"weights_format": weights_format, "input_format": input_format, "block": self.recipe.block}
        window = part.window
        if isinstance(op, Recurrence):
            codes = self.outputs.get(part.name) or [None] * 2
            return tuple(block_lowering.block_recurrent(
                name=part.name, cell=op.cell, input_weights=one.input_weights, bias=one.bias, vectors=one.vectors,
                recurrent_weights=one.recurrent_weights, initial=op.first,
                quantized_results=self.recipe.results.of(part.name) is not None, gate_bits=self.gates.outputs,
                gate_codes=own, **same) for one, own in zip(op.directions, codes, strict=False))
        same |= {"name": part.name, "places": self.places[part.name], "activation": part.activation}
        if isinstance(op, Linear):
            return (block_lowering.block_dense(weights=op.weight, bias=op.bias, **same),)
        same |= {"shape": part.shapes[0], "stride": window.stride, "padding": window.padding}
        if not isinstance(op, Convolution):
            kind = BlockQuantizedResult if isinstance(op, ProductResult) else BlockAverage
            return (block_lowering.block_average(size=window.size, kind=kind, **same),)
        along = Along.PATCH if self.patch(part) else Along.CHANNELS
        return (block_lowering.block_conv(
            weights=op.weight, bias=op.bias, dilation=window.dilation, groups=op.groups, along=along, **same),)

    def simulated(self, part: Part) -> Operator:
        """The operator of a layer in real numbers, with the numbers that its blocks stand for."""
        weights_format, input_format = self.recipe.formats(part.name)
        op = part.op
        if isinstance(op, Attention):
            return simulated_attention(part, self.formats(part))
        if isinstance(op, Recurrence):
            def codes(x: np.ndarray) -> np.ndarray:
                return real_blocks(x, input_format, self.recipe.block)

            matrices = [self._matrices(one, weights_format) for one in op.directions]
            results = codes if self.recipe.results.of(part.name) is not None else None
            return simulated_recurrence(op, matrices, codes, codes, self.gates, result_blocks=results,
                                        output_codes=self.outputs.get(part.name, ()))
        if isinstance(op, WEIGHTED):
            op = replace(op, weight=self._weights(part))
        if self.patch(part):
            return PatchConvolution(weight=op.weight, bias=op.bias, window=op.window, codes=self._entering(part))
        return Enters(inner=op, codes=self._entering(part))

    def formats(self, part: Part) -> BlockFormats:
        """The formats of a part in block floating point."""
        weights, inputs = self.recipe.formats(part.name)
        return BlockFormats(weights=weights, inputs=inputs, block=self.recipe.block)

    def patch(self, part: Part) -> bool:
        """Whether a block lies along a patch: a sender makes patches of the network's input only."""
        along = block_lowering.choose_along(part.shapes[0][0], getattr(part.op, "groups", 1), self.recipe.block)
        return isinstance(part.op, Convolution) and INPUT in part.sources and along is Along.PATCH

    def _entering(self, part: Part) -> Quantizer:
        """The quantiser of the input of a layer, or of its patches if blocks lie along them."""
        _, fmt = self.recipe.formats(part.name)
        at = self.places[part.name]
        if part.window is None:
            return lambda x: real_blocks(x, fmt, self.recipe.block, at)
        if self.patch(part):
            return lambda x: real_blocks(pixels(x, part.window), fmt, self.recipe.block)
        return lambda x: np.moveaxis(real_blocks(np.moveaxis(x, 1, -1), fmt, self.recipe.block, at), -1, 1)

    def _weights(self, part: Part) -> np.ndarray:
        """float32 weights of a layer that its blocks stand for."""
        fmt, _ = self.recipe.formats(part.name)
        weight, block, at = part.op.weight, self.recipe.block, self.places[part.name]
        if isinstance(part.op, Linear):
            return real_blocks(weight, fmt, block, at).astype(np.float32)
        rows = np.moveaxis(weight, 1, -1)
        if self.patch(part):
            made = real_blocks(rows.reshape(len(rows), -1), fmt, block).reshape(rows.shape)
        else:
            columns = seen(len(rows), part.shapes[0][0], part.op.groups)[:, None, None]
            whole = np.zeros((*rows.shape[:-1], part.shapes[0][0]), np.float32)
            np.put_along_axis(whole, columns, rows, -1)
            made = np.take_along_axis(real_blocks(whole, fmt, block, at), columns, -1)
        return np.moveaxis(made, -1, 1).astype(np.float32)

    def _matrices(self, one: Direction, fmt: Format) -> list[np.ndarray]:
        return [real_blocks(matrix, fmt, self.recipe.block) for matrix in (one.input_weights, one.recurrent_weights)]


def entering(plan: Plan, block: int) -> dict[str, np.ndarray | None]:
    """Places of the inputs of each layer with a quantiser: int32[elements], or int32[channels] of an image.

    Each pixel of an image begins a native vector, and so does each part of a concatenation. The network's own input is
    an image where a layer sees windows of it, else a vector, which the sender packs densely. None stands for elements
    or channels that follow each other.

    Args:
        plan:  The network.
        block: Number of elements of a native vector.
    """
    made: dict[str, np.ndarray] = {}
    found, images = {}, any(len(part.made) == 3 for part in plan.parts)
    for part in plan.parts:
        joins = isinstance(part.op, Addition | Concatenation | Multiplication)
        flat = isinstance(part.op, Linear) or joins and len(part.made) == 1
        parts = [_of(name, shape, made, block, flat) for name, shape in zip(part.sources, part.shapes, strict=True)]
        if isinstance(part.op, QUANTIZED):
            found[part.name] = None if _adjacent(parts[0]) else parts[0]
        both = isinstance(part.op, Last) or isinstance(part.op, Recurrence) and part.op.bidirectional
        if both and images:
            # Hidden vectors of both directions, each of which begins a native vector there.
            parts = [native_vectors.adjacent(part.made[0] // 2)] * 2
            made[part.name] = native_vectors.joined(parts, block)
        else:
            made[part.name] = _made(part, parts, block)
    return found


def _of(name: str, shape: Shape, made: dict[str, np.ndarray], block: int, flat: bool) -> np.ndarray:
    """Places of a result, as elements of a vector if `flat`."""
    if name == INPUT:
        return native_vectors.adjacent(prod(shape) if flat else shape[0])
    found = made[name]
    if not flat:
        return found
    return native_vectors.flattened(found, prod(shape) // len(found), block)


def _made(part: Part, parts: Sequence[np.ndarray], block: int) -> np.ndarray:
    """Places of the elements or channels of a result, from those of its inputs."""
    count = part.made[0]
    if isinstance(part.op, Concatenation):
        return native_vectors.joined(parts, block)
    if isinstance(part.op, Enlarging):
        return parts[0][:count]  # of parts of channels the first one, which begins a native vector as all others do
    if isinstance(part.op, Attention | Tokens):
        return native_vectors.adjacent(count)
    if isinstance(part.op, ToImage):
        return parts[0]  # an element of each time step is a channel of the image
    if isinstance(part.op, REORDERS) or isinstance(part.op, WEIGHTED) and getattr(
            part.op, "groups", 0) != len(parts[0]):
        return native_vectors.adjacent(count)
    # Where each channel stays alone, it stays in its place.
    apart = [one for one in parts if not _adjacent(one)]
    return apart[0] if apart and len(apart[0]) == count else native_vectors.adjacent(count)


def _adjacent(at: np.ndarray) -> bool:
    return np.array_equal(at, native_vectors.adjacent(len(at)))
