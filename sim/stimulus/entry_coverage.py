"""Bins of functional coverage for VectorRf, windows, the pooling unit and base registers."""

from collections.abc import Iterator

import numpy as np
from concord.spec.isa.chain import Chain
from concord.spec.isa.instructions import Instruction, Op, decode
from concord.spec.isa.memories import VRFS, Mem
from concord.spec.machine.config import Config

_MODES = ("block", "integer", "unsigned")
#: What an address names, by its memory.
_BASED = {Mem.VECTOR_RF: "entries", Mem.MATRIX_RF: "tiles", Mem.DRAM: "Dram", **dict.fromkeys(VRFS, "words")}
_SOURCES = ("words", "NetQ", "MvmQ", "product", "product of entries", "entries", "pool of words", "pool of entries")
_TARGETS = ("words", "NetQ", "VectorRf")
_SHAPES = (
    "windows of several rows", "windows of pixels of several entries", "windows that overlap",
    "window whose pixels overlap", "WindowStep 0", "WindowStep beyond a pixel", "WindowPitch 0 of several rows",
    "WindowGroup", "StrideX 0 of entries", "StrideX beyond a window", "source ends at the last entry",
    "write ends at the last entry", "StrideVec 0", "StrideVec beyond the entries", "SkipVec", "several entries written",
    "short last entry", "pool of one pixel", "columns beyond operand_columns")
#: What random programs must reach on a machine with VectorRf.
BASE_BINS = frozenset(
    [f"base: {name} of {memory}" for name in ("v_rd", "v_wr") for memory in ("words", "entries")]
    + ["base: operand", "base: two in one chain", "base: moved by a loop", "base: product moved by a loop",
       "base: of VectorRf moved by a loop"])


def entry_bins(config: Config) -> set[str]:
    """Every bin that `bins_of` may give for this machine."""
    if not config.vector_rf:
        return set()
    found, targets = set(_SHAPES), (*_TARGETS, *("Dram",) * bool(config.dram_words))
    found |= {f"{source} to VectorRf, {mode}" for source in _SOURCES for mode in _MODES}
    found |= {f"{source}, {mode}, to {target}" for source in ("entries", "pool of entries") for mode in _MODES
              for target in targets}
    found |= {f"product of entries, {mode}, to {target}" for mode in _MODES[:2] for target in (*targets, "MvmQ")}
    found |= {f"pool of words to {target}" for target in targets}
    if config.vector_words == 1:
        found -= {"short last entry"}  # an entry has one word
    if config.matrix_tiles <= config.operand_columns:
        found -= {"columns beyond operand_columns"}
    return found | ({"bank conflict", "no bank conflict"} if config.tile_engines > 1 else set())


def bins_of(config: Config, chain: Chain, columns: np.ndarray | None) -> Iterator[str]:
    """The bins of one chain.

    Args:
        columns: Addresses int64[..., columns] of a product of VectorRf; None for other chains.
    """
    kind, mode = _kind(chain), _mode(chain.product or chain.source)
    for instruction in chain.instructions:
        if instruction.op != Op.V_WR:
            continue
        mem = Mem(instruction.mem)
        target = "words" if mem in VRFS else mem.title
        if mem == Mem.VECTOR_RF:
            yield f"{kind} to VectorRf, {_mode(instruction)}"
            yield from _written(config, chain, instruction)
        if kind in ("entries", "pool of entries", "product of entries"):
            yield f"{kind}, {mode}, to {target}"
        if kind == "pool of words":
            yield f"pool of words to {target}"
    if chain.source.mem == Mem.VECTOR_RF or chain.pools:
        yield from _read(config, chain)
    if columns is not None and config.tile_engines > 1:
        yield from _banks(config, columns)


def _kind(chain):
    if chain.product:
        return "product of entries" if chain.source.mem == Mem.VECTOR_RF else "product"
    kind = {Mem.VECTOR_RF: "entries", Mem.NET_Q: "NetQ", Mem.MVM_Q: "MvmQ"}.get(chain.source.mem, "words")
    return f"pool of {kind}" if chain.pools else kind


