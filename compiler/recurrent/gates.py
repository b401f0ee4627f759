"""Several gates as one tall product through MvmQ, or one product for each piece where it is too tall for that."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from concord.compiler.lib import tiling
from concord.compiler.lib.allocation import MVM, Place
from concord.compiler.lib.build import Build
from concord.compiler.lib.program import read, write
from concord.spec.config import Config
from concord.spec.isa import Instruction


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """Some words of one gate.

    Attributes:
        gate: Index in the cell's gates.
        word: First word within the gate.
        rows: Elements.
    """

    gate: int
    word: int
    rows: int


def in_one(config: Config, gates: int, outputs: int) -> bool:
    """Whether that many gates of `outputs` elements fit one product and MvmQ."""
    tall = gates * tiling.words(config, outputs)
    return tall <= config.mvmq_words and tall * config.mfu_lanes <= config.accumulator_rows


def pieces(config: Config, gates: Sequence[int], outputs: int) -> list[list[Piece]]:
    """The pieces of each product: all whole gates in one, or each of them alone."""
    if in_one(config, len(gates), outputs):
        return [[Piece(gate=gate, word=0, rows=outputs) for gate in gates]]
    return [
        [Piece(gate=gate, word=part.row // config.mfu_lanes, rows=part.rows)]
        for gate in gates
        for part in tiling.parts(config, outputs)
    ]


def each_gate(
    build: Build,
    *,
    gates: Sequence[int],
    outputs: int,
    source: Place,
    columns: int,
    out_scale: int | None,
    product: Callable[[np.ndarray], Instruction],
) -> Iterator[tuple[Piece, tuple[Instruction, ...], dict]]:
    """For each piece, the beginning of the chain that has its rows, and that chain's registers.

    Args:
        gates:   Indices of the gates, in the order in which their chains follow.
        outputs: Elements of a gate.
        source:  The vector, in a random-access memory.
        product: The `mv_mul` for the chosen rows of the tall matrix: gate and row numbers int[rows, 2]; row -1 is
                 padding.
    """
    config = build.config
    registers = {"columns": columns, "out_scale": out_scale}
    for group in pieces(config, gates, outputs):
        chosen = np.concatenate([_rows(config, piece) for piece in group])
        start = (read(source), product(chosen))
        if len(group) > 1:
            build.program.chain(*start, write(MVM), rows=len(chosen), **registers)
        for piece in group:
            if len(group) > 1:
                yield piece, (read(MVM),), {"rows": piece.rows}
            else:
                yield piece, start, {"rows": piece.rows, **registers}


def _rows(config: Config, piece: Piece) -> np.ndarray:
    """Gate and row numbers of a piece, padded to whole words."""
    count = tiling.words(config, piece.rows) * config.mfu_lanes
    rows = np.full((count, 2), (piece.gate, -1))
    rows[: piece.rows, 1] = piece.word * config.mfu_lanes + np.arange(piece.rows)
    return rows


def select(gates: np.ndarray, chosen: np.ndarray, padding: int = 0) -> np.ndarray:
    """Rows of gates[gates, outputs, ...] by gate and row number; padding rows hold `padding`."""
    result = gates[chosen[:, 0], chosen[:, 1]].copy()
    result[chosen[:, 1] < 0] = padding
    return result
