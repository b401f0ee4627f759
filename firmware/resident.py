"""Firmware that loads tiles from Dram, as one of a machine whose MatrixRf holds all of them."""

from dataclasses import replace

import numpy as np
from concord.firmware.firmware import Firmware, Section, Tiles
from concord.golden.schedule.dram import unpack_tile
from concord.spec.isa.chain import Chain
from concord.spec.isa.check import Sequencer
from concord.spec.isa.disassembler import disassemble
from concord.spec.isa.instructions import ADDRESS_BITS, Instruction, Op, decoded, encode
from concord.spec.isa.memories import Mem


class _Tiles:
    """The tiles of a program: those that the firmware brings, and those that it loads, each once."""

    def __init__(self, firmware: Firmware):
        self.firmware, self.config = firmware, firmware.config
        self.count = len(firmware.tiles.mantissas)
        self.mantissas, self.exponents = [firmware.tiles.mantissas], [firmware.tiles.exponents]
        self.integer = [firmware.tiles.integer]
        self.present = {tile: tile for tile in range(self.count)}  #: Which one each tile of MatrixRf holds.
        self._loaded: dict[tuple, int] = {}

    def load(self, chain: Chain):
        """Note what a chain loads."""
        target = chain.target
        integer, diagonal = bool(target.integer), bool(target.diagonal)
        key = chain.source.a, chain.source.inc, chain.registers.iterations, integer, diagonal
        if key not in self._loaded:
            self._loaded[key] = self.count
            for iteration in range(chain.registers.iterations):
                first = chain.source.a + chain.source_offset(iteration)
                words = self.firmware.vectors[Mem.DRAM][first:first + chain.outside]
                mantissas, stored = unpack_tile(self.config, words, integer=integer, diagonal=diagonal)
                self.mantissas.append(mantissas[None].astype(self.mantissas[0].dtype))
                self.exponents.append((stored + self.config.weights.e_min)[None].astype(np.int8))
                self.integer.append(np.array([integer]))
            self.count += chain.registers.iterations
        self.present |= {tile: self._loaded[key] + k for k, tile in enumerate(chain.tiles)}

    def make(self, chain: Chain) -> int:
        """Note what a chain makes of vectors; returns the index of its first tile, where no other chain puts any."""
        key, count = (chain.address,), len(chain.tiles)
        if key not in self._loaded:
            self._loaded[key] = self.count
            self.mantissas.append(np.zeros((count, *self.mantissas[0].shape[1:]), self.mantissas[0].dtype))
            self.exponents.append(np.full((count, *self.exponents[0].shape[1:]), self.config.weights.e_min, np.int8))
            self.integer.append(np.zeros(count, bool))
            self.count += count
        self.present |= {tile: self._loaded[key] + k for k, tile in enumerate(chain.tiles)}
        return self._loaded[key]

    def all(self) -> Tiles:
        """All tiles."""
        return Tiles(mantissas=np.concatenate(self.mantissas), exponents=np.concatenate(self.exponents),
                     integer=np.concatenate(self.integer))


def resident(firmware: Firmware) -> Firmware:
    """The same firmware for a machine that holds all tiles: it loads none, and gives the same bits.

    Returns:
        The firmware itself, if it loads no tiles, or takes some from the host, or if what a product multiplies by
        changes from pass to pass of a loop, or depends on what the program writes to Dram.
    """
    instructions = list(decoded(firmware.instruction_words.tolist()))
    loads = {k for k, one in enumerate(instructions) if one.op == Op.M_RD and one.mem == Mem.DRAM}
    others = any(one.op == Op.M_RD and one.mem == Mem.NET_Q or one.op == Op.MV_MUL and one.base for one in instructions)
    if not loads or others:
        return firmware
    writes = any(one.op == Op.V_WR and one.mem == Mem.DRAM for one in instructions)
    tiles, indices = _Tiles(firmware), {}
    words = firmware.instruction_words.tolist()
    for chain in Sequencer(firmware.config, words, firmware.tiles.modes(firmware.config)).walk():
        if chain.address in loads:
            if writes and _end(chain) > firmware.constant_words:
                return firmware
            tiles.load(chain)
        elif chain.builds and instructions[chain.address + 1].base:
            return firmware
        elif chain.builds:
            indices[chain.address + 1] = tiles.make(chain)
        elif chain.product:
            held = [tiles.present.get(tile, -1) for tile in chain.tiles]
            wanted = list(range(held[0], held[0] + len(held)))
            if held != wanted or indices.setdefault(chain.address + 1, held[0]) != held[0]:
                return firmware
    return _without(firmware, instructions, loads, indices, tiles)


def _end(chain: Chain) -> int:
    """Address after the last word of Dram that a chain loads."""
    return max(chain.source.a + chain.source_offset(k) for k in range(chain.registers.iterations)) + chain.outside


def _without(firmware: Firmware, instructions: list[Instruction], loads: set[int], indices: dict[int, int],
             tiles: _Tiles) -> Firmware:
    """The firmware without loads, whose products multiply by other tiles."""
    if tiles.count >> ADDRESS_BITS:
        return firmware
    left, index = [], []
    for k, one in enumerate(instructions):
        index.append(len(left))
        if not any(k - back in loads for back in range(3)):  # m_rd, m_wr, end_chain
            left.append(replace(one, a=indices[k]) if k in indices else one)
    index.append(len(left))
    words, engines = [encode(one) for one in left], firmware.config.tile_engines
    held = -(-tiles.count // engines) * engines  # as many as a machine can have
    sections = [Section(layer=one.layer, first=index[one.first], last=index[one.last + 1] - 1, kind=one.kind,
                        names=tuple((index[address], name) for address, name in one.names))
                for one in firmware.sections]
    other_reads = any(one.op == Op.V_RD and one.mem == Mem.DRAM for one in left)
    vectors = {mem: values for mem, values in firmware.vectors.items() if other_reads or mem is not Mem.DRAM}
    return replace(
        firmware, config=replace(firmware.config, matrix_tiles=max(firmware.config.matrix_tiles, held)),
        loop=None if firmware.loop is None else index[firmware.loop], text=disassemble(words),
        instruction_words=np.array(words, np.uint64), vectors=vectors, tiles=tiles.all(),
        sections=tuple(one for one in sections if one.last >= one.first),
        constant_words=firmware.constant_words if other_reads else 0)
