"""Passes: a layer that reads its source, and the operations that follow it place by place.

A pass runs strip by strip where it has several chains: what one of them leaves for the next one is then short, and the
multiplier works on the next strip while the multi-function units finish this one.
"""

from dataclasses import dataclass, field, replace

from concord.compiler.emit.chains import Chain
from concord.compiler.emit.sources import (
    FromNumbers,
    FromPool,
    FromProduct,
    FromWords,
    Region,
    Windowed,
    inside,
)
from concord.compiler.emit.storage import Buffer, CodeMap, CodesView, Numbers, NumbersView
from concord.compiler.graph.nodes import Value
from concord.compiler.lib.program import Program
from concord.compiler.lib.tiling import Part
from concord.spec.isa.instructions import Op
from concord.spec.machine.config import Config


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Planned:
    """A chain of a pass.

    Attributes:
        layer: Name of the layer that it belongs to.
        chain: The chain.
        parts: Lanes that it computes one after the other.
    """

    layer: str
    chain: Chain
    parts: tuple[Part, ...]

    def regions(self, region: Region) -> list[Region]:
        """A region in parts in which the chain's windows have one shape: padding is left out of windows of numbers."""
        source = self.chain.source
        if not isinstance(source, FromPool) or isinstance(source.source, CodeMap):
            return [region]
        window, shape = source.window, source.source.numbers.value.shape
        rows, columns = (
            _alike(first, count, window.stride[axis], window.padding[2 * axis], window.size[axis],
                   window.dilation[axis], shape[1 + axis])
            for axis, (first, count) in enumerate(
                ((region.row, region.rows), (region.column, region.columns))))
        return [replace(region, row=row, rows=height, column=column, columns=width)
                for row, height in rows for column, width in columns]


def _alike(first: int, count: int, stride: int, padding: int, size: int, step: int, length: int):
    """Runs (first, count) of neighbouring places at which as many pixels of a window lie inside the image."""
    runs: list[tuple[int, int]] = []
    before = None
    for place in range(first, first + count):
        shape = inside(place * stride - padding, size, step, length)
        if shape == before:
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append((place, 1))
        before = shape
    return runs


@dataclass(kw_only=True, slots=True, eq=False)
class Pass:
    """One layer and what follows it in the same places.

    Attributes:
        time:    Number of the pass.
        value:   Tensor of the places.
        chains:  Chains, in order.
        strips:  Numbers that hold one strip at a time.
        rows:    Rows of a strip.
        most:    Most rows that a strip may have; 0 for any number.
    """

    time: int
    value: Value
    chains: list[Planned] = field(default_factory=list)
    strips: list[Numbers] = field(default_factory=list)
    rows: int = 0
    most: int = 0

    def buffers(self) -> list[Buffer]:
        """All buffers that the pass reads or writes."""
        found = []
        for planned in self.chains:
            match planned.chain.source:
                case FromNumbers(view=view) | FromWords(view=view) if view:
                    found.append(view.buffer)
                case FromProduct(map=one) | FromPool(source=one):
                    found.append(one.buffer)
            found += [step.at.buffer for step in planned.chain.steps if isinstance(step.at, NumbersView | CodesView)]
        return found

    def windowed(self) -> list[Windowed]:
        """The sources that read windows."""
        sources = [planned.chain.source for planned in self.chains]
        return [source for source in sources if isinstance(source, Windowed)]

    def targets(self) -> list[NumbersView | CodesView | None]:
        """All that the pass writes; None stands for NetQ."""
        return [step.at for planned in self.chains for step in planned.chain.steps if step.op == Op.V_WR]

    def written(self) -> list[CodeMap]:
        """The maps that the pass writes."""
        return [target.map for target in self.targets() if isinstance(target, CodesView)]

    def emit(self, config: Config, program: Program):
        """Add the chains to a program."""
        for first in self.firsts:
            self.emit_strip_at(config, program, first)

    @property
    def firsts(self) -> range:
        """The first row of each strip."""
        return range(0, self.value.shape[1], self.rows)

    def emit_strip_at(self, config: Config, program: Program, first: int):
        """Add the chains of the strip that begins with a row to a program."""
        self.emit_strip(config, program, first, min(self.rows, self.value.shape[1] - first))

    def emit_strip(self, config: Config, program: Program, first: int, rows: int):
        """Add the chains of some rows to a program."""
        columns = self.value.shape[2]
        strip = Region(row=first, rows=rows, column=0, columns=columns, width=columns, strip=first)
        for planned in self.chains:
            with program.section(planned.layer or "network input", planned.layer):
                for part in planned.parts:
                    for region in planned.regions(strip):
                        planned.chain.emit(config, program, region, part)
