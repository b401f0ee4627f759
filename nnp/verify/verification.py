"""The steps of `nnp verify` for one model."""

import shlex

from concord.compiler.network import Compiled
from concord.model import network
from concord.model.data.samples import Samples
from concord.model.model import Model
from concord.model.model_file import load_model
from concord.nnp.lib.options import MachineKind
from concord.nnp.lib.presets import compile_for
from concord.nnp.lib.results import described
from concord.nnp.lib.steps import Steps
from concord.nnp.verify import batches, quality
from concord.nnp.verify.batches import Outcome
from concord.nnp.verify.builds import Builds
from concord.nnp.verify.diagnosis import first_difference
from concord.nnp.verify.error_split import SAMPLES as SPLIT_SAMPLES
from concord.nnp.verify.error_split import images_of, split_errors
from concord.nnp.verify.inputs import Inputs, read
from concord.nnp.verify.layer_costs import measured_costs
from concord.nnp.verify.session import Session
from concord.nnp.verify.twin_session import TwinSession
from concord.nnp.verify.verified import Fault, Prepared, Request, Verified
from concord.nnp.verify.waveform import write_waveform
from concord.sim.machines.host import machine
from concord.spec.registers import EVENTS
from rich.console import Console
from rich.progress import Progress

STEPS = 7
ERROR_SAMPLES = 200  #: Most samples on which the errors of layers are measured.


def prepare(request: Request, console: Console, steps: Steps | None = None) -> Prepared:
    """Read a model and its inputs, and compile it, so that errors show before slow work begins.

    Args:
        request: The options.
        console: Console to print on.
        steps:   Steps that were done before, such as the quantisation of an imported network; None for none.

    Raises:
        ValueError: the model file is damaged, its data are missing, or no machine can run it.
    """
    if steps is None:
        console.rule(f"[bold]{request.path.stem}")
        steps = Steps(console, STEPS)
    with steps.step("read model and test data") as note:
        model = load_model(request.path)
        inputs = read(model, request.source)
        _check_predictions(model, inputs)
        note.text = f"{len(model.layers)} layers, {len(inputs.samples)} samples of {inputs.name}"
    with steps.step("compile") as note:
        preset, compiled = compile_for(model, request.preset, request.place)
        images = images_of(model, compiled.firmware) if request.split else {}
        note.text = _describe(preset, compiled)
    return Prepared(request=request, model=model, inputs=inputs, preset=preset, compiled=compiled, steps=steps,
                    images=images)


def verify_model(prepared: Prepared, builds: Builds, console: Console) -> Verified:
    """Run a model on golden and on another machine, and compare.

    Raises:
        RuntimeError: a machine stopped with an error, or could not be built.
    """
    request, model, compiled, steps = prepared.request, prepared.model, prepared.compiled, prepared.steps
    samples, preset = prepared.inputs.samples, prepared.preset
    console.rule(f"[bold]{request.path.stem}")
    announce = "" if request.kind == MachineKind.GOLDEN else "minutes, where none has been built before"
    with steps.step("build the machine", announce) as note:
        builds.wait(compiled.firmware.config)
        note.text = f"{request.kind}, preset {preset}"
    with steps.step("run") as note:
        outcomes = _run(compiled, samples, request, console)
        note.text = " and ".join(outcomes)
    golden, other = outcomes[MachineKind.GOLDEN], outcomes[request.kind]
    with steps.step("compare") as note:
        reference = network.forward(model, samples.inputs, samples.lengths)[-1].outputs
        bits = batches.differing_bits(golden, other)
        events = {c: (golden.counters[c], other.counters[c]) for c in EVENTS if golden.counters[c] != other.counters[c]}
        fault = _fault(prepared, batches.first_sample(golden, other), console) if bits else None
        note.text = "golden and reference alone" if request.kind == MachineKind.GOLDEN else (
            f"{bits} differing bits, {len(events)} differing event counters")
    with steps.step("measure") as note:
        split = None
        if prepared.images:
            split = split_errors(model, compiled.firmware, prepared.images, samples.first(SPLIT_SAMPLES))
        errors = quality.layer_errors(model, samples.first(ERROR_SAMPLES))
        rtl = None if request.kind == MachineKind.GOLDEN else other.outputs
        measures = quality.measured(model, prepared.inputs, golden.outputs, rtl)
        note.text = described(measures["golden"]) if measures else "no labels, so nothing to compare with"
    with steps.step("measure layers") as note:
        clocked = request.kind != MachineKind.GOLDEN and not bits
        costs = measured_costs(request.kind, compiled.firmware, batches.one_sample(samples, 0)) if clocked else ()
        note.text = f"{sum(cost.cycles for cost in costs):,} cycles of one sample" if costs else "nothing to measure"
    return Verified(
        request=request,
        model=model,
        preset=preset,
        samples=samples,
        source=prepared.inputs.name,
        first=prepared.inputs.chosen.start,
        compiled=compiled,
        task=prepared.inputs.task,
        own=prepared.inputs.own,
        measures=measures,
        golden=golden,
        other=other,
        reference_bits=batches.count_bits(golden.outputs, reference),
        bits=bits,
        events=events,
        fault=fault,
        errors=errors,
        split=split,
        costs=costs,
        times=steps.times,
    )


