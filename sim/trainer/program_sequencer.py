# amaranth: UnusedElaboratable=no
"""Testbench of hw.trainer.program_sequencer: random programs, with engines that end their jobs after any time.

Golden says what each engine must get, and what it measures. No instruction may begin before an older one has ended that
writes what it reads or writes, or reads what it writes.
"""

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
from concord.sim.stimulus.trainer_copies import crowded_copies
from concord.sim.stimulus.trainer_damage import damaged
from concord.sim.stimulus.trainer_parts import SMALL
from concord.sim.stimulus.trainer_programs import TrainerProgram, random_program
from concord.sim.trainer.jobs.programs import Flight, ObservedTrainer
from concord.sim.trainer.sequencer_stand import SequencerStand
from concord.spec.host.registers import Control
from concord.spec.trainer.instructions import FIELDS, SIZES, Space, TrainerError, TrainerOp, decode, instruction
from concord.spec.trainer.registers import TrainerCounter, TrainerRegister
from concord.spec.trainer.views import TrainerView

CONFIGURATIONS = ("tiny",)
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "self.broken, TrainerError.MEMORY, self.error", "new": "0, TrainerError.MEMORY, self.error"},
    {"old": "other.eq(bases.value)", "new": "other.eq(0)"},
    {"old": "self.quiet & ~bases.busy & ~self.table.busy", "new": "self.quiet"},
    {"old": "m.d.comb += self.copies.eq(1)", "new": ""},
    {"file": "hw/trainer/hazards.py", "old": "(old.written | new.written)", "new": "new.written"},
    {"file": "hw/trainer/hazards.py", "old": "(old.written | new.written)", "new": "old.written"},
    {"file": "hw/trainer/hazards.py", "old": "& below & above", "new": "& below"},
    {"file": "hw/trainer/hazards.py", "old": "Mux(second, lengths[1], lengths[0])", "new": "lengths[0]"},
    {"file": "hw/trainer/job_queue.py", "old": "waits.eq(self.waits & self.active)", "new": "waits.eq(0)"},
    {"file": "hw/trainer/resolver.py", "old": "MOMENTUM_REACH, REACH)", "new": "REACH, REACH)"},
    {"file": "hw/trainer/resolver.py", "old": "facts.planes << 3", "new": "facts.operand_planes << 3"},
    {"file": "hw/trainer/extent_finder.py", "old": "(last[-1] | (origin >= limit))", "new": "last[-1]"},
    {"file": "hw/trainer/extent_finder.py", "old": "Mux(below, 0, origin)", "new": "origin"},
    {
        "file": "hw/trainer/exponent_table.py",
        "old": "Mux(old.data > merged.length, old.data, merged.length)",
        "new": "merged.length",
    },
    {"file": "hw/trainer/dispatcher.py", "old": "& ~extent.aligned", "new": "& 0"},
    {"file": "hw/trainer/dispatcher.py", "old": "self.wrong_size | self.rules.size", "new": "self.rules.size"},
)
JOB = {name: Packer(job) for name, job in JOBS.items()}
ENDED, MEETING, MET, SUMMARY, WATCH, WORD, WRITE = (
    Packer(shape) for shape in (Ended, Meeting, Met, SummaryWires, Watch, ProgramWord, ExponentWrite)
)
COPIES = 100  #: Copies of a program that wait for each other.
_LENGTH = ENDED.width
_FILLED = 14  #: The views with which random programs fill the memories lie below.


def component(_) -> SequencerStand:
    """The sequencer, which no machine changes."""
    return SequencerStand(SMALL)


def differing(got: dict, want: dict, place: str = "") -> list[str]:
    """Fields of a job that are not what golden says; fields that it leaves out do not count."""
    if "there" in got and not want:
        return [f"{place}there"] if got["there"] else []
    found = []
    for name, value in want.items():
        if isinstance(value, dict):
            found += differing(got[name], value, f"{place}{name}.")
        elif got[name] != value:
            found.append(f"{place}{name} = {got[name]} instead of {value}")
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


class Bench:
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


def made(rng: np.random.Generator, parts: int) -> TrainerProgram:
    """A random program, one in three damaged."""
    program = random_program(rng, parts)
    return damaged(rng, program) if rng.random() < 0.3 else program


def moved(rng: np.random.Generator) -> TrainerProgram:
    """A short program with a number of a view that is another one."""
    program = random_program(rng, 1)
    places, address = [], 0
    while (found := decode([*program.words, 0], address)) and found.op != TrainerOp.END:
        places += [address] if found.op == TrainerOp.TENSOR and address > _FILLED else []
        address += SIZES[found.op]
    if places:
        place = int(rng.choice(places))
        found = decode(program.words, place)
        assert found is not None
        name = str(rng.choice(["offset", "offset", "n1", "s0", "origin1", "limit1", "space", "block", "plane"]))
        field = FIELDS[TrainerOp.TENSOR][name]
        low, high = (-40, 40) if field.kind == "signed" else (0, min(1 << field.width, SMALL.words))
        values = {**found.values, name: int(rng.integers(low, high))}
        program.words[place : place + SIZES[found.op]] = instruction(found.op, **values).words
    return program


