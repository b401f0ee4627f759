"""What a program uses of a machine: the smallest depth of each memory and queue under which it runs."""

from collections import Counter
from collections.abc import Iterator, Sequence

from concord.compiler.lib.build import Build
from concord.spec.isa.instructions import Instruction, Op, Reg
from concord.spec.isa.memories import FILLED, Mem

#: Registers that decide how much a chain moves.
_SIZES = (Reg.ROWS, Reg.COLUMNS, Reg.ITERATIONS)


def uses(build: Build) -> dict[str, int]:
    """The smallest value of each depth of `spec.machine.config.Config` under which the program of a build runs.

    MvmQ must have room for the words that it holds at once. The queues from and to the host must have room for those of
    one iteration of a chain, since the host brings and takes more as the program goes on.
    """
    config, found, held = build.config, Counter(), 0
    for mem in FILLED:
        found[mem.size] = max(found[mem.size], build.allocator.used(mem))
    found["instructions"] = len(build.program.instructions)

    def least(attribute: str, value: int):
        found[attribute] = max(found[attribute], value)

    for chain, rows, columns, iterations in _chains(build.program.instructions, config.native_dim):
        source, words = chain[0].mem, config.words_of(rows)
        product = any(instruction.op == Op.MV_MUL for instruction in chain)
        written = {instruction.mem for instruction in chain if instruction.op == Op.V_WR}
        if product:
            least("accumulator_rows", rows)
            least("mvmq_words", words)
            if source != Mem.VECTOR_RF:
                least("operand_columns", columns)
        if source == Mem.NET_Q:
            least("net_in", columns * config.vector_words if product else words)
        if Mem.NET_Q in written:
            least("net_out", words)
        held += words * iterations * ((Mem.MVM_Q in written) - (source == Mem.MVM_Q))
        least("mvmq_words", held)
    return dict(found)


def _chains(program: Sequence[Instruction], rows: int) -> Iterator[tuple[list[Instruction], int, int, int]]:
    """The chains of a program in order, each with Rows, Columns and Iterations."""
    registers, chain = dict(zip(_SIZES, (rows, 1, 1), strict=True)), []
    for instruction in program:
        if instruction.op == Op.S_WR:
            registers[Reg(instruction.mem)] = instruction.a
        elif instruction.op == Op.END_CHAIN:
            rows, columns, iterations = (registers[register] for register in _SIZES)
            yield chain, rows, columns, iterations
            chain = []
        elif instruction.op not in (Op.LOOP, Op.END_LOOP, Op.END, Op.S_ADD):
            chain.append(instruction)
