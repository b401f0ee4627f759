"""Fashion-MNIST and JapaneseVowels: the shipped test sets, and the files in which both are published.

These files may also have other content.
"""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from concord.datasets.raw import LIMIT, Found, Raw
from concord.datasets.samples import Samples
from safetensors import SafetensorError
from safetensors.numpy import load_file

#: Where the repository keeps its data.
DATA = Path(__file__).resolve().parents[1] / "data"

FASHION = ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
#: Names of the files in which both are published, for each part.
IMAGES, UTTERANCES = "{}-images-idx3-ubyte.gz", "JapaneseVowels_{}.ts"
VOWELS = tuple(f"speaker {number}" for number in range(1, 10))


def load(name: str, folder: Path = DATA) -> Samples:
    """The test set called `name`, as the shipped models and reports call it.

    Raises:
        ValueError: there is no such data set, or its files are missing or damaged.
    """
    if name not in SHIPPED:
        raise ValueError(f"there is no data set {name!r}: choose {' or '.join(SHIPPED)}")
    return SHIPPED[name](folder / name)


def utterances(folder: Path) -> Samples:
    """The test utterances of a folder, in the order in which the repository ships its own."""
    return pad(*shuffled(folder / UTTERANCES.format("TEST"))[:3])


def names(count: int) -> tuple[str, ...]:
    """Default names of classes."""
    return tuple(f"class {index}" for index in range(count))


def images(folder: Path, part: str) -> Samples:
    """One part (train or t10k) of a folder of Fashion-MNIST files; each pixel is binary16(pixel / 255)."""
    found, labels = pixels(folder, part)
    table = (np.arange(256) / 255).astype(np.float16).view(np.uint16)
    return Samples(inputs=table[found.reshape(len(found), -1)], lengths=None, labels=labels, classes=FASHION)


