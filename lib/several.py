"""Several outputs of a network, which lie one after the other in one vector."""

from collections.abc import Sequence

import numpy as np

#: Name and number of elements of each output, in their order in the vector; empty where there is just one.
Results = tuple[tuple[str, int], ...]


def listed(results: Results) -> str:
    """Several outputs, each with the number of its elements, as text."""
    return ", ".join(f"{name!r} ({size})" for name, size in results)


def columns(results: Results, outputs: int) -> list[str]:
    """A name for each element of the vector: `output 0`, or the name of the output and the number of its element."""
    return [f"{name} {index}" for name, size in results or (("output", outputs),) for index in range(size)]


def check(results: Results, outputs: int):
    """Refuse sizes that do not make up the vector.

    Raises:
        ValueError: they do not.
    """
    if results and (min(size for _, size in results) < 1 or sum(size for _, size in results) != outputs):
        raise ValueError(f"the outputs {listed(results)} do not make up the {outputs} elements of the result; make the "
                         "file again")


def apart(values: np.ndarray, results: Results) -> dict[str, np.ndarray]:
    """Each of several outputs [..., size] by its name, from the whole vector [..., outputs]; none of a single one."""
    if not results:
        return {}
    ends = np.cumsum([size for _, size in results])
    return dict(zip((name for name, _ in results), np.split(values, ends[:-1], axis=-1), strict=True))


def from_record(record: Sequence | None) -> Results:
    """Several outputs from their JSON values; none where a file has none.

    Raises:
        ValueError, TypeError: they are no names and sizes.
    """
    return tuple((str(name), int(size)) for name, size in record or ())
