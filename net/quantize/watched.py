"""Recurrent layers of the float network that note what their gates give for a calibration set."""

from dataclasses import dataclass, field, fields

import numpy as np
from concord.net.cells.cell import Cell
from concord.net.cells.output_codes import OutputCodes
from concord.net.cells.real import RealOperations, unrolled
from concord.net.ops.recurrent import Direction, Recurrence
from concord.net.quantize.recipe import GateForm, Gates

#: Smallest and largest output of each gate by the gate's name.
Ends = dict[str, tuple[float, float]]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WatchedRecurrence(Recurrence):
    """A recurrent layer that notes the smallest and the largest output of each gate.

    Attributes:
        found: What has been noted, for each direction.
    """

    found: tuple[Ends, ...] = field(default_factory=lambda: ({}, {}))

    @classmethod
    def of(cls, op: Recurrence) -> "WatchedRecurrence":
        """The same layer, which has noted nothing yet."""
        return cls(**{item.name: getattr(op, item.name) for item in fields(op)})

    def _unrolled(self, one: Direction, x, lengths, *, reverse):
        parameters = {name: value.astype(x.dtype) for name, value in one.tensors().items()}
        found = next(ends for own, ends in zip(self.directions, self.found, strict=False) if own is one)
        return unrolled(self.cell, lambda now: _Noting(found, self.cell, parameters, now), x, lengths,
                        self.states(x.dtype), reverse=reverse)[0]

    def codes(self, gates: Gates) -> tuple[np.ndarray, ...]:
        """int64[gates, 3] for each direction: the codes of the outputs by the ranges that have been noted."""
        symmetric = gates.form is GateForm.SYMMETRIC
        return tuple(np.array([OutputCodes.of_range(gate.curve, gates.outputs, symmetric, *ends[gate.name]).record
                               for gate in self.cell.gates], np.int64)
                     for ends, _ in zip(self.found, self.directions, strict=False))


class _Noting(RealOperations):
    """Operations that note the smallest and the largest output of each gate.

    Args:
        found: Where they are noted.
        given: Arguments of the operations.
    """

    def __init__(self, found: Ends, cell: Cell, *given):
        super().__init__(cell, *given)
        self._found = found

    def output(self, gate, value):
        y = super().output(gate, value)
        low, high = self._found.get(gate, (np.inf, -np.inf))
        self._found[gate] = min(low, float(y.min())), max(high, float(y.max()))
        return y
