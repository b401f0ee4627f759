"""What testbenches share: the machine of their run, payloads of wires, and the comparison of a unit with golden.

A comparison reports differences in numbers that a reader can check by hand.
"""

import os
from collections.abc import Mapping
from enum import EnumType, IntEnum

import numpy as np
from amaranth.hdl import Shape
from amaranth.lib import data
from concord.golden.mvm.elements import decode, encode
from concord.sim.drivers.configs import from_text
from concord.spec.isa.operations import BYPASS, Stage, operations
from concord.spec.numbers.formats import Format

#: The machine whose unit is tested, from the environment of the simulation.
CONFIG = from_text(os.environ.get("CONFIG", "tiny"))
SHOWN = 8  #: Most elements of an array that a message shows.
SEED = "COCOTB_RANDOM_SEED"  #: Environment variable with the seed that repeats a run.


def assert_equal(name: str, got, expected, /, *, where=True, **inputs) -> None:
    """Fail unless `got` and `expected` hold the same values; the message shows the first element that differs.

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
    position = tuple(map(int, bad[0]))
    found = got[position]
    shown = {"expected": _show(expected[position]),
             "got": _show(np.uint16(found) if expected.dtype == np.uint16 else found)}
    for label, value in inputs.items():
        values, names = (value[0], _names(value[1])) if _is_coded(value) else (value, None)
        shown[label] = _show(_at(values, position, expected.shape), names)
    width = max(map(len, shown))
    head = [f"{name} differs in {len(bad):,} of {expected.size:,} elements"]
    if position:
        head.append(f"the first is {list(position)}")
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
        return {BYPASS: "BYPASS"} | {operation.code: operation.name for operation in operations(codes, more=True)}
    return {int(code): code.name for code in codes}


def _at(values, position: tuple[int, ...], shape: tuple[int, ...]):
    """The element of `values` at `position` of an array of `shape`; only the axes that both have are indexed."""
    if not isinstance(values, (np.ndarray, list)):
        return values
    values = np.asarray(values)
    for index, size in zip(position, shape, strict=True):
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


class Packer:
    """A shape that is analysed once, so that packing a payload makes no Amaranth objects, which are slow.

    Args:
        shape: Scalar shape or layout of the payload.
    """

    def __init__(self, shape):
        cast = Shape.cast(shape)
        self.width, self.signed, self.parts = cast.width, cast.signed, None
        if isinstance(shape, (data.Layout, type)) and not isinstance(shape, range):
            self.parts = {key: (field.offset, Packer(field.shape)) for key, field in data.Layout.cast(shape)}
            self.masked = [(key, offset, (1 << part.width) - 1, None if part.plain else part.of)
                           for key, (offset, part) in self.parts.items()]
        self.plain = self.parts is None and not self.signed  # bits are the number

    def join(self, value) -> int:
        """Pack a number, a list of values or a dictionary into an integer. Fields that a dictionary lacks are 0.

        Raises:
            ValueError: a number does not fit.
            KeyError:   a dictionary has a field that the layout lacks.
        """
        if self.parts is None:
            payload = int(value) & (1 << self.width) - 1
            if self.of(payload) != value:
                raise ValueError(f"{value} does not fit {self.width} bits")
            return payload
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return sum(self.parts[key][1].join(part) << self.parts[key][0] for key, part in items)

    def of(self, payload: int):
        """Unpack an integer into numbers, and dictionaries by field name or index."""
        if self.parts is None:
            return int(payload) - (int(payload) >> self.width - 1 << self.width if self.signed else 0)
        return {key: of(payload >> offset & mask) if of else payload >> offset & mask
                for key, offset, mask, of in self.masked}


def pack(shape, values) -> list[int]:
    """Pack values into payloads of `shape`.

    Args:
        shape:  Shape or layout of one payload.
        values: int[n, ...] for a scalar or an array of scalars, a dictionary of such arrays for a struct.

    Returns:
        n integers, with the first field in the lowest bits.
    """
    return [int.from_bytes(row.tobytes(), "little") for row in pack_rows(shape, values)]


def pack_rows(shape, values) -> np.ndarray:
    """Pack values as `pack` does, into uint8[n, bytes of a payload] instead of integers."""
    return np.packbits(_bits(shape, values), axis=1, bitorder="little")


def unpack(shape, payloads: list[int]):
    """Unpack payloads into the values that `pack` takes: int64 arrays, or Python integers beyond 63 bits."""
    size = (Shape.cast(shape).width + 7) // 8
    raw = b"".join(int(payload).to_bytes(size, "little") for payload in payloads)
    return unpack_rows(shape, np.frombuffer(raw, np.uint8).reshape(len(payloads), size))


def unpack_rows(shape, rows: np.ndarray):
    """Unpack as `unpack` does, from uint8[n, bytes of a payload] instead of integers."""
    return _values(shape, np.unpackbits(rows, axis=1, bitorder="little")[:, :Shape.cast(shape).width])


def _layout(shape) -> data.Layout | None:
    try:
        return data.Layout.cast(shape)
    except TypeError:
        return None


def _map(function, values):
    """Apply `function` to every array of nested dictionaries."""
    if isinstance(values, dict):
        return {key: _map(function, value) for key, value in values.items()}
    return function(np.asarray(values))


def _bits(shape, values) -> np.ndarray:
    layout = _layout(shape)
    if isinstance(layout, data.ArrayLayout):
        flat = _bits(layout.elem_shape, _map(lambda value: value.reshape(-1, *value.shape[2:]), values))
        return flat.reshape(-1, layout.length * flat.shape[1])
    if layout is not None:
        fields = {key: _bits(layout[key].shape, value) for key, value in values.items()}
        bits = np.zeros((len(next(iter(fields.values()))), layout.size), np.uint8)
        for key, part in fields.items():
            bits[:, layout[key].offset:layout[key].offset + part.shape[1]] = part
        return bits
    cast = Shape.cast(shape)
    values = np.asarray(values)
    if cast.width < 64 and values.dtype != object:
        low, high = (-(1 << cast.width - 1), 1 << cast.width - 1) if cast.signed else (0, 1 << cast.width)
        if values.size and not low <= values.min() <= values.max() < high:
            raise ValueError(f"a value of {values.min()}..{values.max()} does not fit {cast}")
        return (values.astype(np.int64)[:, None] >> np.arange(cast.width) & 1).astype(np.uint8)
    raw = [(int(value) & (1 << cast.width) - 1).to_bytes((cast.width + 7) // 8, "little") for value in values]
    rows = np.frombuffer(b"".join(raw), np.uint8).reshape(len(raw), -1)
    return np.unpackbits(rows, axis=1, bitorder="little")[:, :cast.width]


def _values(shape, bits: np.ndarray):
    layout = _layout(shape)
    if isinstance(layout, data.ArrayLayout):
        flat = _values(layout.elem_shape, bits.reshape(len(bits) * layout.length, -1))
        return _map(lambda value: value.reshape(len(bits), layout.length, *value.shape[1:]), flat)
    if layout is not None:
        return {key: _values(field.shape, bits[:, field.offset:field.offset + field.width]) for key, field in layout}
    cast = Shape.cast(shape)
    if cast.width < 64:
        values = bits.astype(np.int64) @ (1 << np.arange(cast.width, dtype=np.int64))
        return values - (values >> cast.width - 1 << cast.width) if cast.signed else values
    rows = np.packbits(bits, axis=1, bitorder="little")
    values = [int.from_bytes(row.tobytes(), "little") for row in rows]
    wrap = 1 << cast.width
    return np.array([v - wrap if cast.signed and v >> cast.width - 1 else v for v in values], object)


def stored(mantissas: np.ndarray, fmt: Format) -> np.ndarray:
    """What a port takes for mantissas."""
    return encode(mantissas, fmt) if fmt.precision else mantissas


def loaded(values: np.ndarray, fmt: Format) -> np.ndarray:
    """The mantissas that a port shows."""
    return decode(values, fmt) if fmt.precision else values
