"""Testbench of hw.schedule.writeback: every word goes where its chain says, and the reported progress is right."""

import cocotb
import numpy as np
from amaranth.lib import data
from concord.hw.lib import message_payloads
from concord.hw.lib.jobs import progress, write_job
from concord.hw.lib.payloads import entry_word
from concord.hw.schedule.writeback import results, write_request
from concord.sim.drivers.bench import CONFIG, Packer
from concord.sim.drivers.stream import Sink, StreamSource, clock, start
from concord.sim.stimulus.chains import fields, random_chains
from concord.sim.stimulus.entry_chains import chains_of_entries
from concord.spec.isa.chain import Chain
from concord.spec.isa.instructions import Op
from concord.spec.isa.memories import VRFS, Mem

CONFIGURATIONS = ("tiny_softmax", "tiny", "serial", "wide")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "partial & (tail != 0)", "new": "(tail != 0)"},
    {"old": "& (sent | self.net.ready) & ~fire", "new": "& self.net.ready & ~fire"},
    {"old": "choose(job.entries_select)", "new": "choose(job.net_select)"},
)

ENTRY_WORD = Packer(entry_word(CONFIG))
JOB, RESULTS, PROGRESS = Packer(write_job(CONFIG)), Packer(results(CONFIG)), Packer(progress(CONFIG))
WRITES = Packer(data.ArrayLayout(write_request(CONFIG), len(VRFS)))
NET = Packer(message_payloads.outgoing(CONFIG))


def chosen(select: dict, values: dict, lanes: int) -> dict:
    """The word that a write takes; lanes after the first `lanes` hold +0."""
    word = values["taps"][select["tap"]] if select["tapped"] else values["value"]
    return {lane: value if lane < lanes else 0 for lane, value in word.items()}


def words(job: dict, values: list[dict]):
    """For each word of a job, the pairs (address, word) by memory, the word for NetQ, and the one for VectorRf."""
    for number, value in enumerate(values):
        iteration, index = divmod(number, job["words"])
        lanes = job["tail"] if index == job["words"] - 1 and job["tail"] else CONFIG.mfu_lanes
        writes = {k: {"valid": 1, "address": w["lo"] + index + iteration * job["stride_out"] * w["inc"],
                      "word": chosen(w["select"], value, lanes)} for k, w in job["writes"].items() if w["valid"]}
        net = {"word": chosen(job["net_select"], value, lanes), "remaining": job["words"] - index}
        if CONFIG.softmax_words:
            net |= {"softmax": job["softmax"], "tail": job["tail"]}
        entry = {"valid": 1, "word": chosen(job["entries_select"], value, lanes), "last": index == job["words"] - 1}
        yield iteration, writes, net if job["net"] else None, entry if job["entries"] else None


def several(chain: Chain) -> bool:
    """Whether a chain writes NetQ and a memory at the same time."""
    return {Mem.NET_Q} < {i.mem for i in chain.instructions if i.op == Op.V_WR}


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.4])
async def writes_what_chains_say(dut, stall):
    """Random chains with up to three targets, taps, padding and iterations; memories and NetQ stall at random."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    sources = {name: StreamSource(dut, name, stall=stall) for name in ("job", "i")}
    sink = Sink(dut, "net", stall=stall)
    await start(dut, "free")
    plan, messages = [], []
    chains = random_chains(CONFIG, rng, 50, lambda chain: not chain.pushes and not chain.loads)
    chains += random_chains(CONFIG, rng, 25, several)
    chains += chains_of_entries(CONFIG, rng, 25, lambda chain: not chain.pushes)
    for done, chain in enumerate(chains):
        record = fields(CONFIG, chain)
        job = {k: v for k, v in record.items() if k in JOB.parts and k != "entries"}
        if "entries" in record:
            job |= {"entries": 1, "entries_select": record["entries"]["select"]}
        job = JOB.of(JOB.join(job))
        sources["job"].put(JOB.join(job))
        payloads = [int.from_bytes(rng.bytes(RESULTS.width // 8), "little")
                    for _ in range(job["words"] * job["iterations"])]
        sources["i"].put(*payloads)
        each = list(words(job, list(map(RESULTS.of, payloads))))
        for number, (iteration, writes, net, entry) in enumerate(each):
            left = {k: min(later[k]["address"] for _, later, *_ in each[number:]) for k in writes}
            plan.append((done % 128, iteration, writes, left, {k for k in writes if job["writes"][k]["rising"]}, entry))
            messages += [net] if net else []
    shown = None  # what the progress of this cycle must be, that of the cycle before; and whether a word landed there
    for done, iteration, writes, left, rising, entry in plan:
        while True:
            await clock(dut)
            told, got = PROGRESS.of(int(dut.progress.value)), WRITES.of(int(dut.writes.value))
            if shown:
                assert (told["done"], told["iteration"]) == shown[:2]
                assert all(told["low"][k] <= lowest for k, lowest in shown[2].items())
                assert not shown[4] or all(told["low"][k] == shown[2][k] for k in shown[3])
            shown = done, iteration, left, rising, bool(dut.landed.value)
            free, landed = int(dut.free.value), bool(dut.landed.value)
            got_entry = ENTRY_WORD.of(int(dut.entry_word.value))
            assert bool(got_entry["valid"]) == (landed and entry is not None)
            assert not got_entry["valid"] or got_entry == entry
            assert {k: w for k, w in got.items() if w["valid"]} == (writes if landed else {})
            assert not landed or all(free >> k & 1 for k in writes)
            dut.free.value = sum(int(rng.random() >= stall) << k for k in range(len(VRFS)))
            if landed:
                break
    assert [NET.of(payload) for payload in await sink.receive(len(messages))] == messages
    await clock(dut, 2)
    assert PROGRESS.of(int(dut.progress.value))["done"] == len(chains) % 128
