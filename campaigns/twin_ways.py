"""Ways to run the twin of firmware, and the cells that they have in the table of `nox -s twin_networks`."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from concord.nnp.lib.errors import readable
from concord.twin.source.frameworks import FORMS, RUNTIMES, Framework, installed
from concord.verification.twins import CLOSE

#: Differing bits, or the distance of real numbers, or a word where there is no number.
Cell = int | float | str
NOT_RUN, FAILED = "not run", "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """A way to run a twin.

    Attributes:
        framework: What it runs in.
        compiled:  Whether the framework compiles it.
        hints:     Whether the recovery has seen the names of layers that firmware carries.
        device:    Device of PyTorch that it runs on; empty for the CPU.
    """

    framework: Framework
    compiled: bool
    hints: bool
    device: str = ""

    @property
    def title(self) -> str:
        """Its column's title."""
        return (f"{self.framework}{f', {self.device}' * bool(self.device)}{', compiled' * self.compiled}"
                f"{', no hints' * (not self.hints)}")


def frameworks_of(names: str) -> list[Framework]:
    """Frameworks by their names, parted by commas; without a name, all that have source.

    Raises:
        ValueError: a name is none of a framework.
    """
    words = dict.fromkeys(name.strip() for name in names.split(",") if name.strip())
    if unknown := [name for name in words if name not in list(Framework)]:
        raise ValueError(f"there is no framework {unknown[0]!r}: choose of {', '.join(Framework)}")
    return [Framework(name) for name in words] or list(FORMS)


def ways_of(frameworks: Iterable[Framework], *, eager: bool, device: str = "") -> list[Way]:
    """All ways of some frameworks, those with hints first; `eager` leaves out those that compile.

    Args:
        frameworks: The frameworks.
        eager:      Whether to leave out ways that compile.
        device:     Device on which twins in PyTorch run; empty for the CPU.
    """
    return [Way(framework=framework, compiled=compiled, hints=hints,
                device=device if framework is Framework.TORCH else "")
            for hints in (True, False) for framework in frameworks for compiled in (False, True)
            if not compiled or (RUNTIMES[framework].compile and not eager)]


def check_device(device: str):
    """Refuse a device that PyTorch does not have here, or that computes nothing.

    Raises:
        ValueError: the name is none of a device, or no such device is here.
    """
    import torch

    try:
        torch.ones(1, dtype=torch.float64, device=device).cpu()
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        raise ValueError(f"PyTorch has no device {device!r} that computes in float64 here: "
                         f"{str(error).strip().splitlines()[0]}") from error


def lacking(frameworks: list[Framework]) -> list[str]:
    """A sentence for each framework that is not installed.

    Raises:
        ValueError: none of them is.
    """
    missing = [framework for framework in frameworks if not installed(framework)]
    if len(missing) == len(frameworks):
        raise ValueError("no twin can run here: " + "; ".join(
            f"{framework} is not installed ({RUNTIMES[framework].install})" for framework in missing))
    return [f"{framework} is not installed, and its columns say {NOT_RUN!r}: {RUNTIMES[framework].install}"
            for framework in missing]


def tried(what: str, run: Callable[[], Cell], say: Callable[[str], None]) -> Cell:
    """The cell of a run, or FAILED after a sentence that names it."""
    try:
        return run()
    except Exception as error:  # frameworks raise errors of many types
        say(f"{what} failed: {type(error).__name__}: {readable(str(error)).strip() or 'no more is known'}")
        return FAILED


def differs(cell: Cell) -> bool:
    """Whether a cell says that results are not those of golden."""
    if isinstance(cell, str):
        return cell == FAILED
    return cell != 0 if isinstance(cell, int) else not cell <= CLOSE


def text(cell: Cell) -> str:
    """A cell as text."""
    if isinstance(cell, str):
        return cell
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:.1e}"


def batches(samples: list[np.ndarray], together: int = 33) -> Iterator[tuple[list[int], np.ndarray]]:
    """Numbers of samples of one shape, and these samples as a batch of at most `together`.

    The first batch has one sample: compilers make code of its own for that.
    """
    alone = 1
    for shape in sorted({sample.shape for sample in samples}):
        chosen = [index for index, sample in enumerate(samples) if sample.shape == shape]
        edges = [*[0] * alone, *range(alone, len(chosen), together), len(chosen)]
        for part in (chosen[first:last] for first, last in pairwise(edges)):
            yield part, np.stack([samples[index] for index in part])
        alone = 0


def results(run: Callable[[np.ndarray], np.ndarray], samples: list[np.ndarray], like: np.ndarray) -> np.ndarray:
    """Outputs [samples, outputs] of all samples, which a function computes batch by batch.

    Raises:
        ValueError: a batch gives outputs of another shape than golden's, `like`.
    """
    found = np.empty_like(like)
    for chosen, batch in batches(samples):
        made = run(batch)
        if made.shape != (len(batch), *like.shape[1:]):
            raise ValueError(f"outputs have the shape {made.shape} instead of {(len(batch), *like.shape[1:])}")
        found[chosen] = made
    return found
