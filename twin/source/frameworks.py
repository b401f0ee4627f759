"""The kinds of source that a twin may have, and what runs them: one row for each framework."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np


class Framework(StrEnum):
    """A framework that runs twins."""

    NUMPY = "numpy"
    TORCH = "torch"
    TENSORFLOW = "tensorflow"
    ONNX = "onnx"  #: A graph instead of source.


#: Methods of twins in PyTorch that can be trained.
_TORCH_SAVES = '''

    def _apply(self, fn, recurse=True):
        """Move tensors, or convert them; types of 16 bits cannot hold codes and sums."""
        if fn(torch.zeros(())).dtype.itemsize < 4:
            raise ValueError("a twin computes in float32 or float64, not in 16 bits")
        return super()._apply(fn, recurse)

    def save(self, file):
        """Write all tensors, rounded, for `nnp compile --weights-from`."""
        tensors = {name: getattr(self, name).detach().cpu() for name in self.names}
        save_file({name: values.contiguous() for name, values in tensors.items()}, file)'''
#: Methods of twins in TensorFlow that can be trained.
_TENSORFLOW_SAVES = '''

    def __getattr__(self, name):
        """A tensor that is trained, rounded to what firmware can hold."""
        if name not in vars(self).get("roundings", ()):
            raise AttributeError(name)
        return self.roundings[name](self.parameters[name])

    def save(self, file):
        """Write all tensors, rounded, for `nnp compile --weights-from`."""
        save_file({name: getattr(self, name).numpy() for name in self.names}, file)'''
#: What frameworks without gradients leave out of the functions that all frameworks have, and those that know all sizes.
_EXACT = (r"(?<!def )\bstraight\((?:[^(),]|\([^()]*\))+, (.+)\)$", r"\1")
_SIZES = (r"(?<!def )\bdimensions\((\w+)\)", r"\1.shape")
_CAST = r"(?<!def )\bcast\((\w+), ([\w.]+)\)"
#: What makes +0 of -0 in numpy eight times as fast; compilers of other frameworks may leave a sum with 0 out.
_POSITIVE = (r"\bxp\.where\((\w+) != 0, \1, 0\)", r"(\1 + 0.0)")
#: Functions that tables of all binary16 numbers define.
CURVES = ("sigmoid", "tanh", "exp", "reciprocal", "rsqrt", "sqrt")


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceForm:
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
        saves:     Methods of twins that can be trained.
        curves:    Functions that are methods, because they need a table of the file.
        trains:    Whether its twins can be trained.
        compiles:  Whether its twins have a method that compiles them.
        helpers:   Functions of the vocabulary that a function by a table needs.
        decorated: Lines above the method that computes.
        method:    Name of this method.
        result:    Type of results.
        example:   A line that computes results.
        operators: Signs of functions that Python has an operator for.
        repeats:   Whether a loop is a function of one time step, which a compiler need not unroll.
        spellings: Patterns in the functions that all frameworks have, and what the framework says instead of them.
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
    saves: str = ""
    trains: bool = False
    compiles: bool = False
    decorated: tuple[str, ...] = ()
    operators: dict[str, str] = field(default_factory=dict)
    repeats: bool = False
    spellings: tuple[tuple[str, str], ...] = ()

    def spelled(self, text: str) -> str:
        """Functions in the names of the array API, of the module `xp`, as the framework spells them."""
        for pattern, replacement in (*self.spellings, (r"\bxp\.", f"{self.module}.")):
            text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
        return text


def _names(others: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Spellings of names of the array API that a framework has under others."""
    return ((rf"\bxp\.{name}\b", f"xp.{other}") for name, other in others.items())


