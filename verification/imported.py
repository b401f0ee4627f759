"""The first steps of `nnp verify` for a network in float32: import, data, and quantisation for a machine.

A network that is quantised already keeps its integers and scales, so that its data are only there to be run.
"""

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from concord.datasets.arrays import read_numbers
from concord.datasets.find import FORMS
from concord.datasets.read import read_data
from concord.datasets.samples import sample_range
from concord.lib.progress import Steps, shown
from concord.net.model_file import load_model
from concord.net.quantize.options import QuantizationOptions
from concord.net.quantize.run import quantize as write_quantized
from concord.net.quantize.source import NetworkWithData
from concord.net.quantize.source import source as opened_source
from concord.net.quantize.widths import NetworkArithmetic
from concord.sim.machines.kinds import MachineKind
from concord.spec.machine.machine_file import ENDING, find_config
from concord.verification import verification
from concord.verification.verification import prepare
from concord.verification.verified import Prepared, Request
from concord.workflows.imports import is_kept, requantized, shape_in, softmax
from concord.workflows.imports import opened as read_file
from concord.workflows.original import Comparison, of_array, of_data, original_of
from concord.workflows.own_machine import make_machine
from concord.workflows.prequantized import difference, fitting
from concord.workflows.prequantized import kept as keeping
from concord.workflows.prequantized import write as write_kept
from concord.workflows.presets import NoPreset, smallest
from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from concord.datasets.samples import DataSet
    from concord.frontends.onnx.read import Imported
    from concord.net.graph import Graph
    from concord.workflows.original import Original

STEPS = verification.STEPS + 4


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Opened:
    """A network in float32 with its data, ready to be quantised.

    Attributes:
        request: Options of the verification; `path` is the file of the network.
        network: The network.
        data:    Its data, or None where a file of inputs is given.
        source:  The network and its data to calibrate with; None where the network keeps its own integers.
        kept:    Where the quantised model will be kept.
        steps:   The printed steps, some of which are already done.
        comparison: What the tool that the network comes from gives for the samples.
        imported: The ONNX file, if the network comes from one.
    """

    request: Request
    network: "Graph"
    data: "DataSet | None"
    source: NetworkWithData | None
    kept: Path
    steps: Steps
    comparison: Comparison
    imported: "Imported | None" = None


def opened(
    request: Request, kept: Path, console: Console, network: "Graph | None" = None,
    original: "Original | None" = None,
) -> Opened:
    """Read a network and its data, so that errors show before slow work begins.

    Args:
        request: The options.
        kept:    Where the quantised model will be kept.
        console: Console to print on.
        network: The network, if it is in memory.
        original: The tool that such a network comes from.

    Raises:
        ValueError: there is no such machine, the network has operations that cannot be computed, or its data are
            missing or do not fit.
    """
    console.rule(f"[bold]{escape(request.path.stem)}")
    if request.preset:
        find_config(request.preset)
    steps, given = Steps(console, STEPS), request.source
    with steps.step("import the network") as note:
        network, imported = (network, None) if network is not None else read_file(
            request.path, output=request.output, samples=lambda: shape_in(given.data, given.inputs, given.order))
        original = original or original_of(imported)
        same = is_kept(network, request.anew, request.arithmetic != "integer" or request.equalize)
        said = f"{network.name} is quantised already and keeps its integers" if same else requantized(network).strip()
        note.text = "; ".join(filter(None, (f"{len(network.nodes)} operations", *network.notes, said)))
    with steps.step(f"read data to {'' if same else 'calibrate and to '}test with",
                    given.location) as note:
        if not (given.inputs or given.data or given.read):
            why = "it runs samples" if same else "a network in float32 is quantised by samples"
            raise ValueError(f"{request.location}: {why} of its data; give --data LOCATION, which is {FORMS}; or "
                             "--inputs FILE.npy, samples without labels")
        data = None if given.inputs else given.read or read_data(given.data or "", order=given.order)
        if data is not None:
            chosen = sample_range(given.samples, given.first, len(data.tested(given.data or data.name)), given.default)
        source = None if same else opened_source(network, data, given.inputs, given.order)
        calibrating = "" if source is None else f"{len(source.calibration)} samples to calibrate, "
        test = None if data is None else data.test
        note.text = f"{calibrating}{'' if test is None else f'{len(test)} to test'}".rstrip(", ")
    with steps.step("compare with the network's own tool") as note:
        if data is None:
            assert given.inputs is not None  # one of both is there
            comparison = of_array(network, original, read_numbers(given.inputs), str(given.inputs), given.order)
        else:
            comparison = of_data(network, original, data, chosen)
        note.text = str(comparison)
    if data is not None:
        request = replace(request, source=replace(given, read=data))
    return Opened(request=request, network=network, data=fitting(network, data) if same else data, source=source,
                  kept=kept, steps=steps, comparison=comparison, imported=imported)


