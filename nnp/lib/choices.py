"""How an imported network is quantised, by the options of a command or of the Python API."""

from collections.abc import Mapping

from concord.nnp.lib import quantisation_options as options
from concord.nnp.lib.options import named
from concord.spec.machine_file import find_config
from concord.train.imported.choices import Choices
from concord.train.lib.methods import ActivationMethod, ActivationTraining, Gates, Start, WeightMethod, WeightTraining

#: Gates of recurrent layers by default.
GATES = Gates()


def choices_for(
    machine: str,
    arithmetic: str = options.NetworkArithmetic.INTEGER,
    *,
    weights_bits: int | None = None,
    input_bits: int | None = None,
    symmetric: bool | None = None,
    weights_float: str = "",
    input_float: str = "",
    layers: Mapping[str, tuple[int, int]] | None = None,
    block: int | None = None,
    gates: Gates = GATES,
    ptq_weights: str = WeightMethod.MMSE,
    ptq_activations: str | None = None,
    rows: int = 1,
    weights: str = WeightTraining.WRPN,
    activations: str = ActivationTraining.UNIFORM,
    start: str = Start.PTQ,
    batch_norm: bool = False,
    keep_input: bool = False,
    accumulator: int | None = None,
) -> Choices:
    """How a network is quantised for a machine; all other arguments are the options of `nnp quantize` and `nnp train`.

    Args:
        machine:    A preset or TOML file; empty where `weights_bits` and `input_bits` decide.
        arithmetic: "integer", or "bfp" for block floating point.
        layers:     Bits of weights and of inputs of single layers, by name.

    Raises:
        ValueError: there is no such machine or method, or arguments contradict each other.
    """
    kind, weights = named(options.NetworkArithmetic, arithmetic), named(WeightTraining, weights)
    given = widths(machine, weights_bits, input_bits, symmetric, weights, gates, weights_float, input_float)
    bits = {name: (weight, entering) for name, (weight, entering) in (layers or {}).items()}
    method = activation_method(kind) if ptq_activations is None else named(ActivationMethod, ptq_activations)
    recipe = options.recipe(
        given, bits, named(WeightMethod, ptq_weights), method, rows, weights,
        named(ActivationTraining, activations), named(Start, start), batch_norm, keep_input)
    made = options.in_arithmetic(kind, machine, recipe, given, block, symmetric, accumulator)
    if made is not recipe and gates != Gates():
        raise ValueError("bfp finds its own exponents: --asymmetric, --shared and --gate-bits are for integer")
    return Choices(recipe=made, gates=gates, softmax=softmax_elements(machine))


def softmax_elements(machine: str) -> int:
    """Most elements of which a machine, or none where it has no name, computes the softmax."""
    config = find_config(machine) if machine else None
    return config.softmax_words * config.mfu_lanes if config else 0


def widths(
    machine: str, weights_bits: int | None, input_bits: int | None, symmetric: bool | None,
    training: WeightTraining = WeightTraining.WRPN, gates: Gates = GATES, weights_float: str = "",
    input_float: str = "",
) -> options.Widths:
    """The widths that the options choose, or those of a machine.

    Raises:
        ValueError: there is neither a machine nor both widths.
    """
    floats = weights_float, input_float
    missing = [bits is None and not text for bits, text in zip((weights_bits, input_bits), floats, strict=True)]
    if not machine and any(missing):
        raise ValueError("name the machine, such as --for vision or --for speech, or give --weights-bits and "
                         "--input-bits")
    found = options.widths(machine, weights_bits, input_bits, symmetric, training, floats)
    if not machine or not gates.asymmetric:
        return found
    found.check_integers()
    return options.Widths(weights=found.weights - 1, inputs=found.inputs, symmetric=found.symmetric)


def activation_method(arithmetic: options.NetworkArithmetic) -> ActivationMethod:
    """The method that finds the ranges of the inputs of imported networks by default.

    Their inputs may have any sign and any tails, where `search` clips the lower end.
    """
    integer = arithmetic is options.NetworkArithmetic.INTEGER
    return ActivationMethod.ENDS if integer else ActivationMethod.SEARCH
