"""Transformers from PyTorch to RTL: accuracy, differing bits, cycles beside the bound of the products.

`nox -s bench_attention`. Vision transformers are trained on scikit-learn's digits in a minute or two; a block of an
encoder and one of a decoder have random weights. Each becomes an ONNX file, is imported and compared with onnxruntime,
brought to 8 bits without training, compiled, and run on golden and on Verilated machines of 8 and of 16 lanes.
"""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # times are those of one core; numpy reads this at its import

import numpy as np
import torch
import typer
from concord.benchmarks.image_costs import Measurement, measure
from concord.campaigns.zoo import transformers
from concord.compiler.explain import explain
from concord.compiler.network import compile_network
from concord.frontends.onnx.compare import difference
from concord.frontends.onnx.read import Imported, read
from concord.golden.lib.float16 import to_bits
from concord.lib.progress import shown
from concord.net import network
from concord.net.layers.attention import BlockAttention
from concord.net.layers.layer import Layer
from concord.net.model import Model, Provenance
from concord.net.quantize.choices import Choices
from concord.net.quantize.options import QuantizationOptions
from concord.net.quantize.quantized import prepared, quantized
from concord.net.quantize.widths import NetworkArithmetic
from concord.nnp.lib.errors import sentences
from concord.spec.machine.config import Config
from concord.spec.machine.machine_file import find_config
from rich.console import Console
from rich.table import Table

OUT = Path("build/bench_attention")
#: The machine: a preset with Dram, the functions of softmax and normalisation, and room for a GELU of 64 positions.
MACHINE = """based_on = "vision"
dram_words = 2097152
dram_bus = 16
more_functions = true
addsub_vrf = 2048
multiply_vrf = 2048
bias_words = 512
instructions = 2048
"""
#: Epochs, samples of a batch, largest learning rate, and samples to train with.
EPOCHS, BATCH, RATE, TRAINED = 40, 64, 4e-3, 1297
CALIBRATION = 256  #: Number of samples that calibrate.
ARITHMETICS = ("bfp", "integer")
LANES = (8, 16)  #: Lanes of the multi-function units of the machines.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Transformer:
    """A network of PyTorch and its samples.

    Attributes:
        module:  The network.
        train:   float32[samples, ...], samples that calibrate.
        test:    float32[samples, ...].
        labels:  int[samples], classes of the test samples; None where there are none.
        learnt:  int[samples], classes of the training samples; None where there are none.
    """

    module: torch.nn.Module
    train: np.ndarray
    test: np.ndarray
    labels: np.ndarray | None = None
    learnt: np.ndarray | None = None


def vision(epochs: int, console: Console) -> Transformer:
    """A vision transformer of 16 positions with two blocks of two heads and 32 channels."""
    return _trained("vision", transformers.vision, epochs, console)


def pixels(epochs: int, console: Console) -> Transformer:
    """A vision transformer with a position for each of 64 pixels, and one block of four heads and 64 channels."""
    return _trained("pixels", partial(transformers.vision, width=64, count=4, depth=1, patch=1), epochs, console)


