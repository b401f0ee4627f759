"""The sequencer of a trainer between a host and engines that end their jobs after any time, beside golden."""

from collections import deque

import cocotb
import numpy as np
from cocotb.queue import Queue
from concord.golden.trainer.summary import FORMAT, Summary, together
from concord.golden.trainer.trainer import run_together
from concord.hw.trainer.hazards import ENGINES
from concord.hw.trainer.instruction_buffer import ProgramWord
from concord.hw.trainer.jobs import JOBS
from concord.hw.trainer.program_sequencer import Meeting, Met
from concord.hw.trainer.trainer_registers import Watch
from concord.hw.trainer.wires import Ended, ExponentWrite
from concord.hw.trainer.wires import Summary as SummaryWires
from concord.sim.drivers.axi_stream import lite_master
from concord.sim.drivers.bench import Packer, assert_equal
from concord.sim.drivers.stream import Sink, StreamSource, clock, every_cycle, start, until
from concord.sim.stimulus.trainer_programs import TrainerProgram
from concord.sim.trainer.jobs.programs import Flight, ObservedTrainer
from concord.spec.host.registers import Control
from concord.spec.trainer.instructions import FIELDS, Space, TrainerOp, decode
from concord.spec.trainer.registers import TrainerCounter, TrainerRegister

JOB = {name: Packer(job) for name, job in JOBS.items()}
ENDED, MEETING, MET, SUMMARY, WATCH, WORD, WRITE = (
    Packer(shape) for shape in (Ended, Meeting, Met, SummaryWires, Watch, ProgramWord, ExponentWrite)
)
_LENGTH = ENDED.width


def differing(got: dict, want: dict, prefix: str = "") -> list[str]:
    """Fields of a job that are not what golden says; fields that it leaves out do not count."""
    if "there" in got and not want:
        return [f"{prefix}there"] if got["there"] else []
    found = []
    for name, value in want.items():
        if isinstance(value, dict):
            found += differing(got[name], value, f"{prefix}{name}.")
        elif got[name] != value:
            found.append(f"{prefix}{name} = {got[name]} instead of {value}")
    return found


def _at(golden: ObservedTrainer, address: int) -> str:
    """The instruction at an address, with its views as they are at the end."""
    found = decode([*golden._program, 0], address)
    if found is None:
        return "no instruction"
    named = [found[name] for name, field in FIELDS[found.op].items() if field.kind.startswith("view")]
    views = {number: golden.core.views[number] for number in named if number in golden.core.views}
    return f"{found} {views} {golden.core.bases}"


def summary_wires(found: Summary) -> dict[str, int]:
    """A summary as an update engine has it."""
    same = "length", "outside", "holds", "steps", "rounded", "saturations"
    wires = {name: int(getattr(found, name)) for name in same}
    return wires | {"lowest": -found.highest, "highest": -found.lowest, "large": found.largest >= FORMAT.small}


