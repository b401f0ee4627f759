"""Borders of maps in VectorRf: which of them the firmware brings, and which chains write before a map is filled.

A border stays where it is until something else is written there. The content of VectorRf is followed through two
inferences, since the second one finds what the first one left.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from concord.compiler.emit.passes import LayerPass
from concord.compiler.emit.storage import CodeMap
from concord.compiler.lib.build import ModelBuild
from concord.compiler.lib.program import Slot
from concord.firmware.firmware import Entries
from concord.firmware.full_precision import RealEntries
from concord.golden.mvm.quantizer import quantize_integer
from concord.spec.isa.instructions import Instruction, Op, Reg
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config

_APART = 1 << 16  #: Distance between the numbers of different borders: more than the entries of a pixel.


@dataclass(frozen=True, kw_only=True, slots=True)
class BorderRun:
    """A rectangle of border pixels, or of border entries where all lanes of the border are equal.

    Attributes:
        first:   First entry of the map.
        across:  Number of them side by side.
        rows:    Number of rows.
    """

    first: int
    across: int
    rows: int

    def entries(self, one: CodeMap) -> np.ndarray:
        """The entries of the map, in order."""
        unit = unit_of(one)
        starts = self.first + np.arange(self.rows)[:, None] * one.pitch + np.arange(self.across) * unit
        return (starts[..., None] + np.arange(unit)).ravel()


def unit_of(one: CodeMap) -> int:
    """Number of entries after which a border repeats."""
    return 1 if one.uniform else one.step


def runs(one: CodeMap) -> list[BorderRun]:
    """The border of a map: in front of the image, beside each row, and after the image."""
    if one.codes.border is None or one.held:
        return []
    unit, (_, rows, columns) = unit_of(one), one.value.shape
    origin = one.around[0] * one.pitch + one.around[2] * one.step
    beside = one.pitch - columns * one.step
    behind = origin + (rows - 1) * one.pitch + columns * one.step
    tail = one.buffer.size - behind
    found = [BorderRun(first=0, across=origin // unit, rows=1),
             BorderRun(first=origin + columns * one.step, across=beside // unit, rows=rows - 1),
             BorderRun(first=behind, across=tail // unit, rows=1)]
    return [run for run in found if run.across > 0 and run.rows > 0]


def pixels(one: CodeMap) -> np.ndarray:
    """The entries of a map's image, in order; those of a strip with all that is around it."""
    if one.held:
        return np.arange(one.buffer.size)
    _, rows, columns = one.value.shape
    origin = one.around[0] * one.pitch + one.around[2] * one.step
    starts = origin + np.arange(rows)[:, None] * one.pitch + np.arange(columns) * one.step
    return (starts[..., None] + np.arange(one.vectors)).ravel()


class Borders:
    """The borders of all maps of a network.

    Args:
        config: Configuration of the machine.
        maps:   All maps, with their addresses.
        passes: All passes.
        over:   Maps that are written over others, whose borders chains write when the image is complete.

    Attributes:
        written: Maps whose border chains must write.
        brought: Maps whose border, or a part of it, the firmware brings.
    """

    def __init__(self, config: Config, maps: Sequence[CodeMap], passes: Sequence[LayerPass], over: set[CodeMap]):
        self._config, self._over = config, over
        self._first: dict[int, list[CodeMap]] = {}
        for one in maps:
            self._first.setdefault(one.buffer.first, []).append(one)
        self._kinds: dict[tuple[bool, bool, bytes], int] = {}
        size = max((one.buffer.end for one in maps), default=0)
        content = np.full(size, -1)
        self.written: list[CodeMap] = [one for one in maps if one in over and runs(one)]
        self._follow(content, passes, final=False)
        self._follow(content, passes, final=True)
        self.brought = [one for one in maps if runs(one) and one not in self.written]

    def first_in(self, made: LayerPass) -> list[CodeMap]:
        """The maps whose border is written before a pass."""
        return [one for one in self._first.get(made.time, []) if one in self.written and one not in self._over]

    def behind(self, made: LayerPass) -> list[CodeMap]:
        """The maps whose border is written after a pass."""
        return [one for one in self._first.get(made.time, []) if one in self.written and one in self._over]

    def _follow(self, content: np.ndarray, passes: Sequence[LayerPass], final: bool):
        """Follow the content of VectorRf through an inference; -1 is what no one has written, 0 is codes."""
        for made in passes:
            for one in self._first.get(made.time, []):
                for run in runs(one):
                    entries = one.buffer.address + run.entries(one)
                    kinds = self._kind(one, run)
                    intact = (content[entries] == kinds) | (content[entries] == -1)
                    if final and not intact.all() and one not in self.written:
                        self.written.append(one)
                    content[entries] = kinds
                content[one.buffer.address + pixels(one)] = 0

    def _kind(self, one: CodeMap, run: BorderRun) -> np.ndarray:
        """A number for the content of each entry of a run."""
        unit = unit_of(one)
        codes, words = one.codes, border_words(self._config, one)
        base = self._kinds.setdefault((codes.integer, codes.unsigned, words.tobytes()), 1 + len(self._kinds) * _APART)
        return np.tile(base + np.arange(unit), run.across * run.rows)


