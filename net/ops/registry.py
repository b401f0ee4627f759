"""The operators of float networks, by the names of their kinds in files."""

from collections.abc import Mapping

import numpy as np
from concord.net.ops import (
    attention,
    grid,
    joins,
    pointwise,
    pooling,
    recurrent,
    reduction,
    reshape,
    scale,
    sequences,
    weighted,
)
from concord.net.ops.operator import Operator
from concord.net.ops.recurrent import TORCH_KINDS, Recurrence

#: The files of operators. Each class in them that has a kind is an operator.
FAMILIES = (
    weighted, scale, pointwise, pooling, reshape, joins, recurrent, sequences, reduction, attention, grid)
OPERATORS: dict[str, type[Operator]] = {
    value.kind: value for family in FAMILIES for value in vars(family).values()
    if isinstance(value, type) and issubclass(value, Operator) and value.kind}


def restored(kind: str, attributes: Mapping[str, object], tensors: Mapping[str, np.ndarray]) -> Operator:
    """The operator of a file.

    Raises:
        ValueError: the kind is unknown, or its fields do not fit it.
    """
    attributes = {key: tuple(value) if isinstance(value, list) else value for key, value in attributes.items()}
    if kind in TORCH_KINDS:
        return Recurrence.of_torch(kind, attributes, tensors)
    if kind not in OPERATORS:
        raise ValueError(f"the operator {kind!r} is unknown; known are {', '.join(OPERATORS)}")
    return OPERATORS[kind].restored(attributes, tensors)
