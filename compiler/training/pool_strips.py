"""The gradient of a maximum pooling whose windows overlap, for images that do not fit the chip: strip by strip.

A pixel adds what several windows send. Windows that lie `apart` positions from each other do not overlap, so a
`pool_back` of every `apart`-th one moves numbers as they are and measures nothing. Products of these parts by the
identity add them up exactly, and only whole rows of sums are brought to mantissas.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from concord.compiler.training.emitter import Emitter, Span
from concord.compiler.training.graph import PoolWindows, StepValue
from concord.compiler.training.memory_map import MemoryMap
from concord.compiler.training.regions import ChipRoom, ImageRegion, cut, outside
from concord.compiler.training.tiles import choose, heights
from concord.spec.trainer.config import LANES, TrainerConfig
from concord.spec.trainer.instructions import Space, TrainerOp


@dataclass(frozen=True, slots=True)
class WindowPart:
    """Windows of a strip that do not overlap: every `apart`-th row from `row` on, and column from `column` on.

    Attributes:
        row, column: Number of the first window.
        rows, columns: Number of windows of each axis.
    """

    row: int
    column: int
    rows: int
    columns: int


class PoolStrips:
    """Sends the gradient of y through windows to x.

    Args:
        memory_map: Where everything lies.
        config:     The core.
        emitter:    Takes the instructions.
        name:       Name of the layer.
        y, x:       Output and input of the pooling.
        windows:    The windows.
        chosen:     Which pixel each of them has chosen.
    """

    def __init__(
        self,
        memory_map: MemoryMap,
        config: TrainerConfig,
        emitter: Emitter,
        name: str,
        y: StepValue,
        x: StepValue,
        windows: PoolWindows,
        chosen: ImageRegion,
    ):
        self.memory_map, self.emitter, self.windows, self.chosen = memory_map, emitter, windows, chosen
        self.source, self.to = memory_map.gradients[y], memory_map.gradients[x]
        self.scales = {"ex": memory_map.gradient_scales[y], "ey": memory_map.gradient_scales[x]}
        self.mask_of = memory_map.values[x] if x.relu else None
        self.apart = -(-windows.size // windows.stride)
        most = config.accumulator_rows // x.width

        def words(tiles):
            rows = tiles.rows or x.height
            return self._room(rows)[0] if rows <= most else config.words + 1

        tiles = choose(f"layer {name!r}, gradient of inputs,", config, (1, 1), words, heights=heights(x.height, 1))
        self.rows = tiles.rows or x.height

    def _room(self, rows: int) -> tuple[int, list[ImageRegion]]:
        """Words on the chip, and regions of the identity, of a part, of the sums, of windows, choices and the mask."""
        found, width, size = ChipRoom(), self.to.width, self.windows.size
        seen = (1, min((rows + size - 2) // self.windows.stride + 1, self.source.height), self.source.width, 1)
        regions = [found.images(1, 1, LANES, 1), found.images(1, rows + size - 1, width, 1, 2)]
        regions += [found.images(1, rows, width, 1, 2), found.images(*seen, 2), found.images(*seen)]
        regions += [found.images(1, rows, width, 1)] if self.mask_of else []
        return found.used, regions

    def emit(self):
        """Emit the instructions, within a loop for each block and sample."""
        identity, *room = self._room(self.rows)[1]
        word, _ = self.memory_map.identity_region()
        source = replace(identity, space=Space.SERVER, offset=word)
        self.emitter.copy(identity.operand(), source.operand())
        for blocks, _ in self.emitter.spans(self.to.blocks, 1):
            for samples, _ in self.emitter.spans(self.memory_map.batch, 1):
                for row in range(0, self.to.height, self.rows):
                    some = [cut(each, blocks, samples) for each in room]
                    self._strip(range(row, min(row + self.rows, self.to.height)), identity, some, blocks, samples)

    def _strip(self, rows: range, identity: ImageRegion, room: list[ImageRegion], blocks: Span, samples: Span):
        part, made, seen, which, *mask = room
        made, *mask = (replace(each, height=len(rows)) for each in (made, *mask))
        parts = list(self._parts(rows))
        if parts:
            low = min(each.row for each in parts)
            count = max(each.row + (each.rows - 1) * self.apart for each in parts) + 1 - low
            seen, which = (replace(each, height=count) for each in (seen, which))
            for to, source in ((seen, self.source), (which, self.chosen)):
                self.emitter.copy(to.operand(), outside(source, blocks, samples).rowed(low, count).operand())
            if mask:
                source = outside(self.mask_of, blocks, samples).rowed(rows.start, len(rows))
                self.emitter.copy(mask[0].operand(), source.operand())
        else:  # rows behind the last window
            self.emitter.copy(made.operand())
        for number, each in enumerate(parts):
            last = {"y": made.operand(), "mask": mask[0].operand() if mask else None}
            self._add(rows, each, identity, (part, seen, which), low, number, last if each is parts[-1] else {})
        self.emitter.copy(outside(self.to, blocks, samples).rowed(rows.start, len(rows)).operand(), made.operand())

    def _parts(self, rows: range) -> Iterator[WindowPart]:
        """The windows that send something to rows, in parts without overlap."""
        size, stride, apart = self.windows.size, self.windows.stride, self.apart
        first = max(-(-(rows.start - size + 1) // stride), 0)
        last = min((rows.stop - 1) // stride, self.source.height - 1)
        for i, j in product(range(apart), range(apart)):
            count, columns = len(range(first + i, last + 1, apart)), len(range(j, self.source.width, apart))
            if count and columns:
                yield WindowPart(first + i, j, count, columns)

    def _add(
        self,
        rows: range,
        part: WindowPart,
        identity: ImageRegion,
        room: tuple[ImageRegion, ImageRegion, ImageRegion],
        low: int,
        number: int,
        last: dict,
    ):
        """Send back what windows of a part have, and add it to the sums of the strip; the last part drains them."""
        made, *seen = room
        top, left = (begin * self.windows.stride for begin in (part.row, part.column))
        made = replace(made, height=rows.stop - top, width=self.to.width - left)
        seen = [
            each.operand(
                offset=(part.row - low) * each.width + part.column,
                n1=part.rows,
                pitch1=self.apart * each.width,
                n2=part.columns,
                pitch2=self.apart,
            )
            for each in seen
        ]
        self.emitter.emit(
            TrainerOp.POOL_BACK,
            {"y": made.operand(), "x": seen[0], "chosen": seen[1]},
            size=self.windows.size,
            stride=self.apart * self.windows.stride,
            **self.scales,
        )
        self.emitter.emit(
            TrainerOp.PRODUCT,
            {
                "a": made.operand(
                    n1=len(rows),
                    origin1=rows.start - top,
                    limit1=made.height,
                    n2=self.to.width,
                    origin2=-left,
                    limit2=made.width,
                ),
                "b": identity.operand(),
                **last,
            },
            keep=int(number > 0),
            ea=self.scales["ex"],
            eb=self.memory_map.identity_region()[1],
            ey=self.scales["ey"],
            n0=1,
            n1=1,
            n2=1,
        )
