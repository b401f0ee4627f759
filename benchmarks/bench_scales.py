"""Scales of inputs, and channels of equal range, under post-training quantisation: `nox -s bench_scales`.

Perceptrons learn scikit-learn's digits after a StandardScaler. Some pixels are nearly always 0, so that the scaler
multiplies them by up to 37. Their accuracy on the test set is that of onnxruntime on the FP32 network and after its own
static quantisation to 8 bits, and that of golden where the scaler is part of the weights of the first layer, and where
R and O of its quantiser hold it.

Then networks come to fewer bits, as they are and with `--equalize`: these perceptrons, the FP32 networks of the shipped
MLP and ResNet, and a MobileNet that is trained for a minute.
"""

import logging
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import torch
import typer
from concord.campaigns.makers.networks import model
from concord.datasets import dataset
from concord.frontends.onnx.read import read
from concord.loading import load
from concord.net import network as golden
from concord.net.graph import Graph
from concord.net.model_file import load_model
from concord.net.quantize.choices import Choices
from concord.net.quantize.equalizing import equalize
from concord.net.quantize.node_results import outputs
from concord.net.quantize.quantized import prepared, quantized
from concord.net.quantize.recipe import ActivationMethod, Methods, Recipe
from concord.train.lib.networks import NETWORKS
from rich.console import Console
from rich.table import Table
from torch import nn

SIZES = ((32,), (64,), (64, 32))  #: Hidden layers of the perceptrons.
BITS = (8, 6, 5, 4)
CALIBRATION = 256  #: Number of training samples to calibrate with.
TRAINED = 7_000  #: Of the 10,000 images, those that the MobileNet learns; all networks are tested on the others.
EPOCHS, BATCH, RATE = 6, 64, 6e-3
#: Largest distance in points from FP32, in the mean over all perceptrons in 8 bits.
NEAR = 0.25


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ScaledNetwork:
    """A network with its data.

    Attributes:
        name:        Name of the network.
        network:     The FP32 network.
        calibration: float32[samples, *shape], the calibration set.
        x:           float32[samples, *shape], the test set.
        classes:     int[samples], its classes.
        path:        ONNX file, or None.
    """

    name: str
    network: Graph
    calibration: np.ndarray
    x: np.ndarray
    classes: np.ndarray
    path: Path | None = None

    def accuracy(self, numbers: np.ndarray) -> float:
        """The share of the test set in percent that has the class of the largest output."""
        return 100 * float(np.mean(numbers.reshape(len(self.x), -1).argmax(1) == self.classes))

    def golden(self, choices: Choices, *, apart: bool = True, network: Graph | None = None) -> float:
        """Accuracy of golden after quantisation of the network, or of another form of it."""
        made = quantized(prepared(network or self.network, choices, scales_apart=apart), self.calibration)
        x = self.x.reshape(len(self.x), -1).astype(np.float16).view(np.uint16)
        found = golden.outputs(model(list(made.layers), dict(made.sources)), x)
        return self.accuracy(found.view(np.float16))

    def static(self) -> float:
        """Accuracy of onnxruntime after its static quantisation to 8 bits."""
        from onnxruntime import InferenceSession
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

        class Samples(CalibrationDataReader):
            def __init__(self, x: np.ndarray):
                self.left = iter(x)

            def get_next(self):
                sample = next(self.left, None)
                return None if sample is None else {"X": sample[None]}

        made = self.path.with_suffix(".static.onnx")
        quantize_static(self.path, made, Samples(self.calibration), quant_format=QuantFormat.QDQ,
                        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
        labels, *_ = InferenceSession(made, providers=["CPUExecutionProvider"]).run(None, {"X": self.x})
        return 100 * float(np.mean(labels == self.classes))


def choices(bits: int) -> Choices:
    """Weights and inputs of so many bits, by the methods that `nnp quantize` chooses."""
    return Choices(recipe=Recipe(weights_bits=bits, input_bits=bits, symmetric=(True, True),
                                 methods=Methods(activations=ActivationMethod.ENDS)))


def perceptron(hidden: tuple[int, ...], seed: int, folder: Path) -> ScaledNetwork:
    """A pipeline of a StandardScaler and a perceptron for scikit-learn's digits, which is read from its ONNX file."""
    from skl2onnx import to_onnx
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, labels = load_digits(return_X_y=True)
    train, test, known, classes = train_test_split(
        x.astype(np.float32), labels, test_size=0.25, random_state=seed, stratify=labels)
    made = make_pipeline(StandardScaler(), MLPClassifier(hidden, max_iter=300, random_state=seed)).fit(train, known)
    path = folder / f"digits-{'-'.join(map(str, hidden))}-{seed}.onnx"
    path.write_bytes(to_onnx(made, train[:1], options={"zipmap": False}, target_opset=17).SerializeToString())
    return ScaledNetwork(name=f"digits {'-'.join(map(str, hidden))}, seed {seed}", network=read(path).network,
                         calibration=chosen(train), x=test, classes=classes, path=path)


def chosen(x: np.ndarray) -> np.ndarray:
    """Some training samples, always the same ones."""
    return x[np.sort(np.random.default_rng(0).permutation(len(x))[:CALIBRATION])]


def images() -> Iterator[ScaledNetwork]:
    """The FP32 networks of the shipped MLP and ResNet, and a MobileNet."""
    x, labels = dataset.pixels(dataset.DATA / "fashion-mnist", "t10k")
    x, labels = x.astype(np.float32)[:, None] / 255, labels.astype(np.int64)
    networks = {name: load_model(dataset.DATA / "models" / f"fashion-{name}.safetensors").graph
                for name in ("mlp-w4a4", "resnet-w8")}
    networks["mobilenet-small"] = mobilenet(x[:TRAINED], labels[:TRAINED])
    for name, network in networks.items():
        shaped = x.reshape(-1, *network.shape)
        yield ScaledNetwork(name=name, network=network, calibration=chosen(shaped[:TRAINED]), x=shaped[TRAINED:],
                            classes=labels[TRAINED:])


def mobilenet(x: np.ndarray, labels: np.ndarray) -> Graph:
    """Train a small MobileNet on some images."""
    torch.manual_seed(0)
    net, images, wanted = NETWORKS["mobilenet-small"](), torch.from_numpy(x), torch.from_numpy(labels)
    optimiser, batches = torch.optim.Adam(net.parameters(), RATE), len(x) // BATCH
    rates = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=EPOCHS * batches)
    for mine in (mine for _ in range(EPOCHS) for mine in torch.randperm(len(x))[:batches * BATCH].split(BATCH)):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(images[mine]), wanted[mine]).backward()
        optimiser.step()
        rates.step()
    return load(net.eval(), images[:2], name="mobilenet-small").floating


