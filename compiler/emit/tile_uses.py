"""The products of a program, in the loops that they stand in, and what its registers hold."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from concord.compiler.lib.program import loop_end
from concord.compiler.lib.tile_store import Matrix
from concord.spec.isa.instructions import Instruction, Op, Reg
from concord.spec.machine.config import Config

COUNTS = (Reg.ITERATIONS, Reg.ITERATIONS_X)  #: Registers of how often a chain runs.


@dataclass(frozen=True, slots=True)
class TileUse:
    """A product of a program.

    Attributes:
        at:     Index of its `mv_mul`; the chain begins one before.
        end:    Index after the chain.
        matrix: What it multiplies by.
        cycles: Clock cycles that it takes, about.
    """

    at: int
    end: int
    matrix: Matrix
    cycles: int


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of a program: what it has inside, and the index of its first instruction and of the one after it."""

    first: int
    end: int
    items: tuple["TileUse | Loop", ...]

    def uses(self) -> Iterator[TileUse]:
        """The products inside."""
        for item in self.items:
            yield from item.uses() if isinstance(item, Loop) else (item,)


def demand(config: Config, program: Sequence[Instruction], matrices: dict[int, Matrix]) -> dict[int, tuple[int, int]]:
    """How often each matrix is needed in an inference, and the iterations of its products, which hide a load.

    A matrix inside a loop is needed in each pass, and at least twice: the host says how many time steps there are.
    """
    found, counts = {}, list(registers_before(program))

    def walk(items, passes):
        for item in items:
            if isinstance(item, Loop):
                walk(item.items, passes * max(2, program[item.first].a))
            else:
                often, work = found.get(item.matrix.first, (0, 0))
                found[item.matrix.first] = max(often, passes), work + (counts[item.at][0] or 1)

    walk(items_of(config, program, matrices), 1)
    return found


def items_of(config: Config, program: Sequence[Instruction], matrices: dict[int, Matrix]) -> list[TileUse | Loop]:
    """The products and loops of a program, in order.

    Args:
        matrices: Each matrix by its first tile, as the products name it.
    """
    levels: list[tuple[int, list[TileUse | Loop]]] = [(0, [])]
    sizes = dict.fromkeys((Reg.ROWS, Reg.COLUMNS, Reg.ITERATIONS), 1)
    for k, instruction in enumerate(program):
        match instruction.op:
            case Op.S_WR if instruction.mem in sizes:
                sizes[Reg(instruction.mem)] = instruction.a
            case Op.LOOP:
                levels.append((k, []))
            case Op.END_LOOP:
                first, items = levels.pop()
                levels[-1][1].append(Loop(first, k + 1, tuple(items)))
            case Op.MV_MUL:
                end = next(j for j in range(k, len(program)) if program[j].op == Op.END_CHAIN) + 1
                levels[-1][1].append(TileUse(k, end, matrices[instruction.a], _cycles(config, *sizes.values())))
    return levels[0][1]


def _cycles(config: Config, rows: int, columns: int, iterations: int) -> int:
    """Clock cycles of a product: of the tile engines, or of the multi-function units after them."""
    beats = config.vectors_of(rows) * -(-columns // config.tile_engines) * config.groups
    return iterations * max(beats, config.words_of(rows))


def registers_before(program: Sequence[Instruction]) -> Iterator[tuple[int | None, ...]]:
    """Values of Iterations and IterationsX before each instruction; None where they depend on the pass of a loop.

    Chains that need such a value write it first.
    """
    now = dict.fromkeys(COUNTS, 1)
    for k, instruction in enumerate(program):
        if instruction.op == Op.LOOP:
            inside = program[k:loop_end(program, k)]
            before = dict(now)
            for register in COUNTS:
                last = [one.a for one in inside if one.op == Op.S_WR and one.mem == register][-1:]
                if last and last[0] != now[register]:
                    now[register] = None
            yield tuple(before.values())
            continue
        yield tuple(now.values())
        if instruction.op == Op.S_WR and instruction.mem in COUNTS:
            now[Reg(instruction.mem)] = instruction.a


def builds(instruction: Instruction) -> bool:
    """Whether an instruction writes tiles of what the program computes."""
    return instruction.op == Op.M_WR