def quantized(opening: Opened, console: Console) -> Prepared:
    """Quantise a network for the machine of its request, or for the smallest preset that takes it, and compile it.

    Raises:
        ValueError: it cannot be quantised, or no machine can run it.
    """
    request, kept = opening.request, opening.kept
    with opening.steps.step("quantise", "a minute for a large network") as note:
        if request.preset:
            _quantize(opening, request.preset, console)
            chosen, note.text = request.preset, f"for {request.preset}"
        else:
            chosen, note.text = _chosen(opening, console)
        if opening.source is None:
            note.text += f"; {_difference(opening, chosen)}"
        note.text += f"; {said}" if (said := softmax(opening.network, load_model(kept)).strip()) else ""
    prepared = prepare(replace(request, path=kept, location=str(kept), preset=chosen), console, opening.steps)
    return replace(prepared, comparison=opening.comparison)


def _chosen(opening: Opened, console: Console) -> tuple[str, str]:
    """The smallest preset that takes a network, or a machine made for its integers; and a sentence that says why."""
    request, kept = opening.request, opening.kept
    try:
        return smallest(
            opening.network, lambda name: _quantize(opening, name, console), request.arithmetic,
            request.kind != MachineKind.GOLDEN, "" if opening.source is None else str(kept))
    except NoPreset:
        if opening.source is not None:
            raise
    path = kept.with_suffix(ENDING)
    said = make_machine(opening.network, path)
    _quantize(opening, str(path), console)
    return str(path), said


def _quantize(opening: Opened, machine: str, console: Console):
    """Write the model of a network for a machine, as `nnp quantize` does."""
    request = opening.request
    command = request.command or _command(opening, machine)
    opening.kept.parent.mkdir(parents=True, exist_ok=True)
    if opening.source is None:
        return write_kept(opening.kept, keeping(opening.network, machine), opening.data, command)
    choices = QuantizationOptions(preset=machine, arithmetic=NetworkArithmetic(request.arithmetic),
                                  equalize=request.equalize).choices()
    with shown(console) as progress:
        return write_quantized(opening.kept, opening.source, choices, progress=progress, command=command)


def _difference(opening: Opened, machine: str) -> str:
    """How the model differs from its file, in words."""
    made = keeping(opening.network, machine)
    found = difference(made, load_model(opening.kept), opening.data, opening.imported)
    return f"the bits of the file: {found}" if made.exact else str(found)


def _command(opening: Opened, machine: str) -> str:
    """The command line that makes the same model."""
    request = opening.request
    how = ["--arithmetic", request.arithmetic] if request.arithmetic != "integer" else [
        *["--anew"] * request.anew, *["--equalize"] * request.equalize]
    inputs = None if opening.source is None else request.source.inputs  # to calibrate with
    options = (("--output", request.output), ("--calibration", inputs),
              ("--data", request.source.data), ("--order", request.source.order))
    words = [str(word) for option, value in options if value for word in (option, value)]
    return shlex.join(["nnp", "quantize", request.location, "--preset", machine, *how, *words, "-o", str(opening.kept)])
