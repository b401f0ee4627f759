"""Choose the machine for a model, and compile the model for it."""

import shlex
from collections.abc import Callable, Mapping

from concord.compiler.lib.limits import CannotRun
from concord.compiler.network import Compiled, compile_network
from concord.compiler.support import problems
from concord.net.batched import batched
from concord.net.graph import Graph
from concord.net.model import Model
from concord.net.quantize.widths import NetworkArithmetic
from concord.spec.machine.config import PRESETS, Config
from concord.spec.machine.machine_file import find_config, machine_name

#: Presets that were made for tests, which come after those that were made for a purpose.
FOR_TESTS = ("tiny", "tiny_softmax", "tiny_vector", "tiny_float", "serial", "wide")


def smallest_first(hardware: bool = False) -> list[str]:
    """The presets in the order in which a machine is looked for: those of 8 bits before others, then by their size.

    The size is the number of products in a cycle, then that of stored weights. Machines of which no hardware can be
    generated come last.

    Args:
        hardware: Whether to leave out machines of which no hardware can be generated.
    """
    def order(name: str) -> tuple:
        config = PRESETS[name]
        last = not is_hardware(config), name in FOR_TESTS
        return *last, -config.weights.bits, config.products, stored_weights(config)

    return sorted((name for name in PRESETS if not hardware or is_hardware(PRESETS[name])), key=order)


def stored_weights(config: Config) -> int:
    """Number of weights that MatrixRf holds."""
    return config.matrix_tiles * config.native_dim ** 2


def compile_for(model: Model, preset: str, location: str = "", *, batch: int = 1) -> tuple[str, Compiled]:
    """Compile for the machine called `preset`; if that is empty, for the first preset that can run the model.

    Args:
        preset:   Name of a preset, or a TOML file of a machine.
        location: Path or URL of the model, for the advice in an error.
        batch:    Number of samples that the machine takes at once.

    Returns:
        The name of the machine in reports, and what is compiled.

    Raises:
        ValueError: there is no such machine, or the model cannot be compiled for it, or for any preset. Where another
            machine of that kind could hold the model, the message ends with the command that makes it.
    """
    if batch != 1:
        batched(model, batch)  # what takes no batch takes none on any machine
        location = ""  # `nnp presets --fit` makes machines for one sample at a time
    if preset:
        try:
            return machine_name(preset), compile_network(model, find_config(preset), batch=batch)
        except CannotRun as error:
            raise ValueError(f"{error}{advice(model, preset, location)}") from error
    reasons = {}
    for candidate in smallest_first():
        try:
            return candidate, compile_network(model, PRESETS[candidate], batch=batch)
        except ValueError as error:
            reasons[candidate] = str(error)
    nearest = min(reasons, key=lambda p: len(problems(model, PRESETS[p])))
    raise ValueError(f"no preset takes the model; the nearest is {nearest}: {reasons[nearest]}"
                     f"{advice(model, nearest, location)}")


def golden_only(name: str) -> str:
    """Why no hardware can be generated of a machine, as the end of a sentence; "" if it can."""
    try:
        find_config(name).require_hardware()
    except ValueError as error:
        return f"; {machine_name(name)} cannot be built: {error}"
    return ""


def is_hardware(config: Config) -> bool:
    """Whether hardware can be generated of a machine."""
    try:
        config.require_hardware()
    except ValueError:
        return False
    return True


def advice(model: Model, preset: str, location: str) -> str:
    """The line with the command that makes a machine which holds the model, if there is such a machine."""
    if not location:
        return ""
    from concord.machines.fit import fit

    try:
        fit(model, find_config(preset))
    except ValueError:
        return ""
    made = "my.toml" if preset != "my.toml" else "larger.toml"  # the file of the user stays as it is
    command = shlex.join(["nnp", "presets", "--fit", location, "--preset", preset, "-o", made])
    return f"\nA machine that holds it: `{command}`, and then `--preset {made}`"


class NoPreset(ValueError):
    """No preset takes a network; the message has the reason of each."""


def smallest(
    network: Graph, quantize: Callable[[str], Model], arithmetic: str, hardware: bool, location: str = ""
) -> tuple[str, str]:
    """The smallest preset that takes a network, and a sentence that says why.

    Args:
        network:    The network in float32.
        quantise:   Function that quantises it for a preset. It is called once for all presets of equal formats.
        arithmetic: "integer", or "bfp" for block floating point.
        hardware:   Whether the machine is simulated hardware, not golden.
        location:   File of the quantised model, for the advice in an error.

    Raises:
        NoPreset: none takes it; the message has the reason of each, and the command that makes such a machine.
    """
    refused: dict[str, str] = {}
    made: dict[tuple, Model] = {}
    models: dict[str, Model] = {}
    held = False  # whether a preset stores that many weights
    for name in smallest_first(hardware):
        config = PRESETS[name]
        formats = _formats(name, arithmetic)
        try:
            _check_size(network, name)
            held = True
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
    # A network that is stored but cannot be quantised is not too large, so that no larger machine helps.
    way = _larger(models, location) if models or not held else ""
    raise NoPreset(f"{network.name}: no preset takes it\n" + "\n".join(_reasons(refused)) + way)


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


def _larger(models: dict[str, Model], location: str) -> str:
    """Advice on a machine that would take a network, of which there are models for some presets; "" without one."""
    if not location:
        return ""
    for name, model in reversed(models.items()):  # the file holds the last one
        if words := advice(model, name, location):
            return words
    return ("\nMake it smaller; or quantise it by `nnp quantize FILE --preset vision --data DATA -o "
            "model.safetensors`, make a machine that holds it by `nnp presets --fit model.safetensors -o my.toml`, and "
            "then `nnp verify model.safetensors --preset my.toml`")
