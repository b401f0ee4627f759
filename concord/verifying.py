"""`concord.verify`: a network on golden and on the simulated machine, and every bit compared."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from concord.data import Data, data_set, location_of, said
from concord.loading import load
from concord.objects import Model, Network, Shown
from concord.workflows.storage import legal
from rich.console import Console, RenderableType

if TYPE_CHECKING:
    from concord.verification.verified import Request, Verified
    from concord.verification.whole import Job


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class Verification(Shown):
    """The results of a verification.

    Attributes:
        verified: Everything that was found, see `concord.verification.verified.Verified`.
        files:    Files of the report: verify.json, verify.html, and a CSV table of all samples.
        model:    The quantised model that ran.
    """

    verified: "Verified"
    files: tuple[Path, ...]
    model: Model

    @property
    def equal(self) -> bool:
        """Whether no bit and no event counter differs."""
        return self.verified.equal

    @property
    def bits(self) -> int | None:
        """Number of bits in which the machine's outputs and memories differ from golden; None if golden alone ran."""
        return self.verified.bits if self.verified.compared else None

    @property
    def cycles(self) -> float:
        """Clock cycles of one inference; 0 on golden, which has no clock."""
        return self.verified.cycles

    @property
    def resources(self) -> dict[str, int]:
        """Estimated cells of the machines on an ECP5: LUT4, DSP and block RAM."""
        from concord.machines.estimate import RESOURCES, estimate

        cells = [estimate(part.config) for part in self.verified.compiled.cascade.parts]
        return {name: sum(each[name] for each in cells) for name in RESOURCES}

    @property
    def measures(self) -> Mapping[str, Mapping[str, float]]:
        """Measures of FP32, quantised, golden and RTL on the samples that ran; empty without labels."""
        return self.verified.measures

    @property
    def summary(self) -> str:
        found = self.verified
        count = found.bits if found.compared else found.reference_bits
        verdict = "equal to the bit" if found.equal else f"{count} bits differ"
        return f"{found.compiled.cascade.name} on {found.preset}, {len(found.samples)} samples: {verdict}"

    def tables(self) -> Iterator[RenderableType]:
        from concord.verification.tables import cost_table, split_table, verify_table

        yield verify_table([self.verified])
        if self.verified.split:
            yield split_table(self.verified)
        if self.verified.costs:
            yield cost_table(self.verified)


