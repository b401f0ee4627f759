"""Sources of chains, and the regions of pixels for which chains are emitted.

A source knows its address and its registers for any region of pixels and any part of their lanes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from concord.compiler.emit.storage import CodeMap, CodesView, NumbersView, TensorNumbers
from concord.compiler.graph.nodes import TensorCodes
from concord.compiler.lib.program import NET, Slot, read
from concord.compiler.lib.tiling import RowPart
from concord.net.arithmetic.windows import Window
from concord.spec.isa.instructions import Instruction, Op, Reg
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config


@dataclass(frozen=True, kw_only=True, slots=True)
class Region:
    """A rectangle of pixels.

    Attributes:
        row, rows:       First row and number of rows.
        column, columns: First column and number of columns.
        width:           Columns of the whole tensor.
        strip:           First pixel of the present strip.
        bases:           In a loop over time steps, in which the region is the first pixel: the base register that
            holds how far the pixel of the present step is away, by the distance from one pixel to the next.
    """

    row: int
    rows: int
    column: int
    columns: int
    width: int
    strip: int
    bases: Mapping[int, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Number of pixels."""
        return self.rows * self.columns

    @property
    def inc(self) -> int:
        """Whether addresses move from pixel to pixel."""
        return int(self.count > 1)

    def base(self, view: NumbersView | CodesView) -> int:
        """The base register for a pixel of the tensor; 0 for none."""
        return 0 if moved_by(view) is None else self.bases.get(moved_by(view), 0)

    def pixel(self, numbers: TensorNumbers) -> int:
        """Number of the first pixel among those that a vector memory holds."""
        return self.row * self.width + self.column - self.strip * numbers.strip


def moved_by(view: NumbersView | CodesView) -> int | None:
    """Distance from one pixel of a row to the next one; None where only the present strip is held."""
    return None if isinstance(view, NumbersView) and view.numbers.strip else view.stride


@dataclass(frozen=True, kw_only=True, slots=True)
class FromSlot:
    """The source of a vector that always lies in one slot, or of NetQ, which brings the pixels in order."""

    slot: Slot

    def read(self, config: Config, region: Region, part: RowPart) -> tuple[list[Instruction], dict[Reg, int]]:
        """The instructions of the source, and the registers that they need."""
        return [read(self.slot)], {}


@dataclass(frozen=True, kw_only=True, slots=True)
class FromNumbers:
    """The source of numbers in a vector memory, pixel by pixel."""

    view: NumbersView

    def read(self, config, region, part):
        address = self.view.address(region.pixel(self.view.numbers)) + part.row // config.mfu_lanes
        registers = {Reg.STRIDE_X: self.view.stride, Reg.STRIDE_Y: self.view.stride * region.width}
        first = Instruction(
            op=Op.V_RD, mem=self.view.buffer.mem, a=address, inc=region.inc, base=region.base(self.view))
        return [first], _moving(region, registers)


@dataclass(frozen=True, kw_only=True, slots=True)
class Multiplied:
    """One part of a product: what a window of VectorRf, or a vector, is multiplied by.

    Attributes:
        part:    Outputs.
        product: The `mv_mul`.
        vector:  First native vector of a pixel that the first row tile reads.
        vectors: Number of native vectors of a pixel that a row tile reads.
        group:   Distance in native vectors from those of one row tile to those of the next one.
    """

    part: RowPart
    product: Instruction
    vector: int = 0
    vectors: int = 0
    group: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class FromProduct:
    """The source of products of a map in VectorRf."""

    map: CodeMap
    window: Window
    parts: Mapping[RowPart, Multiplied]
    out_scale: int | None

    def read(self, config, region, part):
        one, window, source = self.parts[part], self.window, self.map
        down, across = window.stride
        address = source.address(region.row * down - window.padding[0], region.column * across - window.padding[2])
        rows, columns = window.size
        registers = {
            Reg.COLUMNS: one.vectors * rows * columns, Reg.WINDOW_VECTORS: one.vectors, Reg.WINDOW_X: columns,
            Reg.WINDOW_Y: rows, **_window_steps(window, source.step, source.pitch)}
        if config.vectors_of(part.rows) > 1:
            registers[Reg.WINDOW_GROUP] = one.group
        if self.out_scale is not None:
            registers[Reg.OUT_SCALE] = self.out_scale
        moving = {Reg.STRIDE_X: across * source.step, Reg.STRIDE_Y: down * source.pitch}
        return [Instruction(op=Op.V_RD, mem=Mem.VECTOR_RF, a=address + one.vector, inc=region.inc), one.product], {
            **registers, **_moving(region, moving)}


@dataclass(frozen=True, kw_only=True, slots=True)
class FromWords:
    """The source of products of a vector, in words of a vector memory, or from NetQ where there is no view."""

    view: NumbersView | None
    columns: int
    parts: Mapping[RowPart, Multiplied]
    out_scale: int | None

    def read(self, config, region, part):
        first = Instruction(op=Op.V_RD, mem=self.view.buffer.mem, a=self.view.address(0)) if self.view else read(NET)
        scale = {} if self.out_scale is None else {Reg.OUT_SCALE: self.out_scale}
        return [first, self.parts[part].product], {Reg.COLUMNS: self.columns, **scale}


