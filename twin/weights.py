"""Tensors of a twin, put back into the firmware that it was made from."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from concord.firmware.firmware import Firmware, Tiles
from concord.golden.mvm.elements import representable
from concord.golden.mvm.quantizer import quantize_reals
from concord.spec.isa.memories import Mem, MemoryKind
from concord.spec.numbers.formats import Format
from concord.twin.flow.flow_of import flow_of
from concord.twin.lib.run import unsigned
from concord.twin.lib.script import Script, StoredTensor
from concord.twin.recovery.recover import recover, without_hints
from concord.twin.source.frameworks import CURVES
from concord.twin.source.lines import attribute
from concord.twin.source.trained import Rounding, roundings
from concord.twin.source.writer import tensors

_STEPS = 2  #: Time steps of the flow in which every product stands.
_VECTORS = {mem.name.lower(): mem for mem in Mem if mem.kind in (MemoryKind.VECTOR, MemoryKind.OUTSIDE)}


def trainable(script: Script, firmware: Firmware) -> dict[str, Rounding]:
    """How each tensor that can be trained is rounded, by its name.

    Vectors that the firmware holds twice with equal values are one tensor of the script, which has only one of these
    places: they cannot be trained. To find them, all vectors get values that are nowhere else.
    """
    found = roundings(script, firmware)
    vectors = [name for name in found if script.tensors[name].values.dtype == np.float16]
    while vectors:
        other, rng = firmware, np.random.default_rng(0)
        for name in vectors:
            tensor = script.tensors[name]
            drawn = rng.uniform(1, 2, tensor.values.shape).astype(np.float16)
            other = _put(other, name, tensor, np.where(tensor.places >= 0, drawn, tensor.values))
        shared = _shared(script, recover(other), firmware, other, vectors)
        vectors = [name for name in vectors if name not in shared]
        found = {name: rounding for name, rounding in found.items() if name not in shared}
        if not shared:
            break
    return found


def _shared(script: Script, again: Script, firmware: Firmware, other: Firmware, names: list[str]) -> set[str]:
    """Names of vectors that stand for more places than they have, by the script of firmware with other vectors."""
    shared = {name for name in names if name not in again.tensors or again.tensors[name].values.shape
              != script.tensors[name].values.shape or not _holds(other, script.tensors[name],
                                                                 again.tensors[name].values)}
    for name in again.tensors.keys() - script.tensors.keys():
        tensor = again.tensors[name]
        if tensor.memory in _VECTORS and tensor.places is not None:
            words = firmware.vectors[_VECTORS[tensor.memory]].reshape(-1).view(np.float16)
            before = words[tensor.places[tensor.places >= 0]]
            shared |= {each for each in names if np.isin(before, script.tensors[each].values).all()}
    return shared


def with_tensors(firmware: Firmware, given: Mapping[str, np.ndarray]) -> Firmware:
    """The same firmware with other weights and vectors.

    Args:
        firmware: The firmware.
        given:    Tensors of its twin by the names of the twin's file.

    Raises:
        ValueError: a tensor is missing, of another shape, not what the firmware can hold, or at no place of its own.
    """
    script = twin_script(firmware, given)
    changed = _changed(script, given)
    # Numbers before any rounding would be those of the untrained network.
    found = replace(firmware, full_precision=None) if changed else firmware
    for name, values in changed.items():
        found = _put(found, name, script.tensors[name], values)
    found = _with_biases(found, firmware, script)
    for name, tensor in script.tensors.items():
        if tensor.places is not None and not _holds(found, tensor, given[attribute(name)]):
            raise ValueError(f"{attribute(name)}: the firmware shares some of its numbers with another tensor, and "
                             "they were changed differently; leave one of them as it was")
    return found


def _holds(firmware: Firmware, tensor: StoredTensor, values: np.ndarray) -> bool:
    """Whether the firmware has these values at the places of a tensor."""
    fmt, size = firmware.config.weights, firmware.config.native_dim
    places = tensor.places[tensor.places >= 0]
    if tensor.bits:
        held = firmware.tiles.mantissas.reshape(-1)[places].astype(np.float64)
        if tensor.values.dtype.kind == "f":
            held *= 2.0 ** (firmware.tiles.exponents.reshape(-1)[places // size].astype(np.int64) - fmt.bits + 1)
    elif tensor.memory in _VECTORS:
        held = firmware.vectors[_VECTORS[tensor.memory]].reshape(-1)[places].view(np.float16)
    else:
        return True
    return np.array_equal(held, values[tensor.places >= 0], equal_nan=True)


def twin_script(firmware: Firmware, given: Mapping[str, np.ndarray]) -> Script:
    """The script whose tensors have the given names: that of the firmware, with its hints or without them.

    Raises:
        ValueError: neither has.
    """
    found = []
    for each in (firmware, without_hints(firmware)):
        script = recover(each)
        names = set(tensors(script))  # of a twin in PyTorch, `save` leaves out tables
        found.append((sorted(names - given.keys() - set(CURVES)), sorted(given.keys() - names)))
        if not any(found[-1]):
            return script
    lacking, unknown = min(found, key=lambda names: len(names[0]) + len(names[1]))
    said = [f"missing: {_some(lacking)}"] * bool(lacking) + [f"unknown: {_some(unknown)}"] * bool(unknown)
    raise ValueError(f"its tensors are not those of a twin of {firmware.name} ({'; '.join(said)}); `save` of the "
                     "trained twin writes all of them")


def _some(names: list[str], most: int = 2) -> str:
    """The first of some names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + f" and {more} more" * (more > 0)


