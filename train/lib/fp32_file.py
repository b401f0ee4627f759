"""Parameters of FP32 networks as safetensors, with the names that PyTorch gives them. Nothing is unpickled."""

from pathlib import Path

import torch
from concord.lib import files
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as save_tensors
from torch import nn

#: Endings of the names of pickled files.
PICKLED = (".pt", ".pth", ".pkl", ".bin", ".ckpt")


def save(net: nn.Module, path: Path):
    """Write the parameters of a network; the file appears whole or not at all."""
    files.write(path, save_tensors({name: tensor.contiguous() for name, tensor in net.state_dict().items()}))


def load(net: nn.Module, path: Path):
    """Load the parameters of a network from a file.

    Raises:
        ValueError: the file is missing, pickled or damaged, or is of another network.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file; `nnp train image --fp32 FILE` writes one")
    if path.suffix in PICKLED:
        raise ValueError(
            f"{path}: reading a pickle runs whatever program is in it, so only safetensors are read; convert it: "
            "python -c \"import torch, safetensors.torch as s; s.save_file(torch.load('" + path.name +
            f"', weights_only=True), '{path.stem}.safetensors')\"")
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path}: not a whole safetensors file ({error}); write the parameters again with "
                         "safetensors.torch.save_file(net.state_dict(), path)") from error
    if wrong := _misfits(net.state_dict(), tensors):
        raise ValueError(f"{path}: it is of another network: {wrong}")
    net.load_state_dict(tensors)


def _misfits(wanted: dict[str, torch.Tensor], found: dict[str, torch.Tensor]) -> str:
    """The first difference between the parameters of a network and those of a file; empty if there is none."""
    for name in [*wanted, *found]:
        if name not in found:
            return f"it lacks {name}"
        if name not in wanted:
            return f"the network has no {name}"
        if wanted[name].shape != found[name].shape:
            return f"{name} is {list(found[name].shape)}, but the network has {list(wanted[name].shape)}"
        if found[name].is_floating_point() != wanted[name].is_floating_point():
            return f"{name} holds {found[name].dtype}, but the network has {wanted[name].dtype}"
        if not torch.isfinite(found[name]).all():
            return f"{name} has an infinity or no number; train it again"
    return ""
