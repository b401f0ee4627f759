"""What runs the twins of each framework, and what such twins can be: one row for each, which commands ask."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
from concord.twin.source.frameworks import Framework


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
    run: Callable[[object, np.ndarray], np.ndarray]
    opened: Callable[[Path], object]
    compile: Callable[[object], object] | None = None
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

    with torch.no_grad():
        return twin(torch.from_numpy(samples.copy())).numpy()


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
        package="tensorflow", install="pip install --group zoo", needs="tensorflow and safetensors",
        example=_EXAMPLE.format("numpy"), opened=_twin, run=lambda twin, samples: twin(samples).numpy(),
        compile=_graph_of_tensorflow),
    Framework.ONNX: Runtime(
        package="onnxruntime", install="pip install --group test",
        needs="a runtime of ONNX with operator set 26, such as onnxruntime",
        example="import numpy, onnxruntime; print(onnxruntime.InferenceSession(\"{stem}.onnx\").run(None, "
                "{{\"inputs\": numpy.zeros(({shape}), \"float16\")}}))",
        opened=_session, run=_onnx, writer="onnx", real=False),
}
