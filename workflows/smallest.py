"""The smallest preset that takes a network in float32, found by quantising and compiling it."""

from collections.abc import Callable, Mapping

from concord.net.graph import Graph
from concord.net.model import Model
from concord.net.quantize.options import NetworkArithmetic
from concord.spec.machine.config import PRESETS
from concord.workflows.presets import advice, compile_for, golden_only, smallest_first, stored_weights


class NoPreset(ValueError):
    """No preset takes a network; the message has the reason of each."""


def smallest(
    network: Graph, quantize: Callable[[str], Model], arithmetic: str, hardware: bool, place: str = ""
) -> tuple[str, str]:
    """The smallest preset that takes a network, and a sentence that says why.

    Args:
        network:    The network in float32.
        quantise:   Function that quantises it for a preset. It is called once for all presets of equal formats.
        arithmetic: "integer", or "bfp" for block floating point.
        hardware:   Whether the machine is simulated hardware, not golden.
        place:      File of the quantised model, for the advice in an error.

    Raises:
        NoPreset: none takes it; the message has the reason of each, and the command that makes such a machine.
    """
    refused: dict[str, str] = {}
    made: dict[tuple, Model] = {}
    models: dict[str, Model] = {}
    for name in smallest_first(hardware):
        config = PRESETS[name]
        formats = _formats(name, arithmetic)
        try:
            _check_size(network, name)
            if formats not in made:
                made.clear()  # only the latest model is in the file
                made[formats] = quantize(name)
            models[name] = made[formats]
            compile_for(made[formats], name)
        except ValueError as error:
            refused[name] = _first(error)
            continue
        return name, (f"{name} is the smallest machine of {config.weights.bits} bits that takes it{golden_only(name)}"
                      + "".join(f"; {reason}" for reason in _reasons(refused)))
    raise NoPreset(f"{network.name}: no preset takes it\n" + "\n".join(_reasons(refused)) + _larger(models, place))


def _reasons(refused: Mapping[str, str]) -> list[str]:
    """Reasons by the names of machines, each reason once."""
    found: dict[str, list[str]] = {}
    for name, reason in refused.items():
        found.setdefault(reason.replace(f"{name} cannot", "the machine cannot"), []).append(name)
    return [f"{', '.join(names)}: {reason}" for reason, names in found.items()]


def _formats(name: str, arithmetic: str) -> tuple:
    """The attributes of a preset that decide how a network is quantised."""
    config = PRESETS[name]
    if arithmetic == NetworkArithmetic.BFP:
        return config.weights, config.activations, config.native_dim
    return config.weights.bits, config.activations.bits, config.activations.symmetric


def _check_size(network: Graph, name: str):
    """Refuse a network of more weights than a preset stores, before it is quantised."""
    needed, stored = _weights(network), stored_weights(PRESETS[name])
    if needed > stored:
        raise ValueError(f"the network has {needed:,} weights, and MatrixRf holds {stored:,}")


def _weights(network: Graph) -> int:
    """Number of weights that a machine stores for its products, at least."""
    return sum(node.op.weights for node in network.nodes)


def _first(error: ValueError) -> str:
    """The first two lines of an error in one: what is wrong, and the first reason."""
    return " ".join(str(error).splitlines()[:2])


def _larger(models: Mapping[str, Model], place: str) -> str:
    """Advice on a machine that would take a network, of which there are models for some presets; "" without a place."""
    if not place:
        return ""
    for name, model in reversed(models.items()):  # the file holds the last one
        if words := advice(model, name, place):
            return words
    return ("\nMake it smaller; or quantise it by `nnp quantize FILE --preset vision --data DATA -o "
            "model.safetensors`, make a machine that holds it by `nnp presets --fit model.safetensors -o my.toml`, and "
            "then `nnp verify model.safetensors --preset my.toml`")
