"""Checkpoints of training in PyTorch, from which it resumes to the bit. They are safetensors; nothing is pickled.

A folder holds a file for each phase, with the state after the last whole epoch of the phase.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from concord.lib import tensor_file
from concord.train.lib.observer import EpochRecord, TrainingState

KIND = tensor_file.TensorFileKind(
    key="concord training state", version=1, name="checkpoint", remedy="remove it, or name another folder",
    command="`nnp train` with --checkpoint")
#: Ending of the names of checkpoints.
SUFFIX = ".checkpoint"
#: Name of PyTorch's own generator of random numbers.
GLOBAL = "PyTorch"


class Checkpoints:
    """A folder with the phases of one training.

    Args:
        folder:   Folder of the checkpoints. It is made when the first epoch is done.
        settings: Everything that decides the result, by name. Checkpoints with other settings are refused.

    Raises:
        ValueError: the folder holds another training, or a file that is damaged.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str]):
        self.folder, self.settings = Path(folder), {**settings, "PyTorch": str(torch.__version__)}
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            self._read(path)

    def load(self, phase: str, state: TrainingState) -> list[EpochRecord]:
        """Restore the state of a phase, and return the epochs after it; an empty list if there is no checkpoint.

        Raises:
            ValueError: the file does not fit the network.
        """
        path = self._path(phase)
        if not path.exists():
            return []
        header, tensors = self._read(path)
        try:
            _restore(state, header, tensors)
            return [EpochRecord(**record) for record in header["rows"]]
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"{path}: it does not fit the network ({reason}); {KIND.remedy}") from error

    def save(self, records: list[EpochRecord], state: TrainingState):
        """Keep the state that a phase has after these epochs; the file appears whole or not at all."""
        header, tensors = _packed(state)
        header |= {"settings": self.settings, "rows": [asdict(record) for record in records]}
        header["scalars"] = [name for name, tensor in tensors.items() if tensor.dim() == 0]
        tensor_file.write(KIND, self._path(records[0].phase), header,
                          {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()})

    def _path(self, phase: str) -> Path:
        return self.folder / (re.sub(r"\W+", "-", phase.lower()) + SUFFIX)

    def _read(self, path: Path) -> tuple[dict, dict[str, torch.Tensor]]:
        header, arrays = tensor_file.read(KIND, path)
        kept = header.get("settings", {})
        for name in [*self.settings, *kept]:
            if kept.get(name) != self.settings.get(name):
                raise ValueError(f"{path}: it is of another training, with {name} {kept.get(name)}, not "
                                 f"{self.settings.get(name)}; give the same command, or name another folder")
        # safetensors come back with one dimension at least.
        return header, {name: torch.from_numpy(array.reshape(()) if name in header["scalars"] else array)
                        for name, array in arrays.items()}


def _packed(state: TrainingState) -> tuple[dict, dict[str, torch.Tensor]]:
    """The state as values for the JSON header, and as tensors by name."""
    optimiser = state.optimiser.state_dict()
    tensors = {f"net:{name}": tensor for name, tensor in state.net.state_dict().items()}
    values = {}
    for index, kept in optimiser["state"].items():
        for key, value in kept.items():
            target = tensors if isinstance(value, torch.Tensor) else values
            target[f"optimiser:{index}:{key}"] = value
    tensors |= {f"random:{name}": made.get_state() for name, made in state.generators.items()}
    tensors[f"random:{GLOBAL}"] = torch.get_rng_state()
    return {"groups": optimiser["param_groups"], "values": values, "schedule": state.schedule.state_dict(),
            "also": {name: kept.state_dict() for name, kept in state.also.items()}}, tensors


def _restore(state: TrainingState, header: dict, tensors: dict[str, torch.Tensor]):
    parts = {"net": {}, "optimiser": {}, "random": {}}
    for name, value in {**tensors, **header["values"]}.items():
        part, _, rest = name.partition(":")
        parts[part][rest] = value
    state.net.load_state_dict(parts["net"])
    kept = {}
    for name, value in parts["optimiser"].items():
        index, _, key = name.partition(":")
        kept.setdefault(int(index), {})[key] = value
    state.optimiser.load_state_dict({"state": kept, "param_groups": header["groups"]})
    state.schedule.load_state_dict(header["schedule"])
    for name, other in state.also.items():
        other.load_state_dict(header["also"][name])
    for name, made in state.generators.items():
        made.set_state(parts["random"][name])
    torch.set_rng_state(parts["random"][GLOBAL])
