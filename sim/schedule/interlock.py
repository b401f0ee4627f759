"""Testbench of hw.schedule.interlock: its jobs keep the order of the program, at any pace of the pipelines."""

from collections import deque

import cocotb
import numpy as np
from concord.hw.lib.jobs import TICKET, entry_writers, job_shapes
from concord.hw.lib.payloads import chain as chain_layout
from concord.hw.schedule.interlock import finished, pipes
from concord.hw.schedule.range_table import CHAINS
from concord.sim.drivers.bench import CONFIG, Packer
from concord.sim.drivers.stream import Sink, StreamSource, clock, start
from concord.sim.reference.pipelines import ReferencePipelines
from concord.sim.schedule.dram_pipelines import PIPE as DRAM_PIPE
from concord.sim.schedule.dram_pipelines import DramPipelines, check_job, routes, store
from concord.sim.stimulus.chains import chain_words, fields, random_chains
from concord.sim.stimulus.entry_chains import chains_of_entries
from concord.spec.isa.assembler import assemble
from concord.spec.isa.check import Sequencer

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "found & ~(once & never)", "new": "found & ~never"},
    {"old": 'y.mfu.eq(self._waits(m, c, "mfu", "copy_mfu", reads_net=net))',
     "new": 'y.mfu.eq(self._waits(m, c, "mfu", "copy_mfu", reads_net=0))'},
    {"old": "~last | ~Cat(behind.values()).any()", "new": "1"},
    {"old": "self.issue.p.product.valid.eq(hazards.product.valid & writes)", "new": "self.issue.p.product.valid.eq(0)"},
    {"file": "hw/schedule/entry_hazards.py", "old": "m.d.sync += self.write_room.eq(ahead <= 0)",
     "new": "m.d.sync += self.write_room.eq(1)"},
    {"file": "hw/schedule/outside_order.py", "old": 'i.product.p.copy.eq(self.tables["tile_copies"].found)',
     "new": "i.product.p.copy.eq(0)", "test": "test_chains_that_name_dram[interlock-tiny]"},
    {"file": "hw/schedule/outside_order.py", "test": "test_chains_that_name_dram[interlock-tiny]",
     "old": 'reads & waiting(tables["stores"].found, i.finished["stores"])', "new": "0"},
    {"file": "hw/schedule/outside_order.py", "test": "test_chains_that_name_dram[interlock-tiny]",
     "old": 'writes & waiting(tables["reads"].found, i.finished["reads"])', "new": "0"},
    {"file": "hw/schedule/outside_order.py", "test": "test_chains_that_name_dram[interlock-tiny]",
     "old": 'writes & waiting(tables["loads"].found, i.finished["load"])', "new": "0"},
    {"file": "hw/schedule/outside_order.py", "test": "test_chains_that_name_dram[interlock-tiny]",
     "old": 'uses["load"] & waiting(i.net_loads, i.finished["copy"])', "new": "0"},
    {"file": "hw/schedule/outside_order.py", "test": "test_chains_that_name_dram[interlock-tiny]",
     "old": 'uses["load"] & waiting(tables["tile_copies"].found, i.finished["copy"])', "new": "0"},
    {"file": "hw/schedule/outside_order.py", "test": "test_chains_that_name_dram[interlock-tiny]",
     "old": 'c.outside.vectors & waiting(tables["tile_loads"].found, i.finished["load"])', "new": "0"},
    {"file": "hw/schedule/outside_order.py", "test": "test_chains_that_name_dram[interlock-tiny]",
     "old": 'c.matrix & ~uses["load"] & ~c.outside.vectors & ~same["load"]', "new": "0"},
    {"file": "hw/schedule/outside_order.py", "test": "test_chains_that_name_dram[interlock-tiny]",
     "old": "Cat(of_tables).any()", "new": "0"},
    {"file": "hw/schedule/outside_order.py", "test": "test_chains_that_name_dram[interlock-tiny]",
     "old": "~blocked.any() & ~moving &", "new": "~blocked.any() &"},
    {"file": "hw/schedule/outside_order.py", "test": "test_chains_that_name_dram[interlock-tiny]",
     "old": " & (quiet | ~moves)", "new": ""},
    {"file": "hw/schedule/outside_order.py", "test": "test_chains_that_name_dram[interlock-tiny]",
     "old": 'self.copies_tiles = uses["copy"] & c.matrix', "new": "self.copies_tiles = c.outside.vectors"},
    {"old": "y.product.valid.eq(tile_reads.valid & c.matrix)", "new": "y.product.valid.eq(0)",
     "test": "test_chains_that_name_dram[interlock-tiny]"},
    {"file": "hw/schedule/entry_hazards.py", "old": "self.read_room.eq(~busy.bit_select(place, 1))",
     "new": "self.read_room.eq(1)"},
)

