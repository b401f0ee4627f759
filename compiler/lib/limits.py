"""Why a machine cannot run a model: reasons, and the limits of its products that give them, each with a remedy."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from concord.compiler.lib import tiling
from concord.golden.mvm.elements import representable
from concord.net.quantize.results import ENDING
from concord.spec.isa.operations import activations
from concord.spec.machine.config import PRESETS, Config
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import WIDEST_FIXED, Format

SHOWN = 8  #: Most layers that an error names for one reason.


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """One reason why a machine cannot run a model.

    Attributes:
        sentence:  The reason in the user's words, and what to do.
        subject:   Name of what it is about, such as a layer; empty for the model.
        attribute: Field of `spec.machine.config.Config` that would have to change; empty if no machine runs the model.
        needed:    Smallest value of the attribute that would do, or the format that it must be; None for no attribute.
        available: Value of the attribute.
        tensor:    Name of a tensor that has no room; None where the reason is none of that kind.
    """

    sentence: str
    subject: str = ""
    attribute: str = ""
    needed: int | Format | None = None
    available: int | Format | None = None
    tensor: str | None = None

    def __str__(self) -> str:
        return f"{self.subject}: {self.text}" if self.subject else self.text

    @property
    def text(self) -> str:
        """The sentence, with what the machine needs if it does not say so."""
        said = not isinstance(self.needed, int) or self.attribute in self.sentence
        need = "" if said else f"; the machine needs `{self.attribute} = {self.needed}` at least"
        return self.sentence + need

    def of(self, subject: str) -> "Reason":
        """The reason with the name of what it is about."""
        return replace(self, subject=subject)


class CannotRun(ValueError):
    """A machine cannot run a model.

    Args:
        heading: Begin of the message, to which each reason adds a line.
        reasons: The reasons, at least one.
    """

    def __init__(self, heading: str, reasons: Sequence[Reason]):
        super().__init__(heading, tuple(reasons))

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The reasons."""
        return self.args[1]

    def __str__(self) -> str:
        """The heading, and a line for each reason; layers with the same one share a line."""
        layers: dict[str, list[str]] = {}
        for reason in self.reasons:
            layers.setdefault(reason.text, []).extend([reason.subject] * bool(reason.subject))
        return "\n".join([self.args[0], *(_listed(names, text) for text, names in layers.items())])


def _listed(layers: Sequence[str], sentence: str) -> str:
    """A sentence with the first few of the layers that it is about in front."""
    more = f" and {len(layers) - SHOWN} more" if len(layers) > SHOWN else ""
    return f"{', '.join(layers[:SHOWN])}{more}: {sentence}" if layers else sentence


def integer_operands(layer, config: Config, matrices: Sequence[np.ndarray]) -> list[Reason]:
    """Check formats for integer mode: inputs must have the machine's format, as it clips them; weights must fit."""
    found = []
    machine, model = config.activations, layer.input_format
    if _codes(model) != _codes(machine):
        found.append(Reason(
            sentence=f"its input codes are {_width(model)}, the machine's operands {_width(machine)}: quantise the "
                     "model for this machine with --preset, or choose another preset",
            attribute="activations", available=machine,
            needed=replace(machine, bits=model.bits, symmetric=model.symmetric, precision=model.precision)))
    fmt = config.weights
    low, high = (int(f(m.min() if f is min else m.max() for m in matrices)) for f in (min, max))
    if low < fmt.lowest or high > fmt.highest:
        found.append(Reason(
            sentence=f"its weights lie in {low}..{high}, the machine's mantissas in {fmt.lowest}..{fmt.highest}: "
                     f"quantise them to {fmt.element}, or choose a wider preset",
            attribute="weights", available=fmt, needed=_holding(replace(fmt, precision=0, bits=min(
                fmt.bits, WIDEST_FIXED)), low, high)))
    elif not all(representable(m, fmt) for m in matrices):
        found.append(Reason(
            sentence=f"some of its weights are no numbers of {fmt.element}, the machine's operands: quantise the model "
                     "for this machine with --preset, or choose another preset",
            attribute="weights", available=fmt, needed=_holding(replace(fmt, precision=0, bits=2), low, high)))
    return found


def start_values(start: np.ndarray, config: Config) -> list[Reason]:
    """Check that start values fit BiasRf."""
    ends = int(start.min()), int(start.max())
    bits = max((value if value >= 0 else ~value).bit_length() + 1 for value in ends)
    if bits <= config.bias_bits:
        return []
    return [Reason(
        sentence=f"its start values need {bits} bits, BiasRf has {config.bias_bits}: use smaller weights or fewer "
                 "inputs",
        attribute="bias_bits", needed=bits, available=config.bias_bits)]


def entries(layer, config: Config) -> list[Reason]:
    """Check that a machine has VectorRf for the codes of results, in the format of the layer's codes."""
    if config.vector_rf:
        return []
    able = ", ".join(name for name, one in PRESETS.items()
                     if one.vector_rf and _codes(one.activations) == _codes(layer.input_format))
    return [Reason(
        sentence="results of products are quantised in VectorRf, which the machine lacks: leave them in binary16 with "
                 f"--output-layer {layer.name.removesuffix(ENDING)}=none, or choose "
                 + (f"one of the presets {able}" if able else "a machine of your own that has one"),
        attribute="vector_rf", needed=config.vectors_of(layer.outputs), available=0)]


