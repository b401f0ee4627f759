"""Networks whose twins `nox -s twin_networks` compares: what one is, and the shipped ones, which need no PyTorch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from concord.datasets import dataset
from concord.firmware.firmware import Firmware
from concord.net.model import Model
from concord.net.model_file import load_model

SHIPPED = {"fashion-mlp-bfp8": "trainer", "fashion-mlp-w4a4": "ulx3s", "fashion-resnet-w8": "vision",
           "vowels-lstm-w8": "vision"}
MODELS = Path("data/models")
VOWELS, IMAGES = "japanese-vowels", "fashion-mnist"
STEPS = 7, 13, 20  #: Time steps to which utterances are cut: each number costs a compilation in some frameworks.


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """A network on a machine.

    Attributes:
        name:        Name in the table.
        preset:      Machine: a preset, or a TOML file.
        weights:     File or seed of its weights.
        calibration: Samples that find the ranges of its codes, or "-" if the file has the ranges.
        inputs:      Where the samples come from that twin and golden run.
        make:        Function that makes its model; None if its file is missing.
        samples:     Function that makes a number of samples for its firmware, each a binary16 pattern uint16[...].
    """

    name: str
    preset: str
    weights: str
    calibration: str
    inputs: str
    make: Callable[[], Model] | None
    samples: Callable[[Firmware, int], list[np.ndarray]]


def shipped() -> Iterator[Network]:
    """The shipped networks."""
    for name, machine in SHIPPED.items():
        yield Network(name=name, preset=machine, weights=f"{name}.safetensors", calibration="-",
                      inputs=VOWELS if name.startswith("vowels") else IMAGES,
                      make=partial(load_model, MODELS / f"{name}.safetensors"), samples=first_samples)


def first_samples(firmware: Firmware, count: int) -> list[np.ndarray]:
    """The first samples of the shipped utterances if the firmware is recurrent, else of the shipped images."""
    samples = dataset.load(VOWELS if firmware.recurrent else IMAGES).first(count)
    if not firmware.recurrent:
        return list(samples.inputs)
    return [sample[:max(each for each in STEPS if each <= length)] for sample, length in zip(
        samples.inputs, samples.lengths, strict=True)]
