"""What a network takes and gives, for who brings it data."""

from dataclasses import dataclass, field

import numpy as np
from concord.lib.input_axes import InputAxes
from concord.lib.several import Results


@dataclass(frozen=True, kw_only=True, slots=True)
class Interface:
    """What a network takes and gives.

    Attributes:
        name:     Name of the network, for messages.
        axes:     Axes of a sample, or of one time step of a sequence.
        sequence: Whether a sample is a sequence of time steps.
        outputs:  Number of outputs.
        steps:    Number of time steps of every sequence, if it is fixed.
        classes:  Names of the outputs; empty if they are not known.
        results:  Names and numbers of elements of several tensors, which lie one after the other in the outputs; empty
            for one.
        table:    Vectors float[rows, size] of an embedding, which the host looks up for samples of token numbers before
            everything else; None without one. The last axis of a sample in the network's file is then that of a vector.
    """

    name: str
    axes: InputAxes
    sequence: bool
    outputs: int
    steps: int | None = None
    classes: tuple[str, ...] = ()
    results: Results = ()
    table: np.ndarray | None = field(default=None, compare=False)
