"""What the source of a software twin says: routines of calls on named tensors.

The recovery (`twin/recovery/`) makes a script from firmware, and a writer (`twin/source/`) makes source text from a
script. The functions that calls name are those of `twin/vocabulary/`, or other routines of the script.

Tensors have the batch as their first axis: vectors are [batch, elements], images [batch, rows, columns, channels],
sequences [batch, steps, elements]. A tensor holds *numbers*, which are binary16, or *codes*, which a quantiser has
made: whole numbers in integer mode, real numbers mantissa * 2**exponent in block floating point. The functions have
kinds, and the quantiser of a format is a call.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from concord.spec.numbers.formats import Format


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """An argument that lies in the file of tensors beside the source.

    Attributes:
        name: Name of the tensor, such as `hidden1.weights`.
    """

    name: str


#: A value of the routine by its name, or a stored tensor.
Argument = str | Stored
#: A setting: a number, a text, or several of them.
Setting = int | float | str | bool | None | tuple


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One line: `results = function(arguments, settings)`.

    Attributes:
        results:   Names of the values that it makes.
        function:  Name of a function of the vocabulary, or of a routine.
        arguments: What it takes, in order.
        settings:  What it takes by keyword.
        note:      Comment, or empty.
    """

    results: tuple[str, ...]
    function: str
    arguments: tuple[Argument, ...] = ()
    settings: Mapping[str, Setting] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceLoop:
    """A loop over the time steps of sequences.

    Attributes:
        items:     Name in the body, and sequence [batch, steps, ...], of what each pass takes.
        backward:  Which of `items` are taken from the end.
        carried:   Name in the body, and value before the first pass, of what a pass leaves for the next one. The name
            holds its last value after the loop.
        body:      The lines of a pass; those that make a carried name end its old value.
        collected: Name of the result [batch, steps, ...], and name in the body, of what is kept of every pass.
        reversed:  Which of `collected` lie from the last pass to the first one.
    """

    items: tuple[tuple[str, str], ...]
    carried: tuple[tuple[str, Argument], ...]
    body: tuple["Line", ...]
    collected: tuple[tuple[str, str], ...] = ()
    backward: frozenset[str] = frozenset()
    reversed: frozenset[str] = frozenset()


Line = Call | SequenceLoop


@dataclass(frozen=True, kw_only=True, slots=True)
class Routine:
    """A function of the source: a layer, or the whole network.

    Attributes:
        name:       Name of the function.
        title:      Its first line of documentation, such as "LSTM of 32 cells, one time step".
        parameters: Names of the values that it takes.
        results:    Names of the values that it returns.
        body:       Its lines.
    """

    name: str
    title: str
    parameters: tuple[str, ...]
    results: tuple[str, ...]
    body: tuple[Line, ...]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StoredTensor:
    """A stored tensor, and where the firmware has it.

    Attributes:
        values: The values: binary16 as float16, weights and codes as integers or float32, indices as int32.
        memory: Name of the memory of the firmware that holds them; empty for tensors that no memory holds.
        places: int64 of the shape of `values`: index of each value in that memory, -1 where none holds it.
                For weights, it counts the mantissas of all tiles, row by row; for vector memories, binary16 numbers.
        bits:   Width of mantissas of weights; 0 for all others.
    """

    values: np.ndarray
    memory: str = ""
    places: np.ndarray | None = None
    bits: int = 0


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Script:
    """A program for another processor.

    Attributes:
        name:     Name of the firmware.
        machine:  Name of the machine of the firmware.
        inputs:   Shape of one input, without the batch: (elements,), (channels, rows, columns), or (None, elements) for
            sequences of any length. Images come as the firmware's users give them, by channel, row and column.
        outputs:  Number of results.
        classes:  Names of the results; may be empty.
        main:     The routine that takes the inputs and returns the results [batch, outputs].
        routines: The routines of the layers, in order of their first use.
        tensors:  The stored tensors.
        unquantised: Whether it computes in float64 without quantisers.
    """

    name: str
    machine: str
    inputs: tuple[int | None, ...]
    outputs: int
    classes: tuple[str, ...]
    main: Routine
    routines: tuple[Routine, ...]
    tensors: Mapping[str, StoredTensor]
    unquantized: bool = False


#: Most elements whose sum is exact in float64: multiples of 2**-24 below 2**16.
EXACT_ELEMENTS = 1 << 13
#: Functions whose results are codes.
QUANTISERS = ("integers", "floats", "blocks", "float_blocks")
#: Products whose sums are computed in floats.
PRODUCTS = ("dense", "convolution")
#: All products; `accumulated` adds up whole numbers, and `matmul` multiplies two computed tensors.
SUMS = (*PRODUCTS, "accumulated", "matmul")
#: Functions that put elements into another order or shape.
ARRANGING = ("part", "flatten", "reshape", "transpose", "start", "join", "take")
#: Functions whose results are elements of their arguments, or of the setting `fill`.
SELECTING = (*ARRANGING, "image", "patches", "max_pool", "canonical")


class QuantizerCall(NamedTuple):
    """A call of a quantiser of the vocabulary.

    Attributes:
        size:     Number of neighbours that share an exponent; 0 where numbers are quantised one by one.
        codes:    What its codes are: `integers`, or `blocks` for real numbers mantissa * 2**exponent.
        zero:     Zero point, which is subtracted from codes before they are multiplied.
        limit:    Largest magnitude of codes, less `zero`.
        function: Name of the function.
        settings: Its settings, as pairs of name and value.
    """

    size: int
    codes: str
    zero: int
    limit: float
    function: str
    settings: tuple[tuple[str, object], ...]


def quantizer(fmt: Format, size: int, *, integer: bool, unsigned: bool = False) -> QuantizerCall:
    """The quantiser of a format.

    Args:
        fmt:      The format.
        size:     Number of neighbours that share an exponent, in block floating point.
        integer:  Whether codes are integers.
        unsigned: Whether these integers are unsigned codes.
    """
    if integer:
        low, high = (0, fmt.levels) if unsigned else (fmt.lowest, fmt.highest)
        zero = fmt.zero * unsigned
        function, precision = ("floats", {"precision": fmt.precision}) if fmt.precision else ("integers", {})
        return _made(0, "integers", zero, max(zero - low, high - zero), function, precision, lowest=low, highest=high)
    if fmt.precision and fmt.e_min == fmt.e_max:
        fraction = fmt.bits - 1 - fmt.e_min
        low, high = fmt.lowest * 2.0**-fraction, fmt.highest * 2.0**-fraction
        return _made(0, "blocks", 0, high, "floats", {"precision": fmt.precision}, lowest=low, highest=high,
                     fraction=fraction)
    function, others = "blocks", {"rule": str(fmt.rule), "symmetric": fmt.symmetric}
    if fmt.precision:
        function, others = "float_blocks", {"precision": fmt.precision}
    return _made(size, "blocks", 0, 2.0**fmt.e_max, function, {"size": size, "bits": fmt.bits, "exponents": (
        fmt.e_min, fmt.e_max)}, **others)


def _made(size, codes, zero, limit, function, first, **others) -> QuantizerCall:
    return QuantizerCall(size, codes, zero, limit, function, tuple({**first, **others}.items()))
