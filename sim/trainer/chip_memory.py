# amaranth: UnusedElaboratable=no
"""Testbench of hw.trainer.chip_memory: random rows, columns and writes at all ports, beside a model of one array."""

import random
from collections import deque

import cocotb
import numpy as np
from concord.hw.trainer.chip_memory import ChipMemory
from concord.hw.trainer.wires import CHIP_LATENCY, ChipAnswer, ChipRead, ChipWrite
from concord.sim.drivers.bench import CONFIG, Packer, assert_equal
from concord.sim.drivers.stream import clock, reset, start
from concord.spec.machine.config import preset
from concord.spec.trainer.config import LANES

CONFIGURATIONS = ("tiny", "serial", "wide")
TESTED = ("serial", "wide")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "[~port.p.zeros for port in reads]", "new": "[Const(1)] * len(reads)"},
    {"old": "& ~(asks[k] & ahead.any())", "new": "& ~ahead.any()"},
    {"old": "granted[k] & ~(asks[k] & ahead.any())", "new": "granted[k]"},
    {"old": "if paths[q] != paths[k])", "new": "if paths[q] == 0 != paths[k])"},
    {"old": "Mux(zeros, 0, Array", "new": "(Array"},
    {"old": "self._number(read), read.zeros)", "new": "Const(0, 2), read.zeros)"},
    {"old": "memory.write.valid.eq(Cat(here).any())", "new": "memory.write.valid.eq(1)"},
    {"old": "port.valid & port.ready, CHIP_LATENCY", "new": "port.valid, CHIP_LATENCY"},
    {"old": "delay_control(m, port", "new": "delay(m, port"},
    {"old": "min(self.size, self.words - start)", "new": "self.size // 2"},
)
READERS, WRITERS = (0, 1, 0, 2), (0, 1, 0, 1)  #: Paths of ports.
READ, WRITE, ANSWER = Packer(ChipRead), Packer(ChipWrite), Packer(ChipAnswer)


def component(config) -> ChipMemory:
    """A memory with a few ports, of four equal memories or of three."""
    return ChipMemory({preset("tiny"): 256, preset("serial"): 768}.get(config, 2048), READERS, WRITERS)


WORDS = component(CONFIG).words


class Bench:
    """The memory, requests that wait at its ports, and answers that are due."""

    def __init__(self, dut, busy: float, near: int = WORDS):
        self.dut, self.busy, self.near, self.random = dut, busy, near, random.Random(cocotb.RANDOM_SEED)
        self.words = np.zeros((WORDS, LANES), np.int64)
        self.reads, self.writes = [None] * len(READERS), [None] * len(WRITERS)
        self.due = [deque([None] * CHIP_LATENCY) for _ in READERS]
        self.answered = 0

    def _word(self) -> int:
        return self.random.choice([self.random.randrange(WORDS), self.random.randrange(self.near)])

    def _read(self) -> dict[str, int]:
        column, word = self.random.getrandbits(1), self._word()
        zeros = int(self.random.random() < 0.1)
        return {
            "word": word - word % LANES * column,
            "column": column,
            "lane": self.random.randrange(16),
            "zeros": zeros,
        }

    def _write(self) -> dict:
        return {"word": self._word(), "bytes": list(self.random.randbytes(LANES))}

    def ask(self):
        """Drive all ports."""
        for kind, waiting, make, packer in (
            ("read", self.reads, self._read, READ),
            ("write", self.writes, self._write, WRITE),
        ):
            for k, request in enumerate(waiting):
                if request is None and self.random.random() < self.busy:
                    waiting[k] = make()
                    getattr(self.dut, f"{kind}{k}__payload").value = packer.join(waiting[k])
                getattr(self.dut, f"{kind}{k}__valid").value = int(waiting[k] is not None)

    def step(self):
        """See who is served in this cycle, and which answers come."""
        new = {request["word"]: request["bytes"] for request in self._taken("write", self.writes, WRITERS) if request}
        for k, request in enumerate(self._taken("read", self.reads, READERS)):
            self._answer(k)
            self.due[k].append(None if request is None else self._seen(request, new))
        for word, given in new.items():
            self.words[word] = given

    def _taken(self, kind: str, waiting: list, paths: tuple[int, ...]) -> list:
        """Requests that are served now, which must be the first ones on their paths and for their memories."""
        busy, gone, taken, size = set(), set(), [], 1 << (WORDS - 1).bit_length() - 2
        for k, request in enumerate(waiting):
            zeros = request and request.get("zeros")
            memory = request and request["word"] // size
            served = request is not None and paths[k] not in gone and (zeros or memory not in busy)
            if request is not None:
                assert bool(getattr(self.dut, f"{kind}{k}__ready").value) == bool(served), f"{kind}{k}: {request}"
                busy |= {memory} if paths[k] not in gone and not zeros else set()
                gone.add(paths[k])
            taken.append(request if served else None)
            waiting[k] = None if served else request
        return taken

    def _seen(self, request: dict, new: dict) -> list[int]:
        """The bytes of an answer, -1 where they are written in the same cycle."""
        if request["zeros"]:
            return [0] * LANES
        word, lane = request["word"], request["lane"]
        cells = [(word + j, lane) if request["column"] else (word, j) for j in range(LANES)]
        return [-1 if row in new else self.words[row, column] for row, column in cells]

    def _answer(self, k: int):
        answer, want = ANSWER.of(int(getattr(self.dut, f"answer{k}").value)), self.due[k].popleft()
        assert answer["valid"] == (want is not None)
        if want is not None:
            got = np.array([answer["bytes"][lane] for lane in range(LANES)])
            assert_equal(f"answer{k}", got, np.array(want), where=np.array(want) >= 0)
            self.answered += 1


PORTS = [f"{kind}{k}__valid" for kind, paths in (("read", READERS), ("write", WRITERS)) for k in range(len(paths))]


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(busy=[0.3, 1.0], near=[LANES, WORDS])
async def reads_see_what_was_written(dut, busy, near):
    """Rows and columns, of words that were just written too; ports are served in their order."""
    bench = Bench(dut, busy, near)
    await start(dut, *PORTS)
    for word in range(WORDS):  # the words are what they were before the reset
        dut.write0__valid.value, dut.write0__payload.value = 1, WRITE.join({"word": word, "bytes": [0] * LANES})
        await clock(dut)
    for _ in range(800):
        bench.ask()
        await clock(dut)
        bench.step()
    assert bench.answered > 400


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_reset_ends_answers(dut):
    """Reads that are under way get none."""
    await start(dut, *PORTS)
    dut.read0__valid.value = 1
    await clock(dut, CHIP_LATENCY)
    await reset(dut, cycles=1)
    dut.read0__valid.value = 0
    for _ in range(CHIP_LATENCY):
        await clock(dut)
        assert not int(dut.answer0.value) & 1
