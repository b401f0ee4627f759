"""Testbench of hw.decode.decoder against spec.isa.check: chains, errors, addresses and counts of any program."""

import random
from collections.abc import Iterator
from itertools import islice

import cocotb
import numpy as np
from concord.hw.lib.outside import Failure
from concord.hw.lib.payloads import Fetched, Load
from concord.hw.lib.payloads import chain as chain_layout
from concord.sim.drivers.bench import CONFIG, Packer, assert_equal
from concord.sim.drivers.stream import Sink, StreamSource, clock, reset, start
from concord.sim.stimulus import random_values
from concord.sim.stimulus.chains import fields, meaning
from concord.sim.stimulus.entry_chains import any_chain, legal_chain, moving_loops
from concord.sim.stimulus.faults import fault
from concord.sim.stimulus.limits import limits
from concord.sim.stimulus.program_generator import ProgramGenerator
from concord.spec.isa.assembler import assemble
from concord.spec.isa.chain import Chain
from concord.spec.isa.check import Sequencer
from concord.spec.isa.disassembler import disassemble
from concord.spec.isa.instructions import WORD, Error
from concord.spec.isa.rules import Violation

CONFIGURATIONS = ("vision_dram", "trainer", "tiny_softmax", "tiny", "serial", "wide")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "total > config.mvmq_words", "new": "total >= config.mvmq_words"},
    {"file": "hw/decode/chain_builder.py", "old": "v.stride_out >= v.words", "new": "v.stride_out > v.words"},
    {"old": "(first[1] < builder.source_end)", "new": "(first[1] <= builder.source_end)"},
    {"file": "hw/decode/base_registers.py", "old": "value.as_signed()", "new": "value"},
    {"old": "(window & ~v.fits)", "new": "(window & 0)"},
    {"old": "((window | pool) & v.no_pixels)", "new": "(window & v.no_pixels)"},
    {"file": "hw/decode/instruction_check.py", "old": "place.position > s.position",
     "new": "place.position > s.position + 1"},
    {"old": "ahead |= chain.memory == DRAM", "new": "ahead |= 0", "config": "vision_dram"},
    {"old": "c.source.valid | c.outside.reads.valid if", "new": "c.source.valid if", "config": "vision_dram"},
    {"old": "self.error_address.eq(self.lost.tag)", "new": "self.error_address.eq(self.source_address)",
     "config": "vision_dram"},
    {"old": "m.next = \"PACKED\"", "new": "m.next = \"CHECKED\"", "config": "vision_dram"},
    {"old": "broken = broken | self.lost.valid", "new": "broken = broken | 0", "config": "vision_dram"},
)

CHAIN, TILE = Packer(chain_layout(CONFIG)), Packer(Load)
INSTRUCTION, FAILURE = Packer(Fetched), Packer(Failure)
MOST = 300  #: Most chains of one program.


def walk(sequencer: Sequencer) -> tuple[list[Chain], Error, int]:
    """The first MOST chains of a program, the error with which it stops, and the address of the instruction."""
    chains = []
    try:
        for chain in islice(sequencer.walk(), MOST + 1):
            chains.append(chain)
    except Violation as violation:
        return chains, violation.error, violation.address
    return chains, Error.NONE, 0


class Bench:
    """A decoder with a model of the instruction buffer at its input; every chain at its output is taken."""

    def __init__(self, dut, stall: float):
        self.dut, self.stall, self.random = dut, stall, random.Random(cocotb.RANDOM_SEED)
        self.chains = Sink(dut, "o", stall=stall)
        self.loaded = StreamSource(dut, "loaded", stall=stall)
        self.modes = [False] * CONFIG.matrix_tiles
        dut.start.value = dut.message_error.value = dut.drained.value = dut.i__valid.value = 0
        if CONFIG.dram_words:
            dut.memory_error.value = 0

    async def load(self, tile_modes: list[bool]):
        """Write the modes of all tiles into the unit."""
        self.modes = list(tile_modes)
        await self.loaded.send(*(TILE.join({"tile": t, "integer": mode}) for t, mode in enumerate(tile_modes)))

    async def run(self, program: list[int], drained: float = 0.2) -> dict[str, int]:
        """Feed a program as the instruction fetch does until the decoder is done, and return its event counts.

        Args:
            program: Instruction words.
            drained: Probability of a cycle in which all chains are finished; `self.drained` changes it later.
        """
        dut, address, self.drained = self.dut, 0, drained
        count = dict.fromkeys(("instructions", "chains", "pushed"), 0)
        dut.start.value = 1
        await clock(dut)
        dut.start.value = 0
        await clock(dut)
        while dut.running.value:
            taken = dut.i__valid.value and dut.i__ready.value
            if taken:
                address = int(dut.target.value) if dut.jump.value else address + 1
            if not dut.i__valid.value or taken:
                offer = dut.run.value and self.random.random() >= self.stall
                dut.i__valid.value = int(offer)
                word = program[address] if address < len(program) else 0
                dut.i__payload.value = INSTRUCTION.join({
                    "address": address, "word": word, "outside": address == CONFIG.instructions})
            if not dut.run.value:
                dut.i__valid.value = 0
            for name in count:
                count[name] += int(getattr(dut, name).value)
            dut.drained.value = int(self.random.random() < self.drained)
            await clock(dut)
        return count

    async def compare(self, program: list[int]) -> Error | None:
        """Run a program, compare with `spec.isa.check`; return its error, or None if it has more chains than MOST."""
        sequencer = Sequencer(CONFIG, program, list(self.modes))
        chains, error, address = walk(sequencer)
        if len(chains) > MOST:
            return None
        count = await self.run(program)
        await clock(self.dut, 2)
        self.modes = sequencer.modes
        stopped = Error(int(self.dut.error.value)), int(self.dut.error_address.value)
        assert stopped == (error, address), disassemble(program)
        assert self.dut.done.value
        got = [CHAIN.of(payload) for payload in self.chains.queue]
        self.chains.queue.clear()
        for chain, record in zip(chains, got, strict=True):
            want = CHAIN.of(CHAIN.join(fields(CONFIG, chain)))
            assert_equal("chain", meaning(record), meaning(want), address=chain.address)
            assert meaning(record) == meaning(want), f"chain at {chain.address}"
        assert count == {"chains": len(chains), "instructions": sequencer.executed,
                         "pushed": sum(chain.pushes for chain in chains)}
        return error


