"""The vocabularies by name, and values that travel between them and numpy."""

import sys
from dataclasses import dataclass
from functools import cache
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from concord.golden.mfu import activation
from concord.twin.source.frameworks import CURVES
from concord.twin.source.vocabulary import vocabulary
from concord.twin.vocabulary import unquantized as real_functions
from concord.twin.vocabulary import word_functions

#: Why a framework may be absent.
REASONS = {"torch": "PyTorch is in the dependency group `train`",
           "tensorflow": "TensorFlow is in the dependency group `tensorflow`"}


def imported(framework: str) -> ModuleType:
    """The module of a framework; the test is skipped where it is absent."""
    return pytest.importorskip(framework, reason=REASONS.get(framework))


@cache
def functions(framework: str, *, unquantized: bool = False) -> ModuleType | SimpleNamespace:
    """The functions of a framework: those of other frameworks than numpy as sources of twins have them."""
    if framework == "numpy":
        return SimpleNamespace(**vars(word_functions) | vars(real_functions)) if unquantized else word_functions
    imported(framework)
    words = vocabulary(framework, unquantized=unquantized)
    selection, made = words.select(words.names), ModuleType(f"functions_of_{framework}")
    sys.modules[made.__name__] = made  # PyTorch's compiler imports modules by their names
    exec("\n".join([f"import {framework}", *selection.imports, *selection.functions]), vars(made))
    if not unquantized:
        for name in CURVES:
            table = getattr(activation, name)(np.arange(1 << 16)).view(np.float16)
            module = imported(framework)
            table, smooth = ((module.convert_to_tensor(table), module.math) if framework == "tensorflow" else
                             (module.from_numpy(table), module))
            setattr(made, name, made.Curve(table, getattr(smooth, name)))
    return made


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


NUMPY = Vocabulary(word_functions, lambda array: array, lambda value: value)


def numpy_vocabulary() -> Vocabulary:
    return NUMPY


def torch_vocabulary() -> Vocabulary:
    torch = imported("torch")
    return Vocabulary(functions("torch"), lambda array: functions("torch").stored(torch.from_numpy(np.array(array))),
                      lambda value: value.numpy())


def tensorflow_vocabulary() -> Vocabulary:
    made = functions("tensorflow")
    return Vocabulary(made, made.stored, lambda value: value.numpy())


VOCABULARIES = {"numpy": numpy_vocabulary, "torch": torch_vocabulary, "tensorflow": tensorflow_vocabulary}
