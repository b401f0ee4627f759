"""The steps of `nnp verify` for one model, or for firmware."""

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from concord.compiler.cascade import CompiledCascade
from concord.compiler.network import without_loads
from concord.datasets.samples import Samples
from concord.firmware.cascade import Cascade
from concord.firmware.cascade_session import Streamed, cascade_session
from concord.firmware.firmware_file import load_cascade
from concord.firmware.layer_costs import measured_costs
from concord.lib.progress import Steps, shown
from concord.net import network
from concord.net.model import Model
from concord.sim.machines.kinds import MachineKind
from concord.spec.machine.config import Config, preset_name
from concord.verification import batches, sample_results
from concord.verification.batches import Builds, Outcome
from concord.verification.inputs import Inputs, read
from concord.verification.verified import Prepared, Request, Verified, WrongBits
from concord.workflows.cascades import Wish, compile_cascade, fitted, whole
from concord.workflows.presets import golden_only
from concord.workflows.results import described
from concord.workflows.storage import FileKind, kind_of, read_model
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TaskID

if TYPE_CHECKING:
    from concord.firmware.full_precision import FullPrecision
    from concord.net.lowering.full_precision import MemoryNumbers

STEPS = 7
STREAMED = 8  #: Number of samples that follow each other to measure the throughput of several machines.
ERROR_SAMPLES = 200  #: Most samples on which the errors of layers are measured.


def prepare(request: Request, console: Console, steps: Steps | None = None) -> Prepared:
    """Read a model or firmware and its inputs, and compile the model, so that errors show before slow work begins.

    Args:
        request: The options.
        console: Console to print on.
        steps:   Steps that were done before, such as the quantisation of an imported network; None for none.

    Raises:
        ValueError: the file is damaged, its data are missing, or no machine can run it.
    """
    if steps is None:
        console.rule(f"[bold]{escape(request.path.stem)}")
        steps = Steps(console, STEPS)
    if kind_of(request.path) in (FileKind.FIRMWARE, FileKind.CASCADE):
        return _prepare_firmware(request, steps)
    with steps.step("read model and test data", request.source.location) as note:
        model = read_model(str(request.path), request.preset)
        inputs = read(model, request.source)
        _check_predictions(model, inputs)
        note.text = f"{len(model.layers)} layers, {len(inputs.samples)} samples of {inputs.name}"
    with steps.step("compile") as note:
        preset, compiled = compile_cascade(model, request.preset, request.wish, request.location)
        config, several = compiled.cascade.first.config, len(compiled.parts) > 1
        _check_cores(request, [config])
        single = whole(model, config) if several else None
        large = (single or fitted(model, config)) if several else None
        images = _images(model, compiled) if request.split else {}
        note.text = _describe(preset, compiled) + ("" if request.preset else golden_only(preset))
    return Prepared(
        request=request, model=model, inputs=inputs, preset=preset, compiled=compiled, steps=steps, images=images,
        single=single.firmware if single else None, large=large.firmware if large else None)


def _images(model: Model, compiled: CompiledCascade) -> "dict[MemoryNumbers, FullPrecision]":
    """The contents of the memories for each rounding; what finds them is imported only for `--errors`."""
    from concord.verification.error_split import images_of

    return images_of(model, without_loads(model, compiled.cascade.first))


def _prepare_firmware(request: Request, steps: Steps) -> Prepared:
    """Read firmware, which is compared on its machines without its model."""
    if request.preset or replace(request.wish, cores=1) != Wish():
        raise ValueError(f"{request.location}: firmware holds its machines, its cut and its batch: leave out "
                         "--machines, --cut, --batch and --preset")
    if request.split:
        raise ValueError(f"{request.location}: firmware has no float network to compare with: leave out --errors, or "
                         "verify the model")
    with steps.step("read firmware and test data") as note:
        cascade = load_cascade(request.path)
        inputs = read(cascade, request.source)
        count = len(cascade.parts)
        _check_cores(request, [part.config for part in cascade.parts])
        note.text = f"{count} machine{'s' * (count > 1)}, {len(inputs.samples)} samples of {inputs.name}"
    names = dict.fromkeys(preset_name(part.config) or f"{part.config.digest:08x}" for part in cascade.parts)
    return Prepared(request=request, model=None, inputs=inputs, preset=", ".join(names),
                    compiled=CompiledCascade(cascade=cascade), steps=steps)


