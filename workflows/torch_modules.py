"""Networks of PyTorch, exported to ONNX and read as every other file is."""

import importlib.util
import io
import logging
import tempfile
import warnings
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
from concord.datasets.fitting import arranged
from concord.workflows.original import Original, checked, closeness, outputs

if TYPE_CHECKING:
    import torch
    from concord.frontends.onnx.read import Imported
    from concord.net.graph import Graph


def exported(
    module: "torch.nn.Module",
    example: "torch.Tensor | tuple[torch.Tensor, ...] | None",
    *,
    name: str = "",
    shape: tuple[int, ...] | None = None,
    output: str | None = None,
) -> "tuple[Graph, Original]":
    """The network of a module of PyTorch in evaluation mode, and the module, with which the network was compared.

    Args:
        module:  The module. Its mode is as before afterwards.
        example: An input, or a tuple of the one input.
        name:    Name of the network; that of the module's class by default.
        shape:   As in `workflows.imports.opened`.
        output:  The same.

    Raises:
        ValueError: it is no module, there is no example, the export fails, operations cannot be computed, or the
            network gives other outputs than the module on the example or on random inputs.
    """
    import torch
    from concord.lib.extras import needing
    from concord.workflows.storage import legal

    if not isinstance(module, torch.nn.Module):
        raise ValueError(f"a path or a torch.nn.Module is needed, not {type(module).__name__}")
    inputs = example if isinstance(example, tuple) else (example,)
    if len(inputs) != 1 or not isinstance(inputs[0], torch.Tensor):
        raise ValueError(f"{type(module).__name__}: give an example of its one input, such as "
                         "concord.load(network, torch.zeros(1, 64))")
    try:
        _run(module, inputs[0].detach().cpu().numpy(), inputs[0])
    except ValueError as error:
        raise ValueError(f"{type(module).__name__}, with an example of the shape {list(inputs[0].shape)}: {error}"
                         ) from error
    called = legal(name or type(module).__name__.lower())
    with tempfile.TemporaryDirectory(prefix="concord-") as folder:
        path = Path(folder, f"{called}.onnx")
        _export(module, inputs, path)
        try:
            imported = needing("front", "concord.frontends.onnx.read").read(path, shape, output)
        except ValueError as error:
            raise ValueError(str(error).replace(str(path), called)) from error
    original = _reference(module, inputs[0], imported, output)
    notes = _check(inputs[0], imported, original)
    return replace(imported.network, notes=(*imported.network.notes, *notes)), original


def _reference(module: "torch.nn.Module", example: "torch.Tensor", imported: "Imported", output: str | None
               ) -> Original:
    """The module, as it runs arrays in the order of the exported file.

    What the host computes at the end is not in the network, so onnxruntime gives what stands before it in the exported
    file, which is compared with the module first.
    """
    from concord.frontends.onnx.compare import run_file, run_graph, whole_outputs

    names = [value.name for value in imported.model.graph.output]

    def execute(tensor: np.ndarray) -> np.ndarray:
        made = _run(module, tensor, example)
        if output in names and len(made) != len(names):
            raise ValueError(f"it gives {len(made)} tensors, and its export {len(names)}")
        if len(made) == len(imported.network.results):
            return np.concatenate([one.reshape(len(one), -1) for one in made], axis=1)
        same = [tensor for tensor in made if tensor.shape == imported.indices.shape]
        return made[names.index(output)] if output in names else next(iter(same), made[0])

    def run(x: np.ndarray, lengths: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        if imported.embedding and x.dtype.kind == "f":
            raise ValueError("the module takes token numbers, and the samples are vectors")
        return run_graph(imported, execute, x, lengths)

    if imported.tensor in names or imported.network.softmax:
        return Original(by="PyTorch", run=run, softmax=imported.network.softmax,
                        close=closeness(imported))

    given = example.detach().cpu().numpy()
    with suppress(ModuleNotFoundError):  # `_check` says that there is no onnxruntime
        for ours, theirs in zip(_run(module, given, example), whole_outputs(imported, given), strict=True):
            close = closeness(imported)
            if not np.allclose(ours, theirs, rtol=close, atol=close * np.abs(ours).max(initial=0)):
                raise ValueError(f"{imported.network.name}: its export to ONNX gives other outputs in onnxruntime than "
                                 "the module; please report this, with the network")
    return Original(by="onnxruntime", run=lambda x, lengths: run_file(imported, x, lengths),
                    close=closeness(imported))


def _run(module: "torch.nn.Module", tensor: np.ndarray, example: "torch.Tensor") -> list[np.ndarray]:
    """What a module returns for a tensor like its example.

    Raises:
        ValueError: it cannot run.
    """
    import torch

    training = module.training
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = _tensors(module.eval()(torch.from_numpy(np.ascontiguousarray(tensor)).to(example)))
    except Exception as error:  # modules raise errors of any class
        raise ValueError(f"PyTorch cannot run it: {_reason(error)}") from error
    finally:
        module.train(training)
    return [one.cpu().numpy() for one in made]


def _reason(error: BaseException) -> str:
    """The first line of the error that led to an error of PyTorch, whose own lines are advice about its exporter."""
    while error.__cause__ is not None:
        error = error.__cause__
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__).strip()


