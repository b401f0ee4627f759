"""The vocabularies by name, and values that travel between them and numpy."""

from dataclasses import dataclass
from types import ModuleType

import numpy as np
import pytest
from concord.twin.vocabulary import numpy_functions

#: Why a framework may be absent.
REASONS = {"torch": "PyTorch is in the dependency group `train`",
           "tensorflow": "TensorFlow is in the dependency group `zoo`"}


def imported(framework: str) -> ModuleType:
    """The module of a framework; the test is skipped where it is absent."""
    return pytest.importorskip(framework, reason=REASONS.get(framework))


@dataclass(frozen=True)
class Vocabulary:
    """The functions of one kind of source.

    Attributes:
        functions: The module.
        value:     A float16 or float64 array, or indices, as a value of the framework.
        array:     A value of the framework as an array of numpy.
    """

    functions: ModuleType
    value: object
    array: object

    def bits(self, numbers):
        """Bit patterns of numbers, every NaN as 0x7e00."""
        return np.ascontiguousarray(self.array(self.functions.canonical(numbers)).astype(np.float16)).view(np.uint16)


NUMPY = Vocabulary(numpy_functions, lambda array: array, lambda value: value)


def numpy_vocabulary() -> Vocabulary:
    return NUMPY


def torch_vocabulary() -> Vocabulary:
    torch = imported("torch")
    from concord.twin.vocabulary import torch_functions

    return Vocabulary(torch_functions, lambda array: torch_functions.stored(torch.from_numpy(np.array(array))),
                      lambda value: value.numpy())


def tensorflow_vocabulary() -> Vocabulary:
    tensorflow = imported("tensorflow")
    from concord.twin.vocabulary import tensorflow_functions

    return Vocabulary(tensorflow_functions, tensorflow.constant, lambda value: value.numpy())


VOCABULARIES = {"numpy": numpy_vocabulary, "torch": torch_vocabulary, "tensorflow": tensorflow_vocabulary}
