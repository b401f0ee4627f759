"""Random networks with the numbers of a float network beside their integers, for runs in full precision."""

from dataclasses import replace

import numpy as np
from concord.compiler.network import compile_network, full_precision
from concord.golden.lib.float16 import to_bits, to_real
from concord.golden.unquantised import UnquantisedMachine
from concord.model import network, reference
from concord.model.layers.layer import Layer
from concord.model.layers.recurrent import IntegerRecurrent
from concord.model.layers.rows import IntegerRows
from concord.model.lowering.full_precision import Numbers
from concord.model.model import Model
from concord.spec.config import Config


def with_reals(rng: np.random.Generator, model: Model) -> Model:
    """The model with a float network whose weights are near the quantised ones."""
    return replace(model, layers=tuple(_with_reals(rng, layer) for layer in model.layers))


def _with_reals(rng: np.random.Generator, layer: Layer) -> Layer:
    if layer.comparable:
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
    machine = UnquantisedMachine(firmware, full_precision(model, firmware))
    wanted = reference.forward(model, samples)[-1]
    got = np.stack([machine.infer(sample) for sample in samples])
    return float(np.abs(got - wanted).max() / max(np.abs(wanted).max(), 1e-3))


def assert_bits(config: Config, model: Model, samples: np.ndarray):
    """Assert that a run in float64 with all roundings gives the bits of the machine, but for the sign of a zero."""
    compiled = compile_network(model, config)
    assert all(bound.proven for bound in compiled.bounds), "sums in float64 do not wrap"
    images = full_precision(model, compiled.firmware, Numbers.STORED)
    machine = UnquantisedMachine(compiled.firmware, images, activations=True, binary16=True)
    for sample, wanted in zip(samples, network.forward(model, samples)[-1].outputs, strict=True):
        np.testing.assert_array_equal(to_bits(machine.infer(sample) + 0.0), to_bits(to_real(wanted) + 0.0))
