"""A network of ImageNet's size on a machine with memory outside: ResNet-18 of 224 x 224 pixels, with random weights.

`nox -s bench_imagenet [-- --machine library]`: seconds of import, quantisation and compilation, then of an image on
golden, or its cycles on Verilated hardware, and how many outputs differ from the quantised network's. The quantised
model stays in its folder, so that a second run begins with the compilation.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import concord
import numpy as np
import torch
import typer
from concord.compiler.network import compile_network
from concord.firmware.session import Session
from concord.net import network
from concord.net.model_file import load_model, save_model
from concord.sim.machines.host import machine as opened
from concord.spec.host.registers import Counter
from concord.spec.machine.config import preset
from rich.console import Console
from torch import nn

FOLDER = Path("build/bench_imagenet")
CALIBRATION = 8  #: Random images by which the network is quantised.
#: `vision_large_dram` with memories for 4,800 channels, and for the image in front of the first maximum.
MACHINE = replace(preset("vision_large_dram"), mfu_lanes=16, addsub_vrf=1 << 16, multiply_vrf=1024, instructions=8192)


class Residual(nn.Module):
    """Two convolutions of 3 x 3, and the input beside them."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        same = stride == 1 and inputs == outputs
        self.body = nn.Sequential(*_convolution(inputs, outputs, 3, stride), nn.ReLU(),
                                  *_convolution(outputs, outputs, 3, 1))
        self.around = nn.Identity() if same else nn.Sequential(*_convolution(inputs, outputs, 1, stride))

    def forward(self, x):
        return torch.relu(self.body(x) + self.around(x))


def _convolution(inputs: int, outputs: int, size: int, stride: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs)]


def resnet18() -> nn.Sequential:
    """ResNet-18 in 1,000 classes."""
    layers, inputs = [*_convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Residual(inputs, outputs, stride), Residual(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


@contextmanager
def _timed(console: Console, what: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    console.print(f"{what}: {time.perf_counter() - start:.1f} s")


def quantized(console: Console, path: Path):
    """Export, import and quantise the network, and write its model file."""
    torch.manual_seed(0)
    net, images = resnet18().eval(), torch.rand(CALIBRATION, 3, 224, 224)
    onnx, data = path.with_suffix(".onnx"), path.with_suffix(".npz")
    torch.onnx.export(net, images[:1], str(onnx), dynamo=False, opset_version=17)
    labels = np.arange(CALIBRATION)
    np.savez(data, x_train=images.numpy(), y_train=labels, x_test=images[:1].numpy(), y_test=labels[:1])
    with _timed(console, "import"):
        read = concord.load(onnx)
    with _timed(console, "quantisation"):
        made = concord.quantize(read, str(data), preset="vision_large_dram")
    save_model(made.quantized, path)


def main(
    machine: Annotated[str, typer.Option(help="Machine that runs an image: golden, or library.")] = "golden",
):
    """Measure ResNet-18 from the export of PyTorch to an image on a machine."""
    console, path = Console(), FOLDER / "resnet18.safetensors"
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        quantized(console, path)
    model = load_model(path)
    with _timed(console, "compilation"):
        made = compile_network(model, MACHINE)
    used = ", ".join(f"{name} {used:,} of {of:,}" for name, (used, of) in made.usage.items())
    console.print(f"uses {used}", soft_wrap=True)
    image = np.random.default_rng(0).random(model.inputs).astype(np.float16).view(np.uint16)
    wanted = network.outputs(model, image[None])[0]
    with opened(machine, MACHINE) as nnp:
        session = Session(nnp, made.firmware)
        with _timed(console, f"an image on {machine}"):
            outputs = session.infer(image)
        counters = session.counters()
    cycles = f", {counters[Counter.CYCLES]:,} cycles" if counters.get(Counter.CYCLES) else ""
    console.print(f"{int((outputs != wanted).sum())} of {len(wanted)} outputs differ{cycles}; "
                  f"{counters[Counter.BEATS]:,} beats of the multiplier")


if __name__ == "__main__":
    typer.run(main)
