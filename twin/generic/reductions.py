"""Reductions of the words of an iteration as calls: the largest element, or the sum of the elements, so far."""

import numpy as np
from concord.spec.isa.chain import Chain
from concord.spec.isa.operations import Operation
from concord.twin.flow.flow import FlowStep
from concord.twin.generic.values import Lines
from concord.twin.lib.script import EXACT_ELEMENTS


class ReducedWords:
    """Adds the calls of reductions.

    A step may end within an iteration; the next one then takes the words of the iteration so far as well.

    Args:
        lines: Calls are added to them.
        lanes: Elements of a word, M.
    """

    def __init__(self, lines: Lines, lanes: int):
        self._lines, self._lanes = lines, lanes
        self._begun: dict[tuple[Chain, int], str] = {}

    def call(self, step: FlowStep, number: int, operation: Operation, value: str) -> str:
        """Name of the reductions [batch, positions, M] after each word of a value [batch, positions, M].

        Raises:
            ValueError: an iteration has more elements than a sum in float64 is exact for.
        """
        chain, (first, last), lanes = step.chain, step.span, self._lanes
        count, skipped = chain.result_words, first % chain.result_words
        total, values = skipped + last - first, [value]
        if count * lanes > EXACT_ELEMENTS:
            raise ValueError(f"instruction {chain.address + number}: software adds at most {EXACT_ELEMENTS} elements "
                             f"of an iteration exactly, this one has {count * lanes}")
        if skipped:
            values = [self._begun[chain, number], value]
        if rest := total % count:
            words = np.arange(total - rest, total)[:, None] * lanes + np.arange(lanes)
            self._begun[chain, number] = self._lines.take(words, *values)
        # Iterations [iterations, words, lanes] of elements; those that are not there yet repeat the first one.
        index = np.arange(-(-total // count) * count * lanes).reshape(-1, count, lanes)
        index = np.where(index < total * lanes, index, 0)
        index[:, -1, chain.last_lanes:] = index[:, -1, :1]
        elements = self._lines.take(index, *values)
        made = self._totals(elements, index.shape, chain) if operation is Operation.V_SUM else (
            self._largest(elements, index.shape))
        words = np.arange(skipped, total)[:, None] * lanes + np.full(lanes, lanes - 1)
        return self._lines.take(words, made)

    def _totals(self, elements: str, shape: tuple[int, ...], chain: Chain) -> str:
        mask = np.ones(shape, np.float16)
        mask[:, -1, chain.last_lanes:] = 0
        kept = elements if mask.all() else self._lines.call("kept", elements, self._lines.store("mask", mask))
        return self._lines.call("totals", kept)

    def _largest(self, elements: str, shape: tuple[int, ...]) -> str:
        """The largest element up to each one, by comparisons over distances of 1, 2, 4 and so on."""
        flat = np.arange(np.prod(shape)).reshape(shape[0], -1)
        distance = 1
        while distance < flat.shape[1]:
            before = np.where(flat % flat.shape[1] < distance, flat, flat - distance).reshape(shape)
            elements = self._lines.call("maximum", elements, self._lines.take(before, elements))
            distance *= 2
        return elements
