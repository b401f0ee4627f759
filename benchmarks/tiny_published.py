"""The trained networks of the MLPerf Tiny benchmark, in float32, and their inputs.

The networks come from https://github.com/mlcommons/tiny, folders benchmark/training/*/trained_models. The features of
keyword spotting come from https://github.com/eembc/energyrunner, folder datasets/kws01. None of these files belongs to
this repository.
"""

import csv
import hashlib
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from concord.benchmarks.tiny_networks import samples
from concord.datasets.samples import DataSet, Samples, Task
from concord.lib.input_axes import Order

MODELS_SOURCE = "https://github.com/mlcommons/tiny"
DATA_SOURCE = "https://github.com/eembc/energyrunner, datasets/kws01"
OPSET = "17"  #: Operator set of converted files.
CALIBRATION, SEED = 100, 1000  #: Number of samples that find ranges, and seed of them or of their choice.
TEST_SEED = 2000  #: Seed of the samples that are run where there are no data.
#: Scale and zero point of the int8 features, those of the reference model's input, and the names of their classes.
FEATURE_SCALE, FEATURE_ZERO = 0.5847, 83
KEYWORDS = ("down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes", "silence", "unknown")


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """A network.

    Attributes:
        title:  Name in tables.
        file:   Name of its file without suffix.
        folder: Folder below benchmark/training of the repository that has it.
        inputs: Inputs of the network from numbers of 0 to 1: in the range that the benchmark's preprocessing gives.
    """

    title: str
    file: str
    folder: str
    inputs: Callable[[np.ndarray], np.ndarray]


PUBLISHED = {
    "kws": Published(
        title="keyword spotting, DS-CNN", file="kws_ref_model_float32", folder="keyword_spotting",
        inputs=lambda x: np.rint(255 * x - 128 - FEATURE_ZERO) * FEATURE_SCALE),
    "resnet": Published(  # pixels as they are
        title="image classification, ResNet-8", file="pretrainedResnet", folder="image_classification",
        inputs=lambda x: np.rint(255 * x)),
    "vww": Published(
        title="visual wake words, MobileNetV1-0.25", file="vww_96_float", folder="visual_wake_words",
        inputs=lambda x: np.rint(255 * x) / 255),
    "ad": Published(  # log-mel energies in decibels
        title="anomaly detection, autoencoder", file="ad01_fp32", folder="anomaly_detection",
        inputs=lambda x: 70 * x - 70),
}


def published_file(network: Published, folder: Path) -> Path | None:
    """The file of a network in or below a folder: ONNX before TFLite, and of several the one that lies highest."""
    for suffix in ".onnx", ".tflite":
        if found := min(folder.rglob(network.file + suffix), key=lambda path: len(path.parts), default=None):
            return found
    return None


def onnx_file(network: Published, folder: Path, out: Path, converter: str) -> Path:
    """The ONNX file of a network, which is converted from its TFLite file where there is none.

    Args:
        network:   The network.
        folder:    Folder in or below which one of both files lies.
        out:       Folder of converted files.
        converter: Python that has tf2onnx.

    Raises:
        ValueError: there is no such file, or it cannot be converted.
    """
    found = published_file(network, folder)
    if found is None:
        raise ValueError(f"{folder}: neither {network.file}.onnx nor {network.file}.tflite lies there; the latter is "
                         f"in benchmark/training/{network.folder}/trained_models of {MODELS_SOURCE}")
    if found.suffix == ".onnx":
        return found
    return _converted(found, out / f"{network.file}-{digest(found)}.onnx", converter)


