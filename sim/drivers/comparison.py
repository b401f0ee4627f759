"""Compare what a unit gave with golden, and say what differs in numbers that a reader can check by hand."""

import os
from collections.abc import Mapping
from enum import EnumType, IntEnum

import numpy as np
from concord.spec.operations import BYPASS, Stage, operations

SHOWN = 8  #: Elements shown of an array.
SEED = "COCOTB_RANDOM_SEED"  #: Holds the seed of a run, which repeats it; each test in it draws from one of its own.


def assert_equal(name: str, got, expected, /, *, where=True, **inputs) -> None:
    """Fail unless `got` and `expected` hold the same values; the message shows the first place that differs.

    Arrays of uint16 hold binary16 patterns, which the message shows as numbers too.

    Args:
        name:     What is compared: the name of a port or of a field.
        got:      What the hardware gave: an array, a list or a number, or a dictionary of these.
        expected: The same from golden.
        where:    Places that count: bool, of a shape that broadcasts to `expected`'s.
        inputs:   What led to it, by its name: arrays whose leading axes are those of `expected`, or other values,
                  which are shown whole. A pair of an array of codes and a stage, or an enumeration, is shown by names.

    Raises:
        AssertionError: they differ in shape or values.
    """
    if isinstance(expected, Mapping):
        there, wanted = (", ".join(map(str, record)) for record in (got, expected))
        assert got.keys() >= expected.keys(), f"{name} has {there}, not {wanted}"
        for key, value in expected.items():
            assert_equal(f"{name}[{key}]", got[key], value, where=where, **inputs)
        return
    if isinstance(expected, int) and got == expected:
        return  # the usual case of what is compared in every cycle
    got, expected = _array(got), _array(expected)
    assert got.shape == expected.shape, f"{name} has the shape {got.shape}, not {expected.shape}"
    bad = np.argwhere((got != expected) & where)
    if not len(bad):
        return
    place = tuple(map(int, bad[0]))
    found = got[place]
    shown = {"expected": _show(expected[place]),
             "got": _show(np.uint16(found) if expected.dtype == np.uint16 else found)}
    for label, value in inputs.items():
        values, names = (value[0], _names(value[1])) if _is_coded(value) else (value, None)
        shown[label] = _show(_at(values, place, expected.shape), names)
    width = max(map(len, shown))
    head = [f"{name} differs in {len(bad):,} of {expected.size:,} places"]
    if place:
        head.append(f"the first is {list(place)}")
    if SEED in os.environ:  # within a simulation
        head.append(f"seed {os.environ[SEED]}")
    lines = [f"  {label:<{width}}  {value}" for label, value in shown.items()]
    raise AssertionError("\n".join(["; ".join(head), *lines]))


def _array(values) -> np.ndarray:
    """An array of exact numbers: numpy makes floats of lists of integers that no integer type of its own holds."""
    array = np.asarray(values)
    return np.array(values, object) if array.dtype.kind == "f" and not isinstance(values, np.ndarray) else array


def _is_coded(value) -> bool:
    """Whether it is a pair of an array and what gives names to its codes."""
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], (Stage, EnumType))


def _names(codes: Stage | type[IntEnum]) -> dict[int, str]:
    """The names of the codes of a stage, or of an enumeration."""
    if isinstance(codes, Stage):
        return {BYPASS: "BYPASS"} | {operation.code: operation.name for operation in operations(codes)}
    return {int(code): code.name for code in codes}


def _at(values, place: tuple[int, ...], shape: tuple[int, ...]):
    """What belongs to a place of an array of `shape`: the axes that `values` shares with it are indexed."""
    if not isinstance(values, (np.ndarray, list)):
        return values
    values = np.asarray(values)
    for index, size in zip(place, shape, strict=True):
        if not values.ndim or len(values) != size:
            break
        values = values[index]
    return values


def _show(value, names: Mapping[int, str] | None = None) -> str:
    """A value as text: names of codes, patterns with their numbers, integers in decimal and hexadecimal."""
    if isinstance(value, np.ndarray) and value.ndim:
        flat = [_show(each, names) for each in value.ravel()[:SHOWN]]
        return f"[{', '.join(flat)}{', ...' if value.size > SHOWN else ''}]"
    if names:
        return f"{names.get(int(value), 'unknown')} ({int(value)})"
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    dtype = getattr(value, "dtype", None)
    if dtype == np.uint16:
        return f"{int(value):#06x} ({np.uint16(value).view(np.float16)})"
    if isinstance(value, (int, np.integer)) or dtype is not None and np.issubdtype(dtype, np.integer):
        return f"{int(value)} ({int(value):#x})"
    return str(value)