def _mode(instruction):
    return _MODES[instruction.integer + (instruction.unsigned and instruction.op != Op.MV_MUL)]


def _written(config, chain, write):
    registers = chain.registers
    facts = {
        "write ends at the last entry": chain.result_span(write).stop == config.vector_rf,
        "several entries written": chain.entries > 1,
        "short last entry": chain.result_words % config.vector_words,
    }
    if write.inc and registers.iterations > 1:
        facts |= {"StrideVec 0": registers.stride_vec == 0,
                  "StrideVec beyond the entries": registers.stride_vec > chain.entries,
                  "SkipVec": registers.skip_vec and registers.iterations > registers.iterations_x}
    yield from (name for name, true in facts.items() if true)


def _read(config, chain):
    r, product = chain.registers, chain.product
    windows = chain.windowed or chain.pools
    pixel = r.window_vectors if chain.windowed else chain.entries if chain.source.mem == Mem.VECTOR_RF else (
        chain.result_words)
    extent = (r.window_x - 1) * r.window_step + pixel if windows else chain.source_extent
    moves = chain.source.inc and r.iterations_x > 1
    facts = {
        "columns beyond operand_columns": product and r.columns > config.operand_columns,
        "source ends at the last entry": chain.source.mem == Mem.VECTOR_RF
        and chain.source_span().stop == config.vector_rf,
        "StrideX 0 of entries": moves and r.stride_x == 0, "StrideX beyond a window": moves and r.stride_x > extent,
    }
    if windows:
        facts |= {
            "windows of several rows": r.window_y > 1,
            "pool of one pixel": chain.pools and r.window_x * r.window_y == 1,
            "windows of pixels of several entries": chain.windowed and r.window_vectors > 1,
            "windows that overlap": moves and 0 < r.stride_x < extent and r.window_x > 1,
            "window whose pixels overlap": r.window_x > 1 and 0 < r.window_step < pixel,
            "WindowStep 0": r.window_x > 1 and r.window_step == 0,
            "WindowStep beyond a pixel": r.window_x > 1 and r.window_step > pixel,
            "WindowPitch 0 of several rows": r.window_y > 1 and r.window_pitch == 0,
            "WindowGroup": chain.windowed and chain.row_tiles > 1 and r.window_group > 0}
    yield from (name for name, true in facts.items() if true)


def _banks(config, columns):
    rows, engines = columns.reshape(-1, columns.shape[-1]), config.tile_engines
    for first in range(0, rows.shape[1], engines):
        banks = np.sort(rows[:, first:first + engines] % engines, axis=1)
        conflict = bool((banks[:, 1:] == banks[:, :-1]).any())
        if banks.shape[1] > 1:
            yield "bank conflict" if conflict else "no bank conflict"


def base_bins(program: list[int], chain: Chain, earlier: dict[int, tuple[Instruction, ...]]) -> Iterator[str]:
    """The bins that a chain hits.

    Args:
        earlier: The instructions of the last chain at each address; this one joins them.
    """
    body = [decode(program[chain.address + k]) for k in range(len(chain.instructions))]
    for instruction in body:
        if instruction.base and (kind := _BASED.get(Mem.MATRIX_RF if instruction.op == Op.MV_MUL else instruction.mem)):
            yield f"base: {instruction.op.name.lower()} of {kind}"
        elif instruction.base:
            yield "base: operand"
    if len({instruction.base for instruction in body} - {0}) > 1:
        yield "base: two in one chain"
    if earlier.get(chain.address, chain.instructions) != chain.instructions:
        yield "base: moved by a loop"
        if chain.product:
            yield "base: product moved by a loop"
        if chain.loads:
            yield f"base: {'tiles of vectors' if chain.builds else 'packed tiles'} moved by a loop"
        if any(instruction.mem == Mem.VECTOR_RF and instruction.base for instruction in body):
            yield "base: of VectorRf moved by a loop"
    earlier[chain.address] = chain.instructions