def scaled_inputs(cases: list[ScaledNetwork], console: Console) -> bool:
    """Print the accuracies after a scaler, and return whether R and O keep those of FP32."""
    table = Table("network", "FP32", "onnxruntime, static", "scaler in the weights", "scaler in R and O",
                  title="digits after a StandardScaler, weights and inputs of 8 bits, test accuracy, %")
    rows = [(case.accuracy(outputs(case.network, case.x)), case.static(), case.golden(choices(8), apart=False),
             case.golden(choices(8))) for case in cases]
    for case, row in zip(cases, rows, strict=True):
        table.add_row(case.name, *(f"{value:.2f}" for value in row))
    mean = np.mean(rows, axis=0)
    table.add_row("mean", *(f"{value:.2f}" for value in mean))
    console.print(table)
    return bool(mean[3] >= mean[0] - NEAR)


def equal_channels(cases: list[ScaledNetwork], console: Console):
    """Print the accuracies of networks as they are and with equal channels."""
    table = Table("network", "FP32", "bits", "as it is", "equalised", "of half of the calibration set",
                  title="test accuracy in golden arithmetic, %")
    for case in cases:
        for bits in BITS:
            found = equalize(case.network, choices(bits), case.calibration)
            accuracies = (case.golden(choices(bits), network=network) for network in (case.network, found.network))
            table.add_row(case.name, f"{case.accuracy(outputs(case.network, case.x)):.2f}", str(bits),
                          *(f"{value:.2f}" for value in accuracies), found.words)
    console.print(table)


def main(seeds: Annotated[int, typer.Option(help="Number of seeds.", min=1)] = 3) -> None:
    """Print both tables; the exit code is 1 if 8 bits after a scaler are too far from FP32."""
    warnings.simplefilter("ignore")  # of exporters and of training that stops early
    logging.disable(logging.WARNING)
    console = Console(width=None if sys.stdout.isatty() else 150)
    with TemporaryDirectory() as folder:
        cases = [perceptron(hidden, seed, Path(folder)) for hidden in SIZES for seed in range(seeds)]
        met = scaled_inputs(cases, console)
        equal_channels([*(case for case in cases if case.name.endswith("seed 0")), *images()], console)
    raise typer.Exit(0 if met else 1)


if __name__ == "__main__":
    typer.run(main)
