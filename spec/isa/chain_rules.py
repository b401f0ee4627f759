"""The rules for whole chains, in the order in which the machine checks them, after those of `spec.isa.rules`."""

from collections.abc import Iterator

from concord.spec.isa.chain import Chain
from concord.spec.isa.instructions import REGISTER_NAMES, SPECS, Error, Instruction, Op, Reg
from concord.spec.isa.memories import ADDRESSED, MEMORY_NAMES, Mem, depth
from concord.spec.isa.rules import Violation
from concord.spec.machine.config import Config


def check_chain(config: Config, chain: Chain) -> None:
    """Check the sizes, the window, the alignment and the address ranges of a whole chain.

    Raises:
        Violation: SIZE, WINDOW, ALIGN or RANGE.
    """
    _check_sizes(config, chain)
    _check_windows(chain)
    registers, source = chain.registers, chain.source
    if chain.product and chain.random_source:
        steps = (source.a, registers.stride_x, registers.stride_y) if source.inc else (source.a,)
        if any(step % config.vector_words for step in steps):
            raise Violation(Error.ALIGN, chain.address,
                            f"the source of mv_mul moves in native vectors of {config.vector_words} words")
    if chain.builds:
        _check_vectors(config, chain)
    for address, mem, end in ends(chain):
        if end > depth(config, mem):
            raise Violation(Error.RANGE, address,
                            f"it goes up to address {end - 1} of {MEMORY_NAMES[mem]}, "
                            f"whose last address is {depth(config, mem) - 1}")
    _check_overlap(chain)


def _check_vectors(config, chain):
    """Refuse a chain that makes tiles of vectors which do not all lie at the same place of a native vector."""
    registers, source, size = chain.registers, chain.source, config.vector_words
    if source.inc and (registers.stride_x % size or registers.stride_y % size):
        raise Violation(Error.ALIGN, chain.address,
                        f"the vectors of a tile lie whole native vectors of {size} words from each other")
    if source.a % size + chain.result_words > size:
        raise Violation(Error.ALIGN, chain.address,
                        f"it reads {chain.result_words} words from address {source.a} on, and words of a tile's vector "
                        f"lie in one native vector of {size} words")


def _check_sizes(config, chain):
    registers = chain.registers
    names = ["rows", "columns", "iterations", "iterations_x"]
    names += ["window_vectors"] * chain.windowed + ["window_x", "window_y"] * (chain.windowed or chain.pools)
    for name in names:
        if getattr(registers, name) == 0:
            raise Violation(Error.SIZE, chain.address, f"register {REGISTER_NAMES[Reg[name.upper()]]} is 0")
    if chain.product:
        limits = {"rows": config.accumulator_rows}
        if not chain.from_entries:
            limits["columns"] = config.operand_columns
        for name, most in limits.items():
            if getattr(registers, name) > most:
                raise Violation(Error.SIZE, chain.address,
                                f"register {REGISTER_NAMES[Reg[name.upper()]]} is {getattr(registers, name)}: "
                                f"a product has {most} at most")
    if chain.builds:
        for name in ("rows", "iterations_x"):
            if getattr(registers, name) > config.native_dim:
                raise Violation(Error.SIZE, chain.address,
                                f"register {REGISTER_NAMES[Reg[name.upper()]]} is {getattr(registers, name)}: a tile "
                                f"of vectors has {config.native_dim} at most")
    if chain.normalises and chain.result_words > config.softmax_words:
        raise Violation(Error.SIZE, chain.address, f"v_softmax would take {chain.result_words} words, and this "
                                                   f"machine's softmax_words is {config.softmax_words}")


def _check_windows(chain):
    registers = chain.registers
    if registers.iterations % registers.iterations_x:
        raise Violation(Error.WINDOW, chain.address, f"IterationsX {registers.iterations_x} does not divide "
                                                     f"Iterations {registers.iterations}")
    window = registers.window_vectors * registers.window_x * registers.window_y
    if chain.windowed and window != registers.columns:
        raise Violation(Error.WINDOW, chain.address, f"WindowVectors * WindowX * WindowY is {window}, "
                                                     f"and Columns is {registers.columns}: they must be equal")