CHAIN, DONE = Packer(chain_layout(CONFIG)), Packer(finished(CONFIG))
JOBS = {name: Packer(shape) for name, shape in job_shapes(CONFIG).items()}
WRITERS = Packer(entry_writers(CONFIG))
PIPE = {"write": "mfu", "issue": "mfu", "copy_write": "copy", **DRAM_PIPE}  #: The pipeline of a job.
#: Fields that mean something else in a job than in a chain's record.
OWN = ("words", "source", "operands", "integer", "unsigned", "tile", "product", "columns", "row_tiles", "entries",
       "stride_x", "stride_y", "outside")


class Bench:
    """The interlock, with pipelines in Python at its outputs."""

    def __init__(self, dut, stall: float):
        seed = cocotb.RANDOM_SEED
        self.dut, self.machine = dut, (DramPipelines if CONFIG.dram_words else ReferencePipelines)(CONFIG, seed)
        self.source = StreamSource(dut, "i", stall=stall)
        self.sinks = {name: Sink(dut, name, stall=stall) for name in JOBS}
        self.waiting = {name: deque() for name in JOBS}
        self.records = {}
        self.given, self.net_loads = dict.fromkeys(pipes(CONFIG), 0), 0  # the last load of tiles from NetQ
        dut.done.value = dut.start.value = 0

    def put(self, chains):
        """Queue chains."""
        for number, chain in enumerate(chains, len(self.records)):
            self.machine.order.plan(number, chain)
            payload = CHAIN.join(fields(CONFIG, chain))
            self.records[number] = CHAIN.of(payload)
            self.source.put(payload)
            for name, queue in self.waiting.items():
                if PIPE.get(name, name) in routes(chain) and not (name == "copy_write" and chain.loads):
                    queue.append((number, chain))

    async def restart(self):
        """Start a program, which finds all pipelines finished."""
        self.dut.start.value = 1
        await clock(self.dut)
        self.dut.start.value = self.given["entries"] = self.machine.entries.done = 0
        self.dut.done.value = DONE.join({name: count % (1 << TICKET) for name, count in self.machine.done.items()})

    def hand_over(self, name: str, payload: int):
        """Give a job to its pipeline, and check that it belongs to the next chain that needs this pipeline."""
        number, chain = self.waiting[name].popleft()
        job, record = JOBS[name].of(payload), self.records[number]
        if CONFIG.dram_words:
            self.check_alone(number, name)
            self.check_net(chain, name)
        if name in DRAM_PIPE:
            check_job(name, chain, job)
            self.given[DRAM_PIPE[name]] += name != "tile_words"  # beside its load
            self.machine.jobs[name].append((number, chain, job))
            return
        for field in set(job) & set(record) - set(OWN):
            assert job[field] == record[field], f"{field} of {name}"
        if "outside" in job:
            assert job["outside"] == bool(store(chain))
        if name in ("write", "copy_write"):
            assert not store(chain) or job["outside_select"] == record["outside"]["writes"]["select"]
            writer = self.machine.mfu if name == "write" else self.machine.copies
            writer.jobs.append((number, job, deque(chain_words(chain))))
            return
        if name == "build":
            self.check_build(chain, job, record)
            return
        pipe = PIPE.get(name, name)
        if pipe in self.given:
            self.given[pipe] += 1
        getattr(self, f"check_{name}", self.check_source)(chain, job, record, name)
        queue = self.machine.entries.jobs if name == "entries" else self.machine.jobs[name]
        queue.append((number, chain, job))

    def check_alone(self, number: int, name: str):
        """Check that a chain that moves what is packed as it is runs while no other chain does."""
        under_way = {pipe for pipe, done in self.machine.done.items() if self.given[pipe] > done}
        assert not (under_way if name == "move" else under_way & {"move"}), f"{name} beside a move, or a move beside it"
        older = [queue[0][0] < number for queue in self.waiting.values() if queue]
        assert name != "move" or not any(older), "an older chain has not begun"

    def check_net(self, chain, name: str):
        """Check that tiles are loaded from NetQ while none is loaded from Dram."""
        done = self.machine.done
        if name == "copy" and chain.loads and not chain.builds:
            assert self.given["load"] == done["load"], "tiles from NetQ beside some from Dram"
            self.net_loads = self.given["copy"] + 1
        assert name != "load" or done["copy"] >= self.net_loads, "tiles from Dram beside some from NetQ"

    def check_build(self, chain, job, record):
        """Compare the job of the unit that makes tiles of vectors with its chain."""
        target = chain.target
        assert job == {
            "tile": target.a, "count": len(chain.tiles), "integer": target.integer, "transposed": target.transposed,
            "vectors": chain.registers.iterations_x, "first": record["outside"]["place"], "words": chain.result_words,
            "tail": record["tail"]}

    def check_product(self, _, job, record, __):
        """Compare the job of the tile engines with the record."""
        assert job["product"] == record["product"]

    def check_entries(self, chain, job, record, _):
        """Compare the job of the writer of VectorRf with the record."""
        assert (job["write"], job["words"]) == (record["entries"], chain.result_words)

    def check_columns(self, chain, job, record, _):
        """Compare the job of the reader of VectorRf with the record."""
        expected = {name: record[name] * chain.source.inc for name in ("stride_x", "stride_y")} | {
            "lo": chain.source.a, "columns": chain.registers.columns, "row_tiles": chain.row_tiles}
        assert {name: job[name] for name in expected} == expected

    def check_source(self, chain, job, record, name):
        """Compare the source and the operands of a job with the record."""
        assert all(job[key] == record[key] for key in ("stride_x", "stride_y"))
        for reader, access in ((job["source"], record["source"]),
                               *((each, record["operands"][k]) for k, each in job.get("operands", {}).items())):
            assert {key: reader[key] for key in ("valid", "lo", "inc")} == {
                key: access[key] for key in ("valid", "lo", "inc")}
        assert job["words"] == (chain.source_words if name == "fetch" else CONFIG.native_dim * CONFIG.vector_words
                                if chain.loads and not chain.builds else chain.result_words)
        if name == "copy" and CONFIG.dram_words:
            assert job["vectors"] == chain.builds
            assert not chain.loads or job["count"] == len(chain.tiles)

    async def cycle(self) -> int:
        """Simulate one cycle, and return the number of chains under way."""
        await clock(self.dut)
        for name, sink in self.sinks.items():
            while sink.queue:
                self.hand_over(name, sink.queue.popleft())
        done = self.machine.done
        under_way = {name: self.given[name] - done[name] for name in done}
        assert max(under_way.values()) < 1 << TICKET - 1, "two chains would have the same ticket"
        if CONFIG.dram_words:
            most = max(under_way[name] for name in ("reads", "stores", "load", "product"))
            assert most <= CHAINS, "more chains are under way than their ranges have room"
        self.machine.entries.writers = WRITERS.of(int(self.dut.entry_writers.value))
        self.machine.cycle()
        if done != (done := self.machine.done):
            self.dut.done.value = DONE.join({name: count % (1 << TICKET) for name, count in done.items()})
        return sum(under_way.values())


