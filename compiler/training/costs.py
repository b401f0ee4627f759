"""What a step costs: cycles of each engine and bytes moved, by layer and work, and what binds.

Cycles are those of full rate and of one pass: work that a wrong exponent repeats, the first loads of a piece of work,
and the filling of pipelines come on top. Engines work at the same time, so a piece of work takes as long as its busiest
engine. Beside a `sum` of several cores nothing else works.
"""

from collections import Counter
from dataclasses import dataclass

from concord.compiler.training.emitter import PlannedInstruction, ProgramLoop, WorkPart
from concord.compiler.training.program import TrainingProgram
from concord.compiler.training.shares import SUM_WORDS
from concord.compiler.training.tiles import block_cycles
from concord.spec.trainer.config import LANES
from concord.spec.trainer.instructions import Space, TrainerOp

ENGINES = ("tensor", "pooling", "update", "load", "store")
_ROW_CYCLES = 4  #: Least cycles of a row of a pooling that is converted, 4 of 16 lanes at a time.
_UPDATE_CYCLES = 8  #: Cycles of a row of parameters, 2 of 16 lanes at a time.


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What a piece of work costs.

    Attributes:
        layer:  Name of the layer.
        work:   What is done.
        cycles: Of each engine that is busy, by its name.
        bytes:  Bytes that go to server memory or come from there.
        exchange: Cycles in which the accumulators of several cores are added through server memory.
    """

    layer: str
    work: str
    cycles: dict[str, int]
    bytes: int
    exchange: int = 0

    @property
    def binds(self) -> str:
        """The busiest engine."""
        return max(self.cycles, key=lambda engine: self.cycles[engine])

    @property
    def most(self) -> int:
        """Cycles of the busiest engine, and of the exchange."""
        return max(self.cycles.values(), default=0) + self.exchange


def costs(made: TrainingProgram, core: int = 0) -> list[Work]:
    """What each piece of work of a step costs a core, in the order of the programs."""
    return [work for work in map(_work, made.cores[core].parts) if work.cycles]


def step_cycles(made: TrainingProgram) -> int:
    """Cycles of a step: cores wait for each other at the end of each piece of work, so the largest of them counts."""
    pieces = zip(*(core.parts for core in made.cores if core.parts), strict=True)
    return sum(max(_work(part).most for part in parts) for parts in pieces)


def step_bytes(made: TrainingProgram) -> int:
    """Bytes that all cores together move in a step."""
    return sum(work.bytes for core in range(len(made.cores)) for work in costs(made, core))


def explained(made: TrainingProgram) -> str:
    """The table of `costs` of core 0, whose shares are the largest, one line for each piece of work, with a sum."""
    works, several = costs(made), len(made.cores) > 1
    rows = [("layer", "work", *ENGINES, *["exchange"] * several, "bytes", "binds")]
    cells = [[*(work.cycles.get(engine, 0) for engine in ENGINES), *[work.exchange] * several] for work in works]
    rows += [
        (work.layer, work.work, *(f"{cycles:,}" for cycles in row), f"{work.bytes:,}", work.binds)
        for work, row in zip(works, cells, strict=True)
    ]
    sums = (f"{sum(column):,}" for column in zip(*cells, strict=True))
    rows.append(("sum", f"{sum(work.most for work in works):,} bound", *sums, f"{sum(w.bytes for w in works):,}", ""))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = {0, 1, len(widths) - 1}
    return "".join(
        "  ".join(
            cell.ljust(width) if k in left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        + "\n"
        for row in rows
    )


def _work(part: WorkPart) -> Work:
    total = _total(part.items)
    cycles = {engine: total[engine] for engine in ENGINES if total[engine]}
    return Work(
        layer=part.name, work=part.work, cycles=cycles, bytes=total["words"] * LANES, exchange=total["exchange"]
    )


def _total(items: list) -> Counter[str]:
    total: Counter[str] = Counter()
    for item in items:
        if isinstance(item, ProgramLoop):
            total.update({name: item.count * count for name, count in _total(item.items).items()})
        elif isinstance(item, PlannedInstruction) and item.op in _COSTS:
            total.update(_COSTS[item.op](item))
    return total


def _product(step: PlannedInstruction) -> dict[str, int]:
    a, b = step.operands["a"].view, step.operands["b"].view
    blocks = step.values["n0"] * step.values["n1"] * step.values["n2"]
    if step.values["mode"]:
        return {"tensor": block_cycles(blocks * -(-b.rows // LANES), step.values["outputs"], a.planes)}
    # The drain takes the port from which accumulators are read, unless every second cycle is free.
    return {"tensor": block_cycles(blocks, a.rows, a.planes) + (a.rows if a.planes == 1 else 0)}


def _copy(step: PlannedInstruction) -> dict[str, int]:
    to, source = step.operands["to"].view, step.operands.get("source")
    words = to.rows * to.blocks * (1 if to.space == Space.ACCUMULATORS else to.planes)
    if step.values["patches"]:
        return {"load": words * step.values["size"]}
    outside = Space.SERVER in (to.space, source.view.space if source else to.space)
    return {"store" if to.space == Space.SERVER else "load": words, "words": words if outside else 0}


def _sum(step: PlannedInstruction) -> dict[str, int]:
    """A core stores its own region, and loads those of the others."""
    words = step.operands["x"].view.rows * SUM_WORDS
    return {"exchange": words, "words": words}


def _pool(step: PlannedInstruction) -> dict[str, int]:
    y, words = step.operands["y"].view, 1 + (step.operands.get("chosen") is not None)
    least = _ROW_CYCLES if step.values["mean"] else words
    return {"pooling": y.rows * y.blocks * max(step.values["size"] ** 2, least)}


def _pool_back(step: PlannedInstruction) -> dict[str, int]:
    y, x, size, stride = step.operands["y"].view, step.operands["x"].view, step.values["size"], step.values["stride"]
    chosen, mask = (step.operands.get(name) is not None for name in ("chosen", "mask"))
    if stride >= size:  # a window is read for the first of its pixels in each row
        if step.values["mean"]:
            return {"pooling": y.rows * _ROW_CYCLES * y.blocks}
        more = mask + (chosen and (mask or size == 1))  # cycles of that pixel beside those of a row
        return {"pooling": (y.rows * y.planes + x.rows * size * more) * y.blocks}
    read = x.rows * size**2 * (2 + chosen) + y.rows * mask
    return {"pooling": max(read, y.rows * _ROW_CYCLES * (2 if size > 2 * stride else 1)) * y.blocks}


def _add(step: PlannedInstruction) -> dict[str, int]:
    y, mask = step.operands["y"].view, step.operands.get("mask") is not None
    return {"pooling": y.rows * y.blocks * max(2 * y.planes + mask, _ROW_CYCLES)}


def _update(step: PlannedInstruction) -> dict[str, int]:
    return {"update": step.operands["new"].view.rows * _UPDATE_CYCLES}


_COSTS = {
    TrainerOp.PRODUCT: _product,
    TrainerOp.COPY: _copy,
    TrainerOp.SUM: _sum,
    TrainerOp.POOL: _pool,
    TrainerOp.POOL_BACK: _pool_back,
    TrainerOp.ADD: _add,
    TrainerOp.UPDATE: _update,
}
