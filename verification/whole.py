"""A whole verification: models and networks in float32, from their files to the report."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from concord.net.graph import Graph
from concord.verification.batches import Builds
from concord.verification.report import write_report
from concord.verification.verification import prepare, verify_model
from concord.verification.verified import Prepared, Request, Verified
from concord.workflows.storage import FileKind, kind_of
from rich.console import Console

if TYPE_CHECKING:
    from concord.workflows.original import Original


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Job:
    """What is verified: a request, and its network in float32 and the tool that runs it, if these are in memory."""

    request: Request
    network: Graph | None = None
    original: "Original | None" = None

    @property
    def floating(self) -> bool:
        """Whether it is a network in float32, which is quantised first."""
        return self.network is not None or kind_of(self.request.path) is FileKind.NETWORK


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WholeVerification:
    """The results of a verification: those of each model, and the files of the report."""

    done: tuple[Verified, ...]
    files: tuple[Path, ...]

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return all(verified.equal for verified in self.done)


def ready(jobs: Sequence[Job], console: Console) -> list[Prepared]:
    """Models that are compiled, in the order of the jobs. Errors that need no slow work show first.

    Raises:
        ValueError: a file is damaged, data are missing or do not fit, or no machine can run a network.
    """
    if not any(job.floating for job in jobs):
        return [prepare(job.request, console) for job in jobs]
    from concord.verification.imported import opened, quantized

    taken = {job.request.path.resolve() for job in jobs}
    begun = []
    for job in jobs:
        if job.floating:
            kept = _kept(job.request, taken)
            begun.append(opened(job.request, kept, console, job.network, job.original))
        else:
            begun.append(prepare(job.request, console))
    return [one if isinstance(one, Prepared) else quantized(one, console) for one in begun]


def verify_all(prepared: Sequence[Prepared], console: Console) -> WholeVerification:
    """Run models on golden and on another machine, compare, and write the report.

    Raises:
        RuntimeError: a machine stopped with an error, or could not be built.
    """
    request = prepared[0].request
    with Builds(request.kind, [[part.config for part in one.compiled.cascade.parts] for one in prepared],
                request.wish.cores) as builds:
        done = [verify_model(one, builds, console) for one in prepared]
    return WholeVerification(done=tuple(done), files=tuple(write_report(done, request.folder)))


def _kept(request: Request, taken: set[Path]) -> Path:
    """Where the quantised model of a network is kept, beside the report; it replaces no file that is verified."""
    stem, count = request.path.stem, 1
    while (path := request.folder / f"{stem}.safetensors").resolve() in taken:
        count += 1
        stem = f"{request.path.stem}-{count}"
    taken.add(path.resolve())
    return path
