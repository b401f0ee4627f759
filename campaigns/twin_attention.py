"""Networks of `nox -s twin_networks` with attention: transformers of PyTorch with random weights, by way of ONNX."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from concord.benchmarks.bench_attention import ARITHMETICS, MACHINE, Transformer, entering, in_eight_bits
from concord.campaigns.twin_comparison import ComparedNetwork
from concord.campaigns.zoo import transformers
from concord.frontends.onnx.read import Imported, read
from concord.golden.lib.float16 import to_bits
from concord.net.model import Model

SEED, CALIBRATION = 7, 64  #: Seed of weights and inputs, and number of samples for calibration.
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
    machine = out / "attention.toml"
    machine.write_text(MACHINE)
    for name, (build, shape) in NETWORKS.items():
        for arithmetic in ARITHMETICS:
            yield ComparedNetwork(
                name=f"{name}, attention, {arithmetic}", preset=str(machine), weights=f"seed {SEED}",
                calibration=f"seed {SEED}", inputs=f"seed {SEED}",
                make=partial(_model, _file(name, out), build, shape, arithmetic, str(machine)),
                samples=partial(_samples, _file(name, out), shape))


def _file(name: str, out: Path) -> Path:
    return out / f"{name.replace(' ', '_')}.onnx"


def _model(path: Path, build: Callable[[], torch.nn.Module], shape: tuple[int, ...], arithmetic: str,
           machine: str) -> Model:
    torch.manual_seed(SEED)
    module, x = build(), _inputs(shape, CALIBRATION)
    transformers.written(path, make=lambda _: module, shape=shape, dynamo=False)
    return in_eight_bits(read(path), Transformer(module=module, train=x, test=x), arithmetic, machine)


def _inputs(shape: tuple[int, ...], count: int) -> np.ndarray:
    """float32[count, *shape], which binary16 holds."""
    return np.random.default_rng(SEED).normal(size=(count, *shape)).astype(np.float16).astype(np.float32)


def _samples(path: Path, shape: tuple[int, ...], _, count: int) -> list[np.ndarray]:
    found: Imported = read(path)
    return list(to_bits(entering(found, _inputs(shape, count)).reshape(count, -1)))
