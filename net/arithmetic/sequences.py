"""Sequences in arrays: their direction, and how an image is read as one."""

from enum import StrEnum

import numpy as np


class TimeAxis(StrEnum):
    """The side of an image along which time goes."""

    ROWS = "rows"  #: a time step is one row
    COLUMNS = "columns"  #: a time step is one column


def backward(sequences: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """[samples, time, ...] with the time steps of each sample in reverse order; steps after its end stay."""
    steps = np.arange(sequences.shape[1])
    last_first = np.asarray(lengths)[:, None] - 1 - steps
    return sequences[np.arange(len(sequences))[:, None], np.where(last_first >= 0, last_first, steps)]


def steps_of_image(x: np.ndarray, time: TimeAxis) -> np.ndarray:
    """[samples, time, elements] of images [samples, channels, rows, columns].

    The vector of a time step holds its pixels one after the other, each with all its channels.
    """
    made = x.transpose((0, 2, 3, 1) if time is TimeAxis.ROWS else (0, 3, 2, 1))
    return made.reshape(*made.shape[:2], -1)
