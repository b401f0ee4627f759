"""The matrix rows of gates: all gates in one tall matrix, or pieces of a gate that the machine can hold."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from concord.compiler.lib import tiling
from concord.spec.machine.config import Config


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A part of one gate.

    Attributes:
        gate: Index of the gate in the cell.
        word: First word of the part within the gate.
        rows: Number of elements.
    """

    gate: int
    word: int
    rows: int


def in_one(config: Config, gates: int, outputs: int) -> bool:
    """Whether `gates` gates of `outputs` elements fit one product and MvmQ."""
    tall = gates * config.words_of(outputs)
    return tall <= config.mvmq_words and tall * config.mfu_lanes <= config.accumulator_rows


def pieces(config: Config, gate: int, outputs: int) -> list[Piece]:
    """Cut a gate into pieces that one product each can compute."""
    parts = tiling.parts(config, outputs)
    return [Piece(gate=gate, word=part.row // config.mfu_lanes, rows=part.rows) for part in parts]


def tall(config: Config, chosen: Sequence[Piece]) -> np.ndarray:
    """Gate and row numbers int[rows, 2] of stacked pieces; rows with number -1 pad each piece to whole words."""
    return np.concatenate([_rows(config, piece) for piece in chosen])


def _rows(config: Config, piece: Piece) -> np.ndarray:
    count = config.words_of(piece.rows) * config.mfu_lanes
    rows = np.full((count, 2), (piece.gate, -1))
    rows[: piece.rows, 1] = piece.word * config.mfu_lanes + np.arange(piece.rows)
    return rows


def select(gates: np.ndarray, chosen: np.ndarray, padding: int = 0) -> np.ndarray:
    """Select rows of gates[gates, outputs, ...] by gate and row numbers; padding rows hold `padding`."""
    result = gates[chosen[:, 0], chosen[:, 1]].copy()
    result[chosen[:, 1] < 0] = padding
    return result
