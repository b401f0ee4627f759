"""The first steps of `nnp verify` for a network in float32: import, data, and quantisation for a machine.

A network that is quantised already keeps its integers and scales, so that its data are only there to be run.
"""

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from concord.model.data.find import FORMS
from concord.model.data.read import read_data
from concord.model.model_file import load_model
from concord.nnp.lib.choices import choices_for
from concord.nnp.lib.front import opened as read_file
from concord.nnp.lib.imports import is_kept, requantised, softmax
from concord.nnp.lib.kept import difference, fitting
from concord.nnp.lib.kept import kept as keeping
from concord.nnp.lib.kept import write as write_kept
from concord.nnp.lib.options import MachineKind, sample_range
from concord.nnp.lib.progress import shown
from concord.nnp.lib.smallest import smallest
from concord.nnp.lib.steps import Steps
from concord.nnp.lib.training import needing_torch
from concord.nnp.verify import verification
from concord.nnp.verify.data_sets import tested
from concord.nnp.verify.verification import prepare
from concord.nnp.verify.verified import Prepared, Request
from concord.spec.machine_file import find_config
from rich.console import Console

if TYPE_CHECKING:
    from concord.front.read import Imported
    from concord.model.data.samples import DataSet
    from concord.model.floating.network import FloatNetwork
    from concord.train.imported.source import Source

STEPS = verification.STEPS + 3


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Opened:
    """A network in float32 with its data, ready to be quantised.

    Attributes:
        request: Options of the verification; `path` is the file of the network.
        network: The network.
        data:    Its data, or None where a file of inputs is given.
        source:  The network and its data in PyTorch; None where the network keeps its own integers.
        kept:    Where the quantised model will be kept.
        steps:   The printed steps, some of which are already done.
        imported: The ONNX file, if the network comes from one.
    """

    request: Request
    network: "FloatNetwork"
    data: "DataSet | None"
    source: "Source | None"
    kept: Path
    steps: Steps
    imported: "Imported | None" = None


def opened(request: Request, kept: Path, console: Console, network: "FloatNetwork | None" = None) -> Opened:
    """Read a network and its data, so that errors show before slow work begins.

    Args:
        request: The options.
        kept:    Where the quantised model will be kept.
        console: Console to print on.
        network: The network, if it is in memory.

    Raises:
        ValueError: there is no such machine, the network has operations that cannot be computed, or its data are
            missing or do not fit.
    """
    console.rule(f"[bold]{request.path.stem}")
    if request.preset:
        find_config(request.preset)
    steps, given = Steps(console, STEPS), request.source
    with steps.step("import the network") as note:
        network, imported = read_file(request.path) if network is None else (network, None)
        same = is_kept(network, request.anew, request.arithmetic != "integer")
        said = f"{network.name} is quantised already and keeps its integers" if same else requantised(network).strip()
        note.text = "; ".join(filter(None, (f"{len(network.nodes)} operations", *network.notes, said)))
    with steps.step(f"read data to {'' if same else 'calibrate and to '}test with") as note:
        if not (given.inputs or given.data or given.read):
            why = "it runs samples" if same else "a network in float32 is quantised by samples"
            raise ValueError(f"{request.place}: {why} of its data; give --data PLACE, which is {FORMS}; or --inputs "
                             "FILE.npy, samples without labels")
        data = None if given.inputs else given.read or read_data(given.data)
        if data is not None:
            sample_range(given.samples, given.first, len(tested(data, given.data)), given.default)
        source = None if same else needing_torch("concord.train.imported.source").source(network, data, given.inputs)
        calibrating = "" if same else f"{len(source.calibration)} samples to calibrate, "
        test = None if data is None else data.test
        note.text = f"{calibrating}{'' if test is None else f'{len(test)} to test'}".rstrip(", ")
    if data is not None:
        request = replace(request, source=replace(given, read=data))
    return Opened(request=request, network=network, data=fitting(network, data) if same else data, source=source,
                  kept=kept, steps=steps, imported=imported)


def quantised(opening: Opened, console: Console) -> Prepared:
    """Quantise a network for the machine of its request, or for the smallest preset that takes it, and compile it.

    Raises:
        ValueError: it cannot be quantised, or no machine can run it.
    """
    request, kept = opening.request, opening.kept
    with opening.steps.step("quantise", "a minute for a large network") as note:
        if request.preset:
            _quantise(opening, request.preset, console)
            chosen, note.text = request.preset, f"for {request.preset}"
        else:
            chosen, note.text = smallest(
                opening.network, lambda name: _quantise(opening, name, console), request.arithmetic,
                request.kind != MachineKind.GOLDEN, "" if opening.source is None else str(kept))
        if opening.source is None:
            note.text += f"; {_difference(opening, chosen)}"
        note.text += f"; {said}" if (said := softmax(opening.network, load_model(kept)).strip()) else ""
    return prepare(replace(request, path=kept, place=str(kept), preset=chosen), console, opening.steps)


def _quantise(opening: Opened, machine: str, console: Console):
    """Write the model of a network for a machine, as `nnp quantize` does."""
    request, inputs = opening.request, opening.request.source.inputs
    command = request.command or _command(opening, machine)
    opening.kept.parent.mkdir(parents=True, exist_ok=True)
    if opening.source is None:
        return write_kept(opening.kept, keeping(opening.network, machine), opening.data, command)
    train = needing_torch("concord.train.runs.imported")
    choices = choices_for(machine, request.arithmetic)
    source = train.prepared(opening.network, None if inputs else opening.data, choices, inputs)
    with shown(console) as progress:
        return train.quantize(opening.kept, source, choices, progress=progress, command=command)


def _difference(opening: Opened, machine: str) -> str:
    """How the model differs from its file, in words."""
    made = keeping(opening.network, machine)
    found = difference(made, load_model(opening.kept), opening.data, opening.imported)
    return f"the bits of the file: {found}" if made.exact else str(found)


def _command(opening: Opened, machine: str) -> str:
    """The command line that makes the same model."""
    request = opening.request
    bfp = ["--arithmetic", request.arithmetic] if request.arithmetic != "integer" else ["--anew"] * request.anew
    inputs = None if opening.source is None else request.source.inputs  # to calibrate with
    places = (("--calibration", inputs), ("--data", request.source.data))
    words = [str(word) for option, place in places if place for word in (option, place)]
    return shlex.join(["nnp", "quantize", request.place, "--for", machine, *bfp, *words, "-o", str(opening.kept)])