def ends(chain: Chain) -> Iterator[tuple[int, Mem, int]]:
    """Yield (instruction address, memory, end of the addresses used) for each use of a memory, in instruction order."""
    if chain.source.mem in ADDRESSED:
        yield chain.address, Mem(chain.source.mem), chain.source_span().stop
    for address, instruction in enumerate(chain.instructions[1:], chain.address + 1):
        mem = Mem(instruction.mem) if instruction.op == Op.V_WR else SPECS[instruction.op].operand
        if instruction.op == Op.MV_MUL:
            yield address, Mem.MATRIX_RF, chain.tiles.stop
            if instruction.bias:
                yield address, Mem.BIAS_RF, instruction.b + chain.result_words
        elif instruction.op == Op.M_WR:
            yield address, Mem.MATRIX_RF, chain.tiles.stop
        elif mem in ADDRESSED or mem == Mem.BIAS_RF:
            yield address, mem, chain.result_span(instruction).stop


def _check_overlap(chain):
    """Refuse a chain that writes what it reads ahead of time."""
    for address, instruction in overwriting(chain):
        read, written = chain.source_span(), chain.result_span(instruction)
        if written.start < read.stop and read.start < written.stop:
            raise Violation(Error.RANGE, address,
                            f"it writes {written.start} to {written.stop - 1} of "
                            f"{MEMORY_NAMES[Mem(instruction.mem)]}, and the chain reads {read.start} to "
                            f"{read.stop - 1} there")


def overwriting(chain: Chain) -> list[tuple[int, Instruction]]:
    """The write, with its address, to the memory that the chain reads ahead of time: VectorRf, Dram, or windows."""
    if not chain.from_entries and not chain.gathers and chain.source.mem != Mem.DRAM:
        return []
    return [(address, instruction) for address, instruction in enumerate(chain.instructions, chain.address)
            if instruction.op == Op.V_WR and instruction.mem == chain.source.mem]


def check_constants(chain: Chain, constants: int) -> None:
    """Check that a chain leaves the first words of Dram, which firmware says are constant, as they are.

    Raises:
        Violation: RANGE. Hardware knows nothing of constants: firmware with such a program is refused.
    """
    for address, instruction in outside_writes(chain):
        if instruction.a < constants:
            raise Violation(Error.RANGE, address,
                            f"it writes from word {instruction.a} of Dram on, and the words up to {constants - 1} are "
                            "constants of the firmware")


def outside_writes(chain: Chain) -> list[tuple[int, Instruction]]:
    """The write to Dram, with its address, if there is one."""
    return [(address, instruction) for address, instruction in enumerate(chain.instructions, chain.address)
            if instruction.op == Op.V_WR and instruction.mem == Mem.DRAM]


def check_state(config: Config, chain: Chain, modes: list[bool], held: int) -> None:
    """Check a chain against the modes of the tiles and the number of words in MvmQ.

    Args:
        modes: Whether each tile was loaded in integer mode.
        held:  Number of words in MvmQ.

    Raises:
        Violation: FORMAT or QUEUE.
    """
    product = chain.product
    if product and (not product.integer) in modes[chain.tiles.start:chain.tiles.stop]:
        raise Violation(Error.FORMAT, chain.address + 1, "a tile of the product was loaded in the other mode")
    if chain.pops > held:
        raise Violation(Error.QUEUE, chain.address, f"it takes {chain.pops} words of MvmQ, which holds {held}")
    if product and held and not chain.pushes:
        raise Violation(Error.QUEUE, chain.address + 1, f"MvmQ holds {held} words: a product must go there too")
    if chain.pushes and held + chain.pushes > config.mvmq_words:
        raise Violation(Error.QUEUE, chain.end - 1,
                        f"MvmQ would hold {held + chain.pushes} words and has {config.mvmq_words}")