def _tensors(value) -> list:
    """The tensors in what a module returns, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    return [tensor for item in value for tensor in _tensors(item)] if isinstance(value, tuple | list) else [value]


def _check(example: "torch.Tensor", imported: "Imported", original: Original) -> tuple[str, ...]:
    """Compare a network with its module on the example and on random inputs; a note if this cannot be done.

    Raises:
        ValueError: outputs differ by more than rounding explains.
    """
    axes, network = imported.axes, imported.network
    given = example.detach().cpu().numpy().astype(np.float64 if example.is_floating_point() else np.int64)
    random = np.random.default_rng(0).normal(size=(3, *given.shape)).astype(np.float32).astype(np.float64)
    for x in [given, *random] if example.is_floating_point() else [given]:
        if axes.samples is None:
            x = (x if axes.time is None else np.moveaxis(x, axes.time, 0))[None]
        elif axes.time is not None:
            x = np.moveaxis(x, (axes.samples, axes.time), (0, 1))
        try:
            theirs, _ = original.run(x, None)
        except (ValueError, ModuleNotFoundError) as error:
            return (f"not compared with the module: {error}",)
        flat, _ = arranged(x, network.interface, network.name)
        checked(network, original, outputs(network, original, flat, None), theirs, network.name)
    return ()


def _export(module: "torch.nn.Module", inputs: tuple, path: Path):
    """Write an ONNX file by tracing; if that fails and onnxscript is installed, by the exporter of `torch.export`.

    Tracing takes a tenth of the time, and writes a recurrent layer as one node.
    """
    training, error = module.training, None
    ways = [False, True] if importlib.util.find_spec("onnxscript") is not None else [False]
    try:
        for dynamo in ways:
            if (error := _failure(module.eval(), inputs, path, dynamo)) is None:
                return
    finally:
        module.train(training)
    assert error is not None  # one way was tried at least
    raise ValueError(f"{type(module).__name__}: PyTorch cannot export it to ONNX with this example: {_reason(error)}"
                     ) from error


def _failure(module: "torch.nn.Module", inputs: tuple, path: Path, dynamo: bool) -> Exception | None:
    """Export a module; the error if that fails, which is of any class."""
    import torch

    try:
        with _silent(), torch.no_grad():
            torch.onnx.export(module, inputs, str(path), dynamo=dynamo, external_data=False)
    except Exception as error:
        return error
    return None


@contextmanager
def _silent():
    """A context without the exporter's lines of progress and warnings, and without the graphs that it cannot trace."""
    import torch

    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    graphs = patch.object(torch._C, "_jit_onnx_log", create=True)  # C++ prints them, beside sys.stdout
    try:
        with warnings.catch_warnings(), graphs, redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
