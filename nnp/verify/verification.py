"""One model through every step of `nnp verify`."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from concord.compiler.network import Compiled
from concord.model import dataset, network
from concord.model.dataset import Samples
from concord.model.model import Model
from concord.model.model_file import load_model
from concord.nnp.lib.options import MachineKind, sample_range
from concord.nnp.lib.presets import compile_for
from concord.nnp.lib.steps import Steps
from concord.nnp.verify import batches, quality
from concord.nnp.verify.batches import Outcome
from concord.nnp.verify.builds import Builds
from concord.nnp.verify.diagnosis import Difference, first_difference
from concord.nnp.verify.session import Session
from concord.nnp.verify.waveform import write_waveform
from concord.sim.machines.host import machine
from concord.spec.registers import EVENTS, Counter
from rich.console import Console
from rich.progress import Progress

STEPS = 6
ERROR_SAMPLES = 200  #: Samples that the errors of layers are measured on, at most.


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What to verify.

    Attributes:
        path:    The model.
        place:   The path or URL that it is known by.
        samples: As `--samples` says.
        first:   Index of the first sample.
        preset:  Empty for the first that fits.
        kind:    What runs beside golden.
        jobs:    Worker processes.
        folder:  For reports and waveforms.
        waves:   Write a waveform of the first difference.
    """

    path: Path
    place: str
    samples: str
    first: int
    preset: str
    kind: MachineKind
    jobs: int
    folder: Path
    waves: bool


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Fault:
    """A difference that was found, and how to see it again; `waves` is None where no waveform was written."""

    difference: Difference
    waves: Path | None
    command: str


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Verified:
    """What verification found out about one model.

    Attributes:
        request:        What was asked for.
        model:          The model.
        preset:         The machine's.
        samples:        The test samples used.
        compiled:       Firmware and the compiler's findings.
        accuracies:     By network: "FP32", "QAT", "golden", and "RTL" where it ran.
        golden, other:  What the two did; `other` is golden itself where no other machine was asked for.
        reference_bits: Bits in which the golden machine's outputs differ from the network in golden arithmetic.
        bits:           Bits in which the machine's outputs and memories differ from golden.
        events:         Event counters that differ, with both values.
        fault:          Where the first differing bits come from, or None.
        errors:         Each layer's distance from the FP32 network.
        times:          Seconds of each step.
    """

    request: Request
    model: Model
    preset: str
    samples: Samples
    compiled: Compiled
    accuracies: Mapping[str, float]
    golden: Outcome
    other: Outcome
    reference_bits: int
    bits: int
    events: Mapping[Counter, tuple[int, int]]
    fault: Fault | None
    errors: Mapping[str, float]
    times: Mapping[str, float]

    @property
    def equal(self) -> bool:
        """Nothing differs."""
        return not (self.reference_bits or self.bits or self.events)

    @property
    def cycles(self) -> float:
        """Cycles per inference; 0 on golden, which has no clock."""
        return self.other.counters[Counter.CYCLES] / len(self.samples.labels)

    @property
    def microseconds(self) -> float:
        """Time per inference at the preset's clock."""
        return self.cycles / self.compiled.firmware.config.clock_mhz

    @property
    def utilisation(self) -> float:
        """Share of the tile engines' cycles in which they multiply."""
        cycles = self.other.counters[Counter.CYCLES] * self.compiled.firmware.config.tile_engines
        return self.other.counters[Counter.BEATS] / cycles if cycles else 0.0


def verify_model(request: Request, builds: Builds, console: Console) -> Verified:
    """Run a model on golden and on another machine, and compare.

    Raises:
        ValueError: the model is not whole, its data are missing, or no machine takes it.
        RuntimeError: a machine stopped with an error.
    """
    console.rule(f"[bold]{request.path.stem}")
    steps = Steps(console, STEPS)
    with steps.step("read model and test data") as note:
        model = load_model(request.path)
        samples, chosen = _samples(model, request)
        note.text = f"{len(model.layers)} layers, {len(samples.labels)} samples of {model.data}"
    with steps.step("compile") as note:
        preset, compiled = compile_for(model, request.preset)
        note.text = _describe(preset, compiled)
    with steps.step("build the machine") as note:
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
        first = batches.first_sample(golden, other) if bits else None
        fault = _fault(compiled, samples, first, preset, request, console) if bits else None
        note.text = f"{bits} differing bits, {len(events)} differing event counters"
    with steps.step("measure") as note:
        errors = quality.layer_errors(model, samples.first(ERROR_SAMPLES))
        accuracies = _accuracies(model, samples, chosen, golden, other, request.kind)
        note.text = f"accuracy {quality.accuracy(other.outputs, samples.labels):.2%}"
    return Verified(
        request=request,
        model=model,
        preset=preset,
        samples=samples,
        compiled=compiled,
        accuracies=accuracies,
        golden=golden,
        other=other,
        reference_bits=batches.count_bits(golden.outputs, reference),
        bits=bits,
        events=events,
        fault=fault,
        errors=errors,
        times=steps.times,
    )


def _samples(model: Model, request: Request) -> tuple[Samples, slice]:
    """The samples asked for, and which of the test set they are."""
    data = dataset.load(model.data)
    chosen = sample_range(request.samples, request.first, len(data.labels))
    lengths = None if data.lengths is None else data.lengths[chosen]
    part = Samples(inputs=data.inputs[chosen], lengths=lengths, labels=data.labels[chosen], classes=data.classes)
    return part, chosen


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
        tasks = {kind: bars.add_task(kind.value, total=len(samples.labels)) for kind in kinds}
        return batches.run_all(
            compiled.firmware,
            samples,
            kinds,
            jobs=request.jobs,
            progress=lambda kind, count: bars.advance(tasks[kind], count),
        )


def _fault(
    compiled: Compiled, samples: Samples, index: int, preset: str, request: Request, console: Console
) -> Fault | None:
    """Find the first difference again, alone, and write its waveform."""
    firmware, sample = compiled.firmware, batches.one_sample(samples, index)
    number = request.first + index
    with machine("golden", firmware.config) as golden, machine(request.kind, firmware.config) as other:
        difference = first_difference(Session(golden, firmware), Session(other, firmware), sample, number)
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
    words = ["nnp", "verify", request.place, "--preset", preset, "--machine", str(request.kind)]
    return Fault(
        difference=difference, waves=waves, command=shlex.join([*words, "--first", str(number), "--samples", "1"])
    )


def _accuracies(model, samples, chosen, golden, other, kind) -> dict[str, float]:
    found = {
        "FP32": quality.share(model.fp32_predictions[chosen], samples.labels),
        "QAT": quality.share(model.qat_predictions[chosen], samples.labels),
        "golden": quality.accuracy(golden.outputs, samples.labels),
    }
    if kind != MachineKind.GOLDEN:
        found["RTL"] = quality.accuracy(other.outputs, samples.labels)
    return found