def _check_cores(request: Request, configs: list[Config]):
    """Refuse what cores that share a memory do not take, with the errors of `check_cores`."""
    if request.wish.cores == 1:
        return
    from concord.firmware.accelerator_session import check_cores

    check_cores(request.location, configs, request.kind, request.wish.cores, {
        "--keep-state": request.keep_state, "--errors": request.split})


def verify_model(prepared: Prepared, builds: Builds, console: Console) -> Verified:
    """Run a network on golden and on other machines, and compare.

    Raises:
        RuntimeError: a machine stopped with an error, or could not be built.
    """
    request, model, steps = prepared.request, prepared.model, prepared.steps
    cascade, samples = prepared.compiled.cascade, prepared.inputs.samples
    console.rule(f"[bold]{escape(request.path.stem)}")
    clocked = request.kind != MachineKind.GOLDEN
    cascade.program(keep_state=request.keep_state)
    with steps.step("build the machine", request.kind.building) as note:
        with shown(console) as show:
            builds.wait([part.config for part in cascade.parts], show)
        note.text = f"{request.kind}, preset {prepared.preset}"
    with steps.step("run") as note:
        outcomes = _run(cascade, samples, request, console)
        note.text = " and ".join(outcomes)
    golden, other = outcomes[MachineKind.GOLDEN], outcomes[request.kind]
    with steps.step("compare") as note:
        bits = batches.differing_bits(golden, other)
        events = {(k, counter): (golden.counters[k][counter], other.counters[k][counter])
                  for k, counter in batches.differing_events(golden, other)}
        fault = _fault(prepared, batches.first_sample(golden, other), console) if bits else None
        reference, large = _reference(prepared, golden.outputs)
        note.text = (f"{bits} differing bits, {len(events)} differing event counters" if clocked else
                     "golden and reference alone")
    with steps.step("measure") as note:
        split, errors = None, {}
        measures = sample_results.measured(model, prepared.inputs, golden.outputs, other.outputs if clocked else None)
        if model:
            if prepared.images:
                from concord.verification.error_split import SAMPLES, split_errors

                alone = without_loads(model, cascade.first)
                split = split_errors(model, alone, prepared.images, samples.first(SAMPLES))
            errors = sample_results.layer_errors(model, samples.first(ERROR_SAMPLES))
        if measures and prepared.comparison and prepared.comparison.measures:
            measures = {prepared.comparison.by: prepared.comparison.measures, **measures}
        note.text = described(measures["golden"]) if measures else "no labels, so nothing to compare with"
    with steps.step("measure layers" if len(cascade.parts) == 1 else "measure the throughput") as note:
        costs, streamed, single = (), None, None
        if clocked and request.wish.cores > 1:
            note.text = f"{other.cycles:,} cycles for all samples"
        elif clocked and len(cascade.parts) > 1:
            streamed, single = _throughput(prepared)
            bits += batches.count_bits(streamed.outputs, golden.outputs[streamed_samples(samples)])
            note.text = f"{streamed.interval:,.0f} cycles from result to result"
        elif clocked and not bits:
            costs = measured_costs(request.kind, cascade.first, samples.one(0))
            batch = cascade.first.batch
            note.text = (f"{sum(cost.cycles for cost in costs):,} cycles of "
                         f"{'one sample' if batch == 1 else f'a batch of {batch}'}")
        else:
            note.text = "nothing to measure"
    return Verified(
        prepared=prepared, measures=measures, golden=golden, other=other, reference_bits=reference, large_bits=large,
        bits=bits, events=events, fault=fault, errors=errors, split=split, streamed=streamed, single=single,
        costs=costs)


def _reference(prepared: Prepared, outputs: np.ndarray) -> tuple[int | None, int | None]:
    """Number of bits in which the network, and one large golden machine, differ from golden; None where there is none.
    """
    model, samples = prepared.model, prepared.inputs.samples
    if model is None:
        return None, None
    run = network.outputs_of_parts if prepared.request.keep_state else network.outputs
    reference = batches.count_bits(outputs, run(model, samples.inputs, samples.lengths))
    if prepared.large is None:
        return reference, None
    alone = batches.run_all(Cascade.of(prepared.large), samples, [MachineKind.GOLDEN], jobs=prepared.request.jobs,
                            keep_state=prepared.request.keep_state, scheduler=prepared.request.scheduler,
                            progress=lambda *_: None)
    return reference, batches.count_bits(outputs, alone[MachineKind.GOLDEN].outputs)