def digest(file: Path) -> str:
    """The first eight digits of the SHA-256 of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:8]


def _converted(file: Path, out: Path, converter: str) -> Path:
    """The ONNX file `out`, whose name has the digest of `file`, so that it stays until the content changes."""
    if out.is_file():
        return out
    if shutil.which(converter) is None or subprocess.run(
            [converter, "-c", "import tf2onnx"], capture_output=True).returncode:
        raise ValueError(f"{file}: {converter} has no tf2onnx to convert it with; give the ONNX file, or run "
                         "`pip install --group zoo`, or name a Python that has tf2onnx and TensorFlow by --converter")
    out.parent.mkdir(parents=True, exist_ok=True)
    made = out.with_suffix(".part")
    run = subprocess.run(
        [converter, "-m", "tf2onnx.convert", "--tflite", file, "--output", made, "--opset", OPSET],
        capture_output=True, text=True, errors="replace")
    if run.returncode or not made.is_file():
        last = (run.stderr.strip() or "it wrote no file").splitlines()[-1]
        raise ValueError(f"{file}: tf2onnx cannot convert it ({last})")
    return made.rename(out)


def data_of(name: str, shape: tuple[int, ...], features: Path | None, count: int) -> tuple[DataSet, np.ndarray]:
    """The data of a network, and bool[samples]: which samples of its test set are the calibration set, too.

    Args:
        name:     Name of the network in PUBLISHED.
        shape:    Shape of one input.
        features: See `keywords`; None for inputs from a seed.
        count:    Number of samples of the test set where they come from a seed.
    """
    if name == "kws" and features is not None:
        return keywords(features, shape)
    return seeded(name, shape, count), np.zeros(count, bool)


def seeded(name: str, shape: tuple[int, ...], count: int) -> DataSet:
    """Inputs of the right range from a seed, without labels.

    Args:
        name:  Name of the network in PUBLISHED.
        shape: Shape of one input.
        count: Number of samples beside the calibration set.
    """
    def drawn(number: int, seed: int) -> Samples:
        made = PUBLISHED[name].inputs(samples(shape, number, seed).numpy()).astype(np.float16)
        return Samples(inputs=made.reshape(number, -1).view(np.uint16))

    return DataSet(name=f"{name}, inputs from a seed", task=Task.NONE, shape=shape, train=None,
                   test=drawn(count, TEST_SEED), calibration=drawn(CALIBRATION, SEED), description="",
                   order=Order.MACHINE)


def feature_folder(folder: Path) -> Path:
    """The folder of the features of keyword spotting, which is `folder` or lies in it.

    Raises:
        ValueError: there are none.
    """
    for path in folder, folder / "kws01", folder / "datasets" / "kws01":
        if (path / "y_labels.csv").is_file() and any(path.glob("tst_*.bin")):
            return path
    raise ValueError(f"{folder}: there is no folder kws01 with y_labels.csv and tst_*.bin; it is in {DATA_SOURCE}")


def keywords(folder: Path, shape: tuple[int, ...]) -> tuple[DataSet, np.ndarray]:
    """The 1,000 features of keyword spotting as test set, and bool[samples]: which of them are the calibration set.

    Args:
        folder: See `feature_folder`.
        shape:  Shape of one input of the network.

    Raises:
        ValueError: files are missing or damaged.
    """
    file = folder / "y_labels.csv"
    labels, features = [], []
    with file.open(newline="") as lines:
        for number, line in enumerate(csv.reader(lines), 1):
            try:
                name, classes, label = (part.strip() for part in line)
                features.append(np.fromfile(folder / Path(name).name, np.int8).reshape(shape))
                labels.append(range(int(classes)).index(int(label)))
            except (ValueError, OSError) as error:
                raise ValueError(f"{file}, line {number}: it names no file of {np.prod(shape)} bytes, number of "
                                 f"classes and class ({error}); copy the folder again") from error
    inputs = ((np.stack(features) - np.float64(FEATURE_ZERO)) * FEATURE_SCALE).astype(np.float16)
    test = Samples(inputs=inputs.reshape(len(inputs), -1).view(np.uint16), lengths=None, labels=np.array(labels),
                   classes=KEYWORDS)
    chosen = np.zeros(len(test), bool)
    chosen[np.random.default_rng(SEED).permutation(len(test))[:CALIBRATION]] = True
    return DataSet(name="kws01", task=Task.CLASSIFICATION, shape=shape, train=None, test=test,
                   calibration=test.part(chosen), description="", order=Order.MACHINE), chosen
