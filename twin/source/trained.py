"""Which tensors of a twin can be trained, and how each is rounded to what the firmware can hold."""

from dataclasses import dataclass

import numpy as np
from concord.firmware.firmware import Firmware
from concord.twin.lib.script import Script, SequenceLoop, Stored, StoredTensor, quantizer


@dataclass(frozen=True, kw_only=True, slots=True)
class Rounding:
    """A call that rounds a tensor.

    Attributes:
        function: Name of a function of the vocabulary.
        settings: Its settings.
    """

    function: str
    settings: tuple[tuple[str, object], ...] = ()


def roundings(script: Script, firmware: Firmware) -> dict[str, Rounding]:
    """How each tensor that can be trained is rounded, by its name.

    A tensor can be trained if the firmware holds each of its elements at a place of its own, and, in block floating
    point, if neighbours along its last axis share their exponents as a native vector does, or share none.
    """
    alone = _places_of_their_own(script) - _states(script)
    found = {name: _rounding(each, firmware) for name, each in script.tensors.items() if name in alone}
    return {name: rounding for name, rounding in found.items() if rounding}


def _rounding(tensor: StoredTensor, firmware: Firmware) -> Rounding | None:
    if tensor.values.dtype == np.float16:
        return Rounding(function="half")
    if not tensor.bits:
        return None
    size = firmware.config.native_dim
    made = quantizer(firmware.config.weights, size, integer=tensor.values.dtype.kind == "i")
    if made.size and not _is_in_blocks(tensor.places, size):
        return None
    return Rounding(function=made.function, settings=made.settings)


def _is_in_blocks(places: np.ndarray, size: int) -> bool:
    """Whether `size` neighbours along the last axis lie in one row of a native tile, and other elements in others."""
    rows = places.reshape(-1, places.shape[-1]) // size
    rows = np.pad(rows, ((0, 0), (0, -rows.shape[1] % size)), mode="edge").reshape(-1, size)
    return bool((rows == rows[:, :1]).all() and len(np.unique(rows[:, 0])) == len(rows) and places.min() >= 0)


def _places_of_their_own(script: Script) -> set[str]:
    """Names of the tensors none of whose elements lies where another tensor, or an element of the same, lies."""
    stored = {name: each.places[each.places >= 0] for name, each in script.tensors.items() if each.places is not None}
    shared = set()
    for memory in {each.memory for each in script.tensors.values()}:
        names = [name for name in stored if script.tensors[name].memory == memory]
        places, counts = np.unique(np.concatenate([stored[name] for name in names] or [[]]), return_counts=True)
        shared |= {name for name in names if np.isin(stored[name], places[counts > 1]).any()}
    return stored.keys() - shared


def _states(script: Script) -> set[str]:
    """Names of the tensors that a loop over time steps begins with."""
    def names(lines):
        for line in lines:
            if isinstance(line, SequenceLoop):
                yield from names(line.body)
            elif line.function == "start":
                yield from (each.name for each in line.arguments if isinstance(each, Stored))

    return {name for routine in (script.main, *script.routines) for name in names(routine.body)}