def _check_predictions(model: Model, inputs: Inputs):
    """Refuse a test set of the model's name that has more samples than its float networks were measured on."""
    known = len(model.fp32_predictions)
    if inputs.own and inputs.samples.labels is not None and known and inputs.chosen.stop > known:
        raise ValueError(f"{model.name} carries FP32 predictions for {len(model.fp32_predictions)} samples of "
                         f"{model.data}, and {inputs.name} holds more: name the test set that it was trained with")


def _describe(preset: str, compiled: Compiled) -> str:
    tiles, available = compiled.usage["MatrixRf"]
    proven = all(bound.proven for bound in compiled.bounds)
    return (
        f"for {preset}: {len(compiled.firmware.instruction_words)} instructions, {tiles} of {available} tiles, "
        f"{'no sum can wrap' if proven else 'a sum may wrap'}"
    )


def _run(compiled: Compiled, samples: Samples, request: Request, console: Console) -> dict[str, Outcome]:
    kinds = list(dict.fromkeys([MachineKind.GOLDEN, request.kind]))
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks = {kind: bars.add_task(kind.value, total=len(samples)) for kind in kinds}
        return batches.run_all(
            compiled.firmware,
            samples,
            kinds,
            jobs=request.jobs,
            progress=lambda kind, count: bars.advance(tasks[kind], count),
        )


def _fault(prepared: Prepared, index: int, console: Console) -> Fault | None:
    """Locate the first difference by running its sample alone, and write its waveform."""
    request, firmware = prepared.request, prepared.compiled.firmware
    sample, number = batches.one_sample(prepared.inputs.samples, index), prepared.inputs.chosen.start + index
    with machine("golden", firmware.config) as golden, machine(request.kind, firmware.config) as other:
        sessions = {"golden": Session(golden, firmware), "RTL": Session(other, firmware)}
        difference = first_difference(sessions | {"twin": TwinSession(firmware)}, sample, number)
    if difference is None:
        return None
    waves = None
    if request.waves and request.kind != MachineKind.GOLDEN:
        console.print(
            f"{difference}\nbuilding the machine again for a waveform of that chain, which takes minutes where it is "
            f"not cached; --no-waves leaves it out",
            markup=False,
            soft_wrap=True,
        )
        request.folder.mkdir(parents=True, exist_ok=True)
        waves = request.folder / f"{request.path.stem}-{number}.vcd"
        write_waveform(request.kind, firmware, sample, difference, waves)
    preset = request.preset or prepared.preset
    words = ["nnp", "verify", request.place, "--preset", preset, "--machine", str(request.kind), *request.source.words]
    return Fault(
        difference=difference, waves=waves, command=shlex.join([*words, "--first", str(number), "--samples", "1"])
    )