def verify(
    network: Network | Model | str | os.PathLike,
    data: Data | None = None,
    *,
    inputs: str | os.PathLike | None = None,
    preset: str = "",
    arithmetic: str = "integer",
    anew: bool = False,
    equalize: bool = False,
    samples: int | str = 200,
    first: int = 0,
    order: str | None = None,
    machine: str = "library",
    report: str | os.PathLike = "build/report",
    jobs: int | None = None,
    waves: bool = True,
    errors: bool = False,
    clock: float | None = None,
    batch: int = 1,
    cores: int = 1,
    quiet: bool = True,
) -> Verification:
    """Run a network on golden and on the simulated machine, and compare every bit, as `nnp verify` does.

    Args:
        network:    A quantised model, or a network in float32, which is quantised first. What `load`, `quantize` or
            `finetune` gives, or a path.
        data:       Data set, see `concord.data.Data`; the shipped one that a model names by default.
        inputs:     A .npy file of real numbers [samples, ...] instead.
        preset:     Machine: a preset or a TOML file; the smallest preset that takes the network by default.
        arithmetic: Arithmetic in which a network in float32 is quantised, "integer" or "bfp".
        anew:       Whether a network that is quantised already gets new integers and scales.
        equalize:   Whether the channels of a network in float32 are equalised before they become integers.
        samples:    Number of samples, or "all"; fewer where there are fewer.
        first:      Index of the first sample.
        order:      Order of the axes of a sample in data and inputs: "file", as the network's file takes them, or
            "machine", as the machine reads them (channels, rows, columns).
        machine:    "library" or "cocotb", Verilated hardware, which is built at first use; or "golden" alone.
        report:     Folder of the report, and of the quantised model of a network in float32.
        jobs:       Number of worker processes; one for each core by default.
        waves:      Whether to write a waveform of the first difference.
        errors:     Whether to split the error of each layer into compiler, quantisation of weights and of activations,
            and binary16.
        clock:      Clock in MHz at which tables and report also give times; without it, that which the machine reached
                    in place and route for a board, or else they give cycles alone.
        batch:      Number of samples that the machine takes at once, in networks of vectors.
        cores:      Number of machines that share one memory; each runs the whole network, and they take samples in
            turns.
        quiet:      Whether to print no steps.

    Raises:
        ValueError:   data are missing or do not fit, or no machine can run the network.
        RuntimeError: a machine stopped with an error, or could not be built.
    """
    from concord.lib.files import check_writable
    from concord.lib.input_axes import Order
    from concord.lib.names import named
    from concord.lib.processes import CORES
    from concord.net.quantize.widths import NetworkArithmetic
    from concord.sim.machines.kinds import MachineKind
    from concord.verification.inputs import InputSource
    from concord.verification.verified import Request
    from concord.verification.whole import ready, verify_all
    from concord.workflows.cascades import Wish

    given = load(network) if isinstance(network, str | os.PathLike) else network
    if isinstance(given, Model) and anew:
        raise ValueError("anew is for networks that are quantised already in another tool, not for quantised models")
    if isinstance(given, Model) and equalize:
        raise ValueError("equalize is for networks in float32, not for quantised models")
    if not isinstance(given, Network | Model):
        raise ValueError(f"a network in float32 or a quantised model is needed, not {type(given).__name__}; "
                         "concord.load(module, example) makes a network of a module of PyTorch")
    if isinstance(given, Network) and data is None and inputs is None:
        raise ValueError(f"{given.floating.name}: give data to calibrate and to test with, or a .npy file of samples "
                         "without labels as inputs")
    read = None if data is None else data_set(data, order)
    check_writable(Path(report), folder=True)
    count = str(samples)
    if read is not None and read.test is not None and count.isdecimal():
        count = str(min(int(count), max(1, len(read.test) - first)))
    source = InputSource(inputs=None if inputs is None else Path(inputs), samples=count, first=first, default=200,
                         data=None if data is None else location_of(data), read=read,
                         order=None if order is None else named(Order, order))
    location = os.fspath(network) if isinstance(network, str | os.PathLike) else ""
    request = Request(
        path=Path(location), location=location, source=source, preset=preset, kind=MachineKind(machine),
        jobs=jobs or CORES, folder=Path(report), waves=waves, arithmetic=named(NetworkArithmetic, arithmetic),
        anew=anew, equalize=equalize, split=errors, clock=clock, wish=Wish(batch=batch, cores=cores),
        command="concord.verify")
    console = Console(quiet=quiet)
    prepared = ready([_job(given, request)], console)
    said(note for one in prepared for note in one.inputs.notes if read is None or note not in read.notes)
    whole = verify_all(prepared, console)
    (found,) = whole.done
    return Verification(verified=found, files=whole.files, model=Model(quantized=found.model, path=found.request.path))


def _job(given: Network | Model, request: "Request") -> "Job":
    """The job of a network in float32, or of a model, whose file is written into the report if it has none."""
    from dataclasses import replace

    from concord.verification.whole import Job

    if isinstance(given, Network):
        name = f"{legal(given.floating.name)}.onnx"
        return Job(request=replace(request, path=Path(request.path.name or name), location=request.location or name),
                   network=given.floating, original=given.original)
    path = given.path
    if path is None:
        path = request.folder / f"{legal(given.quantized.name)}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        given.save(path)
    return Job(request=replace(request, path=path, location=str(path)))
