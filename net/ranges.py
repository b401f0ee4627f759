"""Ranges of the numbers of each layer, in golden arithmetic: what enters, what leaves, and what gates compute.

Source: summary of the second document, which delivers the ranges of W x, R h and the outputs of gates with the data.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from concord.golden.lib import float16
from concord.net import network
from concord.net.arithmetic.integer import IntegerProduct
from concord.net.cells.golden import BlockOperations, GoldenOperations, IntegerOperations
from concord.net.layers.layer import Layer, Trace
from concord.net.layers.recurrent import IntegerRecurrent, Recurrent
from concord.net.model import INPUT, Model

#: Smallest and largest value by name, such as "output" or "f.recurrent" (R h of gate f).
Ranges = dict[str, tuple[float, float]]


class _Watched(GoldenOperations):
    """Operations that note the smallest and the largest result of each gate.

    Args:
        found: Where they are noted.
        given: Arguments of the operations.
    """

    def __init__(self, found: Ranges, *given):
        super().__init__(*given)
        self._found = found

    def recurrent_product(self, gate, operand):
        return self._noted(f"{gate}.recurrent", super().recurrent_product(gate, operand))

    def output(self, gate, value):
        self._noted(f"{gate}.sum", value)
        return self._noted(f"{gate}.output", super().output(gate, value))

    def _kept(self, what: str, gate: str) -> np.ndarray:
        """A gate's rows of the product with x that has been computed last."""
        return self._gate(what, gate, self.x, None)

    def _noted(self, name: str, bits: np.ndarray) -> np.ndarray:
        _widen(self._found, name, float16.to_real(bits))
        return bits


class _WatchedIntegers(_Watched, IntegerOperations):
    def input_product(self, gate):
        made, scale = super().input_product(gate), self.layer.input_scale[self.layer.cell.index(gate)]
        self._noted(f"{gate}.input", float16.mul(self._kept("input", gate), scale))
        return made


class _WatchedBlocks(_Watched, BlockOperations):
    def input_product(self, gate):
        made = super().input_product(gate)
        self._noted(f"{gate}.input", self._kept("input", gate))
        return made


def measured(model: Model, inputs: np.ndarray, lengths: np.ndarray | None = None) -> dict[str, Ranges]:
    """The ranges of each layer for a batch, by its name.

    "input" and "output" are in real units. Of a recurrent layer, a gate's ranges are "f.input" (W x, with integer
    biases), "f.recurrent" (R h), "f.sum" (what enters the activation function) and "f.output"; where block floating
    point rounds the sum of both products only, it has no ranges of them apart. The other states have ranges by their
    names.

    Args:
        model:   The model.
        inputs:  uint16[samples, inputs], or uint16[samples, time, inputs] where the model is recurrent.
        lengths: int[samples], time steps of each sample; all time steps by default.
    """
    traces = network.forward(model, inputs, lengths)
    lengths = np.full(len(inputs), inputs.shape[1]) if lengths is None else np.asarray(lengths)
    made = {INPUT: Trace(outputs=inputs, hidden=inputs)} | {
        layer.name: trace for layer, trace in zip(model.layers, traces, strict=True)}
    results = network.real_outputs(model, traces)
    real = {layer.name: values for layer, values in zip(model.layers, results, strict=True)}
    found = {}
    for layer in model.layers:
        entering, own = network.entering(model, layer, made), model.lengths_of(layer, lengths, len(inputs))
        found[layer.name] = _of_recurrent(layer, entering[0], own) if isinstance(layer, Recurrent) else {}
        for index, name in enumerate(model.sources_of(layer)):
            of_one = real.get(name) if not layer.sequence else None
            values = float16.to_real(_inside(entering[index], own)) if of_one is None else of_one
            _widen(found[layer.name], "input", values)
        output = made[layer.name].hidden
        _widen(found[layer.name], "output", real[layer.name] if output is None else float16.to_real(
            _inside(output, own)))
    return found


def _of_recurrent(layer: Recurrent, x: np.ndarray, lengths: np.ndarray | None) -> Ranges:
    """The ranges of the gates and states of a recurrent layer."""
    found: Ranges = {}
    if isinstance(layer, IntegerRecurrent):
        trace = layer.unroll(x, lengths, layer.first_states,
                             lambda now: _WatchedIntegers(found, layer, now, IntegerProduct.totals))
    else:
        trace = layer.unroll(x, lengths, layer.first_states, lambda now: _WatchedBlocks(found, layer, now))
    for name, state in list(zip(layer.cell.states, trace.states, strict=True))[1:]:
        _widen(found, name, float16.to_real(state))
    return found


def _inside(x: np.ndarray, lengths: np.ndarray | None) -> np.ndarray:
    """The elements of sequences [samples, time, ...] before their ends; of anything else, all."""
    if x.ndim < 3 or lengths is None:
        return x
    return x[np.arange(x.shape[1]) < np.asarray(lengths)[:, None]]


def _widen(found: Ranges, name: str, values: np.ndarray):
    """Widen a range so that it holds finite values, too."""
    values = values[np.isfinite(values)]
    if values.size:
        low, high = found.get(name, (np.inf, -np.inf))
        found[name] = min(low, float(values.min())), max(high, float(values.max()))


def with_ranges(model: Model, found: Mapping[str, Ranges]) -> Model:
    """The model whose layers record ranges; layers that have none for them stay as they are."""
    def recording(layer: Layer) -> Layer:
        return replace(layer, ranges=found[layer.name]) if hasattr(layer, "ranges") else layer

    return replace(model, layers=tuple(map(recording, model.layers)))
