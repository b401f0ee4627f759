"""The overflow predictor of a training loop: it counts overflows on the calibration set and changes ranges.

Source: S3.b.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import reduce

import numpy as np
import torch
from concord.net.layer_overflow import Count, Widths, count
from concord.net.lowering.lowering import start_values
from concord.train.lib.fit import Progress, silent
from concord.train.network.quantized_network import QuantizedNetwork
from concord.train.overflow.factors import Factors, ShrinkRoom, enlarge_inputs, enlarge_parameters, weights_used
from concord.train.overflow.record import COARSE, SLOWER, STEPS, LayerRecord, NetworkKind, OverflowRecord, RangeSteps

TOGETHER = 64  #: Number of samples that run at once, since a convolution has many patches.


class Predictor:
    """Predictor that counts the overflow events of layers, and changes their ranges until there are none.

    Args:
        network: Network whose layers have integer weights and inputs.
        inputs:  float32[samples, ...], the calibration set.
        widths:  Widths of the machine's storage.
        steps:   How far ranges grow and shrink.

    Attributes:
        factors: Factors of the ranges of each layer, by name.
        rounds:  Number of changes of each layer, by name.
        record:  Results of the last `run`, or None.

    Raises:
        ValueError: a layer has no integers.
    """

    def __init__(self, network: QuantizedNetwork, inputs: torch.Tensor, widths: Widths, steps: RangeSteps):
        for name, layer in network.layers.items():
            if layer.weights is None or layer.inputs is None:
                raise ValueError(f"layer {name!r} keeps FP32 weights or inputs, so it has no sums to keep in "
                                 f"{widths.sum_bits} bits; give it bits, or leave out the accumulator")
            if layer.norm:
                raise ValueError(f"layer {name!r} keeps batch normalisation, whose statistics do not follow ranges "
                                 "that grow; fold it, or leave out the accumulator")
        self.network, self.inputs, self.widths, self.steps = network, inputs, widths, steps
        self.factors = {name: Factors(rows=len(layer.weights.scale)) for name, layer in network.layers.items()}
        self.rounds, self.record = dict.fromkeys(network.layers, 0), None
        for name in self._trained:
            weights = network.layers[name].weights
            weights.weight.register_hook(_as_before(self.factors[name], weights.in_real_units))

    @property
    def _trained(self) -> list[str]:
        """Names of the layers whose weights are trained; those of an average are 1 and have no range."""
        return [name for name, layer in self.network.layers.items() if layer.weights.weight.requires_grad]

    def run(self) -> OverflowRecord:
        """Change the ranges of every layer until it stays below its threshold, first layers first.

        A change of one layer does not affect the layers before it.

        Raises:
            ValueError: a layer still overflows when the rounds are used up.
        """
        made = []
        for name, factors in self.factors.items():
            before, after = self._settle(name)
            made.append(LayerRecord(
                name=name, parameters=(float(factors.parameters.min()), float(factors.parameters.max())),
                inputs=factors.inputs, rounds=self.rounds[name], before=before.number, after=after.number,
                bits=after.bits))
        self.record = OverflowRecord(widths=self.widths, layers=tuple(made))
        return self.record

    def rate(self, rate: float) -> float:
        """A learning rate, which is reduced if the quantisation steps of convolutions have become coarse."""
        grown = np.concatenate([self.factors[name].parameters for name in self._trained])
        coarse = kind(self.network) is NetworkKind.CNN and np.log(grown).mean() > np.log(COARSE)
        return rate * SLOWER if coarse else rate

    def count(self, name: str, inputs: torch.Tensor | None = None) -> Count:
        """Count the events of one layer, on the calibration set or on other inputs."""
        return self._count(name, self._codes(name, self.inputs if inputs is None else inputs))

    def state_dict(self) -> dict:
        """Factors, ranges that overflowed, and the record of the last run."""
        factors = {name: {"parameters": found.parameters.tolist(), "inputs": found.inputs,
                          "overflowed": found.overflowed.tolist()} for name, found in self.factors.items()}
        done = None if self.record is None else [asdict(layer) for layer in self.record.layers]
        return {"factors": factors, "rounds": self.rounds, "record": done}

    def load_state_dict(self, state: dict):
        """Take over the values of `state_dict`, after the layers have been restored."""
        for name, kept in state["factors"].items():
            found = self.factors[name]
            found.parameters, found.overflowed = np.array(kept["parameters"]), np.array(kept["overflowed"])
            found.inputs = kept["inputs"]
        self.rounds, done = dict(state["rounds"]), state["record"]
        self.record = None if done is None else OverflowRecord(widths=self.widths, layers=tuple(
            LayerRecord(**{**layer, "parameters": tuple(layer["parameters"])}) for layer in done))

    def _settle(self, name: str) -> tuple[Count, Count]:
        """Change one layer until nothing is left to change, and return its first count and its last."""
        layer, factors, codes = self.network.layers[name], self.factors[name], self._codes(name, self.inputs)
        steps = self.steps if name in self._trained else replace(self.steps, inputs=1.0)
        factors.begin()
        first = found = self._count(name, codes)
        for _ in range(self.steps.rounds):
            fmt = layer.input_format
            used = (max(int(part.max()) for part in codes) + fmt.zero) / fmt.levels
            room = ShrinkRoom(parameters=weights_used(layer), inputs=used, lowered=True)
            change = factors.change(found, self.widths, room, steps)
            if change is None:
                return first, found
            if name not in self._trained and (change[0] > 1).any():
                raise ValueError(f"layer {name!r} adds {codes[0].shape[-1]} codes of {fmt.bits} bits, which "
                                 f"{self.widths.sum_bits} bits do not hold: use a wider accumulator, or fewer pixels")
            enlarge_parameters(layer, change[0])
            if change[1] != 1:
                enlarge_inputs(layer, change[1])
                codes = self._codes(name, self.inputs)
            self.rounds[name] += 1
            found = self._count(name, codes)
        if found.number > self.steps.threshold:
            raise ValueError(
                f"layer {name!r} still overflows {found.number} times in {self.widths.sum_bits} bits "
                f"after {self.steps.rounds} rounds: give it a wider accumulator, or more rounds"
            )
        return first, found

    def _count(self, name: str, codes: list[np.ndarray]) -> Count:
        """Count the events of one layer for its codes."""
        layer = self.network.layers[name]
        with torch.no_grad():
            weights = layer.weights()[0].numpy().astype(np.int64)
        weights = weights.reshape(len(codes[0]), len(weights) // len(codes[0]), -1)
        start = start_values(weights, layer.input_format, True)

        def of(part: np.ndarray) -> Count:
            groups = zip(weights, part, start, strict=True)
            return reduce(Count.beside, (count(*group, self.widths) for group in groups))

        return reduce(Count.__add__, map(of, codes))

    def _codes(self, name: str, inputs: torch.Tensor) -> list[np.ndarray]:
        """The codes that the machine multiplies, int16[groups, samples * places, columns], some samples at a time."""
        zero = self.network.layers[name].input_format.zero
        with torch.no_grad():
            return [(self.network.codes(name, part) - zero).to(torch.int16).numpy() for part in inputs.split(TOGETHER)]


def kind(network: QuantizedNetwork) -> NetworkKind:
    """Kind of a network: CNN if it has convolutions, DNN if all layers are dense."""
    return NetworkKind.DNN if all(layer.geometry.dense for layer in network.layers.values()) else NetworkKind.CNN


def settled(
    network: QuantizedNetwork, inputs: torch.Tensor, widths: Widths, progress: Progress = silent
) -> Predictor:
    """A predictor with the default steps of a network's kind, after its first run, whose results are reported.

    Rows that have scales of their own have factors of their own. Arguments and errors are those of `Predictor`.
    """
    steps = replace(STEPS[kind(network)], rows=network.recipe.methods.rows == 1)
    predictor = Predictor(network, inputs, widths, steps)
    for layer in predictor.run().layers:
        progress(f"overflow {layer.name}:", 1, 1, str(layer))
    return predictor


def _as_before(factors: Factors, in_real_units: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    """A hook that scales the gradients of weights whose quantisation steps have become a1 times as large.

    Integers shall move as far as before. Gradients are therefore divided by a1, or multiplied by a1 for weights in real
    units, which then move a1 times as far. Without that, coarse integers would hardly ever change.
    """

    def hook(gradient):
        scale = torch.from_numpy(factors.parameters).to(gradient.dtype)[:, None]
        return gradient * scale if in_real_units else gradient / scale

    return hook
