"""One model through every step of `nnp verify`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from compiler.network import Compiled
from golden import dataset, network
from golden.dataset import Samples
from golden.model import Model
from golden.model_file import load_model
from nnp import batches, quality
from nnp.batches import Outcome
from nnp.diagnosis import Difference, first_difference
from nnp.options import MachineKind, sample_count
from nnp.presets import compile_for
from nnp.steps import Steps
from spec.registers import EVENTS, Counter

STEPS = 6
ERROR_SAMPLES = 200  #: Samples that the errors of layers are measured on, at most.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Verified:
    """What verification found out about one model.

    Attributes:
        path, model, preset: What was verified, and for which machine.
        samples:        The test samples used.
        compiled:       Firmware and the compiler's findings.
        machine:        What ran beside golden.
        accuracies:     By network: "FP32", "QAT", "golden", and the machine's name.
        golden, other:  What the two did; `other` is golden itself where no other machine was asked for.
        reference_bits: Bits in which the golden machine's outputs differ from the network in golden arithmetic.
        bits:           Bits in which the machine's outputs and memories differ from golden.
        events:         Event counters that differ, with both values.
        difference:     Where the first differing bits come from, or None.
        errors:         Each layer's distance from the FP32 network.
        times:          Seconds of each step.
    """

    path: Path
    model: Model
    preset: str
    samples: Samples
    compiled: Compiled
    machine: MachineKind
    accuracies: Mapping[str, float]
    golden: Outcome
    other: Outcome
    reference_bits: int
    bits: int
    events: Mapping[Counter, tuple[int, int]]
    difference: Difference | None
    errors: Mapping[str, float]
    times: Mapping[str, float]

    @property
    def equal(self) -> bool:
        """Nothing differs."""
        return not (self.reference_bits or self.bits or self.events)

    @property
    def counted(self) -> Mapping[Counter, int]:
        """The counters of the machine."""
        return self.other.counters

    @property
    def cycles(self) -> float:
        """Cycles per inference; 0 on golden, which has no clock."""
        return self.counted[Counter.CYCLES] / len(self.samples.labels)

    @property
    def microseconds(self) -> float:
        """Time per inference at the preset's clock."""
        return self.cycles / self.compiled.firmware.config.clock_mhz

    @property
    def utilisation(self) -> float:
        """Share of the tile engines' cycles in which they multiply."""
        cycles = self.counted[Counter.CYCLES] * self.compiled.firmware.config.tile_engines
        return self.counted[Counter.BEATS] / cycles if cycles else 0.0


def verify_model(
    path: Path, *, samples: str, preset: str, machine: MachineKind, jobs: int, waves: Path, console: Console
) -> Verified:
    """Run a model on golden and on `machine`, and compare.

    Args:
        samples: As `--samples` says.
        preset:  Empty for the first that fits.
        jobs:    Worker processes.
        waves:   Folder for the waveform of a difference.

    Raises:
        ValueError: the model is not whole, its data are missing, or no machine takes it.
    """
    console.rule(f"[bold]{path.stem}")
    steps = Steps(console, STEPS)
    with steps.step("read model and test data") as note:
        model = load_model(path)
        data = dataset.load(model.data)
        data = data.first(sample_count(samples, len(data.labels)))
        note.text = f"{len(model.layers)} layers, {len(data.labels)} samples of {model.data}"
    with steps.step("compile") as note:
        preset, compiled = compile_for(model, preset)
        proven = all(bound.proven for bound in compiled.bounds)
        tiles, available = compiled.usage["MatrixRf"]
        note.text = (
            f"for {preset}: {len(compiled.firmware.words)} instructions, {tiles} of {available} tiles, "
            f"{'no sum can wrap' if proven else 'a sum may wrap'}"
        )
    with steps.step("build the machine") as note:
        note.text = _build(machine, compiled)
    with steps.step("run") as note:
        outcomes = _run(compiled, data, machine, jobs, console)
        note.text = f"golden and {machine}" if machine != MachineKind.GOLDEN else "golden"
    golden, other = outcomes[MachineKind.GOLDEN], outcomes[machine]
    with steps.step("compare") as note:
        reference = network.forward(model, data.inputs, data.lengths)[-1].outputs
        reference_bits = batches.count_bits(golden.outputs, reference)
        bits = batches.differing_bits(golden, other)
        events = {c: (golden.counters[c], other.counters[c]) for c in EVENTS if golden.counters[c] != other.counters[c]}
        note.text = f"{bits} differing bits, {len(events)} differing event counters"
        difference = None
        if bits:
            index = batches.first_sample(golden, other)
            difference = first_difference(compiled.firmware, data, index, machine, waves, path)
    with steps.step("measure") as note:
        errors = quality.layer_errors(model, data.first(ERROR_SAMPLES))
        note.text = f"accuracy {quality.accuracy(other.outputs, data.labels):.2%}"
    count = len(data.labels)
    accuracies = {
        "FP32": quality.share(model.fp32_predictions[:count], data.labels),
        "QAT": quality.share(model.qat_predictions[:count], data.labels),
        "golden": quality.accuracy(golden.outputs, data.labels),
    }
    if machine != MachineKind.GOLDEN:
        accuracies["RTL"] = quality.accuracy(other.outputs, data.labels)
    return Verified(
        path=path,
        model=model,
        preset=preset,
        samples=data,
        compiled=compiled,
        machine=machine,
        accuracies=accuracies,
        golden=golden,
        other=other,
        reference_bits=reference_bits,
        bits=bits,
        events=events,
        difference=difference,
        errors=errors,
        times=steps.times,
    )


def _build(machine: MachineKind, compiled: Compiled) -> str:
    if machine == MachineKind.GOLDEN:
        return "golden needs none"
    from sim.host import build

    return str(build(machine, compiled.firmware.config))


def _run(compiled: Compiled, data: Samples, machine: MachineKind, jobs: int, console: Console) -> dict[str, Outcome]:
    kinds = list(dict.fromkeys([MachineKind.GOLDEN, machine]))
    with Progress(console=console, transient=True) as bars:
        tasks = {kind: bars.add_task(kind.value, total=len(data.labels)) for kind in kinds}
        return batches.run_all(
            compiled.firmware, data, kinds, jobs=jobs, progress=lambda kind, count: bars.advance(tasks[kind], count)
        )