def border_words(config: Config, one: CodeMap, *, real: bool = False) -> np.ndarray:
    """What stands in the lanes of a border pixel, or of an entry where all lanes are equal.

    Returns:
        uint16[lanes]; real numbers float64[lanes], before they are rounded, where the codes of the map have them.
    """
    border = one.codes.real if real and one.codes.real is not None else one.codes.border
    if one.uniform:
        return np.full(config.native_dim, border[0])
    whole = np.zeros(one.vectors * config.native_dim, border.dtype)
    whole[: one.value.lanes] = one.value.spread(border)
    return whole


def entries(config: Config, maps: Sequence[CodeMap]) -> tuple[Entries, ...]:
    """The content of VectorRf before the first inference: the borders of these maps."""
    mantissas = _content(config, maps, partial(_codes, config)).astype(config.activations.dtype)
    exponents = np.full(len(mantissas), config.activations.e_min, np.int8)
    return (Entries(address=0, mantissas=mantissas, exponents=exponents),) if len(mantissas) else ()


def real_entries(config: Config, maps: Sequence[CodeMap]) -> tuple[RealEntries, ...]:
    """`entries` as numbers, whose unsigned codes are not lowered by their zero point."""
    values = _content(config, maps, partial(border_words, config, real=True))
    codes = _content(config, maps, lambda one: _codes(config, one) + config.activations.zero * one.codes.unsigned)
    return (RealEntries(address=0, values=values, codes=codes),) if len(values) else ()


def _codes(config: Config, one: CodeMap) -> np.ndarray:
    """The codes of `border_words`."""
    return quantize_integer(border_words(config, one), config.activations, unsigned=one.codes.unsigned)


def _content(config: Config, maps: Sequence[CodeMap], border: Callable[[CodeMap], np.ndarray]) -> np.ndarray:
    """float64[entries, N], the content of VectorRf with the borders of maps; blocks have borders of zeros.

    Args:
        border: The lanes of a border pixel, or of an entry where all lanes are equal.
    """
    result = np.zeros((max((one.buffer.end for one in maps), default=0), config.native_dim))
    for one in maps:
        numbers = np.zeros((unit_of(one), config.native_dim))
        if one.codes.integer:
            lanes = border(one).reshape(-1, config.native_dim)
            numbers[: len(lanes)] = lanes
        for run in runs(one):
            at = run.entries(one)
            result[one.buffer.address + at] = np.tile(numbers, (len(at) // len(numbers), 1))
    return result


def runs_of_strip(one: CodeMap, rows: int, first: bool) -> list[BorderRun]:
    """The rows of padding of a strip; in the first strip the whole buffer, whose padding beside the rows stays."""
    if one.codes.border is None:
        return []
    size, unit = one.buffer.size // unit_of(one), unit_of(one)
    if first:
        return [BorderRun(first=0, across=size, rows=1)]
    above, below = min(-min(one.origin, 0), rows), max(0, one.value.shape[1] - one.origin)
    found = [BorderRun(first=0, across=above * one.pitch // unit, rows=1)] * (above > 0)
    if below < rows:
        found.append(BorderRun(first=below * one.pitch, across=size - below * one.pitch // unit, rows=1))
    return found


def emit(build: ModelBuild, one: CodeMap, constant: Slot, written: Sequence[BorderRun]):
    """Add the chains that write runs of the border of a map."""
    rows, unit = constant.words * build.config.mfu_lanes, unit_of(one)
    for run in written:
        count = run.across * run.rows
        registers = {Reg.ITERATIONS: count, Reg.ITERATIONS_X: run.across}
        if count > 1:
            registers[Reg.STRIDE_VEC] = unit
        if run.rows > 1:
            registers[Reg.SKIP_VEC] = one.pitch - run.across * unit
        build.program.chain(
            Instruction(op=Op.V_RD, mem=constant.mem, a=constant.address),
            Instruction(op=Op.V_WR, mem=Mem.VECTOR_RF, a=one.buffer.address + run.first, inc=int(count > 1),
                        integer=int(one.codes.integer), unsigned=int(one.codes.unsigned)),
            rows=rows, registers=registers)
