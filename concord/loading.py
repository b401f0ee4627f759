"""`concord.load`: networks, quantised models and firmware from files, and networks of PyTorch."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from concord.objects import Model, Network, Program, Shown

if TYPE_CHECKING:
    import torch

Held = TypeVar("Held", Network, Model)


def load(
    source: "str | os.PathLike | torch.nn.Module",
    example: "torch.Tensor | tuple[torch.Tensor, ...] | None" = None,
    *,
    shape: tuple[int, ...] | None = None,
    output: str | None = None,
    name: str = "",
) -> Network | Model | Program:
    """Read a network, a quantised model or firmware.

    Args:
        source:  Path or URL of an ONNX file, of what `nnp import` wrote, of a quantised model or of firmware; or a
            network of PyTorch, which is exported to ONNX in its evaluation mode.
        example: An input of a network of PyTorch, [samples, ...], or [samples, time, ...] where it takes sequences.
        shape:   Sizes of one sample, where an ONNX file leaves them open.
        output:  Name of the output that the network gives, where an ONNX file has several.
        name:    Name of a network of PyTorch; that of its class by default.

    Returns:
        A `Network` in float32, a quantised `Model`, or the `Program` of a machine, by what the source holds.

    Raises:
        ValueError: there is no such file, it is damaged, or it holds operations that cannot be computed; the message
            lists all of these. A network of PyTorch has no example, or cannot be exported. A network gives other
            outputs than onnxruntime or PyTorch do, on random inputs or on the example.
    """
    if not isinstance(source, str | os.PathLike):
        from concord.workflows.torch_modules import exported

        floating, original = exported(source, example, name=name, shape=shape, output=output)
        return Network(floating=floating, original=original)
    if example is not None:
        raise ValueError(f"{os.fspath(source)}: an example is for networks of PyTorch; leave it out")
    from concord.workflows.original import at_random, original_of
    from concord.workflows.storage import FileKind, fetched, is_url, kind_of, read_model

    location = os.fspath(source)
    with fetched(location) as path:
        match kind_of(path):
            case FileKind.NETWORK:
                from concord.workflows.imports import opened

                floating, imported = opened(path, shape, output)
                if imported:
                    ran, said = at_random(imported)
                    floating = floating if ran else replace(floating, notes=(*floating.notes, said))
                return Network(floating=floating, original=original_of(imported))
            case FileKind.MODEL | FileKind.CHECKPOINT as kind:
                kept = kind is FileKind.MODEL and not is_url(location)
                return Model(quantized=read_model(str(path)), path=path if kept else None)
            case FileKind.FIRMWARE | FileKind.CASCADE:  # the latter is refused in a sentence
                return _program(path)


def _program(path: Path) -> Program:
    from concord.firmware.firmware_file import load_firmware
    from concord.spec.machine.config import preset_name

    firmware = load_firmware(path)
    machine = preset_name(firmware.config) or f"machine {firmware.config.digest:08x}"
    return Program(firmware=firmware, machine=machine, usage={})


def network_of(given: object) -> Network:
    """The network in float32 that an argument means.

    Raises:
        ValueError: it is something else.
    """
    return _of(Network, given, "a network in float32 is needed, as concord.load gives it of an ONNX file")


def model_of(given: object) -> Model:
    """The quantised model that an argument means.

    Raises:
        ValueError: it is something else.
    """
    return _of(Model, given, "a quantised model is needed, as concord.quantize gives it")


def _of(kind: type[Held], given: object, needed: str) -> Held:
    found = load(given) if isinstance(given, str | os.PathLike) else given
    if not isinstance(found, kind):
        raise ValueError(f"{needed}, not {found.summary if isinstance(found, Shown) else f'a {type(found).__name__}'}")
    return found
