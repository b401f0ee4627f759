"""Networks of `nox -s twin_networks` with attention: transformers of PyTorch with random weights, by way of ONNX."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from concord.benchmarks.bench_attention import ARITHMETICS, MACHINE
from concord.campaigns.twin_comparison import ComparedNetwork
from concord.campaigns.twin_made_cases import CALIBRATION, COMMAND, WEIGHTS_SEED
from concord.campaigns.zoo import transformers
from concord.firmware.firmware import Firmware
from concord.frontends.onnx.read import read_network
from concord.golden.lib.float16 import to_bits
from concord.net.model import Model
from concord.net.quantize.options import QuantizationOptions
from concord.net.quantize.run import opened, quantize
from concord.net.quantize.widths import NetworkArithmetic

#: Networks, and the shapes of their samples: one head and several; heads that share native vectors, or fill several;
#: no mask, or a causal one; one block, or two.
NETWORKS: dict[str, tuple[Callable[[], torch.nn.Module], tuple[int, ...]]] = {
    "encoder": (partial(transformers.block, torch, "fused", 64, 4, 32), (32, 64)),
    "decoder": (partial(transformers.decoder, torch, "spelled", 64, 4, 32, 16), (32, 64)),
    "vision transformer": (partial(transformers.vision, torch), (1, 8, 8)),
    "class token": (partial(transformers.class_token, torch), (16, 32)),
    "one head": (partial(transformers.block, torch, "separate", 32, 1, 12, causal=True), (12, 32)),
    "heads of 8": (partial(transformers.block, torch, "fused", 32, 4, 20, causal=True), (20, 32)),
    "heads of 24": (partial(transformers.heads, torch, "fused", 48, 2, 16), (16, 48))}


def attention_networks(out: Path) -> Iterator[ComparedNetwork]:
    """All of them, in block floating point and with integers in all other layers.

    Args:
        out: Folder of the files that come up.
    """
    machine, seed = out / "attention.toml", f"seed {WEIGHTS_SEED}"
    machine.write_text(MACHINE)
    for name, (build, shape) in NETWORKS.items():
        for arithmetic in ARITHMETICS:
            yield ComparedNetwork(
                name=f"{name}, attention, {arithmetic}", preset=str(machine), weights=seed, calibration=seed,
                make=partial(_model, out / name.replace(" ", "_"), build, shape, arithmetic, str(machine)),
                inputs=seed, samples=_samples)


def _model(stem: Path, build: Callable[[], torch.nn.Module], shape: tuple[int, ...], arithmetic: str,
           machine: str) -> Model:
    torch.manual_seed(WEIGHTS_SEED)
    module, calibration = build(), stem.with_suffix(".npy")
    onnx, made = stem.with_suffix(".onnx"), stem.with_name(f"{stem.name}_{arithmetic}.safetensors")
    transformers.written(onnx, make=lambda _: module, shape=shape, dynamo=False)
    np.save(calibration, np.random.default_rng(WEIGHTS_SEED).normal(size=(CALIBRATION, *shape)).astype(np.float32))
    choices = QuantizationOptions(preset=machine, arithmetic=NetworkArithmetic(arithmetic)).choices()
    return quantize(made, opened(read_network(onnx), None, choices, calibration), choices, command=COMMAND)


def _samples(firmware: Firmware, count: int) -> list[np.ndarray]:
    return list(to_bits(np.random.default_rng(WEIGHTS_SEED + 1).normal(size=(count, firmware.inputs))))