class SequencerBench:
    """The sequencer, with engines, and a host."""

    def __init__(self, dut, *, stall: float, slow: int):
        self.dut, self.stall, self.slow = dut, stall, slow
        self.rng = np.random.default_rng(cocotb.RANDOM_SEED)
        self.flights: list[Flight] = []
        self.expected = {name: deque() for name in ENGINES}
        self.ends: dict[str, Flight] = {}
        self.taken: set[Flight] = set()
        self.ended: set[Flight] = set()
        self.met: list[Flight] = []  # updates since the summary was cleared
        self.run = 0

    async def start(self):
        dut = self.dut
        for name in ("ended", "momentum", "summary", "number", "failed", "first", "second"):
            getattr(dut, name).value = 0
        dut.quiet.value, dut.met.value = 1, MET.join({"stopped": 1})  # other cores never come
        self.program = StreamSource(dut, "program")
        self.writes = {name: StreamSource(dut, f"{name}_exponent", stall=self.stall) for name in ("load", "move")}
        self.sinks = {name: Sink(dut, name, stall=self.stall) for name in ENGINES}
        self.host = lite_master(dut, "s_axil", cocotb.RANDOM_SEED, 0.0)
        await start(dut)
        every_cycle(dut, self._drive)
        for name in ENGINES:
            jobs = Queue()
            cocotb.start_soon(self._take(name, jobs))
            cocotb.start_soon(self._engine(name, jobs))

    def _drive(self):
        """Ends of jobs, and the summary of updates."""
        word = 0
        for name, flight in self.ends.items():
            word |= ENDED.join({"valid": 1, "length": flight.length}) << _LENGTH * ENGINES.index(name)
            self.ended.add(flight)
            if name == "update":
                self.dut.momentum.value = flight.momentum
                self.met.append(flight)
        self.ends.clear()
        self.dut.ended.value = word
        if self.dut.clear_summary.value:
            self.met.clear()
        self.dut.summary.value = self._summary()

    def _summary(self) -> int:
        return SUMMARY.join(summary_wires(self.met[-1].summary)) if self.met else 0

    async def answer(self, golden: ObservedTrainer):
        """Bring what the other cores of each rendezvous have measured."""
        dut = self.dut
        dut.met.value = 0
        for own, *found in golden.meetings:
            await until(dut, lambda: MEETING.of(int(dut.meeting.value))["valid"])
            await clock(dut, 1 + int(self.rng.integers(20)))
            got = MEETING.of(int(dut.meeting.value))
            assert (got["op"], got["cores"]) == (own.op, own.cores)
            lengths = list(got["own"]["lengths"].values())[: len(own.lengths)]
            assert lengths == list(own.lengths), f"{lengths} instead of {own.lengths}"
            joined = [max(each) for each in zip(*(one.lengths for one in found), strict=True)]
            summaries = [one.summary for one in found if one.summary]
            summary = summary_wires(together(summaries, summaries[0])) if summaries else {}
            lengths = joined + [0] * (3 - len(joined))
            dut.met.value = MET.join({"go": 1, "joined": {"lengths": lengths, "summary": summary}})
            await clock(dut)
            dut.met.value = 0
            await clock(dut, 2)

    async def _take(self, name: str, jobs: Queue):
        """Take jobs, also while the engine is busy, and compare them."""
        while True:
            payload = await self.sinks[name].get()
            assert self.expected[name], (
                f"the {name} engine gets a job that golden does not have: {JOB[name].of(payload)}"
            )
            flight = self.expected[name].popleft()
            self.taken.add(flight)
            wrong = differing(JOB[name].of(payload), self._told(flight))
            assert not wrong, f"{flight.op.name} at {flight.address}: {', '.join(wrong)}"
            older = self.flights[: self.flights.index(flight)]
            early = [one for one in older if one not in self.ended and one.conflicts(flight)]
            assert not early, f"{flight.op.name} at {flight.address} begins before {early[0].address} has ended"
            jobs.put_nowait((flight, self.run))

    async def _engine(self, name: str, jobs: Queue):
        """End jobs in their order, each after some time."""
        while True:
            flight, run = await jobs.get()
            if run != self.run:
                continue
            await clock(self.dut, 1 + int(self.rng.integers(self.slow)))
            if flight.words and run == self.run:
                await self._exponents(name, flight)
            while name in self.ends:
                await clock(self.dut)
            if run == self.run:
                self.ends[name] = flight

    def _told(self, flight: Flight) -> dict:
        """What a job must hold: some fields do not count for some instructions."""
        job = dict(flight.job)
        if flight.op == TrainerOp.COPY and job["patches"]:
            view = job["source"]["view"]
            job["source"] = {"there": 1, "view": {name: value for name, value in view.items() if name != "jump2"}}
        return job

    async def _exponents(self, name: str, flight: Flight):
        """Read or write words of exponents."""
        dut = self.dut
        for word, content in flight.words.items():
            if flight.job["to"]["space"] == Space.EXPONENTS:
                await self.writes[name].send(WRITE.join({"word": word, "bytes": content}))
            else:
                getattr(dut, f"{name}_word").value = word
                await clock(dut, 3)
                assert int(dut.exponents.value).to_bytes(16, "little") == content

    async def write(self, register: int, value: int):
        """Write a register."""
        await self.host.write(register, value.to_bytes(4, "little"))

    async def read(self, address: int) -> int:
        """Read a register."""
        return int.from_bytes((await self.host.read(address, 4)).data, "little")

    async def prepare(self, program: TrainerProgram, golden: ObservedTrainer):
        """Give a program to both."""
        words = program.words
        for register, value in program.rates.items():
            golden.write_register(register, value)
            await self.write(register, value)
        await self.write(TrainerRegister.LIMIT, len(golden.core.server))
        golden.load(words)
        await self.program.send(
            *(WORD.join({"word": word, "last": k == len(words) - 1}) for k, word in enumerate(words))
        )

    async def begin(self, golden: ObservedTrainer, first: int, second: int, other: ObservedTrainer | None = None):
        """Let golden execute the program, perhaps beside another core, and start the core."""
        golden.flights.clear()
        cores = [golden, other] if other else [golden]
        run_together(cores, [(first, second)] * len(cores))
        self.flights = list(golden.flights)
        for flight in self.flights:
            self.expected[flight.engine].append(flight)
        self.dut.first.value, self.dut.second.value = first % (1 << 32), second % (1 << 32)
        await self.write(TrainerRegister.CONTROL, Control.START)
        await clock(self.dut, 4)

    async def finish(self, golden: ObservedTrainer):
        """Wait for the end of the program, which must be golden's."""
        await until(self.dut, lambda: WATCH.of(int(self.dut.watch.value))["done"])
        await clock(self.dut)
        left = [flight for flights in self.expected.values() for flight in flights]
        got = WATCH.of(int(self.dut.watch.value))
        want = {"running": 0, "done": 1, "error": int(golden.error), "address": golden.address, "idle": 1}
        assert got | want == got, f"{got} instead of {want}; {_at(golden, got['address'])}"
        assert not left, f"{left[0].op.name} at {left[0].address} has not come to its engine"
        assert self.ended >= set(self.flights)

    async def compare(self, golden: ObservedTrainer):
        """Compare all registers."""
        registers = [
            *(TrainerRegister.COUNTERS + 4 * k for k in range(len(TrainerCounter))),
            *(TrainerRegister.BASES + 4 * k for k in range(32)),
            *(TrainerRegister.EXPONENTS + 4 * k for k in range(64)),
            *(TrainerRegister.ERROR, TrainerRegister.ERROR_ADDRESS, TrainerRegister.DIGEST, TrainerRegister.RATE),
        ]
        for address in registers:
            assert_equal(f"register {address:#x}", await self.read(address), golden.read_register(address))

    async def reset(self, golden: ObservedTrainer):
        """Reset both."""
        golden.reset()
        self.run += 1
        await self.write(TrainerRegister.CONTROL, Control.RESET)
        for flights in (*self.expected.values(), *(sink.queue for sink in self.sinks.values())):
            flights.clear()
        self.met.clear()
        self.ends.clear()
