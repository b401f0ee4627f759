"""Networks of PyTorch, exported to ONNX and read as every other file is."""

import importlib.util
import io
import logging
import tempfile
import warnings
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from concord.model.floating.network import FloatNetwork


def exported(
    module: "torch.nn.Module",
    example: "torch.Tensor | tuple[torch.Tensor, ...] | None",
    *,
    name: str = "",
    shape: tuple[int, ...] | None = None,
    output: str | None = None,
) -> "FloatNetwork":
    """The network of a module of PyTorch in evaluation mode.

    Args:
        module:  The module. Its mode is as before afterwards.
        example: An input, or a tuple of the one input.
        name:    Name of the network; that of the module's class by default.
        shape:   As in `nnp.lib.front.read_float`.
        output:  The same.

    Raises:
        ValueError: it is no module, there is no example, the export fails, or operations cannot be computed.
    """
    import torch
    from concord.nnp.lib.front import read_float
    from concord.nnp.lib.storage import legal

    if not isinstance(module, torch.nn.Module):
        raise ValueError(f"a path or a torch.nn.Module is needed, not {type(module).__name__}")
    inputs = example if isinstance(example, tuple) else (example,)
    if len(inputs) != 1 or not isinstance(inputs[0], torch.Tensor):
        raise ValueError(f"{type(module).__name__}: give an example of its one input, such as "
                         "concord.load(network, torch.zeros(1, 64))")
    called = legal(name or type(module).__name__.lower())
    with tempfile.TemporaryDirectory(prefix="concord-") as folder:
        path = Path(folder, f"{called}.onnx")
        _export(module, inputs, path)
        try:
            return read_float(path, shape, output)
        except ValueError as error:
            raise ValueError(str(error).replace(str(path), called)) from error


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
    reason = str(error).strip().splitlines()
    raise ValueError(f"{type(module).__name__}: PyTorch cannot export it to ONNX with this example: "
                     f"{reason[0] if reason else type(error).__name__}") from error


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
    """A context without the exporter's lines of progress and warnings."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
