"""Choose the machine for a model, and compile the model for it."""

import shlex

from concord.compiler.lib.reason import Refused
from concord.compiler.network import Compiled, compile_network
from concord.compiler.support import problems
from concord.machines.attributes import products
from concord.machines.fit import fit
from concord.net.model import Model
from concord.spec.machine.config import PRESETS, Config
from concord.spec.machine.machine_file import find_config, machine_name

#: Presets that were made for tests, which come behind those that were made for a purpose.
FOR_TESTS = ("tiny", "tiny_softmax", "serial", "wide")


def smallest_first(hardware: bool = False) -> list[str]:
    """The presets in the order in which a machine is looked for: those of 8 bits before others, then by their size.

    The size is the number of products in a cycle, then that of stored weights. Machines of which no hardware can be
    generated come last.

    Args:
        hardware: Whether to leave out machines of which no hardware can be generated.
    """
    def order(name: str) -> tuple:
        config = PRESETS[name]
        last = not _is_hardware(config), name in FOR_TESTS
        return *last, -config.weights.bits, products(config), stored_weights(config)

    return sorted((name for name in PRESETS if not hardware or _is_hardware(PRESETS[name])), key=order)


def stored_weights(config: Config) -> int:
    """Number of weights that MatrixRf holds."""
    return config.matrix_tiles * config.native_dim ** 2


def compile_for(model: Model, preset: str, place: str = "") -> tuple[str, Compiled]:
    """Compile for the machine called `preset`; if that is empty, for the first preset that can run the model.

    Args:
        preset: Name of a preset, or a TOML file of a machine.
        place:  Path or URL of the model, for the advice in an error.

    Returns:
        The name of the machine in reports, and what is compiled.

    Raises:
        ValueError: there is no such machine, or the model cannot be compiled for it, or for any preset. Where another
            machine of that kind could hold the model, the message ends with the command that makes it.
    """
    if preset:
        try:
            return machine_name(preset), compile_network(model, find_config(preset))
        except Refused as error:
            raise ValueError(f"{error}{advice(model, preset, place)}") from error
    reasons = {}
    for candidate in smallest_first():
        try:
            return candidate, compile_network(model, PRESETS[candidate])
        except ValueError as error:
            reasons[candidate] = str(error)
    nearest = min(reasons, key=lambda p: len(problems(model, PRESETS[p])))
    raise ValueError(f"no preset takes the model; the nearest is {nearest}: {reasons[nearest]}"
                     f"{advice(model, nearest, place)}")


def golden_only(name: str) -> str:
    """Why no hardware can be generated of a machine, as the end of a sentence; "" if it can."""
    try:
        find_config(name).require_hardware()
    except ValueError as error:
        return f"; {machine_name(name)} cannot be built: {error}"
    return ""


def _is_hardware(config: Config) -> bool:
    try:
        config.require_hardware()
    except ValueError:
        return False
    return True


def advice(model: Model, preset: str, place: str) -> str:
    """The line with the command that makes a machine which holds the model, if there is such a machine."""
    if not place:
        return ""
    try:
        fit(model, find_config(preset))
    except ValueError:
        return ""
    made = "my.toml" if preset != "my.toml" else "larger.toml"  # the file of the user stays as it is
    command = shlex.join(["nnp", "presets", "--fit", place, "--preset", preset, "-o", made])
    return f"\nA machine that holds it: `{command}`, and then `--preset {made}`"
