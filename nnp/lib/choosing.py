"""How an imported network is quantised for a machine, and which machine is the smallest that takes it."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from concord.nnp.lib import imports
from concord.nnp.lib import quantisation_options as options
from concord.nnp.lib.options import named
from concord.nnp.lib.presets import advice, compile_for, smallest_first, stored_weights
from concord.spec.config import PRESETS
from concord.train.lib.methods import ActivationMethod, ActivationTraining, Gates, Start, WeightMethod, WeightTraining

if TYPE_CHECKING:
    from concord.model.floating.network import FloatNetwork
    from concord.model.model import Model
    from concord.train.imported.quantised import Choices

#: Gates of recurrent layers by default.
GATES = Gates()


def choices_for(
    machine: str,
    arithmetic: str = options.NetworkArithmetic.INTEGER,
    *,
    weights_bits: int | None = None,
    input_bits: int | None = None,
    symmetric: bool | None = None,
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
) -> "Choices":
    """How a network is quantised for a machine; all other arguments are the options of `nnp quantize` and `nnp train`.

    Args:
        machine:    A preset or TOML file; empty where `weights_bits` and `input_bits` decide.
        arithmetic: "integer", or "bfp" for block floating point.
        layers:     Bits of weights and of inputs of single layers, by name.

    Raises:
        ValueError: there is no such machine or method, or arguments contradict each other.
    """
    kind, weights = named(options.NetworkArithmetic, arithmetic), named(WeightTraining, weights)
    given = imports.widths(machine, weights_bits, input_bits, symmetric, weights, gates)
    bits = [f"{name}={weight},{entering}" for name, (weight, entering) in (layers or {}).items()]
    method = imports.activation_method(kind) if ptq_activations is None else named(ActivationMethod, ptq_activations)
    recipe = options.recipe(
        given, bits, named(WeightMethod, ptq_weights), method, rows, weights,
        named(ActivationTraining, activations), named(Start, start), batch_norm, keep_input)
    return imports.choices(machine, recipe, given, gates, kind, block, symmetric, accumulator)


def smallest(
    network: "FloatNetwork", quantise: Callable[[str], "Model"], arithmetic: str, hardware: bool, place: str = ""
) -> tuple[str, str]:
    """The smallest preset that takes a network, and a sentence that says why.

    Args:
        network:    The network in float32.
        quantise:   Function that quantises it for a preset. It is called once for all presets of equal formats.
        arithmetic: As in `choices_for`.
        hardware:   Whether the machine is simulated hardware, not golden.
        place:      File of the quantised model, for the advice in an error.

    Raises:
        ValueError: no preset takes it; the message has the reason of each, and the command that makes such a machine.
    """
    refused: dict[str, ValueError] = {}
    made: dict[tuple, Model] = {}
    models: dict[str, Model] = {}
    for name in smallest_first(hardware):
        config = PRESETS[name]
        formats = _formats(name, arithmetic)
        try:
            _check_size(network, name)
            if formats not in made:
                made.clear()  # only the latest model is in the file
                made[formats] = quantise(name)
            models[name] = made[formats]
            compile_for(made[formats], name)
        except ValueError as error:
            refused[name] = error
            continue
        return name, (f"{name} is the smallest machine of {config.weights.bits} bits that takes it"
                      + "".join(f"; {other}: {_first(error)}" for other, error in refused.items()))
    raise ValueError(f"{network.name}: no preset takes it\n" + "\n".join(
        f"{name}: {_first(error)}" for name, error in refused.items()) + _larger(models, place))


def _formats(name: str, arithmetic: str) -> tuple:
    """What of a preset decides how a network is quantised."""
    config = PRESETS[name]
    if arithmetic == options.NetworkArithmetic.BFP:
        return config.weights, config.activations, config.native_dim
    return config.weights.bits, config.activations.bits, config.activations.symmetric


def _check_size(network: "FloatNetwork", name: str):
    """Refuse a network of more weights than a preset stores, before it is quantised."""
    from concord.nnp.lib.float_networks import weights

    needed, stored = weights(network), stored_weights(PRESETS[name])
    if needed > stored:
        raise ValueError(f"the network has {needed:,} weights, and MatrixRf holds {stored:,}")


def _first(error: ValueError) -> str:
    """The first two lines of an error in one: what is wrong, and the first reason."""
    return " ".join(str(error).splitlines()[:2])


def _larger(models: "Mapping[str, Model]", place: str) -> str:
    """Advice on a machine that would take a network, of which there are models for some presets; "" without a place."""
    if not place:
        return ""
    for name, model in reversed(models.items()):  # the file holds the last one
        if words := advice(model, name, place):
            return words
    return ("\nMake it smaller; or quantise it by `nnp quantize FILE --for vision --data DATA -o model.safetensors`, "
            "make a machine that holds it by `nnp presets --fit model.safetensors -o my.toml`, and then `nnp verify "
            "model.safetensors --preset my.toml`")
