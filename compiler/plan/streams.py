"""Passes that run strip by strip together, so that only some rows of the maps between them are ever held.

A strip of the last pass says which rows of its source it reads, and so on up to the first pass, whose source is whole.
Rows that two strips read are computed for both of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from concord.compiler.emit.passes import LayerPass
from concord.compiler.emit.sources import FromNumbers, FromSlot
from concord.compiler.emit.storage import Buffer, CodeMap
from concord.compiler.lib.program import NET
from concord.net.arithmetic.windows import Window
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PassStream:
    """Consecutive passes, each of which but the last writes a map of which strips are held.

    Attributes:
        passes: The passes.
        maps:   What each pass but the last one writes.
        rows:   Rows of a strip of the last pass.
    """

    passes: tuple[LayerPass, ...]
    maps: tuple[CodeMap, ...]
    rows: int

    def strips(self) -> list[list[tuple[int, int]]]:
        """For each strip, the rows [first, stop) that each pass computes; rows of padding are among them.

        Where a strip reads nothing but padding, the passes before it have none to compute.
        """
        count, found = self.passes[-1].value.shape[1], []
        for first in range(0, count, self.rows):
            ranges = [(first, min(first + self.rows, count))]
            for made, one in zip(self.passes[:0:-1], self.maps[::-1], strict=True):
                low, high = ranges[0]
                first_row, stop = max(low, 0), min(high, made.value.shape[1])
                begin, end = rows_read(window_of(made, one), first_row, stop)
                ranges.insert(0, (begin, end if first_row < stop else begin))
            found.append(ranges)
        if self._from_net:
            self._take_all(found)
        return found

    def entered(self, number: int) -> tuple[int, int]:
        """The rows of the network's input [first, stop) that a strip needs and those before do not, see `feeder`."""
        ends = [min(strip[0][1], self._rows) for strip in self.strips()]
        ends[-1] = self._rows
        return max([0, *ends[:number]]), max(ends[:number + 1])

    @property
    def _from_net(self) -> bool:
        """Whether the host sends the rows of the first map."""
        return self.passes[0].chains[0].chain.source == FromSlot(slot=NET)

    def _take_all(self, strips: list[list[tuple[int, int]]]):
        """Let the first pass compute the rows between strips and after the last one, too: the host sends all rows."""
        taken = 0
        for strip in strips:
            low, high = strip[0]
            if strip is strips[-1]:
                low, high = (low, max(high, self._rows)) if low < high else (taken, self._rows)
            strip[0] = (min(low, taken), high) if low < high else (taken, taken)
            taken = strip[0][1]

    @property
    def _rows(self) -> int:
        """Rows of the first map."""
        return self.passes[0].value.shape[1]

    def hold(self):
        """Let each map hold the rows of the largest strip."""
        for index, one in enumerate(self.maps):
            one.held = max(high - low for low, high in (ranges[index] for ranges in self.strips()))

    def twice(self, config: Config) -> int:
        """Words that are computed a second time."""
        found = 0
        for index, one in enumerate(self.maps):
            _, rows, columns = one.value.shape
            made = sum(min(high, rows) - max(low, 0) for low, high in (strip[index] for strip in self.strips())
                       if low < high)
            found += (made - rows) * columns * config.words_of(one.value.lanes)
        return found

    @property
    def legal(self) -> bool:
        """Whether the host need not send any row twice."""
        if not self._from_net:
            return True
        ranges = [strip[0] for strip in self.strips()]
        return all(high <= low for (_, high), (low, _) in zip(ranges, ranges[1:], strict=False))


def brings(stream: PassStream) -> bool:
    """Whether the first pass of a stream brings numbers from Dram."""
    source = stream.passes[0].chains[0].chain.source
    return isinstance(source, FromNumbers) and source.view.buffer.mem is Mem.DRAM


def feeder(stream: PassStream, passes: Sequence[LayerPass]) -> LayerPass | None:
    """The pass that does nothing but bring the network's input to Dram, from where a stream reads it, or None."""
    before = stream.passes[0].time - 1
    if before < 0 or not brings(stream):
        return None
    made, source = passes[before], stream.passes[0].chains[0].chain.source
    targets = [target.buffer if target else None for target in made.targets()]
    only = targets == [source.view.buffer] and len(made.chains) == 1
    return made if only and made.chains[0].chain.source == FromSlot(slot=NET) else None


def window_of(made: LayerPass, one: CodeMap) -> Window:
    """The window by which a pass reads a map."""
    return next(source.window for source in made.windowed() if source.map is one)


def rows_read(window: Window, first: int, stop: int) -> tuple[int, int]:
    """The rows of the source [first, stop) that pixels in some rows read, those of the padding among them."""
    begin = first * window.stride[0] - window.padding[0]
    return begin, (stop - 1) * window.stride[0] - window.padding[0] + window.span[0]


def candidates(passes: Sequence[LayerPass]) -> list[CodeMap]:
    """The maps of which strips suffice, the largest first: their pass writes nothing else, and the next one reads them.
    """
    found = []
    for made, after in zip(passes, passes[1:], strict=False):
        written, read = made.written(), [source.map for source in after.windowed()]
        if len(made.chains) == 1 and len(written) == len(made.targets()) == 1 and read.count(written[0]) == 1:
            one = written[0]
            if one.value is made.value and one.buffer.last <= after.time and sum(
                    one in other.written() for other in passes) == 1:
                found.append(one)
    return sorted(found, key=lambda one: -one.buffer.size)


def streams_of(passes: Sequence[LayerPass], maps: Sequence[CodeMap],
               strips: int | dict[LayerPass, int]) -> list[PassStream]:
    """The streams in which strips of these maps are held.

    Args:
        strips: Number of strips of all of them, or rows of a strip of the last pass of each.
    """
    found, together = [], []
    for made in passes:
        written = [one for one in made.written() if one in maps]
        together.append((made, written))
        if not written:
            if len(together) > 1:
                rows = -(-made.value.shape[1] // strips) if isinstance(strips, int) else strips[made]
                found.append(PassStream(passes=tuple(one for one, _ in together),
                                        maps=tuple(written[0] for _, written in together[:-1]), rows=rows))
            together = []
    return found


def set_lifetimes(passes: Sequence[LayerPass], streams: Sequence[PassStream]):
    """Set the lifetimes of all buffers; those of a stream live as long as it."""
    def buffers() -> list[tuple[LayerPass, Buffer]]:
        return [(made, buffer) for made in passes for buffer in made.buffers()]

    for _, buffer in buffers():
        buffer.first, buffer.last = None, 0
    for made, buffer in buffers():
        stream = next((stream for stream in streams if made in stream.passes), None)
        for time in (made.time,) if stream is None else (stream.passes[0].time, stream.passes[-1].time):
            buffer.use(time)