def programs(rng: np.random.Generator, count: int) -> Iterator[tuple[list[bool], list[int]]]:
    """Pairs (modes of the tiles, program); programs are legal, have one fault, or are legal but for one flipped bit.

    Half of them end with chains that use VectorRf, windows or base registers in loops.
    """
    for number in range(count):
        modes = random_values.modes(CONFIG, rng)
        generator = ProgramGenerator(CONFIG, rng, modes, budget=500)
        for _ in range(int(rng.integers(8))):
            generator.extend()
        if number % 4 < 2:
            program = fault(generator) if number % 3 == 1 else generator.end()
        else:
            program, now = generator.program, generator.state().modes
            program = program + [word for _ in range(3) for word in legal_chain(CONFIG, rng, now)]
            program += [*(any_chain if number % 4 == 2 else moving_loops)(CONFIG, rng, now), *assemble("end")]
        if number % 3 == 2:
            program[rng.integers(len(program))] ^= 1 << int(rng.integers(WORD))
        yield modes, program


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.4])
async def matches_spec(dut, stall):
    """Random programs one after another; each finds the tile modes that its predecessor left or the host loaded."""
    bench, found = Bench(dut, stall), set()
    await start(dut)
    for number, (modes, program) in enumerate(programs(np.random.default_rng(cocotb.RANDOM_SEED), 96)):
        if number % 2 == 0:
            await bench.load(modes)
        found.add(await bench.compare(program))
    assert len(found) > 5, found


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(beyond=[0, 1])
async def limits_to_the_word(dut, beyond):
    """A program at a limit of the machine is legal; with one word, tile, row or loop more it is not."""
    bench = Bench(dut, 0.0)
    await start(dut)
    for text in limits(CONFIG, beyond):
        await bench.load([False] * CONFIG.matrix_tiles)
        error = await bench.compare(assemble(text))
        assert (error != Error.NONE) == beyond, text


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def message_error_stops(dut):
    """A malformed message stops the program, and no program starts until reset."""
    bench, rng = Bench(dut, 0.0), np.random.default_rng(cocotb.RANDOM_SEED)
    await start(dut)
    program = assemble("loop 60000\ns_wr Rows, 1\nend_loop\nend")
    running = cocotb.start_soon(bench.run(program))
    await clock(dut, int(rng.integers(5, 100)))
    dut.message_error.value = 1
    await running
    for _ in range(2):
        assert (int(dut.error.value), int(dut.error_address.value), int(dut.running.value)) == (Error.MESSAGE, 0, 0)
        await bench.run(program)
    dut.message_error.value = 0
    await reset(dut)
    assert await bench.compare(assemble("end")) == Error.NONE


@cocotb.test(timeout_time=1, timeout_unit="ms", skip=not CONFIG.dram_words)
@cocotb.parametrize(late=[0, 1])
async def memory_error_stops(dut, late):
    """The first failed access to Dram stops the program with its tag as the address; the next program is not affected.

    A late failure comes when the program has ended and its chains have not.
    """
    bench, rng = Bench(dut, 0.0), np.random.default_rng(cocotb.RANDOM_SEED)
    await start(dut)
    for _ in range(20):
        running = cocotb.start_soon(bench.run(assemble("end" if late else (
            "loop 60000\ns_wr Rows, 1\nv_rd NetQ\nv_wr NetQ\nend_chain\nend_loop\nend")), drained=0.0 if late else 0.2))
        await clock(dut, int(rng.integers(20, 60) if late else rng.integers(5, 100)))
        tags = [int(tag) for tag in rng.integers(0, 1 << 16, 2)]
        for tag in tags:
            dut.memory_error.value = FAILURE.join({"valid": 1, "tag": tag})
            await clock(dut)
            dut.memory_error.value = FAILURE.join({"valid": 0, "tag": int(rng.integers(1 << 16))})
            await clock(dut, int(rng.integers(1, 4)))
        bench.drained = 0.2
        await running
        await clock(dut, 2)
        assert (int(dut.error.value), int(dut.error_address.value)) == (Error.MEMORY, tags[0])
        assert dut.done.value
        bench.chains.queue.clear()
        bench.modes = [False] * CONFIG.matrix_tiles
        assert await bench.compare(assemble("v_rd NetQ\nv_wr NetQ\nend_chain\nend")) == Error.NONE
