"""The shipped test sets, as the binary16 vectors that a machine reads."""

import gzip
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

#: Where the repository keeps its data.
DATA = Path(__file__).resolve().parents[1] / "data"

FASHION = ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
_VOWELS = tuple(f"speaker {number}" for number in range(1, 10))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Samples:
    """A labelled data set.

    Attributes:
        inputs:  uint16[samples, inputs] binary16 patterns; for sequences [samples, time, inputs], +0 behind their end.
        lengths: int64[samples] time steps of each sequence, or None.
        labels:  uint8[samples] class of each sample.
        classes: Names of the classes.
    """

    inputs: np.ndarray
    lengths: np.ndarray | None
    labels: np.ndarray
    classes: tuple[str, ...]

    def first(self, count: int) -> "Samples":
        """The first `count` samples."""
        lengths = None if self.lengths is None else self.lengths[:count]
        return Samples(inputs=self.inputs[:count], lengths=lengths, labels=self.labels[:count], classes=self.classes)


def load(name: str, folder: Path = DATA) -> Samples:
    """The test set called `name`, as the shipped models and reports call it.

    Raises:
        ValueError: there is no such data set, or its files are missing or damaged.
    """
    if name == "fashion-mnist":
        return images(folder / name, "t10k")
    if name == "japanese-vowels":
        return sequences(folder / name / "test.safetensors")
    raise ValueError(f"there is no data set {name!r}: choose fashion-mnist or japanese-vowels")


def images(folder: Path, part: str) -> Samples:
    """One part (train or t10k) of a folder of Fashion-MNIST files; each pixel is binary16(pixel / 255)."""
    pixels = _idx(folder / f"{part}-images-idx3-ubyte.gz")
    labels = _idx(folder / f"{part}-labels-idx1-ubyte.gz")
    if len(pixels) != len(labels):
        raise ValueError(f"{folder}: {len(pixels)} images but {len(labels)} labels of {part}; copy both files again")
    table = (np.arange(256) / 255).astype(np.float16).view(np.uint16)
    return Samples(inputs=table[pixels.reshape(len(pixels), -1)], lengths=None, labels=labels, classes=FASHION)


def sequences(path: Path) -> Samples:
    """A file of utterances: `frames`[total, 12], `lengths` and `labels`; each value is rounded to binary16."""
    try:
        tensors = load_file(path)
        frames, lengths, labels = (tensors[key] for key in ("frames", "lengths", "labels"))
    except (OSError, SafetensorError, KeyError) as error:
        raise ValueError(f"{path}: not a whole file of utterances ({error}); check it out again") from error
    return pad(frames, lengths.astype(np.int64), labels)


def pad(frames: np.ndarray, lengths: np.ndarray, labels: np.ndarray) -> Samples:
    """Utterances, laid end to end in `frames`[total, inputs], as one array with zeros behind the shorter ones."""
    inputs = np.zeros((len(lengths), int(lengths.max()), frames.shape[1]), np.uint16)
    inside = np.arange(inputs.shape[1]) < lengths[:, None]
    inputs[inside] = frames.astype(np.float16).view(np.uint16)
    return Samples(inputs=inputs, lengths=lengths, labels=labels, classes=_VOWELS)


def _idx(path: Path) -> np.ndarray:
    """A gzipped IDX file of bytes."""
    try:
        content = gzip.decompress(path.read_bytes())
        dimensions = content[3]
        shape = struct.unpack_from(f">{dimensions}I", content, 4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
    except FileNotFoundError as error:
        raise ValueError(
            f"{path}: no such file; Debian's package dataset-fashion-mnist puts it into "
            "/usr/share/datasets/fashion-mnist"
        ) from error
    except (OSError, EOFError, IndexError, struct.error, ValueError) as error:
        raise ValueError(f"{path}: not a whole IDX file ({error}); copy it again") from error