@cocotb.test(timeout_time=4, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.8])
async def programs_are_golden(dut, stall):
    """Programs one after the other, some behind a reset; short ones, most of which are refused."""
    bench, errors, golden = Bench(dut, stall=stall, slow=400 if stall else 40), set(), None
    await bench.start()
    for parts in (6, *[0] * 16):
        program = made(bench.rng, parts) if parts else moved(bench.rng)
        golden = golden or ObservedTrainer(SMALL, program.server.copy())
        golden.core.server[:] = program.server
        await bench.prepare(program, golden)
        await bench.begin(golden, *map(int, bench.rng.integers(-5, 900, 2)))
        await bench.finish(golden)
        errors.add(golden.error)
        if bench.rng.random() < 0.2:
            await bench.compare(golden)
            await bench.reset(golden)
    await bench.compare(golden)
    assert {TrainerError.SIZE, TrainerError.RANGE} <= errors


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def a_reset_leaves_nothing_behind(dut):
    """At any moment: a start at once is right, with the program and the rates that were there."""
    bench = Bench(dut, stall=0.3, slow=60)
    await bench.start()
    for _ in range(3):
        program = made(bench.rng, 2)
        golden, again = (ObservedTrainer(SMALL, program.server.copy()) for _ in range(2))
        await bench.prepare(program, golden)
        await bench.begin(golden, 3, 5)
        await clock(dut, int(bench.rng.integers(1, 1500)))
        await bench.reset(golden)
        await clock(dut, 3)
        got = WATCH.of(int(dut.watch.value))
        assert got | {"running": 0, "done": 0, "error": 0, "address": 0} == got
        await bench.write(TrainerRegister.CONTROL, Control.CLEAR)
        again.load(program.words)
        for register, value in program.rates.items():
            again.write_register(register, value)
        await bench.begin(again, 3, 5)
        await bench.finish(again)
        await bench.compare(again)
        await bench.reset(again)
        await bench.write(TrainerRegister.CONTROL, Control.CLEAR)


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def failed_accesses_end_programs(dut):
    """An access that fails stops the dispatch; what is in flight ends, and the error is MEMORY."""
    bench = Bench(dut, stall=0.3, slow=60)
    await bench.start()
    for _ in range(4):
        program = random_program(bench.rng, 3)
        golden = ObservedTrainer(SMALL, program.server.copy())
        await bench.prepare(program, golden)
        await bench.begin(golden, 3, 5)
        await clock(dut, int(bench.rng.integers(1, 200)))
        dut.failed.value = 1
        await clock(dut)
        dut.failed.value = 0
        before = WATCH.of(int(dut.watch.value))["address"]
        await until(dut, lambda: WATCH.of(int(dut.watch.value))["done"])
        got = WATCH.of(int(dut.watch.value))
        assert got["error"] == TrainerError.MEMORY
        assert got["address"] >= before or golden.repeats
        assert bench.taken == bench.ended, "an instruction in flight has not ended"
        await bench.reset(golden)
        bench.taken.clear()
        bench.ended.clear()


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def copies_wait_for_each_other(dut):
    """Copies among few words, of which each may read or write what another one does; also those of exponents."""
    bench = Bench(dut, stall=0.3, slow=500)  # longer than the dispatch of several copies
    await bench.start()
    program = random_program(bench.rng, 0)
    program.words[:] = crowded_copies(bench.rng, COPIES, len(program.server))
    golden = ObservedTrainer(SMALL, program.server.copy())
    await bench.prepare(program, golden)
    await bench.begin(golden, 3, 5)
    await bench.finish(golden)
    assert len(golden.flights) == COPIES
    await bench.compare(golden)


def joint(program: TrainerProgram) -> list[int]:
    """The words of a program whose measures are those of two cores, which add up rows and meet at the end."""
    words, address = [*program.words], 0
    while (found := decode([*words, 0], address)) and found.op != TrainerOp.END:
        if found.op == TrainerOp.MEASURE:
            words[address] = instruction(found.op, **{**found.values, "cores": 3}).words[0]
        address += SIZES[found.op]
    places = TrainerView(
        space=Space.SERVER, planes=6, blocks=2, n0=2, s0=96, plane=16, block=8, n2=8, pitch2=1, offset=9
    )
    added = [*places.tensor(5).words, *instruction(TrainerOp.SUM, x=5, acc=7, cores=3).words]
    return [*words[:address], *added, *instruction(TrainerOp.BARRIER, cores=3).words, *words[address:]]


@cocotb.test(timeout_time=4, timeout_unit="ms")
@cocotb.parametrize(number=[0, 1])
async def cores_measure_together(dut, number):
    """Two cores with other memories execute one program; the bench brings what the other one has measured."""
    bench, met = Bench(dut, stall=0.3, slow=60), 0
    await bench.start()
    dut.number.value = number
    for _ in range(4):
        program = random_program(bench.rng, 4)
        program.words[:] = joint(program)
        golden = ObservedTrainer(SMALL, program.server.copy(), number)
        other = ObservedTrainer(SMALL, bench.rng.permuted(program.server, axis=0), 1 - number)
        other.core.server[:2] = program.server[:2]
        await bench.prepare(program, golden)
        other.load(program.words)
        for register, value in program.rates.items():
            other.write_register(register, value)
        await bench.begin(golden, 3, 5, other)
        cocotb.start_soon(bench.answer(golden))
        await bench.finish(golden)
        await bench.compare(golden)
        met += len(golden.meetings)
        await bench.reset(golden)
        await bench.write(TrainerRegister.CONTROL, Control.CLEAR)
    assert met > 4
