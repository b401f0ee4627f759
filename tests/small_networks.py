"""Small networks of images and recurrent layers that several tests share."""

from dataclasses import replace

import numpy as np
from concord.campaigns.makers.mixed_networks import Mixed
from concord.net.cells.cell import Cell
from concord.net.cells.lstm import LSTM
from concord.net.cells.registry import CELLS
from concord.net.layers.pooling import Average
from concord.net.model import INPUT, Model
from concord.spec.machine.config import Config


def keyword_spotter(rng: np.random.Generator, config: Config, *, block: bool, steps: int = 9, cell: Cell = LSTM,
                    sizes=(5, 12, 9, 4)) -> Model:
    """Convolution over time, recurrent layer, and dense layer on its last hidden vector."""
    inputs, channels, hidden, classes = sizes
    made = Mixed(rng, config, (inputs, 1, steps), block=block)
    at = made.conv(made.image(INPUT, steps), channels, (1, 3), padding=(0, 0, 1, 1))
    made.dense(made.recurrent(made.sequence(at), hidden, cell), classes)
    return made.model()


def small(rng: np.random.Generator, config: Config, *, block: bool, steps: int = 4) -> Model:
    """A network of every way between images and sequences that fits the presets for tests."""
    made = Mixed(rng, config, (2, 1, steps), block=block)
    at = made.sequence(made.conv(made.image(INPUT, steps), 3, (1, 2), padding=(0, 0, 1, 0)))
    at = made.recurrent(at, 3, CELLS["rnn"], reverse=True)
    at = made.sequence(made.maximum(made.image(at, steps), (1, 2), stride=(1, 1)))
    at = made.recurrent(at, 2, CELLS["rnn"])
    made.dense(made.concat(made.conv(made.image(at, steps - 1), 3, (1, 2)), at), 2)
    return made.model()


def without_scale(model: Model) -> Model:
    """The network with layers whose input is in steps of their codes already, except averages."""
    layers = [replace(layer, quant_scale=None, quant_offset=None)
              if hasattr(layer, "quant_scale") and not isinstance(layer, Average) else layer for layer in model.layers]
    return replace(model, layers=tuple(layers))