def _trained(name: str, make: Callable, epochs: int, console: Console) -> Transformer:
    """A vision transformer, trained on digits of 8 x 8 pixels."""
    from sklearn.datasets import load_digits

    torch.manual_seed(0)
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = (x[order] / 16).astype(np.float32).reshape(-1, 1, 8, 8), y[order]
    module, began = make(torch), time.perf_counter()
    images, labels = torch.tensor(x[:TRAINED]), torch.tensor(y[:TRAINED])
    optimizer = torch.optim.AdamW(module.parameters(), lr=RATE, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=epochs * -(-TRAINED // BATCH))
    for _ in range(epochs):
        for chosen in torch.randperm(TRAINED).split(BATCH):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(module(images[chosen]), labels[chosen], label_smoothing=0.05).backward()
            optimizer.step()
            schedule.step()
    console.print(f"{name}: {epochs} epochs of {TRAINED:,} digits in {time.perf_counter() - began:.0f} s")
    return Transformer(module=module, train=x[:TRAINED], test=x[TRAINED:], labels=y[TRAINED:],
                       learnt=y[:TRAINED])


def _blocks(make: Callable[[], torch.nn.Module], positions: int, width: int) -> Transformer:
    """A network with random weights, and samples from a seed."""
    torch.manual_seed(0)
    module, rng = make(), np.random.default_rng(0)
    x = rng.normal(size=(CALIBRATION + 64, positions, width)).astype(np.float16).astype(np.float32)
    return Transformer(module=module, train=x[:CALIBRATION], test=x[CALIBRATION:])


def encoder(epochs: int, console: Console) -> Transformer:
    """A block of 64 channels with four heads, of 32 positions."""
    return _blocks(lambda: transformers.block(torch, "fused", 64, 4, 32), 32, 64)


def decoder(epochs: int, console: Console) -> Transformer:
    """Offsets of 32 positions, a block of 64 channels with four heads and a causal mask, and 16 scores a position."""
    return _blocks(lambda: transformers.decoder(torch, "spelled", 64, 4, 32, 16), 32, 64)


NETWORKS = {made.__name__: made for made in (vision, pixels, encoder, decoder)}


def exported(name: str, found: Transformer) -> Imported:
    """The network as its ONNX file has it."""
    path = OUT / f"{name}.onnx"
    transformers.written(path, make=lambda _: found.module, shape=found.test.shape[1:], dynamo=False)
    return read(path)


def without_training(imported: Imported, found: Transformer, choices: Choices) -> Model:
    """The quantised network without training."""
    x = entering(imported, found.train[:CALIBRATION])
    made = quantized(prepared(imported.network, choices, scales_apart=True), x)
    return Model(name=imported.network.name, data="", preprocessing="", classes=(), layers=made.layers,
                 sources=made.sources, fp32_predictions=np.zeros(0, np.uint8),
                 quantized_predictions=np.zeros(0, np.uint8),
                 provenance=Provenance(command="nox -s bench_attention", method=str(choices.recipe), seed=0,
                                       fp32_accuracy=None, quantized_accuracy=None, golden_accuracy=None))


def entering(imported: Imported, samples: np.ndarray) -> np.ndarray:
    """Samples of the file, float32[samples, ...], in the order of the network."""
    axes = imported.network.axes
    return samples.transpose(0, *(1 + axis for axis in axes)) if len(axes) == samples.ndim - 1 else samples


def decibels(real: np.ndarray, golden: np.ndarray) -> float:
    """Signal-to-noise ratio of outputs beside those of the float network."""
    return 10 * np.log10(np.square(real).sum() / np.square(real - golden).sum())


def bounds(made: Measurement | None, model: Model, config: Config, layers: tuple[type[Layer], ...] = (Layer,)
           ) -> tuple[int, int]:
    """Cycles that layers of some kinds take at least: of the tile engines, and of the multi-function units."""
    firmware = compile_network(model, config).firmware if made is None else made.compiled.firmware
    names = {layer.name for layer in model.layers if isinstance(layer, layers)}
    found = [work for work in explain(firmware) if work.layer in names]
    return sum(work.beats for work in found), sum(work.words for work in found)


def row(name: str, arithmetic: str, imported: Imported, found: Transformer, model: Model, config: Config,
        samples: int, rtl: bool) -> tuple[list[str], int]:
    """Cells of the table for one network, and the number of differing bits."""
    x = entering(imported, found.test)
    bits = to_bits(x.reshape(len(x), -1))
    real = imported.network.run(x).reshape(len(x), -1)
    golden = network.outputs(model, bits).view(np.float16).astype(np.float64)
    noise = decibels(real, golden)
    accuracies = ["-"] * 2 if found.labels is None else [
        f"{(made.argmax(1) == found.labels).mean():.1%}" for made in (real, golden)]
    measured = None
    if rtl:
        with shown() as show:
            measured = measure(model, config, bits[:samples], show=show)
    own = [cost for cost in measured.costs if any(isinstance(model.node(layer), BlockAttention)
                                                  for layer in cost.layers)] if measured else []
    products, words = bounds(measured, model, config)
    cells = [name, arithmetic, str(config.mfu_lanes), f"{difference(imported):.1e}", *accuracies, f"{noise:.1f}",
             str(samples) if rtl else "-", f"{measured.bits:,}" if measured else "-",
             f"{measured.cycles:,}" if measured else "-", f"{products:,}", f"{words:,}",
             f"{measured.cycles / products:.2f}" if measured else "-",
             f"{sum(cost.cycles for cost in own):,}" if own else "-",
             *map("{:,}".format, bounds(measured, model, config, (BlockAttention,)))]
    return cells, measured.bits if measured else 0


def table() -> Table:
    """The table with one row for each network and arithmetic."""
    made = Table(title="transformers in 8 bits", title_justify="left")
    for title in ("network", "arithmetic", "lanes", "from onnxruntime", "accuracy, float", "accuracy, golden",
                  "golden, dB", "samples", "differing bits", "cycles", "products", "MFU words", "cycles / products",
                  "attention", "its products", "its MFU words"):
        made.add_column(title, justify="left" if title in ("network", "arithmetic") else "right")
    return made


def own_machines() -> list[str]:
    """Files of the machines, one for each number of lanes."""
    for lanes in LANES:
        (OUT / f"lanes{lanes}.toml").write_text(f"{MACHINE}mfu_lanes = {lanes}\n")
    return [str(OUT / f"lanes{lanes}.toml") for lanes in LANES]


@sentences
def main(
    networks: Annotated[list[str] | None, typer.Option(
        "--network", help=f"{', '.join(NETWORKS)}; may be repeated.", show_default="all")] = None,
    machine: Annotated[str, typer.Option(
        "--preset", help="Machine with Dram and more_functions.",
        show_default="vision with both, and with 8 and 16 lanes")] = "",
    samples: Annotated[int, typer.Option(help="Number of samples that run on RTL.", min=1)] = 4,
    epochs: Annotated[int, typer.Option(help="Epochs of the vision transformer.", min=1)] = EPOCHS,
    rtl: Annotated[bool, typer.Option(help="Whether networks run on golden and on RTL.")] = True,
):
    """Bring transformers to RTL, and print a table. The exit code is 1 if a bit differs."""
    console, began = Console(width=None if sys.stdout.isatty() else 200), time.perf_counter()
    torch.set_num_threads(1)
    if unknown := set(networks or ()) - set(NETWORKS):
        raise ValueError(f"there is no network {min(unknown)!r}: choose of {', '.join(NETWORKS)}")
    OUT.mkdir(parents=True, exist_ok=True)
    machines, results, differing = [machine] if machine else own_machines(), table(), 0
    for name in networks or NETWORKS:
        found = NETWORKS[name](epochs, console)
        imported = exported(name, found)
        imported = replace(imported, network=replace(imported.network, name=name))
        for file, arithmetic in product(machines, ARITHMETICS):
            choices = QuantizationOptions(preset=file, arithmetic=NetworkArithmetic(arithmetic)).choices()
            model, config = without_training(imported, found, choices), find_config(file)
            cells, bits = row(name, arithmetic, imported, found, model, config, samples, rtl)
            results.add_row(*cells)
            differing += bits
            said = f"{bits} differing bits" if rtl else "not run on RTL"
            console.print(f"{name}, {arithmetic}, {config.mfu_lanes} lanes: {said}")
    console.print(results)
    console.print(f"{time.perf_counter() - began:.0f} s")
    raise typer.Exit(1 if differing else 0)


if __name__ == "__main__":
    typer.run(main)
