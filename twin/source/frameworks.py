"""The kinds of source that a twin may have."""

from dataclasses import dataclass, field
from enum import StrEnum


class Framework(StrEnum):
    """A framework that runs twins."""

    NUMPY = "numpy"
    TORCH = "torch"
    TENSORFLOW = "tensorflow"


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """What sources of a framework have in common.

    Attributes:
        needs:     Packages that the source imports.
        base:      Base class of the twin, or empty.
        imports:   Lines that import what the class needs, beside what its functions need.
        functions: Functions of the vocabulary that the class itself calls.
        made:      Lines of `__init__` that read the file.
        decorated: Lines above the method that computes.
        method:    Name of this method.
        result:    Type of results.
        example:   A line that computes results.
        operators: Signs of functions that Python has an operator for.
    """

    needs: str
    imports: tuple[str, ...]
    functions: tuple[str, ...]
    made: tuple[str, ...]
    method: str
    result: str
    example: str = "results = Twin()(inputs)"
    base: str = ""
    decorated: tuple[str, ...] = ()
    operators: dict[str, str] = field(default_factory=dict)


FORMS = {
    Framework.NUMPY: Form(
        needs="numpy", imports=("from pathlib import Path", "import numpy as np"), functions=("read", "binary16"),
        made=("vars(self).update(read(file))",), decorated=('@np.errstate(all="ignore")',), method="__call__",
        result="float16", operators={"add": "+", "subtract": "-", "multiply": "*"}),
}