def mixed(first: list, second: list, rng: np.random.Generator) -> list:
    """The chains of both lists, each in its order, but shuffled like cards; what follows a push to MvmQ stays there."""
    chains, held, rest = [], 0, deque(second)
    for chain in first:
        while rest and not held and rng.random() < len(second) / (len(first) + len(second)):
            chains.append(rest.popleft())
        held += chain.pushes - chain.pops
        chains.append(chain)
    return [*chains, *rest]


def overwritten(rng: np.random.Generator) -> list:
    """Chains that write entries which products for MvmQ read."""
    text = f"s_wr Rows, {CONFIG.native_dim}\ns_wr StrideX, 1\nset_iterations 2\n"
    for _ in range(10):
        pushes = rng.integers(0, 8, int(rng.integers(1, 4)))
        writes = pushes[0], *rng.integers(0, 8, int(rng.integers(2)))
        for address in pushes:
            text += f"v_rd_inc VectorRf, {address}\nmv_mul 0\nv_wr MvmQ\nend_chain\n"
        for address in writes:
            text += f"v_rd InitialVrf, {address}\nv_wr_inc VectorRf, {address}\nend_chain\n"
        text += "v_rd MvmQ\nv_wr NetQ\nend_chain\n" * len(pushes)
    return list(Sequencer(CONFIG, assemble(text + "end"), [False] * CONFIG.matrix_tiles).walk())


