"""Networks in integers: codes of weights and of inputs, found layer by layer, and the layers that compute with them.

Source: S0; S1; numerics.md of the specification, integer mode.
"""

from copy import copy
from dataclasses import dataclass, replace

import numpy as np
from concord.net.arithmetic.line import Line
from concord.net.layers.convolution import Conv
from concord.net.layers.layer import Layer
from concord.net.layers.pooling import Average, QuantizedResult
from concord.net.lowering import image_lowering, lowering
from concord.net.ops.attention import Attention
from concord.net.ops.joins import Concatenation
from concord.net.ops.operator import Operator
from concord.net.ops.pooling import ProductResult
from concord.net.ops.recurrent import Recurrence
from concord.net.ops.reshape import Flatten
from concord.net.ops.sequences import Last, ToImage
from concord.net.quantize import codes, tensors
from concord.net.quantize.apart import narrowed
from concord.net.quantize.attention import attention_layer, simulated_attention
from concord.net.quantize.choices import BlockFormats, Choices
from concord.net.quantize.codes import InputCodes, Loss
from concord.net.quantize.divided import channels_of, divided, divides
from concord.net.quantize.gated import Gated, lost_weights
from concord.net.quantize.plan import QUANTIZED, WEIGHTED, Part, Plan, check_ceilings, selects
from concord.net.quantize.simulated import Enters, simulated_recurrence
from concord.net.quantize.watched import WatchedRecurrence
from concord.net.quantize.weights import Grid
from concord.spec.numbers.activation import Activation

#: Activation functions of results in steps of the next layer's codes, whose clip is the relu.
IN_STEPS = {Activation.NONE, Activation.RELU}
#: The integers of the weights of an average.
ONES = Grid(-1, 1)
#: Operators whose results are hidden vectors if they read such.
_SAME = (Last, Flatten, ToImage, Concatenation)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Rows:
    """Rows of integers that a layer multiplies with its codes.

    Attributes:
        weights:  int32[rows, columns]; None for weights that stay in FP32.
        gain:     float64[rows], the real value of one step of the weights.
        constant: float64[rows], the bias.
        grid:     The integers that weights may be.
        inputs:   Codes of the input; None for inputs that stay in FP32.
        op:       The operator, with its float weights.
        line:     What R and O make of each channel ahead of the codes, see `Part.line`; None for nothing.
        narrow:   What follows the scale of the network's input so that binary16 holds R and O, and so that parts of the
            input have ranges of their own: `line` contains it, and the weights its inverse. None for nothing.
        divided:  Whether the input has such parts.
        after:    Name of the layer in steps of whose codes the result is; empty for real units.
    """

    weights: np.ndarray | None
    gain: np.ndarray
    constant: np.ndarray
    grid: Grid | None
    inputs: InputCodes | None
    op: Operator
    line: Line | None = None
    narrow: Line | None = None
    divided: bool = False
    after: str = ""


