"""The first steps of `nnp verify` for a network in float32: import, data, and quantisation for a machine."""

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from concord.model.data.find import FORMS
from concord.model.data.read import read_data
from concord.nnp.lib.choosing import choices_for, smallest
from concord.nnp.lib.front import read_float
from concord.nnp.lib.imports import requantised
from concord.nnp.lib.options import MachineKind, sample_range
from concord.nnp.lib.progress import shown
from concord.nnp.lib.steps import Steps
from concord.nnp.lib.training import needing_torch
from concord.nnp.verify import verification
from concord.nnp.verify.data_sets import tested
from concord.nnp.verify.verification import Prepared, Request, prepare
from concord.spec.machine_file import find_config
from rich.console import Console

if TYPE_CHECKING:
    from concord.model.floating.network import FloatNetwork
    from concord.train.imported.source import Source

STEPS = verification.STEPS + 3


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Opened:
    """A network in float32 with its data, ready to be quantised.

    Attributes:
        request: Options of the verification; `path` is the file of the network.
        source:  The network and its data.
        kept:    Where the quantised model will be kept.
        steps:   The printed steps, some of which are already done.
    """

    request: Request
    source: "Source"
    kept: Path
    steps: Steps


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
        network = read_float(request.path) if network is None else network
        said = filter(None, (*network.notes, requantised(network).strip()))
        note.text = "; ".join((f"{len(network.nodes)} operations", *said))
    with steps.step("read data to calibrate and to test with") as note:
        if not (given.inputs or given.data or given.read):
            raise ValueError(f"{request.place}: a network in float32 is quantised by samples of its data; give --data "
                             f"PLACE, which is {FORMS}; or --inputs FILE.npy, samples without labels")
        data = None if given.inputs else given.read or read_data(given.data)
        if data is not None:
            sample_range(given.samples, given.first, len(tested(data, given.data)), given.default)
        source = needing_torch("concord.train.imported.source").source(network, data, given.inputs)
        note.text = f"{len(source.calibration)} samples to calibrate" + (
            f", {len(source.test)} to test" if source.test else "")
    if data is not None:
        request = replace(request, source=replace(given, read=data))
    return Opened(request=request, source=source, kept=kept, steps=steps)


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
                opening.source.network, lambda name: _quantise(opening, name, console), request.arithmetic,
                request.kind != MachineKind.GOLDEN, str(kept))
    return prepare(replace(request, path=kept, place=str(kept), preset=chosen), console, opening.steps)


def _quantise(opening: Opened, machine: str, console: Console):
    """Write the model of a network for a machine, as `nnp quantize` does."""
    request, inputs = opening.request, opening.request.source.inputs
    train = needing_torch("concord.train.runs.imported")
    choices = choices_for(machine, request.arithmetic)
    source = train.prepared(opening.source.network, None if inputs else opening.source.data, choices, inputs)
    opening.kept.parent.mkdir(parents=True, exist_ok=True)
    with shown(console) as progress:
        return train.quantize(opening.kept, source, choices, progress=progress,
                              command=request.command or _command(opening, machine))


def _command(opening: Opened, machine: str) -> str:
    """The command line that makes the same model."""
    request = opening.request
    bfp = ["--arithmetic", request.arithmetic] if request.arithmetic != "integer" else []
    places = (("--calibration", request.source.inputs), ("--data", request.source.data))
    words = [str(word) for option, place in places if place for word in (option, place)]
    return shlex.join(["nnp", "quantize", request.place, "--for", machine, *bfp, *words, "-o", str(opening.kept)])