def tiles_meet(rng: np.random.Generator) -> list:
    """Chains that make few tiles of vectors, load them from Dram and multiply them, and write the vectors' words."""
    kinds = {"m_rd InitialVrf, 0\nm_wr MatrixRf, {}": 3, "m_rd Dram, 0\nm_wr MatrixRf, {}, diagonal": 2,
             "v_rd NetQ\nmv_mul {}\nv_wr NetQ": 4, "v_rd NetQ\nv_wr InitialVrf, 0": 1, "v_rd NetQ\nv_relu0\n"
             "v_wr InitialVrf, 0": 1, "m_rd NetQ\nm_wr MatrixRf, {}": 0.3}
    weights = np.array(list(kinds.values()))
    text = f"s_wr Rows, {CONFIG.native_dim}\n"
    for kind in rng.choice(list(kinds), 60, p=weights / weights.sum()):
        text += kind.format(rng.integers(3)) + "\nend_chain\n"
    return list(Sequencer(CONFIG, assemble(text + "end"), [False] * CONFIG.matrix_tiles).walk())


def words_meet(rng: np.random.Generator) -> list:
    """Chains that read, write and load few words of Dram through all pipelines, and few tiles from there and NetQ."""
    kinds = {"v_rd Dram, {0}\nv_wr AddSubVrf1, {1}": 3, "v_rd Dram, {0}\nv_relu0\nv_wr MultiplyVrf1, {1}": 3,
             "v_rd InitialVrf, 0\nv_wr Dram, {0}": 3, "v_rd InitialVrf, 0\nv_relu0\nv_wr Dram, {0}": 3,
             "m_rd Dram, {0}\nm_wr MatrixRf, {1}, diagonal": 2, "m_rd NetQ\nm_wr MatrixRf, {1}": 0.7,
             "v_rd NetQ\nmv_mul {1}\nv_wr NetQ": 1}
    weights, text = np.array(list(kinds.values())), f"s_wr Rows, {3 * CONFIG.mfu_lanes}\n"
    for kind in rng.choice(list(kinds), 80, p=weights / weights.sum()):
        text += kind.format(*rng.integers(3, size=2)) + "\nend_chain\n"
    return list(Sequencer(CONFIG, assemble(text + "end"), [False] * CONFIG.matrix_tiles).walk())


@cocotb.test(timeout_time=4, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.4])
async def keeps_the_order(dut, stall):
    """Random chains overlap as far as their jobs allow; each reads what older ones wrote, and all of them end."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    bench, most = Bench(dut, stall), 0
    await start(dut)
    for _ in range(2):
        bench.put(mixed(random_chains(CONFIG, rng, 100), chains_of_entries(CONFIG, rng, 100), rng))
        for _ in range(4):
            bench.put(overwritten(rng))
        if CONFIG.dram_words:
            bench.put(tiles_meet(rng))
            bench.put(words_meet(rng))
        idle = 0
        while any(bench.waiting.values()) or idle < 3:
            under_way = await bench.cycle()
            most = max(most, under_way)
            idle = idle + 1 if under_way == 0 else 0
            assert not under_way or not dut.idle.value
        assert dut.idle.value
        await bench.restart()
    assert most > 8, "hardly anything overlapped"
