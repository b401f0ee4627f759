"""What a verification of one model is asked for, and what it finds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from concord.compiler.network import Compiled
from concord.golden.host.full_precision import FullPrecision
from concord.model.data.samples import Samples, Task
from concord.model.lowering.full_precision import Numbers
from concord.model.model import Model
from concord.nnp.lib.options import MachineKind
from concord.nnp.lib.steps import Steps
from concord.nnp.verify.batches import Outcome
from concord.nnp.verify.diagnosis import Difference
from concord.nnp.verify.error_split import ErrorSplit
from concord.nnp.verify.inputs import Inputs, Source
from concord.nnp.verify.layer_costs import LayerCost
from concord.spec.registers import Counter


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """The options of a verification.

    Attributes:
        path:    Path of the model file.
        place:   Path or URL that the user gave.
        source:  The options that choose inputs.
        preset:  Name of a preset, or a TOML file of a machine; empty for the first preset that fits.
        kind:    Kind of the machine that is compared with golden.
        jobs:    Number of worker processes.
        folder:  Folder for reports and waveforms.
        waves:   Whether to write a waveform of the first difference.
        arithmetic: Arithmetic in which a network in float32 is quantised, "integer" or "bfp".
        anew:    Whether a network that is quantised already gets new integers and scales.
        split:   Whether to split the errors of layers.
        command: Command that makes the quantised model of a network in float32; empty for `nnp quantize`.
    """

    path: Path
    place: str
    source: Source
    preset: str
    kind: MachineKind
    jobs: int
    folder: Path
    waves: bool
    arithmetic: str = "integer"
    anew: bool = False
    split: bool = False
    command: str = ""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Prepared:
    """A model that is ready to run.

    Attributes:
        request:  Options of the verification.
        model:    The model.
        inputs:   Samples to run.
        preset:   Name of the machine: that of a preset, or the stem of a TOML file.
        compiled: Firmware and the compiler's findings.
        images:   Contents of memories before and behind each rounding; empty if errors are not split.
        steps:    The printed steps, some of which are already done.
    """

    request: Request
    model: Model
    inputs: Inputs
    preset: str
    compiled: Compiled
    steps: Steps
    images: Mapping[Numbers, FullPrecision] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Fault:
    """A difference that was found, and how to see it again; `waves` is None where no waveform was written."""

    difference: Difference
    waves: Path | None
    command: str


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Verified:
    """The results of the verification of one model.

    Attributes:
        request:        Options of the verification.
        model:          The model.
        preset:         Name of the machine: that of a preset, or the stem of a TOML file.
        samples:        The samples that were run.
        source:         Name of their source, for messages.
        first:          Index of the first sample.
        compiled:       Firmware and the compiler's findings.
        task:           What the network does.
        own:            Whether the model keeps the predictions of its float networks for these samples.
        measures:       Measures of "FP32" and "quantised", if the model keeps their predictions, of "golden" and, if it
            ran, of "RTL"; empty if there are no labels.
        golden, other:  Results of golden and of the other machine; both are golden's if no other machine was chosen.
        reference_bits: Number of bits in which the golden machine's outputs differ from the layer-by-layer model.
        bits:           Number of bits in which the machine's outputs and memories differ from golden.
        events:         Event counters that differ, with both values.
        fault:          Origin of the first difference, or None.
        errors:         RMS error of each layer relative to the FP32 network.
        split:          Parts of the errors of layers, or None if they are not split.
        costs:          Cost of each layer for the first sample; empty on golden, which has no clock, and on a machine
            whose bits differ.
        times:          Duration of each step in seconds.
    """

    request: Request
    model: Model
    preset: str
    samples: Samples
    source: str
    first: int
    compiled: Compiled
    task: Task
    own: bool
    measures: Mapping[str, Mapping[str, float]]
    golden: Outcome
    other: Outcome
    reference_bits: int
    bits: int
    events: Mapping[Counter, tuple[int, int]]
    fault: Fault | None
    errors: Mapping[str, float]
    split: ErrorSplit | None
    costs: tuple[LayerCost, ...]
    times: Mapping[str, float]

    @property
    def compared(self) -> bool:
        """Whether another machine than golden ran, so that bits and event counters were compared."""
        return self.request.kind != MachineKind.GOLDEN

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        compiled = self.split is None or self.split.compiled
        return compiled and not (self.reference_bits or self.bits or self.events)

    @property
    def cycles(self) -> float:
        """Clock cycles per inference; 0 on golden, which has no clock."""
        return self.other.counters[Counter.CYCLES] / len(self.samples)

    @property
    def microseconds(self) -> float:
        """Time of one inference at the preset's clock."""
        return self.cycles / self.compiled.firmware.config.clock_mhz

    @property
    def utilisation(self) -> float:
        """Share of the tile engines' cycles in which they multiply."""
        cycles = self.other.counters[Counter.CYCLES] * self.compiled.firmware.config.tile_engines
        return self.other.counters[Counter.BEATS] / cycles if cycles else 0.0
