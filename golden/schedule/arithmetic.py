"""What an executor of chains computes with: the arithmetic of the machine, or another one on the same chains."""

from types import SimpleNamespace
from typing import Protocol

import numpy as np
from concord.golden.mfu.multifunction import compute
from concord.golden.mfu.pooling import pool_max
from concord.golden.mfu.softmax import softmax
from concord.golden.mvm.mvm import multiply, multiply_entries, multiply_groups
from concord.golden.mvm.overflow import Events
from concord.golden.mvm.quantizer import invalid
from concord.spec.isa.chain import Chain
from concord.spec.isa.operations import Operation


class Arithmetic(Protocol):
    """Functions on words [n, M] and operands [..., columns, N] in the type of the memories.

    Attributes:
        multiply:         `golden.mvm.mvm.multiply`.
        multiply_entries: `golden.mvm.mvm.multiply_entries`, on what the `operands` of VectorRf returns.
        multiply_groups:  `golden.mvm.mvm.multiply_groups`, on the same.
    """

    def mode(self, chain: Chain, place: int) -> dict[str, object]:
        """Arguments with which instruction `place` of a chain reads or writes VectorRf, or quantises an operand."""

    def compute(self, operation: Operation, value: np.ndarray, operand: np.ndarray | None = None) -> np.ndarray:
        """A point-wise operation."""

    def pool_max(self, pixels: np.ndarray) -> np.ndarray:
        """The largest value of each window [..., pixels, M]."""

    def softmax(self, elements: np.ndarray) -> np.ndarray:
        """The softmax of each vector [..., elements]."""

    def invalid(self, words: np.ndarray) -> bool:
        """Whether any word that enters a quantiser holds a NaN or an infinity."""

    def multiply(self, *factors, **mode) -> tuple[np.ndarray, Events]:
        """Products of operands that the quantiser takes."""


def _mode(chain: Chain, place: int) -> dict[str, bool]:
    instruction = chain.instructions[place]
    return {"integer": bool(instruction.integer), "unsigned": bool(instruction.unsigned)}


#: The machine's arithmetic, on binary16 patterns uint16.
MACHINE: Arithmetic = SimpleNamespace(
    mode=_mode, compute=compute, pool_max=pool_max, softmax=softmax, invalid=invalid,
    multiply=multiply, multiply_entries=multiply_entries, multiply_groups=multiply_groups)
