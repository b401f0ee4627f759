"""The kinds of source that a twin may have."""

from dataclasses import dataclass, field, replace
from enum import StrEnum


class Framework(StrEnum):
    """A framework that runs twins."""

    NUMPY = "numpy"
    TORCH = "torch"
    TENSORFLOW = "tensorflow"
    ONNX = "onnx"  #: A graph instead of source.


#: Functions that tables of all binary16 numbers define.
CURVES = ("sigmoid", "tanh")


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """What sources of a framework have in common.

    Attributes:
        module:    Name by which the source calls the framework.
        base:      Base class of the twin, or empty.
        imports:   Lines that import what the class needs, beside what its functions need.
        functions: Functions of the vocabulary that the class itself calls.
        takes:     That of them which takes the inputs.
        made:      Lines of `__init__` that read the file.
        curve:     Line that makes a function by its table, of the function's `name`.
        kept:      Lines of `__init__` after those of the functions by tables.
        curves:    Functions that are methods, because they need a table of the file.
        trains:    Whether its twins can be trained.
        helpers:   Functions of the vocabulary that a function by a table needs.
        decorated: Lines above the method that computes.
        method:    Name of this method.
        result:    Type of results.
        example:   A line that computes results.
        operators: Signs of functions that Python has an operator for.
        repeats:   Whether a loop is a function of one time step, which a compiler need not unroll.
    """

    module: str
    imports: tuple[str, ...]
    functions: tuple[str, ...]
    made: tuple[str, ...]
    curve: str
    helpers: tuple[str, ...]
    method: str
    result: str
    example: str = "results = Twin()(inputs)"
    base: str = ""
    takes: str = "binary16"
    curves: tuple[str, ...] = CURVES
    kept: tuple[str, ...] = ()
    trains: bool = False
    decorated: tuple[str, ...] = ()
    operators: dict[str, str] = field(default_factory=dict)
    repeats: bool = False


FORMS = {
    Framework.NUMPY: Form(
        module="np", imports=("from pathlib import Path", "import numpy as np"), functions=("read", "binary16"),
        made=("vars(self).update(read(file))",), curve="self.{name} = curve(self.{name})",
        helpers=("curve",), decorated=('@np.errstate(all="ignore")',), method="__call__", result="float16",
        operators={"add": "+", "subtract": "-", "multiply": "*"}),
    Framework.TORCH: Form(
        module="torch",
        imports=("from pathlib import Path", "import torch", "from safetensors.torch import load_file",
                 "from safetensors.torch import save_file"),
        functions=("stored", "binary16"), base="torch.nn.Module",
        made=("super().__init__()", "tensors = load_file(file)"), helpers=("Curve",),
        curve='self.{name} = Curve(tensors.pop("{name}"), torch.{name})',
        kept=("self.names = tuple(tensors)", "for name, values in tensors.items():",
              "    self.register_buffer(name, stored(values))"), trains=True, repeats=True,
        method="forward", result="float32", example="results = Twin().compiled()(inputs)"),
    Framework.TENSORFLOW: Form(
        module="tf",
        imports=("from pathlib import Path", "import tensorflow as tf", "from safetensors.numpy import load_file"),
        functions=("stored", "binary16"), base="tf.Module",
        made=("super().__init__()", "tensors = load_file(file)"), helpers=("curve",),
        curve='self.{name} = curve(stored(tensors.pop("{name}")))',
        kept=("for name, values in tensors.items():", "    setattr(self, name, stored(values))"),
        method="__call__", result="float16", example="results = tf.function(Twin())(inputs)"),
}

_OPERATORS = FORMS[Framework.NUMPY].operators
#: Those of twins without quantisers, which compute in float64.
UNQUANTISED = {framework: replace(
    form, functions=(*(name for name in form.functions if name != "binary16"), "reals"), takes="reals", curves=(),
    result="float64", trains=False, repeats=False, operators=_OPERATORS, example="results = Twin()(inputs)",
    imports=tuple(line for line in form.imports if "save_file" not in line))
    for framework, form in FORMS.items()}
