"""Training data: the sources from which they come, and what to do if they are missing."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from math import prod
from pathlib import Path

import numpy as np
from concord.datasets import dataset
from concord.datasets.dataset import images, pad, transcript
from concord.datasets.samples import Samples
from safetensors.numpy import save_file

#: Where Debian's package dataset-fashion-mnist puts its files.
FASHION = Path("/usr/share/datasets/fashion-mnist")
#: How an image of so many pixels becomes numbers, in words.
PIXELS = "{} pixels, row by row, each binary16(pixel / 255)"


def fashion_mnist(folder: Path | None = None) -> Samples:
    """The 60,000 training images.

    Args:
        folder: Folder of the four gzipped IDX files. By default it is that of Debian's package.
    """
    folder = Path(folder or FASHION)
    if not folder.is_dir():
        raise ValueError(
            f"{folder}: Fashion-MNIST is not there; `apt-get install dataset-fashion-mnist`, or name a folder that "
            "holds train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz"
        )
    return images(folder, "train")


def japanese_vowels(folder: Path | None = None) -> Samples:
    """The 270 training utterances.

    Args:
        folder: Folder of JapaneseVowels_TRAIN.ts. By default it is that of the installed package aeon.
    """
    return pad(*transcript(_vowels_folder(folder) / "JapaneseVowels_TRAIN.ts"))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Sets:
    """What a network is trained on, and what it is measured with.

    Attributes:
        name:  Name of the test set in the model: that of a shipped set, or "folder NAME".
        train: Training samples.
        test:  Test samples, of the same kind.
    """

    name: str
    train: Samples
    test: Samples


def image_sets(folder: Path | None = None) -> Sets:
    """Training images and the test images that belong to them.

    Args:
        folder: Folder of the train and t10k files. By default the training images come from Debian's package.

    Raises:
        ValueError: files are missing or damaged, or training and test images do not fit each other.
    """
    train = fashion_mnist(folder)
    return _sets("fashion-mnist", train, folder, lambda: images(Path(folder), "t10k"))


def sized(sets: Sets, shape: tuple[int, int, int], classes: int, folder: Path | None) -> Sets:
    """Images for a network of a shape, whose test set has names for all of its classes.

    Raises:
        ValueError: the images are of another size, or of more classes.
    """
    pixels, found = sets.train.inputs.shape[1], len(sets.train.classes)
    if pixels != prod(shape) or found > classes:
        raise ValueError(f"{folder}: the networks take images of {shape[1]} x {shape[2]} pixels in at most "
                         f"{classes} classes, not {pixels} pixels in {found} classes; `nnp train mlp` takes any")
    return sets if found == classes else replace(sets, test=replace(sets.test, classes=dataset.names(classes)))


def vowel_sets(folder: Path | None = None) -> Sets:
    """Training utterances and the test utterances that belong to them.

    Args:
        folder: Folder of JapaneseVowels_TRAIN.ts and JapaneseVowels_TEST.ts. By default the training utterances come
            from the installed package aeon.

    Raises:
        ValueError: files are missing or damaged, or training and test utterances do not fit each other.
    """
    train = japanese_vowels(folder)
    return _sets("japanese-vowels", train, folder, lambda: dataset.utterances(Path(folder)))


def _sets(shipped: str, train: Samples, folder: Path | None, read: Callable[[], Samples]) -> Sets:
    """Training samples with the shipped test set, if the folder is None or has the same one, else with its own."""
    test = dataset.load(shipped)
    if folder is None:
        return Sets(name=shipped, train=train, test=test)
    own = read()
    if np.array_equal(own.inputs, test.inputs) and np.array_equal(own.labels, test.labels):
        return Sets(name=shipped, train=train, test=test)
    if own.inputs.shape[-1] != train.inputs.shape[-1]:
        raise ValueError(f"{folder}: training samples have {train.inputs.shape[-1]} numbers, test samples "
                         f"{own.inputs.shape[-1]}; give both the same")
    count = int(train.labels.max()) + 1
    if own.labels.max() >= count:
        raise ValueError(f"{folder}: the test set has class {own.labels.max()}, which no training sample has; training "
                         f"has the classes 0..{count - 1}")
    train, test = (replace(samples, classes=dataset.names(count)) for samples in (train, own))
    return Sets(name=f"folder {Path(folder).resolve().name}", train=train, test=test)


def write_vowels(path: Path, folder: Path | None = None):
    """Write the test utterances as the repository ships them: shuffled, so that the first few have all the speakers."""
    frames, lengths, labels, order = dataset.shuffled(_vowels_folder(folder) / "JapaneseVowels_TEST.ts")
    tensors = {"frames": frames, "order": order.astype(np.int32), "labels": labels}
    save_file(tensors | {"lengths": lengths.astype(np.uint8)}, path)


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
