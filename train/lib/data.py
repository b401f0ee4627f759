"""Training data: where it comes from, and what to do where it is missing."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from concord.model.dataset import Samples, images, pad
from safetensors.numpy import save_file

#: Where Debian's package dataset-fashion-mnist puts its files.
FASHION = Path("/usr/share/datasets/fashion-mnist")


def fashion_mnist(folder: Path | None = None) -> Samples:
    """The 60,000 training images.

    Args:
        folder: Of the four gzipped IDX files; the place of Debian's package by default.
    """
    folder = Path(folder or FASHION)
    if not folder.is_dir():
        raise ValueError(
            f"{folder}: Fashion-MNIST is not there; `apt-get install dataset-fashion-mnist`, or name a folder that "
            "holds train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz"
        )
    return images(folder, "train")


def japanese_vowels(folder: Path | None = None, part: str = "TRAIN") -> Samples:
    """The 270 training utterances, or the 370 of the part TEST.

    Args:
        folder: Of JapaneseVowels_TRAIN.ts; that of the installed package aeon by default.
    """
    return pad(*_read_ts(_vowels_folder(folder) / f"JapaneseVowels_{part}.ts"))


def write_vowels(path: Path, folder: Path | None = None):
    """Write the test utterances as the repository ships them: shuffled, so that the first few have all the speakers."""
    frames, lengths, labels = _read_ts(_vowels_folder(folder) / "JapaneseVowels_TEST.ts")
    order = np.random.default_rng(0).permutation(len(lengths))
    utterances = np.split(frames, np.cumsum(lengths)[:-1])
    tensors = {"frames": np.concatenate([utterances[index] for index in order]), "order": order.astype(np.int32)}
    save_file(tensors | {"lengths": lengths[order].astype(np.uint8), "labels": labels[order]}, path)


def _vowels_folder(folder: Path | None) -> Path:
    if folder is None:
        package = find_spec("aeon")
        folder = Path(package.origin).parent / "datasets/data/JapaneseVowels" if package else Path("JapaneseVowels")
    folder = Path(folder)
    if not (folder / "JapaneseVowels_TRAIN.ts").is_file():
        raise ValueError(
            f"{folder}: JapaneseVowels_TRAIN.ts is not there; `pip install --no-deps aeon==1.6.0` carries it, or name "
            "a folder that holds it"
        )
    return folder


def _read_ts(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """frames[total, 12], lengths and labels (from 0) of a `.ts` file: channels apart by colons, the class last."""
    lines = [line for line in path.read_text().splitlines() if line and line[0] not in "#@"]
    utterances = [line.split(":") for line in lines]
    frames = [np.array([channel.split(",") for channel in channels], np.float32).T for *channels, _ in utterances]
    labels = np.array([int(label) - 1 for *_, label in utterances], np.uint8)
    return np.ascontiguousarray(np.concatenate(frames)), np.array([len(f) for f in frames]), labels
