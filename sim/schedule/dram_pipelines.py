"""The pipelines from and to Dram in Python, beside those of `sim.reference.pipelines`, and their jobs."""

from collections import deque

from concord.hw.lib.payloads import DRAM, ENTRIES
from concord.sim.reference.memory_order import MemoryOrder
from concord.sim.reference.pipelines import ReferencePipelines, Writer
from concord.sim.stimulus.chains import chain_words, pipelines
from concord.spec.isa.chain import Chain
from concord.spec.isa.instructions import Instruction, Op
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config

#: The pipeline of each job that machines without Dram do not have.
PIPE = {"read_words": "reads", "store_words": "stores", "tile_words": "load", "load": "load", "move": "move"}


def store(chain: Chain) -> Instruction | None:
    """The write to Dram of a chain, if it has one."""
    return next((i for i in chain.instructions if i.op == Op.V_WR and i.mem == Mem.DRAM), None)


def routes(chain: Chain) -> tuple[str, ...]:
    """Names of the pipelines that a chain runs through."""
    if chain.moves:
        return ("move",)
    if chain.loads and chain.source.mem == Mem.DRAM:
        return ("load",)
    if chain.builds:
        return ("copy", "build")
    return (*pipelines(chain), *("reads",) * (chain.source.mem == Mem.DRAM), *("stores",) * bool(store(chain)))


def source_addresses(chain: Chain, iteration: int, kind=DRAM) -> list[tuple]:
    """What an iteration reads in Dram, or of entries that move as they are."""
    first, count = chain.source.a + chain.source_offset(iteration), chain.outside or chain.result_words
    return [(kind, first + k) for k in range(chain.entries if kind == ENTRIES else count)]


def target_addresses(chain: Chain, target: Instruction, iteration: int) -> list[tuple]:
    """What an iteration writes in Dram, VectorRf or BiasRf."""
    kind = {Mem.DRAM: DRAM, Mem.VECTOR_RF: ENTRIES}.get(Mem(target.mem), "bias")
    first, count = target.a + chain.offset(target, iteration), chain.outside or chain.result_words
    count = {DRAM: count, ENTRIES: chain.entries}.get(kind, chain.result_words)
    return [(kind, first + k) for k in range(count)]


class DramOrder(MemoryOrder):
    """Asserts that reads of Dram find what older chains have left there, too."""

    def plan(self, number: int, chain: Chain):
        """Note the next chain of the program."""
        turns, kept = range(chain.registers.iterations), routes(chain)
        if kept == ("move",):
            kind = DRAM if chain.source.raw else ENTRIES
            for k in turns:
                self._note((number, k, "move"), source_addresses(chain, k, kind),
                           target_addresses(chain, chain.target, k))
        elif kept == ("load",):
            for k, tile in zip(turns, chain.tiles, strict=True):
                self._note((number, k, "words"), source_addresses(chain, k), [])
                self._note((number, k, "tile"), [], [("tile", tile)])
        else:
            super().plan(number, chain)
            for word in chain_words(chain) if {"reads", "stores"} & {*kept} else ():
                tag, (k, index) = (number, word.iteration, word.index), (word.iteration, word.index)
                if "reads" in kept:
                    self._note((*tag, "from"), [source_addresses(chain, k)[index]], [])
                if "stores" in kept:
                    self._note((*tag, "to"), [], [target_addresses(chain, store(chain), k)[index]])

    def knows(self, tag: tuple) -> bool:
        """Whether there is an access with this tag."""
        return tag in self._wanted

    def _note(self, tag, reads, writes):
        self._wanted[tag] = {address: self._order.get(address) for address in reads}
        self._order |= dict.fromkeys(writes, tag)


class DramWriter(Writer):
    """The last stage of a pipeline, whose words for Dram leave through the queue `left`."""

    def __init__(self, order: MemoryOrder, left: deque, entries=None):
        super().__init__(order, entries)
        self.left = left

    def land(self):
        """Write the oldest word in flight."""
        if self.flight and self.jobs[0][1]["outside"]:
            self.left.append(self.flight[0][0])
        super().land()