def _changed(script: Script, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Tensors whose values differ, by their names in the script."""
    old, changed = tensors(script), {}
    for name, values in given.items():
        if values.shape != old[name].shape:
            raise ValueError(f"{name}: its shape is {list(values.shape)}, the firmware has {list(old[name].shape)}")
        if name in CURVES and not np.array_equal(values, old[name], equal_nan=True):
            raise ValueError(f"{name}: it is a table of the machine, and its values have changed; leave it as it was")
    for name, tensor in script.tensors.items():
        values = given[attribute(name)].astype(np.float64)
        if not np.array_equal(values, old[attribute(name)].astype(np.float64), equal_nan=True):
            if tensor.places is None or not np.isfinite(values).all():
                raise ValueError(f"{attribute(name)}: " + (
                    "it has values that are not finite" if tensor.places is not None else
                    "the firmware holds it at no place of its own; leave it as it was"))
            changed[name] = values
    return changed


def _put(firmware: Firmware, name: str, tensor: StoredTensor, values: np.ndarray) -> Firmware:
    """The firmware with one tensor changed."""
    stored = tensor.places >= 0
    if (values[~stored] != tensor.values[~stored]).any():
        raise ValueError(f"{attribute(name)}: elements have changed that the firmware does not hold")
    places, values = tensor.places[stored], values[stored]
    if tensor.bits:
        put = _integers if tensor.values.dtype.kind == "i" else _blocks
        return replace(firmware, tiles=put(firmware, attribute(name), places, values))
    mem = _VECTORS.get(tensor.memory)
    if mem is None:
        raise ValueError(f"{attribute(name)}: it lies in {tensor.memory or 'no memory'}; leave it as it was")
    halves = values.astype(np.float16)
    if (halves != values).any():
        raise ValueError(f"{attribute(name)}: its values are no binary16 numbers; `save` of the twin rounds them")
    words = firmware.vectors[mem].copy()
    words.reshape(-1)[places] = halves.view(np.uint16)
    return replace(firmware, vectors={**firmware.vectors, mem: words})


def _integers(firmware: Firmware, name: str, places: np.ndarray, values: np.ndarray) -> Tiles:
    fmt = firmware.config.weights
    if (values != np.rint(values)).any() or not representable(values, fmt):
        elements = f"{fmt.element}, whole numbers" if fmt.precision else "whole numbers"
        raise ValueError(f"{name}: its values are no {elements} in {fmt.lowest}..{fmt.highest}; `save` of the twin "
                         "rounds them")
    mantissas = firmware.tiles.mantissas.copy()
    mantissas.reshape(-1)[places] = values
    return replace(firmware.tiles, mantissas=mantissas)


def _blocks(firmware: Firmware, name: str, places: np.ndarray, values: np.ndarray) -> Tiles:
    """Mantissas and exponents of the rows of native tiles in which the values lie."""
    fmt, size = firmware.config.weights, firmware.config.native_dim
    exponents = firmware.tiles.exponents.reshape(-1).astype(np.int64)
    reals = firmware.tiles.mantissas.reshape(-1, size) * 2.0 ** (exponents - fmt.bits + 1)[:, None]
    reals.reshape(-1)[places] = values
    rows = np.unique(places // size)
    mantissas, found = _mantissas(reals[rows], fmt)
    if (mantissas * 2.0 ** (found - fmt.bits + 1)[:, None] != reals[rows]).any():
        elements = fmt.element if fmt.precision else f"mantissas of {fmt.bits} bits"
        raise ValueError(f"{name}: its values are no {elements} under one exponent for {size} neighbours; `save` of "
                         "the twin rounds them")
    all_mantissas, all_exponents = firmware.tiles.mantissas.copy(), firmware.tiles.exponents.copy()
    all_mantissas.reshape(-1, size)[rows] = mantissas
    all_exponents.reshape(-1)[rows] = found
    return replace(firmware.tiles, mantissas=all_mantissas, exponents=all_exponents)


def _mantissas(reals: np.ndarray, fmt: Format) -> tuple[np.ndarray, np.ndarray]:
    """int64[rows, N] mantissas and int64[rows] exponents of blocks that were rounded already."""
    if fmt.precision:
        return quantize_reals(reals, fmt)
    fraction, exponents = np.frexp(np.abs(reals).max(-1))
    # The lowest mantissa, -2**(bits - 1), is a power of two; so is the largest value of some blocks of rule "ceil".
    fits = (reals * 2.0 ** (fmt.bits - exponents)[:, None] >= fmt.lowest).all(-1) & (fraction == 0.5)
    fits &= (reals * 2.0 ** (fmt.bits - exponents)[:, None] <= fmt.highest).all(-1)
    exponents = np.clip(exponents - fits, fmt.e_min, fmt.e_max).astype(np.int64)
    scaled = reals * 2.0 ** (fmt.bits - 1 - exponents)[:, None]
    return np.clip(np.rint(scaled), fmt.lowest, fmt.highest).astype(np.int64), exponents


def _with_biases(firmware: Firmware, old: Firmware, script: Script) -> Firmware:
    """The firmware with start values for its weights: those of unsigned codes hold zero * sum(weights)."""
    size, names = firmware.config.native_dim, unsigned(script)
    places = [script.tensors[name].places.reshape(-1) for name in names]
    rows = np.unique(np.concatenate([each[each >= 0] for each in places] or [np.zeros(0, np.int64)]) // size)
    sums = [each.tiles.mantissas.sum(-1, dtype=np.int64).reshape(-1) for each in (firmware, old)]
    more = np.zeros(len(sums[0]), np.int64)
    more[rows] = firmware.config.activations.zero * (sums[0] - sums[1])[rows]
    biases = firmware.biases.copy()
    for first, tiles in _biased(firmware).items():
        added = more.reshape(-1, size)[np.array(tiles)].sum(1).reshape(-1)
        held = biases.reshape(-1)[first : first + len(added)]
        held += added[: len(held)].astype(held.dtype)
    return replace(firmware, biases=biases)


def _biased(firmware: Firmware) -> dict[int, tuple]:
    """Tiles [row tiles, columns] of each product with start values, by the address of the first one."""
    found = {}
    for step in flow_of(firmware, _STEPS).steps:
        product = step.chain.product
        if product and product.bias:
            found[product.b * firmware.config.mfu_lanes] = tuple(map(tuple, step.tiles.item.tolist()))
    return found
