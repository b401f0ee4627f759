"""Functional coverage of random programs: bins for the instructions, sizes and hazards that a program exercises."""

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise, product

import numpy as np
from concord.golden.schedule.vectorisation import plan
from concord.sim.stimulus import dram_coverage
from concord.sim.stimulus.entry_coverage import BASE_BINS, base_bins, bins_of, entry_bins
from concord.sim.stimulus.faults import errors
from concord.sim.stimulus.programs import Case
from concord.spec.isa.chain import Chain
from concord.spec.isa.check import Sequencer
from concord.spec.isa.instructions import (
    BASES,
    LOOP_DEPTH,
    REGISTER_NAMES,
    SPECS,
    Instruction,
    Op,
    OperandKind,
    Reg,
    decode,
    specs,
)
from concord.spec.isa.memories import ADDRESSED, MEMORY_NAMES, Mem, depth, present
from concord.spec.isa.rules import Violation
from concord.spec.machine.config import Config

NEAR = 4  #: Hazards are looked for between chains that are at most this far apart.
_WRITERS, _READERS = ("mfu", "copy"), ("fetch", "mfu", "copy")
#: Readers of VectorRf, and its writer.
_ENTRY_READERS, _ENTRY_WRITER = ("columns", "gather of entries"), "entries"
_VECTORS = "vectors of tiles"  #: What reads them.
_WITHIN = ("read after write", "write after read", "write after write", "operand written by its own word")
_BETWEEN = (Op.LOOP, Op.END_LOOP, Op.END, Op.END_CHAIN)
_SHAPES = ("bias", "unsigned", "integer mode", "block mode", "several row tiles", "several columns", "iterations",
           "iterations along x and y", "MvmQ of several pushes", "three writes", "tap", "loop", "nested loops",
           "loops as deep as they nest")


def bins(case: Case) -> set[str]:
    """The bins that a case hits."""
    found = {f"error {case.error.name}"} if case.error else set()
    found |= set(_between_chains(case))
    near: deque[_Uses] = deque(maxlen=NEAR)
    sequencer, held, pushes = Sequencer(case.config, list(case.program), list(case.modes)), 0, 0
    last: dict[int, tuple[Instruction, ...]] = {}
    with suppress(Violation):
        for chain in sequencer.walk():
            found |= set(base_bins(case.program, chain, last))
            found |= set(_operations(chain)) | set(_shape(case.config, chain))
            found |= set(dram_coverage.bins_of(case.config, chain))
            uses = _Uses(case.config, chain)
            for earlier in near:
                found |= set(_hazards(earlier, uses))
            near.append(uses)
            pushes = pushes + 1 if chain.pushes else 0 if sequencer.held == 0 else pushes
            if chain.pops and held and pushes > 1:
                found.add("MvmQ of several pushes")
            held = sequencer.held
    return found


def all_bins(config: Config) -> set[str]:
    """Every bin that programs of this machine can hit."""
    found = {f"error {error.name}" for error in errors(config)} | set(_SHAPES)
    found |= {f"s_wr {REGISTER_NAMES[reg]}" for reg in Reg} | {"loop", "end_loop", "end", "end_chain"}
    for op, spec in specs(config).items():
        for mem in spec.mems_on(present(config)) or ((spec.operand,) if spec.operand else ()):
            if not depth(config, mem):
                continue
            found.add(f"{op.name.lower()} {MEMORY_NAMES[mem]}")
            if "inc" in spec.fields and mem in (*ADDRESSED, Mem.BIAS_RF):
                found.add(f"{op.name.lower()}_inc {MEMORY_NAMES[mem]}")
        if spec.operation and not spec.operand:
            found.add(op.name.lower())
    found |= {"mv_mul MatrixRf", "mv_mul BiasRf"} | BASE_BINS | {f"s_add {REGISTER_NAMES[reg]}" for reg in BASES}
    readers = _READERS + ("gather of words",) * bool(config.vector_rf) + (_VECTORS,) * bool(config.dram_words)
    found |= _hazard_bins(readers, _WRITERS) | dram_coverage.dram_bins(config)
    if config.vector_rf:
        found |= _hazard_bins(_ENTRY_READERS, (_ENTRY_WRITER,)) | entry_bins(config) | {"v_pool_max"}
    if config.softmax_words:
        found.add("v_softmax")
    if config.more_functions:
        found.add("held operand")
    found |= {"tiles: product after load", "tiles: load after product", "tiles: load after load"}
    found |= {f"within a chain: {hazard}" for hazard in _WITHIN}
    return found | ({"padding lanes"} if config.mfu_lanes > 1 else set())


def _hazard_bins(readers, writers) -> set[str]:
    found = {f"read after write: {r} after {w}" for r, w in product(readers, writers)}
    found |= {f"write after read: {w} after {r}" for r, w in product(readers, writers)}
    return found | {f"write after write: {b} after {a}" for a, b in product(writers, writers)}


def _between_chains(case: Case) -> Iterator[str]:
    """Bins of the instructions between chains, up to the instruction at which the program stops."""
    depth = 0
    end = case.violation.address if case.violation else len(case.program)
    for word in case.program[:end]:
        instruction = decode(word)
        if instruction.op == Op.S_WR:
            yield f"s_wr {REGISTER_NAMES[Reg(instruction.mem)]}"
        elif instruction.op == Op.S_ADD:
            yield f"s_add {REGISTER_NAMES[Reg(instruction.mem)]}"
        elif SPECS[instruction.op].kind is OperandKind.NONE and instruction.op in _BETWEEN:
            yield instruction.op.name.lower()
        depth += (instruction.op == Op.LOOP) - (instruction.op == Op.END_LOOP)
        if depth:
            yield "loop" if depth == 1 else "nested loops"
        if depth == LOOP_DEPTH:
            yield "loops as deep as they nest"


