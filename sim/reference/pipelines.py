"""The machine's pipelines in Python: they execute the jobs of the interlock, each at its own random pace."""

import random
from collections import deque

from concord.hw.lib.jobs import TICKET
from concord.hw.lib.payloads import ENTRIES, INDEX, NET, OPERANDS
from concord.sim.reference.entry_pipelines import EntryWriter, column_steps, pixel_steps
from concord.sim.reference.hazards import ahead, blocked, waiting
from concord.sim.reference.memory_order import NET_IN, NET_OUT, MemoryOrder
from concord.sim.stimulus.chains import Word, chain_words
from concord.spec.isa.chain import Chain
from concord.spec.isa.memories import VRFS
from concord.spec.machine.config import Config

PACES = (0.03, 0.3, 1.0)  #: Probabilities of progress in a cycle; each pipeline changes to a random one now and then.


class Writer:
    """The last stage of a pipeline that writes: its words in flight, and the progress that it reports."""

    def __init__(self, order: MemoryOrder, entries: EntryWriter | None = None):
        self.order, self.jobs, self.flight, self.entries = order, deque(), deque(), entries
        self.done = 0

    @property
    def state(self) -> dict:
        """The fields of `hw.lib.jobs.progress`."""
        low, iteration = dict.fromkeys(range(len(VRFS)), 0), 0
        if self.jobs:
            _, job, left = self.jobs[0]
            iteration, index = left[0].iteration, left[0].index
            for k, write in job["writes"].items():
                address = write["lo"] + index + write["inc"] * iteration * job["stride_out"]
                low[k] = address if write["rising"] or iteration == job["iterations"] - 1 else write["lo"]
        return {"done": self.done % (1 << TICKET), "iteration": iteration, "low": low}

    def land(self):
        """Write the oldest word in flight."""
        if not self.flight:
            return
        tag, word = self.flight.popleft()
        number, job, left = self.jobs[0]
        assert (number, word) == (tag[0], left.popleft())
        addresses = list(word.writes.items())
        if job["net"]:
            self.order.read(tag, [NET_OUT])
            addresses.append(NET_OUT)
        self.order.write(tag, addresses)
        if job["entries"]:
            self.entries.take(tag)
        if not left:
            self.jobs.popleft()
            self.done += 1


