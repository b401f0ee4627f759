"""Compare the outputs of a unit with golden, and report differences in numbers that a reader can check by hand."""

import os
from collections.abc import Mapping
from enum import EnumType, IntEnum

import numpy as np
from concord.spec.isa.operations import BYPASS, Stage, operations

SHOWN = 8  #: Most elements of an array that a message shows.
SEED = "COCOTB_RANDOM_SEED"  #: Environment variable with the seed that repeats a run.


def assert_equal(name: str, got, expected, /, *, where=True, **inputs) -> None:
    """Fail unless `got` and `expected` hold the same values; the message shows the first place that differs.

    Arrays of uint16 hold binary16 patterns, which the message shows as numbers too.

    Args:
        name:     Name of the compared port or field.
        got:      Values from the hardware: an array, a list or a number, or a dictionary of these.
        expected: Values from golden, of the same shape.
        where:    Mask of the elements to compare: bool, of a shape that broadcasts to that of `expected`.
        inputs:   Inputs that led to the values, by name. Of an array whose leading axes are those of `expected` the
                  message shows the element at the difference, of others the whole. A pair (array of codes, stage or
                  enumeration) is shown with the names of its codes.

    Raises:
        AssertionError: `got` and `expected` differ in shape or values.
    """
    if isinstance(expected, Mapping):
        there, wanted = (", ".join(map(str, record)) for record in (got, expected))
        assert got.keys() >= expected.keys(), f"{name} has {there}, not {wanted}"
        for key, value in expected.items():
            assert_equal(f"{name}[{key}]", got[key], value, where=where, **inputs)
        return
    if isinstance(expected, int) and got == expected:
        return  # a fast path for comparisons in every cycle
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
    if SEED in os.environ:  # this runs within a simulation
        head.append(f"seed {os.environ[SEED]}")
    lines = [f"  {label:<{width}}  {value}" for label, value in shown.items()]
    raise AssertionError("\n".join(["; ".join(head), *lines]))


def _array(values) -> np.ndarray:
    """An array of exact numbers. numpy alone would turn a list of integers beyond 64 bits into floats."""
    array = np.asarray(values)
    return np.array(values, object) if array.dtype.kind == "f" and not isinstance(values, np.ndarray) else array


def _is_coded(value) -> bool:
    """Whether `value` is a pair of an array of codes and the stage or enumeration that names them."""
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], (Stage, EnumType))


def _names(codes: Stage | type[IntEnum]) -> dict[int, str]:
    """The names of the codes of a stage, or of an enumeration."""
    if isinstance(codes, Stage):
        return {BYPASS: "BYPASS"} | {operation.code: operation.name for operation in operations(codes)}
    return {int(code): code.name for code in codes}


def _at(values, place: tuple[int, ...], shape: tuple[int, ...]):
    """The element of `values` at `place` of an array of `shape`; only the axes that both have are indexed."""
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
