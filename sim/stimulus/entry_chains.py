"""Random chains that read or write VectorRf, or read in windows, and the addresses that such chains use, in order."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
from concord.sim.stimulus.dram_chains import any_dram_chain, dram_bases
from concord.spec.isa.assembler import assemble
from concord.spec.isa.chain import Chain
from concord.spec.isa.check import Sequencer, check
from concord.spec.isa.instructions import LOOP_DEPTH, Op, decode
from concord.spec.isa.memories import MEMORY_NAMES, VRFS, Mem, depth
from concord.spec.machine.config import Config

_SOURCES = ("entries", "words", "NetQ")
_MOST = 200  #: Most words that a chain of `chains_of_entries` reads.


def legal_chain(config: Config, rng: np.random.Generator, modes: list[bool]) -> list[int]:
    """The first legal one of many random chains."""
    while True:
        program = any_chain(config, rng, modes)
        if check([*program, *assemble("end")], config, modes) is None:
            return program


def moving_loops(config: Config, rng: np.random.Generator, modes: list[bool]) -> list[int]:
    """A chain in loops that move base registers; its first pass is legal."""
    words = legal_chain(config, rng, modes)
    start = next(k for k, word in enumerate(words) if decode(word).op != Op.S_WR)
    nesting = int(rng.integers(1, LOOP_DEPTH + 1))
    steps = (1, 1, 2, config.vector_words, -1, 400, *((70_000, -65_536) if config.dram_words else ()))
    moves = [f"s_add Base{rng.integers(1, 4)}, {rng.choice(steps)}"
             for _ in range(nesting)]
    loops = [f"loop {count}" for count in rng.integers(1, 4, nesting)]
    ends = [line for move in moves for line in (move, "end_loop")]
    return [*words[:start], *assemble("\n".join(loops)), *words[start:], *assemble("\n".join(ends))]


def chains_of_entries(config: Config, rng: np.random.Generator, count: int,
                      wanted: Callable[[Chain], bool] = lambda _: True) -> list[Chain]:
    """`count` short legal chains, each of a program of its own; chains that are not `wanted` are left out."""
    chains = []
    while len(chains) < count:
        modes = [bool(mode) for mode in rng.integers(0, 2, config.matrix_tiles)]
        program = [*legal_chain(config, rng, modes), *assemble("end")]
        chain = next(Sequencer(config, program, modes).walk())
        if wanted(chain) and chain.source_words * chain.registers.iterations <= _MOST:
            chains.append(chain)
    return chains


def any_chain(config: Config, rng: np.random.Generator, modes: list[bool]) -> list[int]:
    """A random chain after the `s_wr` of all its registers; many are legal, and many just miss it.

    Args:
        modes: For each tile, whether it is in integer mode.
    """
    shape = _shape(config, rng)
    bases = {f"Base{k}": int(rng.integers(6)) for k in (1, 2, 3)}
    if config.dram_words and rng.random() < 0.4:
        lines = [f"s_wr {name}, {value}" for name, value in (shape | dram_bases(config, rng)).items()]
        return assemble("\n".join([*lines, any_dram_chain(config, rng)]))
    source = _SOURCES[rng.choice(3, p=(0.6, 0.25, 0.15))]
    lines = [f"s_wr {name}, {value}" for name, value in (shape | bases).items()]
    lines += _source(config, rng, source) + _reader(config, rng, source, modes)
    operations = ("vv_add0 0", "v_relu0", "vv_mul0_inc 1", "vv_max1 2 + Base1", "v_sigm1")
    lines += [operation for operation in operations if rng.random() < 0.2]
    writes = [_write(config, rng, name) for name in rng.permutation(("VectorRf", "NetQ", "InitialVrf"))]
    lines += writes[:rng.integers(1, 4)]
    return assemble("\n".join([*lines, "end_chain"]))


def _shape(config, rng):
    """Values of all registers; IterationsX divides Iterations and the window has Columns entries, but for few."""
    along_x, along_y = int(rng.integers(1, 4)), int(rng.choice((1, 1, 2, 3)))
    vectors, x, y = (int(rng.integers(1, most + 1)) for most in (2, 3, 2))
    rows = int(rng.integers(1, 2 * config.native_dim + 2))
    entries = config.vectors_of(rows)
    steps = (0, 1, vectors, vectors + 1, x * vectors, 2 * entries)
    shape = {"Rows": rows, "Columns": vectors * x * y, "Iterations": along_x * along_y, "IterationsX": along_x,
             "WindowVectors": vectors, "WindowX": x, "WindowY": y}
    shape |= {name: int(rng.choice(steps)) for name in (
        "WindowStep", "WindowPitch", "WindowGroup", "StrideX", "StrideY", "StrideVec", "SkipVec", "StrideOut")}
    if rng.random() < 0.15:
        shape[str(rng.choice(list(shape)))] = int(rng.choice((0, 1, 3, rng.integers(1 << 16), 65535)))
    return shape


def _source(config, rng, source):
    inc = "_inc" if rng.random() < 0.7 else ""
    if source == "NetQ":
        return ["v_rd NetQ"]
    mem = Mem.VECTOR_RF if source == "entries" else VRFS[rng.integers(len(VRFS))]
    mode = str(rng.choice(("", "", ", integer", ", integer, unsigned"))) if source == "entries" else ""
    return [f"v_rd{inc} {MEMORY_NAMES[mem]}, {_address(config, rng, mem)}{mode}"]


def _reader(config, rng, source, modes):
    """The instruction after the source, which reads entries or windows; none if the source is read as it is."""
    tile = int(rng.integers(config.matrix_tiles // 2))
    product = f"mv_mul {tile}{', integer' if modes[tile] else ''}"
    choices = {"entries": [product, f"{product}, window", f"{product}, window", "v_pool_max", ""],
               "words": [product, "v_pool_max", "v_pool_max", "v_pool_max", ""], "NetQ": [product, "", ""]}[source]
    chosen = str(rng.choice(choices))
    return [chosen] if chosen else []


def _write(config, rng, name):
    if name == "NetQ":
        return "v_wr NetQ"
    mem = Mem.VECTOR_RF if name == "VectorRf" else VRFS[rng.integers(len(VRFS))]
    mode = str(rng.choice(("", ", integer", ", integer, unsigned"))) if mem == Mem.VECTOR_RF else ""
    return f"v_wr{'_inc' if rng.random() < 0.7 else ''} {MEMORY_NAMES[mem]}, {_address(config, rng, mem)}{mode}"


def _address(config, rng, mem):
    """An address, often a low one or one with a base register; of words, often a multiple of a native vector."""
    size = max(1, depth(config, mem))  # a machine without VectorRf refuses the instruction itself
    address = int(rng.integers(size) if rng.random() < 0.5 else rng.integers(min(size, 8)))
    step = config.vector_words if mem != Mem.VECTOR_RF and rng.random() < 0.5 else 1
    base = f" + Base{rng.integers(1, 4)}" if rng.random() < 0.3 else ""
    return f"{address // step * step}{base}"


class Pixel(NamedTuple):
    """One word of one pixel.

    Attributes:
        iteration: Number of the iteration.
        word:      Number of the word of the chain within the iteration.
        address:   Address of the word, or of the entry.
        part:      Number of the word within its entry; 0 in a vector memory.
        first:     Whether the pixel is the first of its window.
        last:      Whether the pixel is the last of its window.
    """

    iteration: int
    word: int
    address: int
    part: int
    first: bool
    last: bool


def pixels(chain: Chain, vector_words: int) -> Iterator[Pixel]:
    """Yield the pixels that a chain gathers; `vector_words` is the number of words of an entry."""
    r, in_entries = chain.registers, chain.source.mem == Mem.VECTOR_RF
    window = [(x, y) for y in range(r.window_y) for x in range(r.window_x)] if chain.pools else [(0, 0)]
    for iteration, word in product(range(r.iterations), range(chain.result_words)):
        offset, part = divmod(word, vector_words) if in_entries else (word, 0)
        for number, pixel in enumerate(window):
            address = chain.source.a + chain.source_offset(iteration) + offset + chain.pixel_offset(*pixel)
            yield Pixel(iteration, word, address, part, number == 0, number == len(window) - 1)


def columns(chain: Chain) -> np.ndarray:
    """Addresses int64[iterations, row_tiles, columns] of the columns of a product from VectorRf."""
    r = chain.registers
    return np.array([[[
        chain.source.a + chain.source_offset(iteration) + chain.column_offset(row_tile, column)
        for column in range(r.columns)] for row_tile in range(chain.row_tiles)] for iteration in range(r.iterations)])


def written_entries(chain: Chain, vector_words: int) -> dict[tuple[int, int], int]:
    """The address of the entry that each word completes, by (iteration, index of the word); empty if it writes none."""
    found = {}
    for instruction in chain.instructions:
        if instruction.op == Op.V_WR and instruction.mem == Mem.VECTOR_RF:
            for iteration, entry in product(range(chain.registers.iterations), range(chain.entries)):
                last = min((entry + 1) * vector_words, chain.result_words) - 1
                found[iteration, last] = instruction.a + chain.offset(instruction, iteration) + entry
    return found
