"""Shared parts of the commands that train: options, import of PyTorch, progress bars, logs and checkpoints."""

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from concord.lib.files import check_writable
from concord.lib.progress import shown

if TYPE_CHECKING:
    from concord.train.lib.observer import Observer

Seed = Annotated[int, typer.Option("--seed", help="Seed of every random choice.")]
Out = Annotated[str, typer.Option("--out", "-o", help="Model file: a path or URL.")]
Log = Annotated[
    Path | None, typer.Option(
        "--log", help="Log of all epochs: a file if it ends with .csv, otherwise a folder for TensorBoard.")]
Checkpoint = Annotated[
    Path | None, typer.Option(
        "--checkpoint", help="Folder that is saved after each epoch; the same command continues from it.")]


def command_line() -> str:
    """The command line of this run, which a model records."""
    return shlex.join(["nnp", *sys.argv[1:]])


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
    log: Path | None = None, checkpoint: Path | None = None, settings: Mapping[str, str] | None = None
) -> Iterator["Observer"]:
    """A context with an observer of training: progress, a log, and checkpoints.

    Args:
        log:        File or folder of the log, or None.
        checkpoint: Folder of the checkpoint, or None.
        settings:   All settings that influence the result, by name.

    Raises:
        ValueError: a place cannot be written, a package is missing, or the checkpoint is of another training.
    """
    from concord.train.lib.checkpoints import Checkpoints
    from concord.train.lib.observer import Observer, opened

    for path in log, checkpoint and checkpoint / "phase":
        if path:
            check_writable(path, folder=path is log and path.suffix != ".csv")
    checkpoints = Checkpoints(checkpoint, settings or {}) if checkpoint else None
    kept = opened(log) if log else None
    try:
        with shown() as show:
            yield Observer(show, kept, checkpoints)
    finally:
        if kept:
            kept.close()


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
