"""The overflow predictor of a training loop: it counts overflows on the calibration set and changes ranges.

Source: S3.b.
"""

from collections.abc import Callable
from dataclasses import asdict
from math import log

import numpy as np
import torch
from concord.net.layer_overflow import Count, CountFunction, Widths, count
from concord.train.lib.fit import Progress, silent
from concord.train.network.quantized_network import QuantizedNetwork
from concord.train.overflow.factors import Factors
from concord.train.overflow.kind import kind_of
from concord.train.overflow.options import OverflowOptions
from concord.train.overflow.products import RangedProduct, products_of
from concord.train.overflow.record import (
    SLOWER,
    Adjusted,
    NetworkKind,
    OverflowRecord,
    ProductRecord,
    RangeSteps,
)
from torch import Tensor

TOGETHER = 64  #: Number of samples that run at once, since a convolution has many patches.


def refuse(error: ValueError):
    """What training does by default where ranges cannot follow: it ends."""
    raise error


class Predictor:
    """Predictor that counts the overflow events of products, and changes their ranges until there are none.

    Args:
        network: Network whose layers have integer weights and inputs.
        inputs:  float32[samples, ...], the calibration set.
        widths:  Widths of the machine's storage.
        steps:   How far ranges grow and shrink.
        lengths: int64[samples], time steps of each sequence; all of them by default.
        counter: What counts the events of a product.

    Attributes:
        products: Products of each layer, by the name of the layer.
        factors:  Factors of the ranges of each product, by its name.
        rounds:   Number of changes of each product, by its name.
        own:      Steps of products that have their own, by name, instead of `steps`.
        fixed:    Names of products whose ranges stay as they are, whatever overflows.
        stuck:    Called during training with the error where ranges cannot follow. It changes settings, after which the
            predictor tries again, or raises an error.
        record:   Results of the last `run`, or None.

    Raises:
        ValueError: a layer has no integers.
    """

    def __init__(self, network: QuantizedNetwork, inputs: Tensor, widths: Widths, steps: RangeSteps,
                 lengths: Tensor | None = None, counter: CountFunction = count):
        self.network, self.inputs, self.lengths, self.widths, self.steps = network, inputs, lengths, widths, steps
        self.counter = counter
        self.products = dict(products_of(network, widths, rows=network.recipe.methods.rows == 1))
        every = [product for products in self.products.values() for product in products]
        self.factors = {product.name: Factors(ranges=len(product.steps), shared=product.shared) for product in every}
        self.rounds, self.record = dict.fromkeys(self.factors, 0), None
        self.own, self.fixed = {}, frozenset()
        self.stuck: Callable[[ValueError], None] = refuse
        self._trained, self._figures = 0, {}
        for product in every:
            product.follow(self.factors[product.name])

    def run(self) -> OverflowRecord:
        """Change the ranges of every product until it stays below its threshold, first layers first.

        A change of one layer does not affect the layers before it.

        Raises:
            ValueError: a product still overflows when the rounds are used up.
        """
        made = []
        for layer, products in self.products.items():
            entering = self._entering(layer, self.inputs, self.lengths)
            for product in products:
                self.factors[product.name].begin()
            before = {product.name: self._counted(product, entering)[0] for product in products}
            # Hidden vectors depend on all products of a recurrent layer, so each is counted again after a change.
            for _ in range(self.steps.rounds):
                changed = [self._settle(product, layer, entering) for product in products]
                if len(products) == 1 or not any(changed):
                    break
            made += [self._recorded(product, before[product.name], entering) for product in products]
        self.record = OverflowRecord(widths=self.widths, products=tuple(made))
        return self.record

    def step(self):
        """Follow a step of training: run if it is one of those after which to run."""
        self._trained += 1
        if self.steps.every and self._trained % self.steps.every == 0:
            self._follow()

    def epoch(self) -> dict[str, dict[str, float]]:
        """Run at the end of an epoch, and return what all runs of the epoch found, see `figures` of `EpochRecord`."""
        self._follow()
        found, self._trained, self._figures = self._figures, 0, {}
        return found

    def steps_of(self, name: str) -> RangeSteps:
        """How far the ranges of a product grow and shrink."""
        return self.own.get(name, self.steps)

    def note(self):
        """Run, and add what is found to the figures of this epoch."""
        for name, figures in self.run().figures.items():
            before = self._figures.get(name, {"events": 0, "excess": 0})
            self._figures[name] = figures | {"events": before["events"] + figures["events"],
                                             "excess": max(before["excess"], figures["excess"])}

    def _follow(self):
        """`note`, again after each time that somebody has changed settings because it failed."""
        while True:
            try:
                return self.note()
            except ValueError as error:
                self.stuck(error)

    def rate(self, rate: float) -> float:
        """A learning rate, reduced if the quantisation steps of convolutions, of images or graphs, became coarse."""
        if (found := kind(self.network)) not in SLOWER:
            return rate
        coarse, slower = SLOWER[found]
        grown = np.concatenate([self.factors[product.name].parameters
                                for products in self.products.values() for product in products if not product.ones])
        return rate * slower if np.log(grown).mean() > log(coarse) else rate

    def count(self, name: str, inputs: Tensor | None = None, lengths: Tensor | None = None) -> Count:
        """Count the events of one product, on the calibration set or on other inputs."""
        layer, product = next((layer, product) for layer, products in self.products.items()
                              for product in products if product.name == name)
        given = (self.inputs, self.lengths) if inputs is None else (inputs, lengths)
        return self._counted(product, self._entering(layer, *given))[0]

    def state_dict(self) -> dict:
        """Factors, ranges that overflowed, and the record of the last run."""
        factors = {name: {"parameters": found.parameters.tolist(), "inputs": found.inputs,
                          "overflowed": found.overflowed.tolist()} for name, found in self.factors.items()}
        done = None if self.record is None else [asdict(product) for product in self.record.products]
        return {"factors": factors, "rounds": self.rounds, "record": done}

    def load_state_dict(self, state: dict):
        """Take over the values of `state_dict`, after the layers have been restored."""
        for name, kept in state["factors"].items():
            found = self.factors[name]
            found.parameters, found.overflowed = np.array(kept["parameters"]), np.array(kept["overflowed"])
            found.inputs = kept["inputs"]
        self.rounds, done = dict(state["rounds"]), state["record"]
        self.record = None if done is None else OverflowRecord(widths=self.widths, products=tuple(
            ProductRecord(**{**product, "parameters": tuple(product["parameters"])}) for product in done))

    def _settle(self, product: RangedProduct, layer: str, entering: list[tuple[Tensor, Tensor]]) -> bool:
        """Change one product until nothing is left to change, and say whether anything has changed."""
        if product.name in self.fixed:
            return False
        factors, steps = self.factors[product.name], product.allowed(self.steps_of(product.name))
        found, codes = self._counted(product, entering)
        for changes in range(self.steps.rounds):
            change = factors.change(found, self.widths, product.room(codes), steps)
            if change is None:
                return changes > 0
            if product.ones and (change[0] > 1).any():
                raise ValueError(f"layer {layer!r} adds {codes[0].shape[-1]} codes of {product.bits} bits, which "
                                 f"{self.widths.sum_bits} bits do not hold: use a wider accumulator, or fewer pixels")
            if steps.by is Adjusted.DATA:
                product.clip(product.used() / change[0])
            else:
                product.enlarge(*change)
            if change[1] != 1:  # what enters may be in steps of the codes
                entering[:] = self._entering(layer, self.inputs, self.lengths)
            self.rounds[product.name] += 1
            found, codes = self._counted(product, entering)
        return True

    def _recorded(self, product: RangedProduct, before: Count, entering: list[tuple[Tensor, Tensor]]) -> ProductRecord:
        """The record of a product whose ranges have changed.

        Raises:
            ValueError: it still overflows.
        """
        found, _ = self._counted(product, entering)
        steps = self.steps_of(product.name)
        if found.number > steps.threshold and product.name not in self.fixed:
            raise ValueError(
                f"layer {product.name!r} still overflows {found.number} times in {self.widths.sum_bits} bits "
                f"after {steps.rounds} rounds: give it a wider accumulator, or more rounds")
        by = product.allowed(steps).by
        grown = product.grown if by is Adjusted.RANGES else product.used()
        return ProductRecord(
            name=product.name, by=by, parameters=(float(grown.min()), float(grown.max())),
            inputs=self.factors[product.name].inputs, rounds=self.rounds[product.name], before=before.number,
            after=found.number, bits=found.bits, excess=before.excess)

    def _counted(self, product: RangedProduct, entering: list[tuple[Tensor, Tensor]]) -> tuple[Count, list[np.ndarray]]:
        """The events of a product for what enters its layer, and the codes that the machine multiplies."""
        codes = [product.codes(*part) for part in entering]
        return product.count(codes, self.widths, self.counter), codes

    def _entering(self, layer: str, inputs: Tensor, lengths: Tensor | None) -> list[tuple[Tensor, Tensor]]:
        """What a layer reads of a network's inputs, some samples at a time, and their time steps."""
        parts = torch.arange(len(inputs)).split(TOGETHER)
        return [self.network.entering(layer, inputs[index], None if lengths is None else lengths[index])
                for index in parts]


def kind(network: QuantizedNetwork) -> NetworkKind:
    """Kind of a network by its layers, see `kind_of`."""
    return kind_of(part.op for part in network.plan.parts)


def settled(
    network: QuantizedNetwork, inputs: Tensor, options: OverflowOptions, progress: Progress = silent,
    lengths: Tensor | None = None,
) -> Predictor | None:
    """A predictor after its first run, whose results are reported; None where the options name no width.

    Rows that have scales of their own have ranges of their own. Arguments and errors are those of `Predictor`.
    """
    if not options.counts:
        return None
    predictor = Predictor(network, inputs, options.widths, options.steps(kind(network)), lengths, options.counter)
    for product in predictor.run().products:
        progress(f"overflow {product.name}:", 1, 1, str(product))
    return predictor


def words_of(predictor: Predictor | None) -> str:
    """What a predictor has changed, as the end of a sentence about training; empty for None."""
    return f"; {predictor.record}" if predictor else ""