def streamed_samples(samples: Samples) -> np.ndarray:
    """Indices of the samples that follow each other: they have as many time steps as the first one."""
    same = range(len(samples)) if samples.lengths is None else np.flatnonzero(samples.lengths == samples.lengths[0])
    return np.resize(np.asarray(same)[:STREAMED], STREAMED)


def _throughput(prepared: Prepared) -> tuple[Streamed, Streamed | None]:
    """Samples that follow each other, on the machines and on one."""
    samples, kind = prepared.inputs.samples, prepared.request.kind
    chosen = list(map(samples.one, streamed_samples(samples)))

    def stream(cascade: Cascade) -> Streamed:
        with cascade_session(cascade, kind) as session:
            return session.stream(chosen)

    return stream(prepared.compiled.cascade), stream(Cascade.of(prepared.single)) if prepared.single else None


def _check_predictions(model: Model, inputs: Inputs):
    """Refuse a test set of the model's name that has more samples than its float networks were measured on."""
    known = len(model.fp32_predictions)
    if inputs.own and inputs.samples.labels is not None and known and inputs.chosen.stop > known:
        raise ValueError(f"{model.name} carries FP32 predictions for {len(model.fp32_predictions)} samples of "
                         f"{model.data}, and {inputs.name} holds more: name the test set that it was trained with")


def _describe(preset: str, compiled: CompiledCascade) -> str:
    tiles = [part.usage["MatrixRf"] for part in compiled.parts]
    words = sum(len(part.instruction_words) for part in compiled.cascade.parts)
    return (f"for {preset}: {words} instructions, {sum(used for used, _ in tiles)} of {sum(of for _, of in tiles)} "
            f"tiles, {'no sum can wrap' if all(bound.proven for bound in compiled.bounds) else 'a sum may wrap'}")


def _run(cascade: Cascade, samples: Samples, request: Request, console: Console) -> dict[str, Outcome]:
    kinds = list(dict.fromkeys([MachineKind.GOLDEN, request.kind]))
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks: dict[str, TaskID] = {kind: bars.add_task(kind, total=len(samples)) for kind in kinds}
        jobs = 1 if request.kind.port else request.jobs  # one program at a time has the port
        return batches.run_all(cascade, samples, kinds, jobs=jobs, keep_state=request.keep_state,
                               cores=request.wish.cores, scheduler=request.scheduler,
                               progress=lambda kind, count: bars.advance(tasks[kind], count))


def _fault(prepared: Prepared, index: int, console: Console) -> WrongBits | None:
    """Locate the first difference by running its sample alone, and write its waveform."""
    from concord.verification.cutter import write_waveform
    from concord.verification.diagnosis import first_difference_of

    request, cascade = prepared.request, prepared.compiled.cascade
    samples, number = prepared.inputs.samples, prepared.inputs.chosen.start + index
    parts = range(index + 1) if request.keep_state else [index]
    sample = np.concatenate([samples.one(part) for part in parts])
    difference = first_difference_of(cascade, cascade, request.kind, sample, number)
    if difference is None:
        return None
    waves = None
    if request.waves and request.kind in (MachineKind.LIBRARY, MachineKind.COCOTB) and len(cascade.parts) == 1:
        console.print(
            f"{difference}\nbuilding the machine again for a waveform of that chain, which takes minutes where it is "
            f"not cached; --no-waves leaves it out",
            markup=False,
            soft_wrap=True,
        )
        request.folder.mkdir(parents=True, exist_ok=True)
        waves = request.folder / f"{request.path.stem}-{number}.vcd"
        write_waveform(request.kind, cascade.first, sample, difference.chain, waves)
    preset = request.preset or prepared.preset
    machine = [] if prepared.model is None else ["--preset", preset, *request.wish.words]
    words = ["nnp", "verify", request.location, *machine, "--machine", str(request.kind), *request.source.words,
             *request.kept]
    return WrongBits(
        difference=difference, waves=waves,
        command=shlex.join([*words, "--first", str(number - len(parts) + 1), "--samples", str(len(parts))])
    )
