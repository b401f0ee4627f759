"""Shared parts of the commands that train: options, import of PyTorch, progress bars, logs and checkpoints."""

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from concord.lib.files import check_writable
from concord.lib.progress import shown

if TYPE_CHECKING:
    from concord.train.lib.observer import Observer
    from concord.train.live.live_observer import LiveObserver

Seed = Annotated[int, typer.Option("--seed", help="Seed of every random choice.")]
Out = Annotated[str, typer.Option("--out", "-o", help="Model file: a path or URL.")]
Log = Annotated[
    Path | None, typer.Option(
        "--log", help="Log of all epochs: a file if it ends with .csv, otherwise a folder for TensorBoard.")]
Checkpoint = Annotated[
    Path | None, typer.Option(
        "--checkpoint", help="Folder that is saved after each epoch; the same command continues from it.")]


Run = Annotated[
    Path | None, typer.Option(
        "--run", help="Folder in which training can be watched and steered, as `nnp dashboard` does; the same command "
                      "continues from it. The model goes there, too, unless --out is given.")]
Steering = Annotated[
    Path | None, typer.Option(
        "--steering", exists=True, dir_okay=False,
        help="steering.json of a run, whose changes are made again after the same steps.")]
#: Options that say where training is watched, and not what it gives.
WATCHING = ("--run", "--steering")


def command_line() -> str:
    """The command line of this run, which a model records, without the options `WATCHING`."""
    words, kept = sys.argv[1:], ["nnp"]
    for before, word in zip(["", *words], words, strict=False):
        if before not in WATCHING and word.partition("=")[0] not in WATCHING:
            kept.append(word)
    return shlex.join(kept)


def check_watching(run: Path | None, steering: Path | None, checkpoint: Path | None):
    """Refuse options that contradict each other.

    Raises:
        ValueError: they do.
    """
    if run and checkpoint:
        raise ValueError("--run keeps checkpoints in its folder: leave --checkpoint out")
    if run and steering:
        raise ValueError("--run is steered by its own folder: leave --run or --steering out")


def epochs_of(text: str, example: str = "8,4,1") -> tuple[int, ...]:
    """The numbers of epochs in the value of `--epochs`, as many as the example has.

    Raises:
        ValueError: the value is not as many numbers.
    """
    try:
        found = tuple(map(int, text.split(",")))
    except ValueError:
        found = ()
    if len(found) != len(example.split(",")):
        count = {2: "two", 3: "three"}[len(example.split(","))]
        raise ValueError(f"--epochs {text}: {count} numbers parted by commas are needed, such as {example}")
    return found


def check_rate(rate: float | None):
    """Refuse a value of --rate.

    Raises:
        ValueError: no training begins with such a learning rate.
    """
    if rate is not None and not 0 < rate < 100:
        raise ValueError(f"--rate {rate:g}: a learning rate is above 0, such as 0.01")


@contextmanager
def followed(
    log: Path | None = None, checkpoint: Path | None = None, settings: Mapping[str, str] | None = None, *,
    run: Path | None = None, steering: Path | None = None, epochs: int = 0,
) -> Iterator["Observer"]:
    """A context with an observer of training: progress, a log, and checkpoints.

    Args:
        log:        File or folder of the log, or None.
        checkpoint: Folder of the checkpoint, or None.
        settings:   All settings that influence the result, by name.
        run:        Folder in which the training is watched and steered, or None.
        steering:   File of changes to make again, or None.
        epochs:     Number of epochs of all phases, which a run shows.

    Raises:
        ValueError: a file cannot be written, a package is missing, or the checkpoint is of another training.
    """
    from concord.train.lib.checkpoints import Checkpoints
    from concord.train.lib.observer import Observer, opened
    from concord.train.live.changes import read_changes
    from concord.train.live.live_observer import LiveObserver
    from concord.train.live.steered import SteeredObserver

    check_watching(run, steering, checkpoint)
    changes = read_changes(steering) if steering else []
    deciding = {**(settings or {}), **({"steering": str([astuple(each)[:4] for each in changes])} if changes else {})}
    checkpoint = run / "checkpoint" if run else checkpoint
    for path in log, checkpoint and checkpoint / "phase":
        if path:
            check_writable(path, folder=path is log and path.suffix != ".csv")
    checkpoints = Checkpoints(checkpoint, deciding) if checkpoint else None
    kept = opened(log) if log else None
    try:
        with shown() as show:
            if not run:
                yield SteeredObserver(show, kept, checkpoints, changes) if changes else Observer(
                    show, kept, checkpoints)
                return
            live = LiveObserver(run, epochs, deciding, show, kept, checkpoints)
            with _ended(live):
                yield live
    finally:
        if kept:
            kept.close()


@contextmanager
def _ended(live: "LiveObserver") -> Iterator[None]:
    """A context after which a run says how it has ended."""
    try:
        yield
    except BaseException as error:
        live.close(str(error) or type(error).__name__)
        raise
    live.close()


def settings(kind: str, options: Mapping) -> dict[str, str]:
    """The options of a training as text, by name; the fields of dataclasses become entries of their own."""
    found = {"kind": kind}
    for name, value in options.items():
        if is_dataclass(value):
            inner = settings(kind, {item.name: getattr(value, item.name) for item in fields(value)})
            found |= {f"{name}.{key}": words for key, words in inner.items() if key != "kind"}
        else:
            found[name] = str(value)
    return found
