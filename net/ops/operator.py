"""What every operator of a float network answers: what it takes and gives, what it computes, what its file holds."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum, auto
from typing import ClassVar, Self

import numpy as np

#: Shape of a tensor of one sample: [channels, rows, columns] or [elements].
Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorType:
    """What is known of a tensor before it is computed.

    Attributes:
        shape:    Shape of one sample; of a sequence, the shape of one time step.
        sequence: Whether a sample is a sequence of vectors.
        steps:    Number of time steps, if it is a sequence and all have the same number; else None.
    """

    shape: Shape
    sequence: bool = False
    steps: int | None = None


class Takes(Enum):
    """What an operator does with sequences."""

    EITHER = auto()  #: It computes each time step alone, so that a sequence gives a sequence.
    SEQUENCE = auto()  #: It takes sequences only.
    SAMPLE = auto()  #: It takes images or vectors only.


class Operator:
    """One operator: a frozen dataclass whose fields are its numbers, checked where it is made.

    Images are [samples, channels, rows, columns], vectors [samples, elements], and sequences
    [samples, time, elements].

    Attributes:
        kind:    Name of the operator in files and tables.
        takes:   What it does with sequences.
        several: Whether it takes two tensors or more; all others take one.
    """

    __slots__ = ()

    kind: ClassVar[str] = ""
    takes: ClassVar[Takes] = Takes.SAMPLE
    several: ClassVar[bool] = False

    @property
    def label(self) -> str:
        """The name of the operator in tables."""
        return self.kind

    def shape(self, *inputs: Shape) -> Shape:
        """Shape of the result for the shapes of the inputs.

        Raises:
            ValueError: the operator does not fit such inputs.
        """
        return inputs[0]

    def result(self, *inputs: TensorType) -> TensorType:
        """What is known of the result.

        Raises:
            ValueError: the operator does not fit such inputs.
        """
        if not inputs or self.several != (len(inputs) > 1):
            raise ValueError(f"{self.kind} takes {'two tensors or more' if self.several else 'one tensor'}, not "
                             f"{len(inputs)}")
        if len({one.sequence for one in inputs}) > 1:
            raise ValueError("it takes vectors and sequences; all of its inputs must be one or the other")
        if inputs[0].sequence and self.takes is Takes.SAMPLE:
            raise ValueError(f"{self.kind} takes no sequence; take its last time step before, or make an image of it")
        if not inputs[0].sequence and self.takes is Takes.SEQUENCE:
            raise ValueError(f"{self.kind} takes something else than sequences; give it a sequence")
        return replace(inputs[0], shape=self.shape(*(one.shape for one in inputs)))

    def real(self, *inputs: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """The result in real numbers, in the type of the inputs.

        Args:
            inputs:  Tensors in float64, or in float32 where speed matters more.
            lengths: int[samples], time steps of each sample of a sequence; operators of other tensors do not read it.
        """
        raise NotImplementedError

    @property
    def weights(self) -> int:
        """Number of weights that its products need."""
        return 0

    def tensors(self) -> dict[str, np.ndarray]:
        """The trained numbers by the names that files give them."""
        return {field.name: value for field in fields(self)
                if isinstance(value := getattr(self, field.name), np.ndarray)}

    def attributes(self) -> dict[str, object]:
        """All other fields by the names that files give them, as JSON has them."""
        return {field.name: value for field in fields(self)
                if not isinstance(value := getattr(self, field.name), np.ndarray)}

    @classmethod
    def restored(cls, attributes: Mapping[str, object], tensors: Mapping[str, np.ndarray]) -> Self:
        """The operator of a file, from what `attributes` and `tensors` gave.

        Raises:
            ValueError: the file holds fields that the operator does not have, or lacks some.
        """
        known = {field.name for field in fields(cls)}
        if unknown := (set(attributes) | set(tensors)) - known:
            raise ValueError(f"{cls.kind} has no field {min(unknown)!r}")
        try:
            return cls(**attributes, **tensors)
        except TypeError as error:
            raise ValueError(f"{cls.kind}: {error}") from error