class DramPipelines(ReferencePipelines):
    """All pipelines of a machine with Dram: words of reads and of tiles come ahead, and writes are answered late."""

    def __init__(self, config: Config, seed: int):
        super().__init__(config, seed)
        self.order = self.entries.order = DramOrder(config.vector_words)
        self.came, self.left, self.tiles = deque(), deque(), deque()  # tags of words and of tiles between two pipelines
        self.mfu, self.copies = DramWriter(self.order, self.left, self.entries), DramWriter(self.order, self.left)
        self.jobs |= {name: deque() for name in PIPE}
        self.at |= dict.fromkeys(PIPE, 0)
        self.count |= dict.fromkeys(PIPE.values(), 0)
        self.actions |= {"mfu": self.mfu.land, "copies": self.copies.land}
        self.actions |= {name: getattr(self, name) for name in PIPE}
        self.pace = dict.fromkeys(self.actions, 1.0)

    def read_words(self):
        """Read a word ahead of its chain."""
        number, chain, _ = self.jobs["read_words"][0]
        k, index = divmod(self.at["read_words"], chain.result_words)
        self.order.read((number, k, index, "from"), [source_addresses(chain, k)[index]])
        last = self._advance("read_words", chain.result_words * chain.registers.iterations)
        self.came.append((number, k, index, last))

    def store_words(self):
        """Write a word that has left its pipeline."""
        number, chain, _ = self.jobs["store_words"][0]
        if self.left:
            k, index = divmod(self.at["store_words"], chain.result_words)
            assert self.left.popleft() == (number, k, index), "words for Dram come in another order than their ranges"
            self.order.write((number, k, index, "to"), [target_addresses(chain, store(chain), k)[index]])
            self.count["stores"] += self._advance("store_words", chain.result_words * chain.registers.iterations)

    def tile_words(self):
        """Read the words of a tile ahead of its load."""
        number, chain, _ = self.jobs["tile_words"][0]
        k = self.at["tile_words"]
        self.order.read((number, k, "words"), source_addresses(chain, k))
        self.tiles.append((number, k))
        self._advance("tile_words", chain.registers.iterations)

    def load(self):
        """Write a tile, once older products have read what it replaces."""
        number, chain, job = self.jobs["load"][0]
        k = self.at["load"]
        if self.tiles and not self._waits(job, "product"):
            assert self.tiles.popleft() == (number, k)
            self.order.write((number, k, "tile"), [("tile", chain.tiles[k])])
            self.count["load"] += self._advance("load", chain.registers.iterations)

    def move(self):
        """Move an iteration as it is."""
        number, chain, _ = self.jobs["move"][0]
        k = self.at["move"]
        kind = DRAM if chain.source.raw else ENTRIES
        self.order.read((number, k, "move"), source_addresses(chain, k, kind))
        self.order.write((number, k, "move"), target_addresses(chain, chain.target, k))
        self.count["move"] += self._advance("move", chain.registers.iterations)

    def product(self):
        """Make the results of an iteration, once the tiles are loaded."""
        if not self._waits(self.jobs["product"][0][2], "load"):
            super().product()

    def issue(self):
        """Issue a word, once its word of Dram has come."""
        if self._came("issue"):
            super().issue()

    def copy(self):
        """Copy a word, once its word of Dram has come."""
        if self._came("copy"):
            super().copy()

    def _came(self, name: str) -> bool:
        _, chain, _ = self.jobs[name][0]
        return chain.source.mem != Mem.DRAM or bool(self.came)

    def _enter(self, writer: Writer, tag: tuple, word, *, pops: bool):
        """Put a word in flight; one of Dram must be the next one that has come."""
        if self.order.knows((*tag, "from")):
            *came, last = self.came.popleft()
            assert tuple(came) == tag, "another chain's word has come"
            self.count["reads"] += last
        super()._enter(writer, tag, word, pops=pops)


def check_job(name: str, chain: Chain, job: dict):
    """Compare a job of a pipeline from or to Dram with its chain."""
    turns, source, target = range(chain.registers.iterations), chain.source, chain.target
    if name == "load":
        found = {key: job[key] for key in ("tile", "integer", "diagonal", "count")}
        assert found == {"tile": target.a, "integer": target.integer, "diagonal": target.diagonal, "count": len(turns)}
        return
    if name == "move":
        writes = target.mem == Mem.DRAM
        assert (job["writes"], job["bias"], job["tag"]) == (
            writes, target.mem == Mem.BIAS_RF, chain.end - 1 if writes else chain.address)
        assert job["integer"] == (source if writes else target).integer
        assert job["words" if job["bias"] else "entries"] == (chain.result_words if job["bias"] else chain.entries)
        addresses = [(source.a + chain.source_offset(k), target.a + chain.offset(target, k)) for k in turns]
        assert [*_moved(job)] == addresses
        return
    addresses = [target_addresses(chain, store(chain), k) if name == "store_words" else source_addresses(chain, k)
              for k in turns]
    assert _walked(job) == [address for _, address in sum(addresses, [])]
    instructions = chain.instructions.index(store(chain)) if name == "store_words" else 0
    assert job["tag"] == chain.address + instructions


def _walked(walk: dict) -> list[int]:
    """The words of a `Walk`."""
    starts = [k % walk["iterations_x"] * walk["stride_x"] + k // walk["iterations_x"] * walk["stride_y"]
              for k in range(walk["iterations"])]
    return [walk["first"] + walk["inc"] * begin + k for begin in starts for k in range(walk["words"])]


def _moved(job: dict):
    """First addresses of the source and of the target of a `MoveJob`, iteration by iteration."""
    row, line = job["row"], job["line"]
    for k in range(job["iterations"]):
        y, x = divmod(k, job["iterations_x"])
        yield (row["first"] + x * row["stride_x"] + y * row["stride_y"],
               line["first"] + k * line["step"] + y * line["skip"])
