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
        needs:     Packages that the source imports.
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
        arrays:    Module that makes an array of zeros.
        example:   A line that computes results.
        operators: Signs of functions that Python has an operator for.
        repeats:   Whether a loop is a function of one time step, which a compiler need not unroll.
    """

    needs: str
    imports: tuple[str, ...]
    functions: tuple[str, ...]
    made: tuple[str, ...]
    curve: str
    helpers: tuple[str, ...]
    method: str
    result: str
    arrays: str
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
        needs="numpy", imports=("from pathlib import Path", "import numpy as np"), functions=("read", "binary16"),
        made=("vars(self).update(read(file))",), curve="self.{name} = curve(self.{name})",
        helpers=("curve",), decorated=('@np.errstate(all="ignore")',), method="__call__", result="float16",
        arrays="numpy", operators={"add": "+", "subtract": "-", "multiply": "*"}),
    Framework.TORCH: Form(
        needs="torch and safetensors",
        imports=("from pathlib import Path", "import torch", "from safetensors.torch import load_file",
                 "from safetensors.torch import save_file"),
        functions=("stored", "binary16"), base="torch.nn.Module",
        made=("super().__init__()", "tensors = load_file(file)"), helpers=("Curve",),
        curve='self.{name} = Curve(tensors.pop("{name}"), torch.{name})',
        kept=("self.names = tuple(tensors)", "for name, values in tensors.items():",
              "    self.register_buffer(name, stored(values))"), trains=True, repeats=True,
        method="forward", result="float32", arrays="torch", example="results = Twin().compiled()(inputs)"),
    Framework.TENSORFLOW: Form(
        needs="tensorflow and safetensors",
        imports=("from pathlib import Path", "import tensorflow as tf", "from safetensors.numpy import load_file"),
        functions=("stored", "binary16"), base="tf.Module",
        made=("super().__init__()", "tensors = load_file(file)"), helpers=("curve",),
        curve='self.{name} = curve(stored(tensors.pop("{name}")))',
        kept=("for name, values in tensors.items():", "    setattr(self, name, stored(values))"),
        method="__call__", result="float16", arrays="numpy", example="results = tf.function(Twin())(inputs)"),
}

_OPERATORS = FORMS[Framework.NUMPY].operators
#: Those of twins without quantisers, which compute in float64.
UNQUANTISED = {framework: replace(
    form, functions=(*(name for name in form.functions if name != "binary16"), "reals"), takes="reals", curves=(),
    result="float64", trains=False, repeats=False, operators=_OPERATORS, example="results = Twin()(inputs)",
    imports=tuple(line for line in form.imports if "save_file" not in line))
    for framework, form in FORMS.items()}


def needs(framework: Framework) -> str:
    """Packages that a twin needs."""
    other = "a runtime of ONNX with operator set 26, such as onnxruntime"
    return FORMS[framework].needs if framework in FORMS else other


def example(framework: Framework, stem: str, inputs: tuple) -> str:
    """A line of a shell that runs a twin on zeros, in its folder.

    Args:
        framework: What it needs.
        stem:      Name of its module.
        inputs:    Shape of one input, None for the number of time steps.
    """
    shape = ", ".join(["1", *(str(size or 8) for size in inputs)])
    if framework not in FORMS:
        return (f"python -c 'import numpy, onnxruntime; print(onnxruntime.InferenceSession(\"{stem}.onnx\").run(None, "
                f"{{\"inputs\": numpy.zeros(({shape}), \"float16\")}}))'")
    return (f"python -c 'import {FORMS[framework].arrays}; from {stem} import Twin; "
            f"print(Twin()({FORMS[framework].arrays}.zeros(({shape}))))'")
