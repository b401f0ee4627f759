"""Checks of the fields of operators."""

import numpy as np
from concord.net.arithmetic.windows import Window
from concord.net.ops.operator import Shape


def numbers(**values: np.ndarray):
    """Refuse fields, by their names, that are not finite numbers in float32.

    Raises:
        ValueError: one is no array of float32, or holds a value that is infinite or not a number.
    """
    for name, value in values.items():
        if not isinstance(value, np.ndarray) or value.dtype != np.float32:
            found = getattr(value, "dtype", type(value).__name__)
            raise ValueError(f"{name}: numbers in float32 are needed, not {found}")
        if not np.isfinite(value).all():
            raise ValueError(f"{name}: it holds infinite values or values that are not a number "
                             f"({np.count_nonzero(~np.isfinite(value))} of {value.size}); train again")


def shaped(name: str, value: np.ndarray, shape: Shape):
    """Refuse a field of another shape.

    Raises:
        ValueError: the shape differs.
    """
    if value.shape != shape:
        raise ValueError(f"{name}: the shape {list(shape)} is needed, there is {list(value.shape)}")


def dimensions(name: str, value: np.ndarray, count: int):
    """Refuse a field with another number of dimensions, or with none of its elements.

    Raises:
        ValueError: the number differs, or a side is 0.
    """
    if value.ndim != count or not value.size:
        raise ValueError(f"{name}: {count} dimensions of 1 or more are needed, there is {list(value.shape)}")


def number(**values: float):
    """Refuse fields, by their names, that are not finite numbers.

    Raises:
        ValueError: one is something else.
    """
    for name, value in values.items():
        if not isinstance(value, int | float) or not np.isfinite(value):
            raise ValueError(f"{name}: a number is needed, not {value!r}")


def channels(found: int, wanted: int):
    """Refuse inputs with another number of channels or elements than an operator has numbers for.

    Raises:
        ValueError: the numbers differ.
    """
    if found != wanted:
        raise ValueError(f"it has numbers for {wanted} channels or elements, and takes {found}; make the two equal")


def image(shape: Shape) -> tuple[int, int, int]:
    """The shape of an image.

    Raises:
        ValueError: it is the shape of a vector.
    """
    if len(shape) != 3:
        raise ValueError(f"it takes an image, but gets {list(shape)}")
    return shape


def window(over: Window):
    """Refuse a window whose numbers are not whole, or too small.

    Raises:
        ValueError: there is such a number, or there are too many or too few.
    """
    for name, count, smallest in (("size", 2, 1), ("stride", 2, 1), ("dilation", 2, 1), ("padding", 4, 0)):
        value = getattr(over, name)
        if not isinstance(value, tuple) or len(value) != count or any(
                not isinstance(number, int) or number < smallest for number in value):
            raise ValueError(f"{name}: {count} whole numbers of {smallest} or more are needed, not {value!r}")


def positions(over: Window, shape: Shape) -> tuple[int, int]:
    """Number of positions of a window in an image, vertically and horizontally.

    Raises:
        ValueError: there is no image, or the window is larger than it.
    """
    counts = over.counts(*image(shape)[1:])
    if min(counts) < 1:
        raise ValueError(f"its window is larger than the image {list(shape)} with its padding")
    return counts
