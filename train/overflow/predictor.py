"""The overflow predictor of a training loop: counts on the calibration set, and ranges that follow.

Source: S3.b.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import reduce

import numpy as np
import torch
from torch import nn

from golden.layer_overflow import Count, Widths, count
from golden.lowering import start_values
from train.overflow.defaults import Steps
from train.overflow.factors import Factors, Room
from train.overflow.ranges import Layer, enlarge_inputs, enlarge_parameters, weights_used
from train.overflow.record import LayerRecord, Record


def dense_codes(layer: Layer, y: torch.Tensor) -> np.ndarray:
    """The codes [samples, columns], as they travel, of a dense layer's input in steps of its code."""
    fmt = layer.input_format
    return y.round().clamp(0, fmt.levels).numpy().astype(np.int64) - fmt.zero


class Predictor:
    """Counts the overflow events of a network's layers, and enlarges or shrinks their ranges until there are none.

    Args:
        network: Called as network(inputs, lowered=True); it calls its layers in order, with their input in steps of its
            code first.
        layers:  Its layers, in the order of their calls.
        names:   Of the layers.
        inputs:  The calibration set.
        widths:  What the machine stores.
        steps:   How ranges follow.
        codes:   From a layer and its input to codes [samples, columns], or [groups, samples, columns] where groups of
            rows see different columns: for a convolution, a sample for each patch.
        lowered: Codes are unsigned and travel lowered by `zero`.

    Attributes:
        record: What the last `run` found and did, or None.
    """

    def __init__(
        self,
        network: nn.Module,
        layers: Sequence[Layer],
        names: Sequence[str],
        inputs: torch.Tensor,
        widths: Widths,
        steps: Steps,
        codes: Callable[[Layer, torch.Tensor], np.ndarray] = dense_codes,
        lowered: bool = True,
    ):
        self.network, self.layers, self.names, self.inputs = network, list(layers), list(names), inputs
        self.widths, self.steps, self.codes, self.lowered = widths, steps, codes, lowered
        self.factors = [Factors(rows=len(layer.scale)) for layer in self.layers]
        self.rounds, self.record = [0] * len(self.layers), None
        for layer, factors in zip(self.layers, self.factors, strict=True):
            layer.weight.register_hook(_slower(factors))

    def run(self) -> Record:
        """Bring every layer to its threshold, in order: what is done to one does not change those before it.

        Raises:
            ValueError: a layer still overflows when the rounds are used up.
        """
        made = []
        for index, name in enumerate(self.names):
            before, after = self._settle(index)
            factors = self.factors[index]
            made.append(LayerRecord(
                name=name, parameters=(float(factors.parameters.min()), float(factors.parameters.max())),
                inputs=factors.inputs, rounds=self.rounds[index], before=before.number, after=after.number,
                bits=after.bits))
        self.record = Record(widths=self.widths, layers=tuple(made))
        return self.record

    def count(self, index: int, inputs: torch.Tensor | None = None) -> Count:
        """Events of one layer, on the calibration set or on other inputs."""
        weights, codes = self._operands(index, self.inputs if inputs is None else inputs)
        start = start_values(weights, self.layers[index].input_format, self.lowered)
        groups = zip(weights, codes, start, strict=True)
        return reduce(Count.beside, (count(*group, self.widths) for group in groups))

    def state_dict(self) -> dict:
        """What it remembers of ranges that overflowed, and what it did."""
        factors = [{"parameters": found.parameters.tolist(), "inputs": found.inputs,
                    "overflowed": found.overflowed.tolist()} for found in self.factors]
        done = None if self.record is None else [asdict(layer) for layer in self.record.layers]
        return {"factors": factors, "rounds": list(self.rounds), "record": done}

    def load_state_dict(self, state: dict):
        """Go on from `state_dict`; the layers have been brought to what they were then."""
        for found, kept in zip(self.factors, state["factors"], strict=True):
            found.parameters, found.overflowed = np.array(kept["parameters"]), np.array(kept["overflowed"])
            found.inputs = kept["inputs"]
        self.rounds, done = list(state["rounds"]), state["record"]
        self.record = None if done is None else Record(widths=self.widths, layers=tuple(
            LayerRecord(**{**layer, "parameters": tuple(layer["parameters"])}) for layer in done))

    def _settle(self, index: int) -> tuple[Count, Count]:
        """Change one layer until nothing is left to change: its first count and its last."""
        layer, factors = self.layers[index], self.factors[index]
        factors.begin()
        first = found = self.count(index)
        for _ in range(self.steps.rounds):
            change = factors.change(found, self.widths, self._room(index), self.steps)
            if change is None:
                return first, found
            enlarge_parameters(layer, change[0])
            if change[1] != 1:
                enlarge_inputs(layer, change[1])
            self.rounds[index] += 1
            found = self.count(index)
        if found.number > self.steps.threshold:
            raise ValueError(
                f"layer {self.names[index]!r} still overflows {found.number} times in {self.widths.sum_bits} bits "
                f"after {self.steps.rounds} rounds: give it a wider accumulator, or more rounds"
            )
        return first, found

    def _room(self, index: int) -> Room:
        layer, (_, codes) = self.layers[index], self._operands(index, self.inputs)
        fmt = layer.input_format
        used = int((codes + fmt.zero).max()) / fmt.levels if self.lowered else int(np.abs(codes).max()) / fmt.highest
        return Room(parameters=weights_used(layer), inputs=used, lowered=self.lowered)

    def _operands(self, index: int, inputs) -> tuple[np.ndarray, np.ndarray]:
        """Integer weights[groups, rows, columns] and codes[groups, samples, columns] of one layer."""
        layer, seen = self.layers[index], []

        def look(module, arguments):
            seen.append(self.codes(layer, arguments[0]))

        handle = layer.register_forward_pre_hook(look)
        try:
            with torch.no_grad():
                self.network(inputs, lowered=True)
                weights = layer.integers().numpy().astype(np.int64)
        finally:
            handle.remove()
        codes = np.concatenate([part.reshape(-1, *part.shape[-2:]) for part in seen], axis=1)
        return weights.reshape(len(codes), len(weights) // len(codes), -1), codes


def _slower(factors: Factors) -> Callable[[torch.Tensor], torch.Tensor]:
    """Gradients of weights whose steps are a1 times as large: divided by a1, so that integers move as before.

    Real weights then move a1 times as far. Where they moved as before, coarse integers would hardly ever change.
    """

    def hook(gradient):
        scale = torch.from_numpy(factors.parameters).to(gradient.dtype)
        return gradient / scale.reshape(-1, *[1] * (gradient.dim() - 1))

    return hook
