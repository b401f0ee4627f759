"""Random networks with the numbers of a float network beside their integers, for runs in full precision."""

from dataclasses import replace

import numpy as np
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ImageNetworkMaker
from concord.compiler.network import compile_network, full_precision
from concord.firmware.unquantized import UnquantizedMachine
from concord.golden.lib.float16 import to_bits, to_real
from concord.net import float_network as reference
from concord.net import network as quantized
from concord.net.cells.registry import CELLS
from concord.net.layers.layer import Layer
from concord.net.layers.recurrent import IntegerRecurrent
from concord.net.layers.rows import IntegerRows
from concord.net.lowering.full_precision import MemoryNumbers
from concord.net.model import INPUT, Model
from concord.spec.machine.config import Config
from concord.spec.numbers.activation import Activation
from concord.tests.small_networks import keyword_spotter


def images(rng: np.random.Generator, config: Config, block: bool) -> Model:
    """A network with padding, groups, a maximum of codes or numbers, a sum, a concatenation, and an average."""
    made = ImageNetworkMaker(rng, config, (3, 9, 7), block=block)
    first = made.conv(INPUT, 6, (3, 3), padding=(1, 1, 1, 1), offset=-0.25, activation=Activation.NONE)
    pooled = made.maximum(first, (2, 2), stride=(2, 2), padding=(0, 1, 0, 1))
    deep = made.conv(pooled, 6, (3, 3), padding=(1, 1, 1, 1), groups=6, activation=Activation.NONE, unsigned=True)
    both = made.sum(deep, made.conv(pooled, 6, (1, 1)), Activation.RELU)
    made.dense(made.average(made.concat(both, made.conv(both, 9, (1, 1))), (2, 2), stride=(2, 2)), 5)
    return made.model()


def network(kind: str, rng: np.random.Generator, config: Config, block: bool) -> tuple[Model, np.ndarray]:
    """A random network of a kind, and two inputs."""
    if kind == "dense":
        return networks.mlp(rng, config, [19, 30, 11, 5], block=block), networks.inputs(rng, 2, 19)
    if kind == "images":
        return images(rng, config, block), networks.inputs(rng, 2, 3 * 9 * 7)
    if kind == "mixed":
        model = keyword_spotter(rng, config, block=block, steps=5)
        return model, networks.inputs(rng, 2, *[model.steps] * model.recurrent, model.inputs)
    model = networks.recurrent(rng, config, [7, 9, 10], block=[block] * 2, outputs=3, cell=CELLS[kind])
    return model, networks.inputs(rng, 2, 4, 7)


def with_reals(rng: np.random.Generator, model: Model) -> Model:
    """The model with a float network whose weights are near the quantised ones."""
    return replace(model, layers=tuple(_with_reals(rng, layer) for layer in model.layers))


def _with_reals(rng: np.random.Generator, layer: Layer) -> Layer:
    if getattr(layer, "float_operator", None) is not None:
        return layer
    if isinstance(layer, IntegerRows):
        rows = layer.weights.reshape(len(layer.weights), -1)
        gain, constant = layer.real["gain"], layer.real["constant"]
        real = {"fp32_weights": (rows + rng.uniform(-0.5, 0.5, rows.shape)) * gain[:, None],
                "fp32_bias": constant + rng.normal(size=constant.shape) / 100}
        if layer.quant_scale is None:
            real["input"] = np.array([1.0, 0.0])  # the layer before gives real units
        return replace(layer, real={**layer.real, **real})
    if isinstance(layer, IntegerRecurrent):
        real = {f"fp32_{name}_weights": (
            codes + rng.uniform(-0.5, 0.5, codes.shape)) * layer.real[f"{name}_steps"][:, None, None]
            for name, codes in (("input", layer.input_weights), ("recurrent", layer.recurrent_weights))}
        real |= {f"fp32_{name}": to_real(vector) for name, vector in layer.vectors.items()}
        if layer.input_quant_scale is None:
            real["input"] = np.array([1.0, 0.0])
        return replace(layer, real={**layer.real, **real, "fp32_bias": layer.real["bias"] + 0.01})
    return layer


def compiler_error(config: Config, model: Model, samples: np.ndarray) -> float:
    """Largest difference of the chains without rounding from the float network, relative to its largest output."""
    firmware = compile_network(model, config).firmware
    machine = UnquantizedMachine(firmware, full_precision(model, firmware))
    wanted = reference.forward(model, samples)[-1]
    got = np.stack([machine.infer(sample) for sample in samples])
    return float(np.abs(got - wanted).max() / max(np.abs(wanted).max(), 1e-3))


def assert_bits(config: Config, model: Model, samples: np.ndarray):
    """Assert that a run in float64 with all roundings gives the bits of the machine, but for the sign of a zero."""
    compiled = compile_network(model, config)
    assert all(bound.proven for bound in compiled.bounds), "sums in float64 do not wrap"
    images = full_precision(model, compiled.firmware, MemoryNumbers.STORED)
    machine = UnquantizedMachine(compiled.firmware, images, activations=True, binary16=True)
    for sample, wanted in zip(samples, quantized.forward(model, samples)[-1].outputs, strict=True):
        np.testing.assert_array_equal(to_bits(machine.infer(sample) + 0.0), to_bits(to_real(wanted) + 0.0))
