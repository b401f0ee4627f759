"""Data sets in the files in which Fashion-MNIST and JapaneseVowels are published, also with other content."""

from pathlib import Path

import numpy as np
from concord.datasets import dataset
from concord.datasets.raw import Found, Raw

IMAGES = "{}-images-idx3-ubyte.gz"
UTTERANCES = "JapaneseVowels_{}.ts"


def is_published(folder: Path) -> bool:
    """Whether a folder holds such files."""
    return any((folder / name.format(part)).is_file() for name, parts in (
        (IMAGES, ("train", "t10k")), (UTTERANCES, ("TRAIN", "TEST"))) for part in parts)


def found(folder: Path) -> Found:
    """The training and test samples of a folder; one of the two may be missing.

    Raises:
        ValueError: a file is damaged, or one of a pair is missing.
    """
    if (folder / UTTERANCES.format("TEST")).is_file() or (folder / UTTERANCES.format("TRAIN")).is_file():
        parts = {"train": _utterances(folder / UTTERANCES.format("TRAIN"), dataset.transcript),
                 "test": _utterances(folder / UTTERANCES.format("TEST"), lambda path: dataset.shuffled(path)[:3])}
        names, scale = dataset.VOWELS, 1.0
        shipped = parts["test"] and dataset.load("japanese-vowels")
    else:
        parts = {name: _images(folder, part) for name, part in (("train", "train"), ("test", "t10k"))}
        names, scale = dataset.FASHION, 1 / 255
        shipped = parts["test"] and dataset.load("fashion-mnist")
    present = {part: raw for part, raw in parts.items() if raw is not None}
    own = "test" not in present or not np.array_equal(present["test"].labels, shipped.labels)
    return Found(parts=present, classes=() if own else names, scale=scale,
                 image=scale != 1)


def _images(folder: Path, part: str) -> Raw | None:
    path = folder / IMAGES.format(part)
    if not path.is_file():
        return None
    pixels, labels = dataset.pixels(folder, part)
    return Raw(inputs=pixels[:, None], labels=labels, lengths=None, place=str(path))


def _utterances(path: Path, read) -> Raw | None:
    if not path.is_file():
        return None
    frames, lengths, labels = read(path)
    return Raw(inputs=dataset.padded(frames, lengths), labels=labels, lengths=lengths, place=str(path))
