"""What a verification of one model is asked for, and what it finds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from concord.compiler.cascade import CompiledCascade
from concord.firmware.cascade_session import Streamed
from concord.firmware.firmware import Firmware
from concord.firmware.layer_costs import LayerCost
from concord.lib.progress import Steps
from concord.net.model import Model
from concord.sim.machines.kinds import MachineKind
from concord.spec.host.registers import Counter
from concord.spec.machine.clocks import measured_clock
from concord.verification.batches import Outcome
from concord.verification.inputs import Inputs, InputSource
from concord.workflows.cascades import Wish

if TYPE_CHECKING:
    from concord.firmware.full_precision import FullPrecision
    from concord.net.lowering.full_precision import MemoryNumbers
    from concord.verification.diagnosis import Difference
    from concord.verification.error_split import ErrorSplit
    from concord.workflows.original import Comparison


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """The options of a verification.

    Attributes:
        path:    Path of the model file, or of firmware.
        location: Path or URL that the user gave.
        source:  The options that choose inputs.
        output:  Name of the output that a network in float32 gives, where its ONNX file has several; None otherwise.
        preset:  Name of a preset, or a TOML file of a machine; empty for the first preset that fits. For several
            machines, there may be one for each, with commas between them.
        kind:    Kind of the machine that is compared with golden.
        jobs:    Number of worker processes.
        scheduler: Address of the scheduler of a cluster, whose workers run the samples; empty for this computer.
        folder:  Folder for reports and waveforms.
        waves:   Whether to write a waveform of the first difference.
        arithmetic: Arithmetic in which a network in float32 is quantised, "integer" or "bfp".
        anew:    Whether a network that is quantised already gets new integers and scales.
        equalize: Whether the channels of a network in float32 are equalised, as far as it helps.
        split:   Whether to split the errors of layers.
        clock:   Clock in MHz that the user named; None for that which was measured, see `Verified.clock`.
        command: Command that makes the quantised model of a network in float32; empty for `nnp quantize`.
        wish:    Number of machines, and where the network is cut.
        keep_state: Whether samples are parts of one sequence.
    """

    path: Path
    location: str
    source: InputSource
    preset: str
    kind: MachineKind
    jobs: int
    folder: Path
    waves: bool
    arithmetic: str = "integer"
    output: str | None = None
    anew: bool = False
    equalize: bool = False
    split: bool = False
    clock: float | None = None
    command: str = ""
    wish: Wish = Wish()
    keep_state: bool = False
    scheduler: str = ""

    def __post_init__(self):
        if self.scheduler and self.kind.port:
            raise ValueError(f"--machine {self.kind} is at a port of this computer: leave out --scheduler")

    @property
    def kept(self) -> list[str]:
        """The option that keeps states, as words of a command line."""
        return ["--keep-state"] * self.keep_state


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Prepared:
    """A model that is ready to run.

    Attributes:
        request:  Options of the verification.
        model:    The model; None where there is only firmware.
        inputs:   Samples to run.
        preset:   Names of the machines: those of presets, or the stems of TOML files.
        compiled: Firmware and the compiler's findings.
        large:    The network on one machine that is large enough, for golden; None on one machine.
        single:   The network on one machine such as the first one, to compare the throughput; None if it does not fit.
        images:   Contents of memories before and after each rounding; empty if errors are not split.
        steps:    The printed steps, some of which are already done.
        comparison: What the tool that the network comes from gives for the samples; None for a quantised model.
    """

    request: Request
    model: Model | None
    inputs: Inputs
    preset: str
    compiled: CompiledCascade
    steps: Steps
    large: Firmware | None = None
    single: Firmware | None = None
    images: "Mapping[MemoryNumbers, FullPrecision]" = field(default_factory=dict)
    comparison: "Comparison | None" = None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WrongBits:
    """A difference that was found, and how to see it again; `waves` is None where no waveform was written."""

    difference: "Difference"
    waves: Path | None
    command: str


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Verified:
    """The results of the verification of one model.

    Attributes:
        prepared:       The model that was ready to run.
        measures:       Measures of "FP32" and "quantised", if the model keeps their predictions, of "golden" and, if it
            ran, of "RTL"; empty if there are no labels.
        golden, other:  Results of golden and of the other machine; both are golden's if no other machine was chosen.
        reference_bits: Number of bits in which golden's outputs differ from the layer-by-layer model; None without one.
        large_bits:     The same from one golden machine that is large enough; None on one machine.
        bits:           Number of bits in which the outputs and memories of the machines differ from golden.
        events:         Event counters that differ, with both values, by the number of the machine.
        fault:          Origin of the first difference, or None.
        errors:         RMS error of each layer relative to the FP32 network.
        split:          Parts of the errors of layers, or None if they are not split.
        streamed:       Samples that follow each other on several machines; None on one machine, and on golden.
        single:         The same on one machine; None if the network does not fit it.
        costs:          Cost of each layer for the first sample; empty on golden, which has no clock, and on a machine
            whose bits differ.
    """

    prepared: Prepared
    measures: Mapping[str, Mapping[str, float]]
    golden: Outcome
    other: Outcome
    reference_bits: int | None
    large_bits: int | None
    bits: int
    events: Mapping[tuple[int, Counter], tuple[int, int]]
    fault: WrongBits | None
    errors: Mapping[str, float]
    split: "ErrorSplit | None"
    streamed: Streamed | None
    single: Streamed | None
    costs: tuple[LayerCost, ...]

    # What was asked for, and what was known before the machines ran.
    request = property(lambda self: self.prepared.request)
    model = property(lambda self: self.prepared.model)
    preset = property(lambda self: self.prepared.preset)
    results = property(lambda self: self.prepared.compiled.cascade.results)
    compiled = property(lambda self: self.prepared.compiled)
    comparison = property(lambda self: self.prepared.comparison)
    samples = property(lambda self: self.prepared.inputs.samples)
    source = property(lambda self: self.prepared.inputs.name)
    first = property(lambda self: self.prepared.inputs.chosen.start)
    task = property(lambda self: self.prepared.inputs.task)
    own = property(lambda self: self.prepared.inputs.own)
    times = property(lambda self: self.prepared.steps.times)

    @property
    def compared(self) -> bool:
        """Whether another machine than golden ran, so that bits and event counters were compared."""
        return self.request.kind != MachineKind.GOLDEN

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        compiled = self.split is None or self.split.compiled
        return compiled and not (self.reference_bits or self.large_bits or self.bits or self.events)

    @property
    def parts(self) -> tuple[Firmware, ...]:
        """Firmware of each machine."""
        return self.compiled.cascade.parts

    @property
    def predictions(self) -> Mapping[str, np.ndarray]:
        """What the model keeps of its float networks; nothing where there is only firmware."""
        return self.model.predictions if self.model else {}

    @property
    def counters(self) -> dict[str, tuple[Counter, int]]:
        """The counters of all machines, by their names in reports."""
        return {self.counter_name(k, counter): (counter, value)
                for k, counters in enumerate(self.other.counters) for counter, value in counters.items()}

    @property
    def cores(self) -> int:
        """Number of cores that share a memory."""
        return self.request.wish.cores

    def counter_name(self, machine: int, counter: Counter) -> str:
        """Name of a counter in reports, with the number of its machine or core if there are several."""
        if self.cores > 1:
            return f"core {machine}: {counter.name}"
        return f"machine {machine + 1}: {counter.name}" if len(self.parts) > 1 else counter.name

    @property
    def cycles(self) -> float:
        """Clock cycles per inference, through all machines; 0 on golden, which has no clock."""
        if self.streamed:
            return self.streamed.latency
        counted = self.other.counters[:self.cores]  # of the first machine, or of all cores
        return sum(counters[Counter.CYCLES] for counters in counted) / len(self.samples)

    @property
    def clock(self) -> float | None:
        """Clock in MHz: that which the user named, or else the one that was measured; None where there is none."""
        found = measured_clock(self.parts[0].config) if len(self.parts) == 1 else None
        return self.request.clock or (found.median if found else None)

    @property
    def microseconds(self) -> float | None:
        """Time of one inference at the clock; None without a clock, and on golden."""
        return self.cycles / self.clock if self.clock and self.cycles else None

    @property
    def utilisation(self) -> float:
        """Share of the tile engines' cycles in which they multiply."""
        pairs = list(zip(self.parts * self.cores, self.other.counters, strict=True))
        cycles = sum(counters[Counter.CYCLES] * part.config.tile_engines for part, counters in pairs)
        return sum(counters[Counter.BEATS] for _, counters in pairs) / cycles if cycles else 0.0