class ReferencePipelines:
    """The pipelines for operand fetch, products, multi-function units, copies, and the readers and writer of VectorRf.

    A job is (number, chain, job).
    """

    def __init__(self, config: Config, seed: int):
        self.random, self.order = random.Random(f"machine {seed}"), MemoryOrder(config.vector_words)
        self.jobs = {name: deque() for name in ("fetch", "columns", "gather", "product", "issue", "copy")}
        self.entries = EntryWriter(self.order)
        self.mfu, self.copies = Writer(self.order, self.entries), Writer(self.order)
        self.count = {"fetch": 0, "product": 0}
        self.operands = {"fetch": 0, "columns": 0}  # iterations whose operands are there
        self.results, self.gathered = 0, 0  # words of products, and words gathered, that were not taken yet
        self.steps = {"columns": deque(), "gather": deque()}  # what the first job of a reader of VectorRf will read
        self.at = dict.fromkeys(self.jobs, 0)  # position in the first job: a word or an iteration
        self.words = {}  # the chain of the first job of a pipeline, and its words
        self.actions = {"fetch": self.fetch, "columns": self.columns, "gather": self.gather, "product": self.product,
                        "issue": self.issue, "copy": self.copy, "mfu": self.mfu.land, "copies": self.copies.land,
                        "entries": self.entries.land}
        self.pace = dict.fromkeys(self.actions, 1.0)

    @property
    def done(self) -> dict[str, int]:
        """Number of chains that each pipeline has done."""
        return self.count | {"mfu": self.mfu.done, "copy": self.copies.done, "entries": self.entries.done}

    def cycle(self):
        """Simulate one cycle: each pipeline makes one step, or none."""
        if self.random.random() < 0.01:
            self.pace = {name: self.random.choice(PACES) for name in self.actions}
        names = list(self.actions)
        self.random.shuffle(names)
        for name in names:
            if self.random.random() < self.pace[name] and (name not in self.jobs or self.jobs[name]):
                self.actions[name]()

    def fetch(self):
        number, chain, job = self.jobs["fetch"][0]
        iteration, index = divmod(self.at["fetch"], chain.source_words)
        address = INDEX[chain.source.mem], chain.source.a + chain.source_offset(iteration) + index
        own = ahead(job["own"]["ticket"], self.mfu.done % (1 << TICKET))
        landed = own <= 0 or (own == 1 and self.mfu.state["iteration"] >= iteration)
        if self._waits(job, "mfu", "copy") or (job["own"]["valid"] and iteration and not landed):
            return
        tag = number, iteration, "operands"
        if job["memory"] == NET:
            if index == 0:
                self.order.read(tag, [NET_IN])
            self.order.write(tag if index == chain.source_words - 1 else ("half of", *tag), [NET_IN])
        elif self._blocked(job["source"], address):
            return
        else:
            self.order.read(tag, [address])
        self.operands["fetch"] += index == chain.source_words - 1
        self.count["fetch"] += self._advance("fetch", chain.source_words * chain.registers.iterations)

    def columns(self):
        number, chain, job = self.jobs["columns"][0]
        iteration, address, ends = self._next_step("columns", lambda: column_steps(chain))
        if self._step("columns", (number, iteration, "operands"), job, address):
            self.operands["columns"] += ends

    def gather(self):
        number, chain, job = self.jobs["gather"][0]
        iteration, address, ends = self._next_step("gather", lambda: pixel_steps(chain, self.order.vector_words))
        if self._step("gather", (number, iteration, "pixels"), job, address):
            self.gathered += ends

    def _next_step(self, name: str, steps):
        """What the first job of a reader of VectorRf reads next; `steps` makes all steps of the job."""
        if not self.steps[name]:
            self.steps[name].extend(steps())
        return self.steps[name][0]

    def _step(self, name: str, tag: tuple, job: dict, address: tuple[int, int]) -> bool:
        """Read an address, unless an older chain may still write it; returns whether it was read."""
        if self.entries.blocked(job, address[1]) if address[0] == ENTRIES else self._blocked(job["source"], address):
            return False
        self.order.read(tag, [address])
        self.steps[name].popleft()
        if not self.steps[name]:
            self.jobs[name].popleft()
        return True

    def product(self):
        number, chain, job = self.jobs["product"][0]
        reader = "columns" if job["product"]["from_entries"] else "fetch"
        if self._waits(job, "copy") or not self.operands[reader]:
            return
        self.order.read((number, self.at["product"], "tiles"), [("tile", tile) for tile in chain.tiles])
        self.operands[reader] -= 1
        self.results += chain.result_words
        self.count["product"] += self._advance("product", chain.registers.iterations)

    def issue(self):
        number, chain, job = self.jobs["issue"][0]
        word = self._word("issue", chain)
        if self._waits(job, "fetch", "copy", "product") or (job["serial"] and self.mfu.flight):
            return
        if (job["pop"] and not self.results) or (job["gather"] and not self.gathered):
            return
        readers = {address: job["operands"][OPERANDS.index(address[0])] for address in word.operands.items()}
        if any(self._blocked(reader, address) for address, reader in readers.items()):
            return
        if word.source and self._blocked(job["source"], word.source):
            return
        self.results -= job["pop"]
        self.gathered -= job["gather"]
        self._enter(self.mfu, (number, word.iteration, word.index), word, pops=job["memory"] == NET and not job["pop"])
        self._advance("issue", chain.result_words * chain.registers.iterations)

    def copy(self):
        number, chain, job = self.jobs["copy"][0]
        if self._waits(job, "fetch", "mfu", "product") or ((job["serial"] or job["matrix"]) and self.copies.flight):
            return
        if chain.builds:
            self._build(number, chain, job)
            return
        if job["matrix"]:
            tag = number, self.at["copy"], "tile"
            self.order.read(tag, [NET_IN])
            self.order.write(tag, [NET_IN, ("tile", chain.target.a + self.at["copy"])])
            self.copies.done += self._advance("copy", chain.registers.iterations)
            return
        word = self._word("copy", chain)
        if word.source and self._blocked(job["source"], word.source):
            return
        self._enter(self.copies, (number, word.iteration, word.index), word, pops=job["memory"] == NET)
        self._advance("copy", chain.result_words * chain.registers.iterations)

    def _build(self, number, chain, job):
        """Read a word of a vector of a tile; with its last one, write the tile."""
        word = self._word("copy", chain)
        if self._blocked(job["source"], word.source):
            return
        self.order.read((number, word.iteration, word.index), word.reads)
        size = chain.registers.iterations * chain.result_words // len(chain.tiles)
        tile, address = divmod(self.at["copy"], size)
        if address == size - 1:
            self.order.write((number, tile, "tile"), [("tile", chain.tiles[tile])])
        self.copies.done += self._advance("copy", chain.registers.iterations * chain.result_words)

    def _enter(self, writer: Writer, tag: tuple, word: Word, *, pops: bool):
        """Read a word and put it in flight."""
        self.order.read(tag, word.reads + [NET_IN] * pops)
        if pops:
            self.order.write(tag, [NET_IN])
        writer.flight.append((tag, word))

    def _word(self, name: str, chain: Chain) -> Word:
        if self.words.get(name, (None,))[0] is not chain:
            self.words[name] = chain, chain_words(chain)
        return self.words[name][1][self.at[name]]

    def _advance(self, name: str, size: int) -> bool:
        """Make one step in the first job of a pipeline, and return whether the job has ended."""
        self.at[name] += 1
        if self.at[name] < size:
            return False
        self.jobs[name].popleft()
        self.at[name] = 0
        return True

    def _waits(self, job: dict, *pipes: str) -> bool:
        done = self.done
        return any(waiting(job[pipe], done[pipe] % (1 << TICKET)) for pipe in pipes)

    def _blocked(self, reader: dict, address: tuple[int, int]) -> bool:
        return blocked(reader["mfu"], self.mfu.state, *address) or blocked(reader["copy"], self.copies.state, *address)
