"""All time steps of a cell, in any arithmetic."""

from collections.abc import Callable

import numpy as np
from concord.net.arithmetic.sequences import backward
from concord.net.cells.cell import Cell, Operations


def unrolled(
    cell: Cell, operations: Callable[[np.ndarray], Operations], x: np.ndarray, lengths: np.ndarray,
    first: tuple[np.ndarray, ...], *, reverse: bool = False,
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """The hidden vectors of all time steps, and the states after the last one.

    Args:
        cell:       The cell.
        operations: From the inputs [samples, inputs] of one time step to what the cell's formula computes with.
        x:          [samples, time, inputs].
        lengths:    int[samples], time steps of each sample; a sample keeps its states when its sequence has ended.
        first:      [cells] for each state, before the first time step.
        reverse:    Whether the cell begins with the last time step; hidden vectors lie in the order of the sequence.

    Returns:
        [samples, time, cells], zero after the end of a sequence, and [samples, cells] for each state.
    """
    x = backward(x, lengths) if reverse else x
    samples, time = x.shape[:2]
    states = tuple(np.tile(state, (samples, 1)) for state in first)
    hidden = np.zeros((samples, time, len(first[0])), first[0].dtype)
    for step in range(min(time, int(np.max(lengths, initial=0)))):
        on = np.flatnonzero(lengths > step)
        made = cell.step(operations(x[on, step]), *(state[on] for state in states))
        for state, new in zip(states, made, strict=True):
            state[on] = new
        hidden[on, step] = states[0][on]
    return (backward(hidden, lengths) if reverse else hidden), states
