"""Programs of a trainer with loops and labels: operands become views, and what moves becomes base registers.

The address of an operand is a number of words, plus a multiple of the counter of each loop around it. All operands of a
nest of loops with the same multiples share one base register, which begins at 0 ahead of the nest. Operands among the
parameters add R0 (old) or R1 (new) instead, which a RUN gives; they step along and come back behind each loop.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from concord.spec.trainer.config import NONE, TrainerConfig
from concord.spec.trainer.instructions import FIELDS, TrainerOp, instruction
from concord.spec.trainer.views import TrainerView

OLD, NEW = 0, 1  #: Base registers of old and new parameters.


@dataclass(eq=False, slots=True)
class ProgramLoop:
    """A loop.

    Attributes:
        count: How often its body runs.
        items: Its body.
    """

    count: int
    items: list = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Span:
    """Some of a row of elements: number `start` plus a multiple of loop counters, and `count` elements."""

    start: int
    count: int
    steps: tuple[tuple[ProgramLoop, int], ...] = ()


@dataclass(frozen=True, slots=True)
class MovingView:
    """A view whose address may depend on loops.

    Attributes:
        view:  Without a base.
        steps: By loop, the words that each pass adds.
        base:  OLD or NEW for words that are counted from there, or NONE.
    """

    view: TrainerView
    steps: tuple[tuple[ProgramLoop, int], ...] = ()
    base: int = NONE


@dataclass(eq=False, slots=True)
class PlannedInstruction:
    """One instruction.

    Attributes:
        op:       Its opcode.
        values:   All of its fields but views.
        operands: Views by field.
        label:    For `repeat`: the item that it goes back to.
    """

    op: TrainerOp
    values: dict[str, int]
    operands: dict[str, MovingView]
    label: "Label | None" = None


@dataclass(eq=False, slots=True)
class Label:
    """A point of a program that a `repeat` goes back to.

    Attributes:
        address: Address of the instruction behind it, once that is known.
    """

    address: int = 0


@dataclass(eq=False, slots=True)
class WorkPart:
    """The instructions of one piece of work of a layer.

    Attributes:
        name:  Name of the layer.
        work:  What they do.
        items: Instructions, loops and labels.
    """

    name: str
    work: str
    items: list = field(default_factory=list)


class Emitter:
    """Collects a program.

    Args:
        cores: Mask of the cores that measure together; 0 for a core that works alone.

    Attributes:
        parts: Pieces of work in order.
    """

    def __init__(self, cores: int = 0):
        self.cores = cores
        self.parts: list[WorkPart] = []
        self._open: list[list] = []

    def part(self, name: str, work: str):
        """Begin a piece of work; instructions go to it from now on."""
        self.parts.append(WorkPart(name, work))
        self._open = [self.parts[-1].items]

    def emit(self, op: TrainerOp, operands: Mapping[str, MovingView | None] | None = None, **values: int):
        """Add an instruction."""
        found = {name: operand for name, operand in (operands or {}).items() if operand}
        unset = {name: 0 for name, field in FIELDS[op].items() if not field.kind.startswith("view")}
        self._open[-1].append(PlannedInstruction(op, unset | values, found))

    def copy(self, to: MovingView, source: MovingView | None = None, **values: int):
        """Copy words, or zeros if there is no source."""
        self.emit(TrainerOp.COPY, {"to": to, "source": source}, zeros=int(source is None), **values)

    def spans(self, total: int, size: int, ways: int = 1, begin: int = 0) -> Iterator[tuple[Span, int]]:
        """All elements, `size` at a time, in a loop where there are enough: what follows is emitted for each span.

        Args:
            total: Number of elements.
            size:  Most elements at a time.
            ways:  Number of regions that spans take in turn.
            begin: The first element.

        Yields:
            Elements, and the number of their region.
        """
        full = (total - begin) // size
        rounds = full // ways
        if rounds > 1:
            with self._loop(rounds) as loop:
                for way in range(ways):
                    yield Span(begin + way * size, size, ((loop, ways * size),)), way
            begin += rounds * ways * size
        for k, start in enumerate(range(begin, total, size)):
            yield Span(start, min(size, total - start)), k % ways

    @contextmanager
    def repeated(self, **values: int):
        """What is emitted within is repeated while the exponent that `measure` takes is not what it was."""
        label = Label()
        self._open[-1].append(label)
        yield
        self.emit(TrainerOp.MEASURE, cores=self.cores, **values)
        self._open[-1].append(PlannedInstruction(TrainerOp.REPEAT, {}, {}, label))

    @contextmanager
    def _loop(self, count: int):
        loop = ProgramLoop(count)
        self._open[-1].append(loop)
        self._open.append(loop.items)
        yield loop
        self._open.pop()

    def program(self, config: TrainerConfig) -> list[int]:
        """The instruction words.

        Raises:
            ValueError: the machine has too few words, views or bases for them.
        """
        words = _Assembly(config)
        for part in self.parts:
            words.add(part.items)
        words.word(TrainerOp.END)
        return words.finish()


class _Assembly:
    """Instruction words, with the views and bases that they need at each point."""

    def __init__(self, config: TrainerConfig):
        self.config = config
        self._found: list = []  # instructions, and repeats as (label,)
        self._size = 0
        self._views: dict[int, TrainerView] = {}  # by number, the one written last at the end
        self._nest: list[ProgramLoop] = []
        self._bases: dict[tuple, int] = {}

    def word(self, op: TrainerOp, **values: int):
        self._found.append(instruction(op, **values))
        self._size += len(self._found[-1].words)

    def add(self, items: list):
        for item in items:
            match item:
                case Label():
                    item.address = self._size
                    self._views.clear()
                case ProgramLoop():
                    self._loop(item)
                case PlannedInstruction(label=Label()):
                    self._found.append(item.label)
                    self._size += 1
                case PlannedInstruction():
                    self._step(item)

    def _loop(self, loop: ProgramLoop):
        outer = not self._nest
        if outer:
            self._bases = {}
            for steps in dict.fromkeys(_key(each) for each in _operands(loop)):
                if steps and steps[0] == NONE:
                    self._begin(steps)
        self._nest.append(loop)
        self.word(TrainerOp.LOOP, count=loop.count)
        self._views.clear()
        self.add(loop.items)
        self._advance(loop, 1)
        self.word(TrainerOp.END_LOOP)
        if not outer:
            self._advance(loop, -loop.count)
        else:
            self._advance(loop, -loop.count, (OLD, NEW))
        self._nest.pop()

    def _begin(self, steps: tuple):
        number = 2 + len(self._bases)
        if number >= self.config.bases:
            raise ValueError(
                f"a loop needs {number + 1} base registers, and the core has {self.config.bases}: give it more bases"
            )
        self._bases[steps] = number
        self.word(TrainerOp.S_WR, r=number, value=0)

    def _advance(self, loop: ProgramLoop, times: int, only: tuple[int, ...] = (OLD, NEW, NONE)):
        """Add what a loop adds to each base that moves with it."""
        moved = {}
        for base, *steps in {_key(each) for each in _operands(loop)} - {None}:
            stride = dict(steps).get(loop, 0)
            if base in only and stride:
                number = base if base != NONE else self._bases[base, *steps]
                if moved.setdefault(number, stride) != stride:
                    raise RuntimeError("operands among the parameters move differently in one loop")
        for number, stride in sorted(moved.items()):
            self.word(TrainerOp.S_ADD, r=number, value=stride * times)

    def _step(self, step: PlannedInstruction):
        numbers = {name: self._view(each, step) for name, each in step.operands.items()}
        self.word(step.op, **step.values, **numbers)

    def _view(self, operand: MovingView, step: PlannedInstruction) -> int:
        base = operand.base
        if base == NONE and (key := _key(operand)):
            base = self._bases[key]
        view = replace(operand.view, base=base)
        number = next((k for k, known in self._views.items() if known == view), None)
        if number is None:
            number = len(self._views)
            if number >= self.config.views:
                kept = [
                    k
                    for k, known in self._views.items()
                    if any(replace(known, base=NONE) == each.view for each in step.operands.values())
                ]
                number = next((k for k in self._views if k not in kept), None)
                if number is None:
                    raise ValueError(f"an instruction needs more than the {self.config.views} views of the core")
            self._found.append(view.tensor(number))
            self._size += 2
        self._views.pop(number, None)
        self._views[number] = view
        return number

    def finish(self) -> list[int]:
        if self._size > self.config.instructions:
            raise ValueError(
                f"the program has {self._size:,} instruction words, and the core holds "
                f"{self.config.instructions:,}: give it more instructions"
            )
        found = (
            instruction(TrainerOp.REPEAT, target=each.address) if isinstance(each, Label) else each
            for each in self._found
        )
        return [word for each in found for word in each.words]


def _key(operand: MovingView) -> tuple | None:
    """What operands that share a base have in common; None for those that do not move."""
    steps = tuple((loop, stride) for loop, stride in operand.steps if stride)
    return (operand.base, *steps) if steps else None


def _operands(loop: ProgramLoop) -> Iterator[MovingView]:
    """All operands in a loop and in those inside it."""
    for item in loop.items:
        if isinstance(item, ProgramLoop):
            yield from _operands(item)
        elif isinstance(item, PlannedInstruction):
            yield from item.operands.values()