@dataclass(frozen=True, kw_only=True, slots=True)
class FromPool:
    """The source of maxima of windows, of codes in VectorRf or of numbers in a vector memory.

    In numbers, the padding is left out of the windows, so a region is one where all windows have the same shape.
    """

    source: CodeMap | NumbersView
    window: Window
    codes: TensorCodes | None = None

    @property
    def map(self) -> CodeMap | None:
        """The map that it reads, if it does not read numbers."""
        return self.source if isinstance(self.source, CodeMap) else None

    def read(self, config, region, part):
        window, (down, across) = self.window, self.window.stride
        row, column = region.row * down - window.padding[0], region.column * across - window.padding[2]
        (rows, columns), (every, apart) = window.size, window.dilation
        if isinstance(self.source, CodeMap):
            step, pitch = self.source.step, self.source.pitch
            address = self.source.address(row, column) + part.row // config.native_dim
            first = Instruction(op=Op.V_RD, mem=Mem.VECTOR_RF, a=address, inc=region.inc,
                                integer=int(self.codes.integer), unsigned=int(self.codes.unsigned))
        else:
            value = self.source.numbers.value
            step = self.source.stride
            pitch = step * value.shape[2]
            (above, rows), (left, columns) = (
                inside(at, size, between, length) for at, size, between, length in (
                    (row, rows, every, value.shape[1]), (column, columns, apart, value.shape[2])))
            pixel = (row + above * every) * value.shape[2] + column + left * apart
            first = Instruction(op=Op.V_RD, mem=self.source.buffer.mem, inc=region.inc,
                                a=self.source.address(pixel) + part.row // config.mfu_lanes)
        registers = {Reg.WINDOW_X: columns, Reg.WINDOW_Y: rows, **_window_steps(window, step, pitch)}
        moving = {Reg.STRIDE_X: across * step, Reg.STRIDE_Y: down * pitch}
        return [first, Instruction(op=Op.V_POOL_MAX)], {**registers, **_moving(region, moving)}


@dataclass(frozen=True, kw_only=True, slots=True)
class FromEnlarged:
    """The source of one row of an enlarged image, from codes in VectorRf or numbers in a vector memory.

    It reads a row of the source once for each row that becomes of it, and each pixel, or the part of each pixel, as
    often as columns become of it.

    Attributes:
        source:  The image that is enlarged.
        factor:  Rows and columns that a pixel becomes.
        vectors: Number of native vectors from one part of a pixel to the next one; 0 where a pixel is repeated.
        codes:   How the codes are made, if the source is a map.
    """

    source: CodeMap | NumbersView
    factor: tuple[int, int]
    vectors: int
    codes: TensorCodes | None = None

    @property
    def map(self) -> CodeMap | None:
        """The map that it reads, if it does not read numbers."""
        return self.source if isinstance(self.source, CodeMap) else None

    def read(self, config, region, part):
        (row, below), across = divmod(region.row, self.factor[0]), self.factor[1]
        if isinstance(self.source, CodeMap):
            apart, step = self.vectors, self.source.step
            address = self.source.address(row, 0) + part.row // config.native_dim + below * across * apart
            made = [Instruction(op=Op.V_RD, mem=Mem.VECTOR_RF, a=address, inc=region.inc,
                                integer=int(self.codes.integer), unsigned=int(self.codes.unsigned)),
                    Instruction(op=Op.V_POOL_MAX)]
            window = {Reg.WINDOW_X: 1, Reg.WINDOW_Y: 1}
        else:
            apart, step, window = self.vectors * config.vector_words, self.source.stride, {}
            address = self.source.address(row * (region.width // across)) + part.row // config.mfu_lanes
            made = [Instruction(op=Op.V_RD, mem=self.source.buffer.mem, a=address + below * across * apart,
                                inc=region.inc)]
        return made, {**window, Reg.ITERATIONS_X: across, Reg.STRIDE_X: apart, Reg.STRIDE_Y: step}


def inside(first: int, size: int, step: int, length: int) -> tuple[int, int]:
    """Number of pixels of a window before those inside an image of some length, and number of those inside."""
    before = max(0, -(first // step))
    return before, min(size, -((first - length) // step)) - before


def _window_steps(window: Window, step: int, pitch: int) -> dict[Reg, int]:
    """The registers of the distances between the pixels of a window that has several."""
    rows, columns = window.size
    found = {Reg.WINDOW_STEP: window.dilation[1] * step} if columns > 1 else {}
    return found | ({Reg.WINDOW_PITCH: window.dilation[0] * pitch} if rows > 1 else {})


def _moving(region: Region, registers: dict[Reg, int]) -> dict[Reg, int]:
    """The registers that move a source from pixel to pixel."""
    if region.count == 1:
        return {}
    kept = {Reg.STRIDE_X} if region.columns > 1 else set()
    kept |= {Reg.STRIDE_Y} if region.rows > 1 else set()
    return {register: value for register, value in registers.items() if register in kept}


Source = FromSlot | FromNumbers | FromProduct | FromWords | FromPool | FromEnlarged
Windowed = FromProduct | FromPool  #: Sources that read windows.
