# amaranth: UnusedElaboratable=no
"""Testbench of hw.trainer.program_sequencer: random programs, with engines that end their jobs after any time.

Golden says what each engine must get, and what it measures. No instruction may begin before an older one has ended that
writes what it reads or writes, or reads what it writes.
"""

import cocotb
import numpy as np
from concord.sim.drivers.stream import clock, until
from concord.sim.stimulus.trainer_copies import crowded_copies
from concord.sim.stimulus.trainer_damage import damaged
from concord.sim.stimulus.trainer_parts import SMALL
from concord.sim.stimulus.trainer_programs import TrainerProgram, random_program
from concord.sim.trainer.jobs.programs import ObservedTrainer
from concord.sim.trainer.sequencer_bench import WATCH, SequencerBench
from concord.sim.trainer.sequencer_stand import SequencerStand
from concord.spec.host.registers import Control
from concord.spec.trainer.instructions import FIELDS, SIZES, Space, TrainerError, TrainerOp, decode, instruction
from concord.spec.trainer.registers import TrainerRegister
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
COPIES = 100  #: Copies of a program that wait for each other.
_FILLED = 14  #: The views with which random programs fill the memories lie below.


def component(_) -> SequencerStand:
    """The sequencer, which no machine changes."""
    return SequencerStand(SMALL)


def made(rng: np.random.Generator, parts: int) -> TrainerProgram:
    """A random program, one in three damaged."""
    program = random_program(rng, parts)
    return damaged(rng, program) if rng.random() < 0.3 else program


def moved(rng: np.random.Generator) -> TrainerProgram:
    """A short program with a number of a view that is another one."""
    program = random_program(rng, 1)
    addresses, address = [], 0
    while (found := decode([*program.words, 0], address)) and found.op != TrainerOp.END:
        addresses += [address] if found.op == TrainerOp.TENSOR and address > _FILLED else []
        address += SIZES[found.op]
    if addresses:
        chosen = int(rng.choice(addresses))
        found = decode(program.words, chosen)
        assert found is not None
        name = str(rng.choice(["offset", "offset", "n1", "s0", "origin1", "limit1", "space", "block", "plane"]))
        field = FIELDS[TrainerOp.TENSOR][name]
        most = 1 << field.width if name == "plane" and rng.random() < 0.5 else min(1 << field.width, SMALL.words)
        low, high = (-40, 40) if field.kind == "signed" else (0, most)
        values = {**found.values, name: int(rng.integers(low, high))}
        program.words[chosen : chosen + SIZES[found.op]] = instruction(found.op, **values).words
    return program


@cocotb.test(timeout_time=4, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.8])
async def programs_are_golden(dut, stall):
    """Programs one after the other, some behind a reset; short ones, most of which are refused."""
    bench, errors, golden = SequencerBench(dut, stall=stall, slow=400 if stall else 40), set(), None
    await bench.start()
    for parts in (6, *[0] * 24):
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
    bench = SequencerBench(dut, stall=0.3, slow=60)
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
    bench = SequencerBench(dut, stall=0.3, slow=60)
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
    bench = SequencerBench(dut, stall=0.3, slow=500)  # longer than the dispatch of several copies
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
    regions = TrainerView(
        space=Space.SERVER, planes=6, blocks=2, n0=2, s0=96, plane=16, block=8, n2=8, pitch2=1, offset=9
    )
    added = [*regions.tensor(5).words, *instruction(TrainerOp.SUM, x=5, acc=7, cores=3).words]
    return [*words[:address], *added, *instruction(TrainerOp.BARRIER, cores=3).words, *words[address:]]


@cocotb.test(timeout_time=4, timeout_unit="ms")
@cocotb.parametrize(number=[0, 1])
async def cores_measure_together(dut, number):
    """Two cores with other memories execute one program; the bench brings what the other one has measured."""
    bench, met = SequencerBench(dut, stall=0.3, slow=60), 0
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
