"""Bins of functional coverage for machines with Dram: tiles of vectors, packed tiles, and what moves as it is."""

from collections.abc import Iterator

from concord.spec.isa.chain import Chain
from concord.spec.isa.instructions import Op
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config

_MODES = ("block", "integer")
_SHAPES = (
    "tiles of vectors: several", "tiles of vectors: a whole one", "tiles of vectors: fewer vectors",
    "tiles of vectors: short vectors", "tiles of vectors: at a later place", "tiles of vectors: the same vector again",
    "tiles of vectors: next tiles begin within others", "packed tiles: several", "packed tiles: the same again",
    "Dram beyond 16 bits", "Dram up to its end")
_MOVES = ("VectorRf to Dram", "Dram to VectorRf")
#: What base registers move in programs of these machines.
_BASES = (
    "base: m_rd of words", "base: m_rd of Dram", "base: m_wr of tiles", "base: mv_mul of tiles", "base: v_rd of Dram",
    "base: v_wr of Dram", "base: tiles of vectors moved by a loop", "base: packed tiles moved by a loop")


def dram_bins(config: Config) -> set[str]:
    """Every bin that `bins_of` and `entry_coverage.base_bins` may give for this machine, beside those without Dram."""
    if not config.dram_words:
        return set()
    found = {*_SHAPES, *_BASES, "raw: Dram to BiasRf"}
    found |= {f"tiles of vectors: {kind}, {mode}" for kind in ("rows", "columns") for mode in _MODES}
    found |= {f"packed tiles: {kind}, {mode}" for kind in ("whole", "diagonal") for mode in _MODES}
    if config.vector_rf:
        found |= {f"raw: {move}, {mode}" for move in _MOVES for mode in _MODES}
    return found - {"tiles of vectors: at a later place"} if config.vector_words == 1 else found


def bins_of(config: Config, chain: Chain) -> Iterator[str]:
    """The bins of one chain."""
    source, target = chain.source, chain.target
    mode = _MODES[bool(source.integer or target.integer)]
    if chain.builds:
        yield f"tiles of vectors: {'columns' if target.transposed else 'rows'}, {mode}"
        yield from (f"tiles of vectors: {name}" for name, true in _made(config, chain).items() if true)
    elif chain.loads and source.mem == Mem.DRAM:
        yield f"packed tiles: {'diagonal' if target.diagonal else 'whole'}, {mode}"
        if len(chain.tiles) > 1:
            yield "packed tiles: several" if source.inc else "packed tiles: the same again"
    elif chain.moves:
        names = f"{Mem(source.mem).title} to {Mem(target.mem).title}"
        yield f"raw: {names}" if target.mem == Mem.BIAS_RF else f"raw: {names}, {mode}"
    spans = [chain.source_span()] * (source.mem == Mem.DRAM)
    spans += [chain.result_span(i) for i in chain.instructions if i.op == Op.V_WR and i.mem == Mem.DRAM]
    for span in spans:
        if span.stop > 1 << 16:
            yield "Dram beyond 16 bits"
        if span.stop == config.dram_words:
            yield "Dram up to its end"


def _made(config, chain):
    """Facts on tiles that are made of vectors."""
    r, count = chain.registers, len(chain.tiles)
    vectors = r.iterations // count
    whole = vectors == config.native_dim and r.rows == config.native_dim
    return {
        "several": count > 1, "a whole one": whole, "fewer vectors": vectors < config.native_dim,
        "short vectors": r.rows < config.native_dim, "at a later place": chain.source.a % config.vector_words,
        "the same vector again": vectors > 1 and not (chain.source.inc and r.stride_x),
        "next tiles begin within others": count > 1 and chain.source.inc and (
            r.stride_y < (vectors - 1) * r.stride_x + config.vector_words)}
