"""Machines for networks that are quantised already, in whose formats the quantisers of the file clip."""

from pathlib import Path
from typing import TYPE_CHECKING

from concord.lib.files import write
from concord.machines.fit import fit
from concord.machines.machine_text import changes_text
from concord.net.model import Model
from concord.net.passes.simplify import is_quantized
from concord.net.qdq.formats import formats
from concord.net.qdq.network import keep
from concord.spec.machine.config import PRESETS
from concord.spec.numbers.formats import Format
from concord.workflows.imports import opened
from concord.workflows.prequantized import model_of
from concord.workflows.presets import FOR_TESTS, smallest_first
from concord.workflows.storage import FileKind, fetched, kind_of, read_model

if TYPE_CHECKING:
    from concord.net.graph import Graph


def model_to_fit(location: str) -> tuple[Model, tuple[Format, Format] | None]:
    """The model at a path or URL; or of a network that is quantised already, with formats that keep its integers.

    Returns:
        The model, and the formats of weights and operands of such a network; None for a model.

    Raises:
        ValueError: it cannot be read, is a network that is not quantised, or no machine computes it as its file says.
    """
    with fetched(location) as path:
        if path.is_file() and kind_of(path) is FileKind.NETWORK:
            network, _ = opened(path)
            if is_quantized(network):
                found = formats(network)
                return _model(network, found), found
    return read_model(location), None


def _model(network: "Graph", of: tuple[Format, Format]) -> Model:
    return model_of(keep(network, *of), network.name, None, "nnp presets --fit")


def base_for(weights: Format, operands: Format) -> str:
    """The preset from which a machine of these formats is made: the narrowest one that is as wide, then the smallest.

    Machines of which no hardware can be generated, and those for tests, are left out.
    """
    names = [name for name in smallest_first(hardware=True) if name not in FOR_TESTS]

    def apart(name: str) -> tuple[int, int]:
        wider = [PRESETS[name].weights.bits - weights.bits, PRESETS[name].activations.bits - operands.bits]
        return -sum(min(0, bits) for bits in wider), sum(max(0, bits) for bits in wider)

    return min(names, key=apart)


def make_machine(network: "Graph", path: Path) -> str:
    """Fit a machine to a network that is quantised already, and write its TOML file.

    Returns:
        A sentence that says what was made.

    Raises:
        ValueError: no machine computes the network as its file says.
    """
    weights, operands = found = formats(network)
    base = base_for(weights, operands)
    fitted = fit(_model(network, found), PRESETS[base])
    write(path, changes_text(fitted.config, f"A machine that holds {network.name}, fitted from {base}.", base))
    return (f"no preset keeps the integers of {network.name}, so {path} was made from {base}: weights of "
            f"{_words(weights)}, operands of {_words(operands)}")


def _words(fmt: Format) -> str:
    return f"{fmt.bits} bits ({fmt.lowest}..{fmt.highest})"
