"""Words of a trainer, and the tensors that views see in them."""

from dataclasses import dataclass

import numpy as np
from concord.spec.trainer.config import LANES
from concord.spec.trainer.views import TrainerView

_BYTE = 8


@dataclass(frozen=True, slots=True)
class Seen:
    """A view together with the number in its base register."""

    view: TrainerView
    base: int

    def rows(self, taps: tuple[int, int] = (0, 0)) -> tuple[np.ndarray, np.ndarray]:
        """Words of plane 0 and block 0 of each row, int64[rows], and whether it is inside the limits, bool[rows]."""
        view = self.view
        u1 = view.origin1 + view.step1 * np.arange(view.n1) + taps[0]
        u2 = view.origin2 + view.step2 * np.arange(view.n2) + taps[1]
        samples = view.s0 * np.arange(view.n0)
        words = self.base + view.offset + samples[:, None, None] + view.pitch1 * u1[:, None] + view.pitch2 * u2
        inside = _inside(u1, view.limit1)[:, None] & _inside(u2, view.limit2)
        return words.ravel(), np.broadcast_to(inside, words.shape).ravel()

    @property
    def first(self) -> int:
        """The word of plane 0, block 0 and row 0 with taps 0."""
        view = self.view
        return self.base + view.offset + view.pitch1 * view.origin1 + view.pitch2 * view.origin2

    @property
    def offsets(self) -> np.ndarray:
        """int64[planes, blocks, 1]: words from plane 0 and block 0 to each plane and block."""
        view = self.view
        return view.plane * np.arange(view.planes)[:, None, None] + view.block * np.arange(view.blocks)[:, None]


def _inside(u: np.ndarray, limit: int) -> np.ndarray:
    return (u >= 0) & (u < limit) if limit else np.ones(len(u), bool)


def read_parts(words, seen: Seen, taps: tuple[int, int] = (0, 0)) -> np.ndarray:
    """The bytes of a view, uint8[planes, blocks, rows, 16], zeros outside its limits.

    Args:
        words: uint8[words, 16], or what takes an index as an array does.
        seen:  The view.
        taps:  c1 and c2.
    """
    rows, inside = seen.rows(taps)
    if inside.all():
        return words[seen.offsets + rows]
    found = np.zeros((seen.view.planes, seen.view.blocks, len(rows), LANES), np.uint8)
    found[:, :, inside] = words[seen.offsets + rows[inside]]
    return found


def write_parts(words, seen: Seen, parts: np.ndarray):
    """Write the bytes of a view without limits, as `read_parts` gives them."""
    words[seen.offsets + seen.rows()[0]] = parts


def joined(parts: np.ndarray) -> np.ndarray:
    """Numbers, int64[...], of planes of bytes, uint8[planes, ...]: the highest plane has the sign."""
    *low, high = parts
    total = high.astype(np.int8).astype(np.int64) << _BYTE * len(low)
    for k, part in enumerate(low):
        total += part.astype(np.int64) << _BYTE * k
    return total


def words_of(matrix: np.ndarray, planes: int) -> np.ndarray:
    """The bytes of a tensor, uint8[planes, blocks, rows, 16], of its numbers, int64[rows, columns]; lanes behind the
    last column are zeros, as all instructions expect and keep them."""
    rows, columns = matrix.shape
    padded = np.pad(matrix, ((0, 0), (0, -columns % LANES)))
    return planes_of(padded.reshape(rows, -1, LANES).swapaxes(0, 1), planes)


def matrix_of(parts: np.ndarray, columns: int) -> np.ndarray:
    """The numbers, int64[rows, columns], of bytes as `words_of` gives them."""
    values = joined(parts).swapaxes(0, 1)
    return values.reshape(len(values), -1)[:, :columns]


def planes_of(values: np.ndarray, planes: int) -> np.ndarray:
    """Planes of bytes, uint8[planes, ...], of numbers, int64[...], that fit them."""
    return np.stack([(values >> _BYTE * k).astype(np.uint8) for k in range(planes)])