def pixels(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """uint8[samples, rows, columns] and uint8[samples], the images and labels of one part of such a folder."""
    found = _idx(folder / IMAGES.format(part))
    labels = _idx(folder / f"{part}-labels-idx1-ubyte.gz")
    if found.ndim != 3 or labels.ndim != 1 or not found.size:
        raise ValueError(f"{folder}: images are [samples, rows, columns] and labels [samples], not {list(found.shape)} "
                         f"and {list(labels.shape)}; copy both files again")
    if len(found) != len(labels):
        raise ValueError(f"{folder}: {len(found)} images but {len(labels)} labels of {part}; copy both files again")
    return found, labels


def sequences(path: Path) -> Samples:
    """Read a file of utterances, with `frames`[total, 12], `lengths` and `labels`; values are rounded to binary16."""
    try:
        tensors = load_file(path)
        frames, lengths, labels = (tensors[key] for key in ("frames", "lengths", "labels"))
    except (OSError, SafetensorError, KeyError) as error:
        raise ValueError(f"{path}: not a whole file of utterances ({error}); check it out again") from error
    return pad(frames, lengths.astype(np.int64), labels)


def pad(frames: np.ndarray, lengths: np.ndarray, labels: np.ndarray) -> Samples:
    """Utterances, concatenated in `frames`[total, inputs], as one array; shorter ones are padded with zeros."""
    inputs = padded(frames.astype(np.float16), lengths).view(np.uint16)
    return Samples(inputs=inputs, lengths=lengths, labels=labels, classes=VOWELS)


def padded(frames: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """[samples, time, inputs] of `frames`[total, inputs], which hold one utterance after the other."""
    made = np.zeros((len(lengths), int(lengths.max()), frames.shape[1]), frames.dtype)
    made[np.arange(made.shape[1]) < lengths[:, None]] = frames
    return made


def shuffled(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The utterances of a `.ts` file in the order in which the repository ships them, and that order.

    They are shuffled, so that the first few hold all speakers. `transcript` describes frames, lengths and labels.
    """
    frames, lengths, labels = transcript(path)
    order = np.random.default_rng(0).permutation(len(lengths))
    utterances = np.split(frames, np.cumsum(lengths)[:-1])
    return np.concatenate([utterances[index] for index in order]), lengths[order], labels[order], order


def transcript(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """float32[total, inputs] frames, int64[samples] lengths and uint8[samples] labels (from 0) of a `.ts` file.

    Colons separate the channels; the last field is the class, which counts from 1.

    Raises:
        ValueError: there is no such file, or a line does not have this form.
    """
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    frames, labels = [], []
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        if not line or line[0] in "#@":
            continue
        try:
            *channels, label = line.split(":")
            if not channels:
                raise ValueError("it has no channels")
            frames.append(np.array([channel.split(",") for channel in channels], np.float32).T)
            labels.append(int(label) - 1)
            if frames[-1].shape[1:] != frames[0].shape[1:] or not 0 <= labels[-1] < 256:
                raise ValueError(f"{frames[-1].shape[1]} channels of class {label}, where {frames[0].shape[1]} "
                                 "channels of a class in 1..256 are needed")
        except (ValueError, IndexError) as error:
            raise ValueError(f"{path}, line {number}: not an utterance, which is channels of as many numbers each and "
                             f"a class, parted by colons ({error})") from error
    if not frames:
        raise ValueError(f"{path}: it holds no utterances")
    return np.concatenate(frames), np.array([len(f) for f in frames]), np.array(labels, np.uint8)


def is_published(folder: Path) -> bool:
    """Whether a folder holds files in which one of both is published."""
    return any((folder / name.format(part)).is_file() for name, parts in (
        (IMAGES, ("train", "t10k")), (UTTERANCES, ("TRAIN", "TEST"))) for part in parts)


def published(folder: Path) -> Found:
    """The training and test samples of a folder; one of the two may be missing.

    Raises:
        ValueError: a file is damaged, or one of a pair is missing.
    """
    if (folder / UTTERANCES.format("TEST")).is_file() or (folder / UTTERANCES.format("TRAIN")).is_file():
        parts = {"train": _published_utterances(folder / UTTERANCES.format("TRAIN"), transcript),
                 "test": _published_utterances(folder / UTTERANCES.format("TEST"), lambda path: shuffled(path)[:3])}
        classes, scale = VOWELS, 1.0
        shipped = "japanese-vowels"
    else:
        parts = {name: _published_images(folder, part) for name, part in (("train", "train"), ("test", "t10k"))}
        classes, scale = FASHION, 1 / 255
        shipped = "fashion-mnist"
    present = {part: raw for part, raw in parts.items() if raw is not None}
    own = "test" not in present or not np.array_equal(
        np.asarray(present["test"].labels), np.asarray(load(shipped).labels))
    return Found(parts=present, classes=() if own else classes, scale=scale, image=scale != 1)


def _published_images(folder: Path, part: str) -> Raw | None:
    path = folder / IMAGES.format(part)
    if not path.is_file():
        return None
    found, labels = pixels(folder, part)
    return Raw(inputs=found[:, None], labels=labels, lengths=None, location=str(path))


def _published_utterances(path: Path, read) -> Raw | None:
    if not path.is_file():
        return None
    frames, lengths, labels = read(path)
    return Raw(inputs=padded(frames, lengths), labels=labels, lengths=lengths, location=str(path))


def _content(stream, size: int) -> bytes:
    """The rest of a stream, which is `size` bytes. It is read in pieces, as a stream may hold less than is promised.

    Raises:
        ValueError: it has another size, or there are more than `LIMIT` bytes.
    """
    if size > LIMIT:
        raise ValueError(f"more than {LIMIT // 2**30} GiB")
    content = bytearray()
    while piece := stream.read(2**20):
        content += piece
        if len(content) > size:
            break
    if len(content) != size:
        raise ValueError(f"its header promises {size:,} bytes, but it has "
                         f"{'more' if len(content) > size else f'{len(content):,}'}")
    return bytes(content)


class _NotBytes(ValueError):
    """An IDX file of another type, or no such file."""


def _idx(path: Path) -> np.ndarray:
    """Read a gzipped IDX file of bytes."""
    try:
        with gzip.open(path) as stream:
            *kind, dimensions = stream.read(4)
            if kind != [0, 0, 8]:
                raise _NotBytes(f"{path}: it begins with {bytes(kind).hex(' ')}, but IDX files of bytes, which are "
                                "read, begin with 00 00 08; save it as uint8")
            shape = struct.unpack(f">{dimensions}I", stream.read(4 * dimensions))
            return np.frombuffer(_content(stream, math.prod(shape)), np.uint8).reshape(shape)
    except _NotBytes:
        raise
    except FileNotFoundError as error:
        raise ValueError(
            f"{path}: no such file; Debian's package dataset-fashion-mnist puts it into "
            "/usr/share/datasets/fashion-mnist"
        ) from error
    except (OSError, EOFError, IndexError, struct.error, zlib.error, ValueError) as error:
        raise ValueError(f"{path}: not a whole IDX file ({error}); copy it again") from error


#: The test sets that come with the repository.
SHIPPED = {
    "fashion-mnist": lambda folder: images(folder, "t10k"),
    "japanese-vowels": lambda folder: sequences(folder / "test.safetensors"),
}