def _operations(chain: Chain) -> Iterator[str]:
    """Bins of opcodes with their memories."""
    for instruction in chain.instructions:
        name, spec = instruction.op.name.lower() + "_inc" * instruction.inc, SPECS[instruction.op]
        if instruction.op == Op.MV_MUL:
            yield "mv_mul MatrixRf"
            if instruction.bias:
                yield "mv_mul BiasRf"
        elif mem := instruction.mem or spec.operand:
            yield f"{name} {MEMORY_NAMES[Mem(mem)]}"
        else:
            yield name


def _shape(config: Config, chain: Chain) -> Iterator[str]:
    """Bins of sizes and modes."""
    mul, registers = chain.product, chain.registers
    writes = sum(i.op == Op.V_WR for i in chain.instructions)
    facts = {
        "several row tiles": chain.row_tiles > 1, "several columns": mul and registers.columns > 1,
        "integer mode": mul and mul.integer, "block mode": mul and not mul.integer,
        "bias": mul and mul.bias, "unsigned": mul and mul.unsigned,
        "iterations": registers.iterations > 1, "three writes": writes == 3,
        "iterations along x and y": chain.source.inc and 1 < registers.iterations_x < registers.iterations,
        "held operand": any(i.held for i in chain.instructions),
        "padding lanes": not chain.loads and chain.last_lanes < config.mfu_lanes,
        "tap": any(a.op == Op.V_WR and SPECS[b.op].operation for a, b in pairwise(chain.instructions)),
    }
    yield from (name for name, true in facts.items() if true)
    if not chain.loads:
        yield from _within(config, chain)
        columns = plan(config, chain).addresses[0] if mul and chain.source.mem == Mem.VECTOR_RF else None
        yield from bins_of(config, chain, columns)


class _Uses:
    """The accesses of a chain: by reader and by writer, sets of (memory, address)."""

    def __init__(self, config: Config, chain: Chain):
        self.loads, self.tiles = chain.loads, set(chain.tiles)
        pointwise = any(SPECS[i.op].operation for i in chain.instructions)
        entries = any(i.op == Op.V_WR and i.mem == Mem.VECTOR_RF for i in chain.instructions)
        copies = not (pointwise or chain.product or chain.gathers or entries) and chain.source.mem != Mem.MVM_Q
        pipeline = "copy" if copies else "mfu"
        self.reads, self.writes = {}, {}
        for index, instruction, addresses in _addresses(config, chain):
            mem = instruction.mem or SPECS[instruction.op].operand
            if instruction.op == Op.V_WR:
                accesses, unit = self.writes, _ENTRY_WRITER if mem == Mem.VECTOR_RF else pipeline
            else:
                accesses, unit = self.reads, pipeline if index else _reader(chain) or pipeline
            if index == 0 and chain.gathers and mem == Mem.VECTOR_RF:
                addresses = addresses // config.vector_words  # of words
            accesses.setdefault(unit, set()).update((mem, address) for address in addresses.reshape(-1).tolist())


def _reader(chain: Chain) -> str | None:
    """The unit that reads the source of a chain, if it is not the pipeline that runs the chain."""
    entries = chain.source.mem == Mem.VECTOR_RF
    if chain.builds:
        return _VECTORS
    if chain.product:
        return "columns" if entries else "fetch"
    return f"gather of {'entries' if entries else 'words'}" if chain.gathers else None


def _addresses(config, chain):
    """Position, instruction and addresses of every access of a chain to a memory with addresses."""
    if chain.loads and not chain.builds:
        return []
    return [(k, i, a) for k, (i, a) in enumerate(zip(chain.instructions, plan(config, chain).addresses, strict=True))
            if a is not None]


def _hazards(earlier: _Uses, later: _Uses) -> Iterator[str]:
    """Bins of hazards between two chains."""
    for writer, written in earlier.writes.items():
        yield from (f"read after write: {r} after {writer}" for r, read in later.reads.items() if written & read)
        yield from (f"write after write: {w} after {writer}" for w, other in later.writes.items() if written & other)
    for reader, read in earlier.reads.items():
        yield from (f"write after read: {w} after {reader}" for w, written in later.writes.items() if read & written)
    if earlier.tiles & later.tiles and (earlier.loads or later.loads):
        yield f"tiles: {_tile_use(later)} after {_tile_use(earlier)}"


def _tile_use(uses: _Uses) -> str:
    return "load" if uses.loads else "product"


def _within(config: Config, chain: Chain) -> Iterator[str]:
    """Bins of hazards between words of one chain."""
    uses = _addresses(config, chain)
    for writing, write, written in uses:
        if write.op != Op.V_WR:
            continue
        if len(np.unique(written)) < len(written):
            yield "within a chain: write after write"
        for reading, read, addresses in uses:
            if read.op == Op.V_WR or (read.mem or SPECS[read.op].operand) != write.mem:
                continue
            if reading == 0 and chain.gathers:
                continue  # no chain writes what it gathers
            step = chain.result_words if chain.product and reading == 0 else 1
            reads = np.arange(len(addresses)) * step
            p, q = np.nonzero((written[:, None, None] == addresses.reshape(len(reads), -1)).any(-1))
            if (p < reads[q]).any():
                yield "within a chain: read after write"
            if (p > reads[q]).any():
                yield "within a chain: write after read"
            if writing < reading and (p == reads[q]).any():
                yield "within a chain: operand written by its own word"