FORMS = {
    Framework.NUMPY: SourceForm(
        module="np", imports=("from pathlib import Path", "import numpy as np"), functions=("read", "binary16"),
        made=("vars(self).update(read(file))",), curve="self.{name} = curve(self.{name})",
        helpers=("curve",), decorated=('@np.errstate(all="ignore")',), method="__call__", result="float16",
        operators={"add": "+", "subtract": "-", "multiply": "*"},
        spellings=(_EXACT, _SIZES, (_CAST, r"\1.astype(\2)"), _POSITIVE,
                   (r"(?<!def )\bhalf\((.+)\)$", r"(\1).astype(np.float16)"))),
    Framework.TORCH: SourceForm(
        module="torch",
        imports=("from pathlib import Path", "import torch", "from safetensors.torch import load_file",
                 "from safetensors.torch import save_file"),
        functions=("stored", "binary16"), base="torch.nn.Module",
        made=("super().__init__()", "tensors = load_file(file)"), helpers=("Curve",),
        curve='self.{name} = Curve(tensors.pop("{name}"), torch.{name})',
        kept=("self.names = tuple(tensors)", "for name, values in tensors.items():",
              "    self.register_buffer(name, stored(values))"), saves=_TORCH_SAVES, trains=True, compiles=True,
        repeats=True,
        method="forward", result="float32", example="results = Twin().compiled()(inputs)",
        spellings=(_SIZES, (_CAST, r"\1.to(\2)"), *_names({"max": "amax", "permute_dims": "permute"}))),
    Framework.TENSORFLOW: SourceForm(
        module="tf",
        imports=("from pathlib import Path", "import tensorflow as tf", "from safetensors.numpy import load_file",
                 "from safetensors.numpy import save_file"),
        functions=("stored", "binary16"), base="tf.Module",
        made=("super().__init__()", "tensors = load_file(file)"), helpers=("Curve",),
        curve='self.{name} = Curve(tensors.pop("{name}"), tf.math.{name})',
        kept=("self.names, self.parameters, self.roundings = tuple(tensors), {}, {}",
              "for name, values in tensors.items():", "    setattr(self, name, stored(values))"),
        saves=_TENSORFLOW_SAVES, trains=True, method="__call__", result="float32",
        example="results = tf.function(Twin())(inputs)",
        spellings=((_CAST, r"tf.cast(\1, \2)"), *_names({
            "all": "reduce_all", "any": "reduce_any", "max": "reduce_max", "sum": "reduce_sum", "isnan": "math.is_nan",
            "isfinite": "math.is_finite", "clip": "clip_by_value", "permute_dims": "transpose", "take": "gather",
            "bitwise_right_shift": "bitwise.right_shift"}))),
}
_OPERATORS = FORMS[Framework.NUMPY].operators
#: Those of twins without quantisers, which compute in float64.
UNQUANTISED = {framework: replace(
    form, functions=(*(name for name in form.functions if name != "binary16"), "reals"), takes="reals", curves=(),
    result="float64", trains=False, compiles=False, repeats=False, operators=_OPERATORS,
    example="results = Twin()(inputs)",
    kept=tuple(line for line in form.kept if "roundings" not in line),
    imports=tuple(line for line in form.imports if "save_file" not in line))
    for framework, form in FORMS.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    """What runs written twins of a framework.

    Attributes:
        package: Package that must be installed to run them.
        install: Command that installs it in a clone.
        needs:   What they need, in words.
        example: Python code that runs one on zeros, of its module `stem` and the `shape` of its inputs.
        run:     Numbers [batch, outputs] of a twin and float16[batch, ...].
        opened:  The twin of a written file.
        compile: The twin as the framework compiles it; None where it does not.
        writer:  Package that must be installed to write them; empty if none.
        words:   Whether programs in which no layers are found are written word by word.
        real:    Whether twins may compute in float64 without quantisers.
    """

    package: str
    install: str
    needs: str
    example: str
    run: Callable[[Any, np.ndarray], np.ndarray]
    opened: Callable[[Path], Any]
    compile: Callable[[Any], Any] | None = None
    writer: str = ""
    words: bool = False
    real: bool = True


def installed(framework: Framework) -> bool:
    """Whether twins of a framework run here."""
    return find_spec(RUNTIMES[framework].package) is not None


def example(framework: Framework, stem: str, inputs: tuple) -> str:
    """A line of a shell that runs a twin on zeros, in its folder.

    Args:
        framework: What it needs.
        stem:      Name of its module.
        inputs:    Shape of one input, None for the number of time steps.
    """
    shape = ", ".join(["1", *(str(size or 8) for size in inputs)])
    return f"python -c '{RUNTIMES[framework].example.format(stem=stem, shape=shape)}'"


def _twin(path: Path) -> object:
    """The twin of a source, imported from its file."""
    spec = spec_from_file_location(path.stem, path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Twin()


def _torch(twin, samples: np.ndarray) -> np.ndarray:
    import torch

    device = next(iter(twin.buffers()), torch.empty(0)).device
    with torch.no_grad():
        return twin(torch.from_numpy(samples.copy()).to(device)).cpu().numpy()


def _graph_of_tensorflow(twin):
    import tensorflow

    return tensorflow.function(twin)


def _session(path: Path):
    from onnxruntime import InferenceSession

    return InferenceSession(path)


def _onnx(session, samples: np.ndarray) -> np.ndarray:
    shape = [size if isinstance(size, int) else -1 for size in session.get_inputs()[0].shape[1:]]
    return session.run(None, {"inputs": samples.reshape(len(samples), *shape)})[0]


_EXAMPLE = "import {0}; from {{stem}} import Twin; print(Twin()({0}.zeros(({{shape}}))))"
RUNTIMES = {
    Framework.NUMPY: Runtime(
        package="numpy", install="pip install .", needs="numpy", example=_EXAMPLE.format("numpy"), opened=_twin,
        run=lambda twin, samples: twin(samples), words=True),
    Framework.TORCH: Runtime(
        package="torch", install="pip install --group train", needs="torch and safetensors",
        example=_EXAMPLE.format("torch"), opened=_twin, run=_torch, compile=lambda twin: twin.compiled(), words=True),
    Framework.TENSORFLOW: Runtime(
        package="tensorflow", install="pip install --group tensorflow", needs="tensorflow and safetensors",
        example=_EXAMPLE.format("numpy"), opened=_twin, run=lambda twin, samples: twin(samples).numpy(),
        compile=_graph_of_tensorflow),
    Framework.ONNX: Runtime(
        package="onnxruntime", install="pip install --group test",
        needs="a runtime of ONNX with operator set 26, such as onnxruntime",
        example="import numpy, onnxruntime; print(onnxruntime.InferenceSession(\"{stem}.onnx\").run(None, "
                "{{\"inputs\": numpy.zeros(({shape}), \"float16\")}}))",
        opened=_session, run=_onnx, writer="onnx", real=False),
}
