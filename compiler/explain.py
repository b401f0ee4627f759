"""What a compiled network does, layer by layer: chains, addresses in memories, and the work of each unit in cycles.

Units work beside each other, and wait for each other: `firmware.timing` has the cycles that a layer takes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from concord.firmware.firmware import Firmware
from concord.golden.mvm.elements import marks
from concord.golden.schedule.dram import unpack_tile
from concord.spec.isa.chain import Chain
from concord.spec.isa.check import Sequencer
from concord.spec.isa.instructions import Op
from concord.spec.isa.memories import ADDRESSED, MEMORY_NAMES, Mem


@dataclass(kw_only=True, slots=True, eq=False)
class LayerWork:
    """The work of one layer.

    Attributes:
        layer:    Name of the layer; empty for the network's input.
        chains:   Number of chains that run.
        beats:    Cycles in which the tile engines multiply.
        conflict: Cycles by which the banks of VectorRf lengthen them.
        words:    Words that pass through the multi-function units, or the pooling unit in front of them.
        copied:   Words that the copy pipeline moves past them at the same time.
        loaded:   Words of tiles that are loaded from Dram for its products, while those before are multiplied.
        moved:    Words of numbers that it reads from Dram and writes to it.
        loads:    Cycles in which the bus of Dram, or the rows of these tiles, come at best.
        reads:    First and last address of each memory that its sources read.
        writes:   First and last address of each memory that it writes.
    """

    layer: str
    chains: int = 0
    beats: int = 0
    conflict: int = 0
    words: int = 0
    copied: int = 0
    loaded: int = 0
    moved: int = 0
    loads: int = 0
    reads: dict[Mem, range] = field(default_factory=dict)
    writes: dict[Mem, range] = field(default_factory=dict)

    @property
    def busiest(self) -> int:
        """Cycles in which the unit works that works the longest: the layer takes no fewer."""
        return max(self._takes.values())

    @property
    def bound(self) -> str:
        """What that unit does."""
        return max(self._takes, key=self._takes.get)

    @property
    def _takes(self) -> dict[str, int]:
        """Cycles in which each unit works."""
        return {"products": self.beats + self.conflict, "MFU words": self.words, "copies": self.copied,
                "loads": self.loads}

    def addresses(self, spans: dict[Mem, range]) -> str:
        """Addresses in memories, in words or entries, one memory on each line."""
        return "\n".join(MEMORY_NAMES[mem] + (f" {span.start}..{span.stop - 1}" if span else "")
                         for mem, span in sorted(spans.items()))


def explain(firmware: Firmware) -> list[LayerWork]:
    """The work of each layer, in the order in which the layers begin.

    A recurrent layer makes one time step, unless the number of time steps is fixed.
    """
    config, found = firmware.config, {}
    zero_marks = np.zeros(config.matrix_tiles, np.int64)
    zero_marks[: len(firmware.tiles.mantissas)] = marks(config, firmware.tiles.mantissas)
    chains, begun = list(_chains(firmware)), {}
    of_loads = _layers_of_loads(firmware, chains)
    for number, chain in enumerate(chains):
        loads = number in of_loads
        name = of_loads[number] if loads else firmware.layer_at(chain.address)
        work = found.setdefault(name, LayerWork(layer=name))
        work.chains += 1
        count = chain.registers.iterations
        if loads:
            _load(firmware, chain, work, zero_marks)
            continue
        begun.setdefault(name, len(begun))
        if chain.builds:
            zero_marks[chain.tiles] = config.groups  # they count as full
            work.copied += count * chain.result_words + len(chain.tiles) * config.native_dim * config.vector_words
            _cover(work.reads, Mem(chain.source.mem), chain.source_span())
            continue
        if chain.product:
            beats, conflict = _beats(firmware, chain, zero_marks)
            work.beats += count * beats
            work.conflict += count * conflict
        if _copies(chain):
            work.copied += count * chain.result_words
        else:
            work.words += count * max(chain.result_words, chain.source_words if chain.pools else 0)
        outside = sum(one.op in (Op.V_RD, Op.V_WR) and one.mem == Mem.DRAM for one in chain.instructions)
        work.moved += outside * count * chain.result_words
        _cover(work.reads, Mem(chain.source.mem), chain.source_span() if chain.source.mem in ADDRESSED else range(0))
        for write in (instruction for instruction in chain.instructions if instruction.op == Op.V_WR):
            _cover(work.writes, Mem(write.mem), chain.result_span(write) if write.mem in ADDRESSED else range(0))
    return sorted(found.values(), key=lambda work: begun.get(work.layer, len(begun)))


def _layers_of_loads(firmware: Firmware, chains: Sequence[Chain]) -> dict[int, str]:
    """The layer that multiplies by the tiles of each chain that loads some from Dram, by the number of the chain."""
    found, waiting = {}, {}
    for number, chain in enumerate(chains):
        if chain.loads and chain.source.mem == Mem.DRAM:
            waiting[number] = chain.tiles
        elif chain.product:
            for load, tiles in list(waiting.items()):
                if tiles.start < chain.tiles.stop and chain.tiles.start < tiles.stop:
                    found[load] = firmware.layer_at(chain.address)
                    del waiting[load]
    return found | {number: firmware.layer_at(chains[number].address) for number in waiting}


def _load(firmware: Firmware, chain: Chain, work: LayerWork, zero_marks: np.ndarray):
    """Add a load to the work of a layer, and note the zero marks of its tiles."""
    config, target = firmware.config, chain.target
    for iteration, tile in enumerate(chain.tiles):
        first = chain.source.a + chain.source_offset(iteration)
        mantissas, _ = unpack_tile(config, firmware.vectors[Mem.DRAM][first:first + chain.outside],
                                   integer=bool(target.integer), diagonal=bool(target.diagonal))
        zero_marks[tile] = marks(config, mantissas)[0]
    words = chain.registers.iterations * chain.outside
    rows = chain.registers.iterations * config.native_dim * config.groups
    work.loaded += words
    work.loads += max(-(-words * 2 * config.mfu_lanes // config.dram_bus), rows)


def _copies(chain: Chain) -> bool:
    """Whether a chain only moves words between vector memories and NetQ."""
    moves = (Op.V_RD, Op.V_WR)
    return all(one.op in moves and one.mem not in (Mem.MVM_Q, Mem.VECTOR_RF) for one in chain.instructions)


def _chains(firmware: Firmware) -> Iterator[Chain]:
    words = [int(word) for word in firmware.instruction_words]
    return Sequencer(firmware.config, words, firmware.tiles.modes(firmware.config)).walk()


def _cover(spans: dict[Mem, range], mem: Mem, new: range):
    """Extend the range of a memory; that of a queue is empty."""
    old = spans.get(mem) or new
    spans[mem] = range(min(old.start, new.start), max(old.stop, new.stop))


def _beats(firmware: Firmware, chain: Chain, zero_marks: np.ndarray) -> tuple[int, int]:
    """Beats of one iteration of a product, and cycles that conflicts of banks add."""
    engines, columns = firmware.config.tile_engines, chain.registers.columns
    steps = -(-columns // engines)
    tiles = np.zeros((chain.row_tiles, steps * engines), np.int64)
    tiles[:, :columns] = zero_marks[chain.tiles.start : chain.tiles.stop].reshape(chain.row_tiles, columns)
    beats = tiles.reshape(chain.row_tiles, steps, engines).max(-1)
    if not chain.from_entries:
        return int(beats.sum()), 0
    banks = np.full(steps * engines, -1)
    banks[:columns] = [chain.column_offset(0, column) % engines for column in range(columns)]
    fullest = (banks.reshape(steps, engines, 1) == np.arange(engines)).sum(1).max(1)
    return int(beats.sum()), int(np.maximum(fullest - np.maximum(beats, 1), 0).sum())