class Integers:
    """The layers of a network in integers. `take` finds the numbers of one layer after the other.

    Args:
        plan:    The network.
        choices: How it is quantised.
        machine: Whether integers must be operands of a machine; otherwise numbers may stay in FP32.

    Raises:
        ValueError: a method cannot do a width, or the choices are for another kind of network.
    """

    def __init__(self, plan: Plan, choices: Choices, *, machine: bool = True):
        self.plan, self.recipe, self.gates, self.machine = plan, choices.recipe, choices.gates, machine
        self._products = choices.products
        if plan.graph.has(Recurrence):
            self.weights_format, self.input_format = choices.formats
        self.rows: dict[str, Rows] = {}
        self.losses: dict[str, Loss] = {}
        self.gated: dict[str, tuple[Gated, ...]] = {}
        #: int64[gates, 3] for each direction, codes of the outputs of gates by measured ranges.
        self.outputs: dict[str, tuple[np.ndarray, ...]] = {}
        #: Recurrent layers that have noted what their gates give, by the names of nodes.
        self.watched: dict[str, WatchedRecurrence] = {}
        #: Real value of one step of the codes of hidden vectors, by the name of the tensor.
        self.steps: dict[str, float] = {}
        check_ceilings(plan, {part.name: self.recipe.bits_of(part.name)[1] is not None
                              for part in plan.parts if isinstance(part.op, QUANTIZED)})
        for part in plan.parts:
            self._check(part)

    def _check(self, part: Part):
        """Refuse widths that no machine has, or that a method cannot do."""
        if isinstance(part.op, Recurrence):
            self.gates.travels_as(self.weights_format)
            self.gates.check(part.op.cell)
        if not isinstance(part.op, QUANTIZED):
            return
        weights_bits, input_bits = self.recipe.bits_of(part.name)
        if self.machine and (weights_bits is None or input_bits is None):
            raise ValueError(f"layer {part.name!r} keeps FP32 weights or inputs, so it has no integer arithmetic")
        if isinstance(part.op, WEIGHTED) and weights_bits is not None:
            grid = Grid.trained(self.recipe.weights, weights_bits, self.recipe.symmetric[0])
            if self.machine and not 2 <= grid.bits <= 16:
                raise ValueError(f"layer {part.name!r}: weights of {weights_bits} bits by {self.recipe.weights} "
                                 f"multiply as integers of {grid.bits}, but a machine's operands have 2 to 16: choose "
                                 "another width, or train without a machine by `nnp compare`")
        if self.machine and not 2 <= input_bits <= 16:
            raise ValueError(f"layer {part.name!r}: inputs of {input_bits} bits, but a machine's operands have 2 to "
                             "16: choose another width, or train without a machine by `nnp compare`")

    def take(self, part: Part, x: np.ndarray, made: np.ndarray) -> str:
        """Find the integers of a layer, and say what they lose.

        Args:
            part: A layer with quantisers.
            x:    float32[samples, ...], its inputs for the calibration set.
            made: float32[samples, ...], its results.
        """
        if isinstance(part.op, Recurrence):
            return self._take_recurrent(part, x, made)
        weights_bits, _ = self.recipe.bits_of(part.name)
        inputs, lost = self._codes(part, x.reshape(len(x), -1))
        op, line, narrow = part.op, part.line, None
        if parts := self._divides(part, inputs):
            narrow, inputs = divided(
                x, channels_of(part, self.plan.graph), inputs.bits, self.recipe, padded=part.padded)
            line = narrow if line is None else line.then(narrow)
        if line is not None and inputs is not None and (more := narrowed(line, inputs)) is not None:
            narrow, line = more if narrow is None else narrow.then(more), line.then(more)
        if narrow is not None:
            back = narrow.inverse
            op = op.of_scaled(back.scale, back.offset)
            lost |= inputs.lost(narrow.applied(x))
        if not isinstance(op, WEIGHTED):
            channels, pixels = part.shapes[0][0], int(np.prod(part.window.size))
            found = Rows(weights=np.ones((channels, pixels), np.int32), gain=np.full(channels, 1 / pixels),
                         constant=np.zeros(channels), grid=ONES, inputs=inputs, op=op)
        else:
            real = op.weight.reshape(op.outputs, -1)
            weights, gain, grid = None, np.ones(len(real)), None
            if weights_bits is not None:
                grid = Grid.trained(self.recipe.weights, weights_bits, self.recipe.symmetric[0])
                weights, gain = tensors.rows_of_recipe(real, grid, self.recipe, part.fold)
                lost["weights"] = tensors.decibels(real, gain[:, None] * weights)
            found = Rows(weights=weights, gain=gain, constant=op.bias.astype(np.float64), grid=grid, inputs=inputs,
                         op=op, line=line, narrow=narrow, divided=parts)
        self.rows[part.name], self.losses[part.name] = found, Loss(**lost)
        return str(self.losses[part.name])

    def _divides(self, part: Part, inputs: InputCodes | None) -> bool:
        """Whether the inputs of a layer get parts."""
        return self.recipe.methods.parts > 1 and inputs is not None and inputs.unsigned and divides(part, self.plan)

    def _codes(self, part: Part, samples: np.ndarray) -> tuple[InputCodes | None, dict[str, float]]:
        """The codes of a layer's inputs real[samples, elements], and what they lose."""
        step, (_, bits) = self._hidden(part.tensors[0]), self.recipe.bits_of(part.name)
        if bits is None:
            return None, {}
        found = codes.unsigned(samples, bits, self.recipe, padded=part.padded) if step is None else (
            codes.signed(step, bits, symmetric=self.recipe.symmetric[1]))
        return found, found.lost(samples)

    def _take_recurrent(self, part: Part, x: np.ndarray, made: np.ndarray) -> str:
        fmt, cell = self.input_format, part.op.cell
        entering = self._hidden(part.tensors[0])
        inputs = codes.signed(tensors.symmetric(x, fmt)[1] if entering is None else entering, fmt.bits, fmt.symmetric)
        # Hidden vectors in -1..1 need no calibration.
        step = 2.0 ** -(fmt.bits - 1) if cell.bounded else tensors.symmetric(made, fmt)[1]
        self.steps[part.node] = step
        found = [Gated.of(one, self.weights_format.bits, self.gates, inputs,
                          codes.signed(step, fmt.bits, fmt.symmetric)) for one in part.op.directions]
        if (bits := self.recipe.results.of(part.name)) is not None:
            result, own = codes.signed(1.0, bits, fmt.symmetric).format, np.split(made, len(found), axis=-1)
            found = [one.with_results(result, *(values.reshape(-1, values.shape[-1]) for values in (x, hidden)),
                                      bool(self.gates.biases)) for one, hidden in zip(found, own, strict=True)]
        if self.gates.measured:
            self.outputs[part.name] = self.watched[part.node].codes(self.gates)
        outputs = self.outputs.get(part.name, [None] * len(found))
        self.gated[part.name] = tuple(replace(one, outputs=own) for one, own in zip(found, outputs, strict=True))
        return lost_weights(part.op.directions, [found.real for found in self.gated[part.name]])

    def _hidden(self, tensor: str) -> float | None:
        """The step of the codes of a tensor of hidden vectors; None for other tensors."""
        node = self.plan.graph.node(tensor)
        if tensor not in self.steps and node is not None and isinstance(node.op, _SAME):
            found = {self._hidden(name) for name in node.sources}
            return found.pop() if len(found) == 1 else None
        return self.steps.get(tensor)

    def after(self, name: str) -> str:
        """Name of the layer in steps of whose codes a layer gives its results; empty for real units."""
        return self.rows[name].after if name in self.rows else ""

    def copied(self) -> "Integers":
        """The same layers, whose numbers can be replaced without a change of these."""
        made = copy(self)
        made.rows, made.gated = dict(self.rows), dict(self.gated)
        return made

    def join(self):
        """Let layers give their results in steps of the next layer's codes, and quantisers after a relu6 clip there."""
        for name, rows in self.rows.items():
            after = self._after(self.plan.node(name)) if rows.inputs is None or rows.inputs.unsigned else None
            if after is not None:
                self.rows[name] = replace(rows, after=after.name)
        for part in (part for part in self.plan.parts if part.ceiling is not None):
            for reader in self.plan.readers(part.name, selects):
                rows = self.rows[reader.name]
                self.rows[reader.name] = replace(rows, inputs=rows.inputs.below(part.ceiling))

    def _after(self, part: Part) -> Part | None:
        """The next layer, if only it reads a result, and its codes clip where the activation functions do."""
        functions, users = {part.activation}, self.plan.readers(part.name)
        while len(users) == 1 and selects(users[0]):
            functions.add(users[0].activation)
            users = self.plan.readers(users[0].name)
        if len(users) != 1 or users[0].name not in self.rows or not functions <= IN_STEPS:
            return None
        if self.rows[users[0].name].divided:
            return None  # its own R and O hold what its parts need
        inputs = self.rows[users[0].name].inputs
        clips = inputs is not None and inputs.unsigned and (inputs.positive or Activation.RELU not in functions)
        return users[0] if clips else None

    def formats(self, part: Part) -> BlockFormats:
        """The formats of a product of two computed tensors, which is in block floating point."""
        return self._products

    def layers(self, part: Part) -> tuple[Layer, ...]:
        """The layer of the quantised model, or the layers of both directions."""
        if isinstance(part.op, Attention):
            return (attention_layer(part, self.formats(part)),)
        if isinstance(part.op, Recurrence):
            fmt = self.gates.travels_as(self.weights_format)
            return tuple(found.layer(part.name, op, fmt, self.gates)
                         for op, found in zip(part.op.apart, self.gated[part.name], strict=True))
        rows = self.rows[part.name]
        inputs, op, weighted = rows.inputs, rows.op, isinstance(part.op, WEIGHTED)
        after = self.rows[rows.after].inputs if rows.after else None
        in_steps = any(other.after == part.name for other in self.rows.values())
        dense = lowering.dense(
            name=part.name, codes=rows.weights, gain=rows.gain, constant=rows.constant,
            weights_format=rows.grid.format, input_format=inputs.format, unsigned=inputs.unsigned, s_in=inputs.step,
            m_in=inputs.offset, s_out=after.step if after else 1.0, m_out=after.offset if after else 0.0,
            quantize_input=not in_steps, line=rows.line if part.window is None else None,
            activation=Activation.NONE if after else part.activation, float_operator=op)
        if inputs.ceiling is not None:
            dense = replace(dense, real={**dense.real, "ceiling": np.array([inputs.ceiling])})
        if part.window is None:
            return (dense,)
        window, channels = part.window, part.shapes[0][0]
        kernels = op.weight.shape if weighted else (channels, 1, *window.size)
        kind = Conv if weighted else QuantizedResult if isinstance(op, ProductResult) else Average
        return (image_lowering.convolution(
            dense, shape=part.shapes[0], kernels=kernels, kind=kind, line=rows.line,
            stride=window.stride, padding=window.padding, dilation=window.dilation,
            groups=op.groups if weighted else channels),)

    def simulated(self, part: Part) -> Operator:
        """The operator of a layer in real numbers, with the numbers that its integers stand for."""
        if isinstance(part.op, Attention):
            return simulated_attention(part, self.formats(part))
        if isinstance(part.op, Recurrence):
            found, *_ = every = self.gated[part.name]
            return simulated_recurrence(part.op, [one.real for one in every], found.inputs.quantized,
                                        found.hidden.quantized, self.gates, found.result_format,
                                        [one.result_steps for one in every],
                                        output_codes=self.outputs.get(part.name, ()))
        rows = self.rows[part.name]
        op, codes, narrow = rows.op, rows.inputs.quantized, rows.narrow
        if isinstance(op, WEIGHTED):
            real = (rows.gain[:, None] * rows.weights).astype(np.float32)
            op = replace(op, weight=real.reshape(op.weight.shape), bias=rows.constant.astype(np.float32))
        return Enters(inner=op, codes=codes if narrow is None else lambda x: codes(narrow.applied(x)))
