"""Where tensors lie: as codes in VectorRf, with borders around them, or as numbers in a vector memory.

Both have buffers with lifetimes: two that are never in use at the same time may share their words. Time is the number
of a pass.
"""

from dataclasses import dataclass, field

import numpy as np
from concord.compiler.graph.nodes import TensorCodes, Value
from concord.net.arithmetic.windows import Window
from concord.spec.isa.memories import VRFS, Mem
from concord.spec.isa.operations import Stage
from concord.spec.machine.config import Config

#: Memories for numbers that may lie anywhere, in the order in which they are tried: those that feed no stage, then
#: those of each stage, with that of the first MFU at the end.
ANY = tuple(sorted(VRFS, key=lambda mem: (list(Stage).index(mem.feeds[0]), -mem.feeds[1]) if mem.feeds else (-1, 0)))


@dataclass(kw_only=True, slots=True, eq=False)
class Buffer:
    """A range of words of a vector memory, or of entries of VectorRf, during some passes.

    Attributes:
        mem:     Memory.
        name:    What people call it.
        size:    Number of words or entries.
        first:   Number of the first pass that uses it; None before one does.
        last:    Number of the last pass that uses it.
        address: Address of the first word or entry, once it has one.
        kept:    Whether it has its address before others have theirs, and shares its words with none of them.
        align:   Number of which its address is a multiple.
    """

    mem: Mem
    name: str
    size: int = 0
    first: int | None = None
    last: int = 0
    address: int = 0
    kept: bool = False
    align: int = 1

    def use(self, time: int):
        """Extend the lifetime to a pass."""
        self.first = time if self.first is None else min(self.first, time)
        self.last = max(self.last, time)

    def meets(self, other: "Buffer") -> bool:
        """Whether both are in use during some pass."""
        return self.first <= other.last and other.first <= self.last

    @property
    def end(self) -> int:
        """Address after the last word or entry."""
        return self.address + self.size


@dataclass(kw_only=True, slots=True, eq=False)
class CodeMap:
    """The codes of a tensor in VectorRf, pixel by pixel, with the padding of its readers around them.

    The columns right of a row are also those left of the next row, unless the border differs from lane to lane.

    Attributes:
        value:   The tensor.
        codes:   How its codes are made.
        buffer:  Its entries.
        around:  Rows above and below, columns left and right, that readers see.
        windows: Windows of the readers, and whether each reads native vector by native vector (depthwise).
        vectors: Number of native vectors of a pixel.
        step:    Distance in entries between neighbouring pixels of a row.
        pitch:   Distance in entries between neighbouring rows.
        held:    Number of rows, padding included, of the strips of which it holds one at a time; 0 for a whole map.
        origin:  The first row of the present strip.
    """

    value: Value
    codes: TensorCodes
    buffer: Buffer
    vectors: int
    around: tuple[int, int, int, int] = (0, 0, 0, 0)
    windows: list[tuple[Window, bool]] = field(default_factory=list)
    step: int = 0
    pitch: int = 0
    held: int = 0
    origin: int = 0

    @classmethod
    def of(cls, config: Config, value: Value, codes: TensorCodes) -> "CodeMap":
        """The codes of a tensor, before their layout is settled."""
        name = f"{value.name or 'network input'}, codes"
        return cls(value=value, codes=codes, buffer=Buffer(mem=Mem.VECTOR_RF, name=name),
                   vectors=config.vectors_of(value.lanes))

    def read_by(self, window: Window, depthwise: bool):
        """Add a reader."""
        self.windows.append((window, depthwise))
        self.around = tuple(max(pair) for pair in zip(self.around, window.padding, strict=True))

    @property
    def uniform(self) -> bool:
        """Whether all lanes of the border are equal, so that neighbouring rows can share it."""
        return self.codes.border is None or len(np.unique(self.codes.border)) == 1

    def arrange(self, step: int, pitch: int):
        """Settle the distances between pixels and between rows, and the number of entries."""
        above, below, left, right = self.around
        _, rows, columns = self.value.shape
        self.step, self.pitch = step, pitch
        last = ((self.held or above + rows + below) - 1) * pitch + (left + columns - 1 + right) * step
        self.buffer.size = last + (self.vectors if self.uniform else step)

    @property
    def smallest_pitch(self) -> int:
        """The smallest distance between rows for the present distance between pixels."""
        _, _, left, right = self.around
        beside = max(left, right) if self.uniform else left + right
        return (self.value.shape[2] + beside) * (self.step or self.vectors)

    def address(self, row: int, column: int) -> int:
        """Address of a pixel; rows and columns of the border are negative, or beyond the image."""
        first = self.origin if self.held else -self.around[0]
        return self.buffer.address + (row - first) * self.pitch + (self.around[2] + column) * self.step


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CodesView:
    """Neighbouring native vectors of each pixel of a map, into which a tensor is written.

    Attributes:
        codes:  How the codes of this part are made.
        map:    The map.
        vector: First native vector of a pixel.
        step:   Distance between the tensor's pixels, if the map has a single one; None for that of the map.
    """

    codes: TensorCodes
    map: CodeMap
    vector: int = 0
    step: int | None = None

    @property
    def buffer(self) -> Buffer:
        """The entries of the map."""
        return self.map.buffer

    @property
    def stride(self) -> int:
        """Distance in entries from a pixel of a row to the next one."""
        return self.map.step if self.step is None else self.step

    def pitch(self, width: int) -> int:
        """Distance in entries between neighbouring rows of a tensor of `width` columns."""
        return self.map.pitch if self.step is None else self.step * width

    def address(self, row: int, column: int, width: int) -> int:
        """Address of a pixel of a tensor of `width` columns."""
        return self.map.address(0, 0) + row * self.pitch(width) + column * self.stride + self.vector


@dataclass(kw_only=True, slots=True, eq=False)
class TensorNumbers:
    """The numbers of a tensor in a vector memory, pixel by pixel, without borders; or those of some of its rows.

    Attributes:
        value:  The tensor.
        buffer: Its words.
        words:  Number of words from a pixel to the next one.
        strip:  Whether it holds one strip of rows at a time.
        avoid:  Memories that a strip must not lie in, since its chain writes another one there.
    """

    value: Value
    buffer: Buffer
    words: int
    strip: bool = False
    avoid: frozenset[Mem] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class NumbersView:
    """Neighbouring words of each pixel, into which a tensor is written, or from which it is read.

    Attributes:
        numbers: The numbers.
        word:    First word of a pixel.
        words:   Distance between the tensor's pixels, if the numbers have a single one; None for that of the numbers.
        codes:   How products make codes of the numbers, which are scaled for it; None for the tensor's own numbers.
        still:   Whether the only pixel of the numbers is the operand of all pixels of another tensor.
        held:    Whether the last word of a pixel has a reduction, the operand of all elements of the pixel.
    """

    numbers: TensorNumbers
    word: int = 0
    words: int | None = None
    codes: TensorCodes | None = None
    still: bool = False
    held: bool = False

    @property
    def buffer(self) -> Buffer:
        """The words of the numbers."""
        return self.numbers.buffer

    @property
    def stride(self) -> int:
        """Distance in words from a pixel to the next one."""
        return self.numbers.words if self.words is None else self.words

    def address(self, pixel: int) -> int:
        """Address of a pixel, counted from the first one of the tensor or of the strip."""
        return self.numbers.buffer.address + self.word + pixel * self.stride