def quantized_results(layer, config: Config) -> list[Reason]:
    """Check the codes of the results of a layer's products: VectorRf must hold them, in whole native vectors."""
    model, machine = layer.result_format, config.activations
    if model is None:
        return []
    found = entries(layer, config)
    if found:
        return found
    if _codes(model) != _codes(machine):
        found.append(Reason(
            sentence=f"the results of its products are {_width(model)} codes, the machine's operands "
                     f"{_width(machine)}: give --output-bits {machine.bits}, or choose another preset",
            attribute="activations", available=machine,
            needed=replace(machine, bits=model.bits, symmetric=model.symmetric, precision=model.precision)))
    if config.accumulator_rows < config.native_dim:
        found.append(accumulator_rows(config, config.native_dim, f"a native vector of {config.native_dim}"))
    return found


def block_operands(layer, config: Config) -> list[Reason]:
    """Check block floating point: both formats and the block size must be those of the machine."""
    found = []
    for what, model, attribute in (
        ("weights", layer.weights_format, "weights"), ("inputs", layer.input_format, "activations"),
    ):
        machine = getattr(config, attribute)
        if model != machine:
            found.append(Reason(
                sentence=f"its {what} are {_block_format(model)}, the machine's {_block_format(machine)}: quantise the "
                         "model for this machine with --preset, or choose another preset",
                attribute=attribute, needed=model, available=machine))
    if layer.block != config.native_dim:
        found.append(Reason(
            sentence=f"its blocks have {layer.block} elements, native vectors {config.native_dim}: quantise the model "
                     "for this machine with --preset",
            attribute="native_dim", needed=layer.block, available=config.native_dim))
    return found


def adjacent_blocks(layer) -> list[Reason]:
    """Check that the blocks of a vector follow each other, as its words do."""
    if layer.places is None:
        return []
    reason = ("its blocks begin anew with each part of a concatenation or each pixel of an image, but parts lie in "
              "adjacent")
    return [Reason(sentence=f"{reason} words: give each part a multiple of {layer.block} elements")]


def columns(config: Config, count: int) -> list[Reason]:
    """Check the number of native vectors that one product takes."""
    if count <= config.operand_columns:
        return []
    reason = f"one product needs {count} native vectors, operand_columns is {config.operand_columns}"
    advice = f"use at most {config.operand_columns * config.native_dim} inputs"
    return [Reason(sentence=f"{reason}, and a sum cannot be cut without another rounding: {advice}",
                   attribute="operand_columns", needed=count, available=config.operand_columns)]


def product_rows(config: Config, rows: int) -> list[Reason]:
    """Check the rows of the products that a layer is cut into."""
    if found := vector_rows(rows):
        return found
    if rows <= config.accumulator_rows or config.accumulator_rows >= config.mfu_lanes:
        return []
    return [accumulator_rows(config, config.mfu_lanes, f"a word of {config.mfu_lanes}")]


def accumulator_rows(config: Config, needed: int, what: str) -> Reason:
    """The reason that accumulators of fewer rows than `needed` give; `what` has as many rows."""
    return Reason(
        sentence=f"accumulator_rows = {config.accumulator_rows} is less than {what}: choose another preset",
        attribute="accumulator_rows", needed=needed, available=config.accumulator_rows)


def vector_rows(rows: int) -> list[Reason]:
    """Check the number of elements of one chain."""
    if rows <= tiling.LARGEST:
        return []
    return [Reason(sentence=f"its {rows} outputs are more than the {tiling.LARGEST} that Rows can say: cut the layer")]


def softmax(config: Config, elements: int) -> list[Reason]:
    """Check that the softmax unit holds a result."""
    words = config.words_of(elements)
    if words <= config.softmax_words:
        return []
    size = f"{words} word{'s' * (words > 1)}"
    unit = f"has one for {config.softmax_words}" if config.softmax_words else "has none"
    return [Reason(
        sentence=f"its {elements} elements need a softmax unit for {size}, and the machine {unit}: set "
                 f"softmax_words = {words} in a machine of your own, or quantise the network for this machine, which "
                 "leaves the softmax to the host",
        attribute="softmax_words", needed=words, available=config.softmax_words)]


def reductions(config: Config) -> list[Reason]:
    """Check that the machine computes largest elements and sums of vectors."""
    if config.more_functions:
        return []
    return [Reason(
        sentence="it needs the largest element or the sum of a vector, and the machine's more_functions is false: set "
                 "more_functions = true in a machine of your own, or use the preset tiny_vector",
        attribute="more_functions", needed=True, available=False)]


def activation(config: Config, function: Activation) -> list[Reason]:
    """Check that the machine has an activation function."""
    if function in activations(more=config.more_functions):
        return []
    return [Reason(
        sentence=f"its activation function is {function}, and the machine's more_functions is false: set "
                 "more_functions = true in a machine of your own, or use the preset tiny_vector",
        attribute="more_functions", needed=True, available=False)]


def _holding(fmt: Format, low: int, high: int) -> Format:
    """The format with as many bits as the integers low..high need."""
    bits = next(bits for bits in range(fmt.bits, 17) if replace(fmt, bits=bits).highest >= high)
    wide = replace(fmt, bits=bits)
    if wide.lowest <= low:
        return wide
    return replace(wide, symmetric=False) if -(1 << bits - 1) <= low else replace(wide, bits=bits + 1)


def _codes(fmt: Format) -> tuple:
    """What of a format decides its integer codes."""
    return fmt.bits, fmt.symmetric, fmt.precision


def _width(fmt: Format) -> str:
    return fmt.element if fmt.precision else f"{'symmetric' if fmt.symmetric else 'full'} {fmt.bits}-bit"


def _block_format(fmt: Format) -> str:
    return f"{_width(fmt)} with exponents {fmt.e_min}..{fmt.e_max} by rule {fmt.rule}"
