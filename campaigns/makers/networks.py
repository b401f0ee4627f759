"""Random small networks in the formats of a machine."""

from dataclasses import replace

import numpy as np
from concord.net.cells.cell import Cell
from concord.net.cells.lstm import LSTM
from concord.net.layers.joins import Add, Concat
from concord.net.layers.layer import Layer
from concord.net.layers.recurrent import BlockRecurrent, IntegerRecurrent
from concord.net.lowering import block_lowering, lowering
from concord.net.model import INPUT, Model, Provenance
from concord.spec.isa.operations import activations
from concord.spec.machine.config import Config
from concord.spec.numbers.activation import Activation

NOWHERE = Provenance(command="test", method="random", seed=0, fp32_accuracy=0, quantized_accuracy=0, golden_accuracy=0)


def model(layers: list[Layer], sources: dict[str, tuple[str, ...]] | None = None, name: str = "random") -> Model:
    """A model of these layers; each reads the one before, unless `sources` names others."""
    none = np.zeros(0, np.uint8)
    return Model(
        name=name,
        data="random",
        preprocessing="none",
        classes=(),
        layers=tuple(layers),
        provenance=NOWHERE,
        fp32_predictions=none,
        quantized_predictions=none,
        sources=sources or {},
    )


def mlp(rng: np.random.Generator, config: Config, sizes: list[int], *, block: bool) -> Model:
    """A network of dense layers of these sizes, in block floating point or in integers."""
    make = block_dense if block else dense
    return model([make(rng, config, f"dense{k}", *pair) for k, pair in enumerate(zip(sizes, sizes[1:], strict=False))])


def recurrent(
    rng: np.random.Generator, config: Config, sizes: list[int], *, block: list[bool], outputs: int | None = None,
    cell: Cell = LSTM,
) -> Model:
    """A network of recurrent layers of these sizes, each in block floating point or in integers.

    If `outputs` is given, a dense layer with that many outputs follows.
    """
    pairs = zip(sizes, sizes[1:], strict=False)
    layers: list[Layer] = [
        (block_recurrent if blocks else recurrent_layer)(rng, config, cell, f"{cell.name}{k}", *pair)
        for k, (pair, blocks) in enumerate(zip(pairs, block, strict=True))
    ]
    if outputs is not None:
        layers.append((block_dense if block[-1] else dense)(rng, config, "dense", sizes[-1], outputs))
    return model(layers)


def both_directions(rng: np.random.Generator, config: Config, *, block: bool, cell: Cell) -> Model:
    """A network of one recurrent layer in each direction on vectors of 5 elements, and a dense layer."""
    make, behind = (block_recurrent, block_dense) if block else (recurrent_layer, dense)
    size = config.mfu_lanes
    layers = [make(rng, config, cell, "a", 5, size), replace(make(rng, config, cell, "b", 5, 3), reverse=True),
              Concat(name="both", sizes=(size, 3)), behind(rng, config, "c", size + 3, 4)]
    return model(layers, sources={"b": (INPUT,), "both": ("a", "b")})


def branches(rng: np.random.Generator, config: Config, size: int, *, block: bool) -> Model:
    """A network of two dense layers on one input, and a third one on their sum joined with the first result."""
    make = block_dense if block else dense
    layers = [make(rng, config, "a", 5, size), make(rng, config, "b", 5, size), Add(name="sum", inputs=size),
              Concat(name="joined", sizes=(size, size)), make(rng, config, "c", 2 * size, 3)]
    return model(layers, sources={"b": (INPUT,), "sum": ("a", "b"), "joined": ("sum", "a")})


def inputs(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Random numbers of magnitude about one, as binary16 patterns."""
    return rng.normal(size=shape).astype(np.float16).view(np.uint16)


def _codes(rng, config, *shape):
    return rng.integers(config.weights.lowest, config.weights.highest + 1, shape)


def dense(rng: np.random.Generator, config: Config, name: str, inputs: int, outputs: int) -> Layer:
    """A random dense layer in integers."""
    unsigned = bool(rng.integers(2))
    codes = _codes(rng, config, outputs, inputs)
    return lowering.dense(
        name=name,
        codes=codes,
        gain=rng.uniform(0.5, 1.5, outputs) / np.sqrt(inputs) / config.weights.highest,
        constant=rng.normal(size=outputs),
        weights_format=config.weights,
        input_format=config.activations,
        unsigned=unsigned,
        s_in=3 / config.activations.levels,
        m_in=float(rng.choice([0.0, -0.25])),
        quantize_input=bool(rng.integers(2)),
        activation=Activation(rng.choice(activations())),
    )


def recurrent_layer(
    rng: np.random.Generator, config: Config, cell: Cell, name: str, inputs: int, outputs: int,
) -> IntegerRecurrent:
    """A random recurrent layer in integers."""
    gates = len(cell.gates)
    return lowering.recurrent(
        name=name,
        cell=cell,
        input_codes=_codes(rng, config, gates, outputs, inputs),
        recurrent_codes=_codes(rng, config, gates, outputs, outputs),
        input_steps=rng.uniform(1, 2, gates) / config.weights.highest / np.sqrt(inputs),
        recurrent_steps=rng.uniform(1, 2, gates) / config.weights.highest / np.sqrt(outputs),
        bias=rng.normal(size=(gates, outputs)) / 2,
        weights_format=config.weights,
        input_format=config.activations,
        s_in=3 / config.activations.levels,
        s_hidden=None if cell.bounded else 5 / config.activations.levels,
        quantize_input=bool(rng.integers(2)),
        **_states_and_vectors(rng, cell, outputs),
    )


def _states_and_vectors(rng, cell, outputs):
    """Random initial states (h lies in -1..1), and random vectors of the cell."""
    initial = {cell.states[0]: rng.uniform(-1, 1, outputs)}
    initial |= {name: rng.normal(size=outputs) for name in cell.states[1:]}
    return {"initial": initial, "vectors": {name: rng.normal(size=outputs) for name in cell.vectors}}


def block_dense(rng: np.random.Generator, config: Config, name: str, inputs: int, outputs: int) -> Layer:
    """A random dense layer in block floating point."""
    return block_lowering.block_dense(
        name=name,
        weights=rng.uniform(-1, 1, (outputs, inputs)) / np.sqrt(inputs),
        bias=rng.normal(size=outputs),
        weights_format=config.weights,
        input_format=config.activations,
        block=config.native_dim,
        activation=Activation(rng.choice(activations())),
    )


def block_recurrent(
    rng: np.random.Generator, config: Config, cell: Cell, name: str, inputs: int, outputs: int,
) -> BlockRecurrent:
    """A random recurrent layer in block floating point."""
    gates = len(cell.gates)
    return block_lowering.block_recurrent(
        name=name,
        cell=cell,
        input_weights=rng.uniform(-1, 1, (gates, outputs, inputs)) / np.sqrt(inputs),
        recurrent_weights=rng.uniform(-1, 1, (gates, outputs, outputs)) / np.sqrt(outputs),
        bias=rng.normal(size=(gates, outputs)) / 2,
        weights_format=config.weights,
        input_format=config.activations,
        block=config.native_dim,
        **_states_and_vectors(rng, cell, outputs),
    )
