"""The verification of a network on several machines: bits, and the throughput beside that of one machine."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from concord.golden.host.cascade import Cascade
from concord.golden.host.cascade_file import load_cascade
from concord.golden.host.firmware import Firmware
from concord.golden.lib.atomic_files import write_all
from concord.model import network
from concord.model.data.samples import Samples
from concord.model.model import Model
from concord.model.model_file import load_model
from concord.nnp.lib.cascades import Wish, compile_cascade, fitted, whole
from concord.nnp.lib.kinds import FileKind, kind_of
from concord.nnp.lib.options import MachineKind
from concord.nnp.lib.results import described
from concord.nnp.lib.steps import Steps
from concord.nnp.verify import batches, quality
from concord.nnp.verify.cascade_diagnosis import first_difference_of
from concord.nnp.verify.cascade_session import CascadeSession, Streamed
from concord.nnp.verify.inputs import Inputs
from concord.sim.machines import cascade as rows
from concord.spec.config import preset_name
from concord.spec.registers import EVENTS
from rich.console import Console
from rich.table import Table

STEPS = 4
STREAMED = 8  #: Most samples that follow each other to measure the throughput.
#: What a file holds that --machines does not take.
_WHAT = {FileKind.NETWORK: "a network in float32: quantise it first, by `nnp quantize`",
         FileKind.FIRMWARE: "firmware of one machine", FileKind.MODEL: "a model: say how many by --machines"}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Subject:
    """What is verified.

    Attributes:
        stem:     Name of the file, for reports.
        cascade:  Firmware of the machines.
        machines: Names of the machines.
        model:    The network; None if there is only firmware.
        large:    The network on one machine that is large enough, for golden; None if there is only firmware.
        single:   The network on one machine such as the first one, to compare the throughput; None if it does not fit.
    """

    stem: str
    cascade: Cascade
    machines: str
    model: Model | None = None
    large: Firmware | None = None
    single: Firmware | None = None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class VerifiedCascade:
    """The results.

    Attributes:
        subject:   What was verified.
        kind:      Kind of the machines that were compared with golden.
        inputs:    The samples.
        measures:  Measures of each network, as `quality.measured` gives them.
        bits:      Number of bits in which outputs and memories of the machines differ from golden.
        events:    Number of event counters that differ.
        reference: Number of bits in which golden differs from the network in golden arithmetic; None without a model.
        large:     The same of one golden machine that is large enough.
        fault:     The first difference between the machines and golden, in a sentence; empty if there is none.
        streamed:  Samples that follow each other on the machines; None on golden.
        single:    The same on one machine; None if the network does not fit it.
    """

    subject: Subject
    kind: MachineKind
    inputs: Inputs
    measures: Mapping[str, Mapping[str, float]]
    bits: int
    events: int
    reference: int | None
    large: int | None
    fault: str
    streamed: Streamed | None
    single: Streamed | None

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not (self.bits or self.events or self.reference or self.large)


def subject_of(path: Path, wish: Wish, preset: str) -> Subject:
    """What a file holds: a model, which is cut and compiled, or firmware of several machines.

    Raises:
        ValueError: the file is damaged, holds something else, or no such machines can run the model.
    """
    kind = kind_of(path)
    if kind is FileKind.CASCADE:
        if wish.machines > 1 or preset:
            raise ValueError(f"{path}: this firmware holds its machines and its cut: leave out --machines, --cut and "
                             "--preset")
        cascade = load_cascade(path)
        return Subject(stem=path.stem, cascade=cascade, machines=", ".join(dict.fromkeys(
            preset_name(part.config) or f"{part.config.digest:08x}" for part in cascade.parts)))
    if kind is not FileKind.MODEL or wish.machines < 2:
        raise ValueError(f"{path}: --machines takes quantised models, and this is {_WHAT[kind]}")
    model = load_model(path)
    name, compiled = compile_cascade(model, preset, wish)
    config = compiled.cascade.first.config
    single = whole(model, config)
    large = single or fitted(model, config)
    return Subject(stem=path.stem, cascade=compiled.cascade, machines=name, model=model, large=large.firmware,
                   single=single and single.firmware)


def verify_cascade(
    subject: Subject, inputs: Inputs, kind: MachineKind, jobs: int, console: Console,
) -> VerifiedCascade:
    """Run samples on golden machines and on others of a kind, compare, and measure the throughput.

    Raises:
        RuntimeError: a machine stopped with an error, or could not be built.
    """
    cascade, model, samples = subject.cascade, subject.model, inputs.samples
    console.rule(f"[bold]{cascade.name} on {len(cascade.parts)} machines")
    steps, configs = Steps(console, STEPS), [part.config for part in cascade.parts]
    golden = kind == MachineKind.GOLDEN
    with steps.step("build the machines", "" if golden else "minutes, where none has been built before") as note:
        rows.build(kind, configs)
        note.text = f"{kind}, {subject.machines}"
    with steps.step("run") as note:
        kinds = list(dict.fromkeys([MachineKind.GOLDEN, kind]))
        outcomes = batches.run_all(cascade, samples, kinds, jobs=jobs, progress=lambda kind, count: None)
        wanted, got = outcomes[MachineKind.GOLDEN], outcomes[kind]
        note.text = " and ".join(outcomes)
    with steps.step("compare") as note:
        bits = batches.differing_bits(wanted, got)
        events = sum(wanted.counters[key] != got.counters[key] for key in wanted.counters if key[1] in EVENTS)
        reference = large = None
        if model:
            made = network.forward(model, samples.inputs, samples.lengths)[-1].outputs
            reference = batches.count_bits(wanted.outputs, made)
        if subject.large:
            alone = batches.run_all(subject.large, samples, [MachineKind.GOLDEN], jobs=jobs, progress=lambda *_: None)
            large = batches.count_bits(wanted.outputs, alone[MachineKind.GOLDEN].outputs)
        fault = _fault(cascade, inputs, kind, batches.first_sample(wanted, got)) if bits else ""
        note.text = f"{bits} differing bits"
    with steps.step("measure the throughput") as note:
        streamed = single = None
        if not golden:
            chosen = streamed_samples(samples)
            streamed = _stream(kind, cascade.parts, [batches.one_sample(samples, index) for index in chosen])
            bits += batches.count_bits(streamed.outputs, wanted.outputs[chosen])
            if subject.single:
                one = [subject.single]
                single = _stream(kind, one, [batches.one_sample(samples, index) for index in chosen])
            note.text = f"{streamed.interval:,.0f} cycles from result to result"
    other = None if golden else got.outputs
    measures = quality.measured(model, inputs, wanted.outputs, other) if model else {}
    return VerifiedCascade(
        subject=subject, kind=kind, inputs=inputs, measures=measures, bits=bits, events=events, reference=reference,
        large=large, fault=fault, streamed=streamed, single=single)


def table(done: VerifiedCascade) -> Table:
    """A table of the results."""
    cascade = done.subject.cascade
    made = Table("", cascade.name, title="verification", title_justify="left")
    for name, value in table_rows(done).items():
        made.add_row(name, value)
    return made


def table_rows(done: VerifiedCascade) -> dict[str, str]:
    """The lines of that table by name."""
    cascade, clocked = done.subject.cascade, done.streamed is not None
    lines = {
        "machines": f"{len(cascade.parts)} x {done.kind}, {done.subject.machines}",
        "cut behind": ", ".join(cascade.cuts),
        "samples": f"{len(done.inputs.samples)} of {done.inputs.name}",
        **{f"measures, {name}": described(dict(found)) for name, found in done.measures.items()},
        "mismatching bits, machines": str(done.bits) if clocked else "not run",
        "bits, golden and reference": "no model" if done.reference is None else str(done.reference),
        "bits, golden and one large golden machine": "no model" if done.large is None else str(done.large),
        "differing event counters": str(done.events) if clocked else "not run",
    }
    if clocked:
        lines |= {
            "cycles to the first result": f"{done.streamed.latency:,}",
            "cycles from result to result": f"{done.streamed.interval:,.0f}",
        }
        lines |= _beside_one(done) if done.single else {"one machine": "the network does not fit"}
    return lines


def write_report(done: VerifiedCascade, folder: Path) -> Path:
    """Write the results as JSON, and return the file."""
    name = f"{done.subject.stem}-{len(done.subject.cascade.parts)}-machines.json"
    configs = [asdict(part.config) for part in done.subject.cascade.parts]
    content = {"table": table_rows(done), "configurations": configs, "equal": done.equal, "fault": done.fault}
    write_all(folder, {name: json.dumps(content, indent=1, default=str).encode()})
    return folder / name


def faults(done: VerifiedCascade) -> list[str]:
    """A sentence about each difference."""
    found = [(done.bits, f"bits of the {done.kind} machines differ from golden"),
             (done.events, f"event counters of the {done.kind} machines differ from golden"),
             (done.reference, "bits of the golden machines differ from the network"),
             (done.large, "bits of the golden machines differ from one large machine")]
    named = [f"{done.subject.cascade.name}: {done.fault}"] if done.fault else []
    return [f"{done.subject.cascade.name}: {count} {what}" for count, what in found if count] + named


def _fault(cascade: Cascade, inputs: Inputs, kind: MachineKind, index: int) -> str:
    """The first difference on a sample, found by running each machine alone."""
    number = inputs.chosen.start + index
    found = first_difference_of(cascade, cascade, kind, batches.one_sample(inputs.samples, index), number)
    return str(found) if found else (
        f"sample {number}: each machine alone agrees with golden, so the difference arises between the machines")


def _beside_one(done: VerifiedCascade) -> dict[str, str]:
    """The lines about one machine."""
    return {
        "one machine, cycles to the first result": f"{done.single.latency:,}",
        "one machine, cycles from result to result": f"{done.single.interval:,.0f}",
        "throughput beside one machine": f"{done.single.interval / done.streamed.interval:.2f} times",
    }


def streamed_samples(samples: Samples) -> np.ndarray:
    """Indices of the samples that follow each other: they have as many time steps as the first one."""
    same = range(len(samples)) if samples.lengths is None else np.flatnonzero(samples.lengths == samples.lengths[0])
    return np.resize(np.asarray(same)[:STREAMED], STREAMED)


def _stream(kind: str, parts: list[Firmware], samples: list[np.ndarray]) -> Streamed:
    with CascadeSession(rows.cascade(kind, [part.config for part in parts]), parts) as session:
        return session.stream(samples)
