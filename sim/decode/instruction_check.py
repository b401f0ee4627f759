"""Testbench of hw.decode.instruction_check against spec.isa.check: one instruction after a legal beginning."""

from collections import deque
from contextlib import suppress

import cocotb
import numpy as np
from concord.hw.decode.instruction_check import ChainPosition
from concord.hw.decode.scalar_registers import derived
from concord.hw.lib.payloads import INDEX, chain
from concord.sim.drivers.bench import CONFIG, Packer
from concord.sim.drivers.stream import clock, start
from concord.sim.stimulus import random_values
from concord.sim.stimulus.entry_chains import legal_chain
from concord.sim.stimulus.program_generator import ProgramGenerator
from concord.spec.isa import instructions as isa
from concord.spec.isa.assembler import assemble
from concord.spec.isa.check import Sequencer, check
from concord.spec.isa.dram import entries_words
from concord.spec.isa.instructions import SPECS, Error, Instruction, Op, decode, encode
from concord.spec.isa.memories import VRFS, Mem
from concord.spec.isa.rules import Violation

CONFIGURATIONS = ("vision_dram", "trainer", "tiny_softmax", "tiny", "serial", "wide")
TESTED = ("tiny_softmax", "wide")

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "first & raw & (c.memory != ENTRIES)", "new": "first & raw & 0", "config": "vision_dram"},
    {"old": "~first & c.outside.raw & ~is_op(k, Op.END_CHAIN)", "new": "~first & 0", "config": "vision_dram"},
    {"old": "was[\"any_b\"] & ~was[\"base\"]", "new": "was[\"any_b\"] & 0", "config": "vision_dram"},
    {"old": "Mux(self.chain.mode.integer, words[1], words[0])", "new": "words[0]", "config": "vision_dram"},
)

SETTLED = 7  #: Cycles after which all outputs belong to inputs that stand still.

POSITION, CHAIN, VALUES = Packer(ChainPosition), Packer(chain(CONFIG)), Packer(derived(CONFIG))


def after(program: list[int]) -> tuple[dict, dict]:
    """The decoder's state after `program` and the unfinished chain, reduced to the fields that the unit reads."""
    where, so_far = {"loops": 0}, {}
    for instruction in map(decode, program):
        op, mem = instruction.op, instruction.mem
        where["loops"] += (op == Op.LOOP) - (op == Op.END_LOOP)
        if op in (Op.V_RD, Op.M_RD):
            where |= {"open": 1, "length": 1, "position": 0, "closed": 0, "written": 0, "writes": 0}
            outside = {"raw": instruction.raw} if CONFIG.dram_words else {}
            so_far = {"matrix": op == Op.M_RD, "memory": INDEX[mem], "writes": {},
                      **({"outside": outside} if outside else {}),
                      "mode": {"integer": instruction.integer, "unsigned": instruction.unsigned}}
        elif op == Op.END_CHAIN:
            where, so_far = {"loops": where["loops"]}, {}
        elif where.get("open"):
            where["length"] = min(where["length"] + 1, 15)
            where["written"] = op in (Op.V_WR, Op.M_WR)
            where["closed"] = op == Op.M_WR or (op == Op.V_WR and mem == Mem.MVM_Q)
            so_far |= {"mv_mul": 1} if op == Op.MV_MUL else {}
            so_far |= {"softmax": 1} if op == Op.V_SOFTMAX else {}
            if SPECS[op].operation:
                where["position"] = SPECS[op].position + 1
            if op == Op.V_WR:
                where["writes"] += 1
                so_far |= {"net": 1} if mem == Mem.NET_Q else {}
                so_far |= {"entries": {"valid": 1}} if mem == Mem.VECTOR_RF else {}
                if mem == Mem.DRAM:
                    so_far["outside"] = {"raw": instruction.raw, "writes": {"valid": 1}}
                if mem in VRFS:
                    so_far["writes"] |= {INDEX[mem]: {"valid": 1}}
    return where, so_far


def sum_outside(before: list[int], word: int, modes: list[bool]) -> bool:
    """Whether the word is an `s_add` after the program `before`, and its base register cannot hold the sum."""
    instruction = decode(word)
    if instruction is None or instruction.op != Op.S_ADD or instruction.mem not in isa.BASES:
        return False
    state = Sequencer(CONFIG, before, list(modes))
    with suppress(Violation):  # the walk stops after the last instruction
        deque(state.walk(repeat=False), 0)
    return not 0 <= state.bases[isa.base_number(instruction)] + isa.increment(instruction) < 1 << isa.base_bits(CONFIG)


def candidate(rng: np.random.Generator, program: list[int], address: int) -> int:
    """A random instruction: one of the program, unchanged or with a wrong bit or opcode, or a random word."""
    word = program[rng.integers(len(program))]
    if CONFIG.dram_words and rng.random() < 0.2:
        return _of_dram(rng)
    match rng.integers(6):
        case 0:
            word ^= 1 << int(rng.integers(isa.WORD))
        case 1:
            word = word & ~0xFF | int(rng.integers(max(Op) + 4))
        case 2:
            word = int(rng.integers(max(Op) + 1)) | int(rng.integers(12)) << 16
        case 3:
            # A bit of the modes or of the base.
            more = (24, 25, 26) if CONFIG.dram_words else ()
            word = program[address] ^ 1 << int(rng.choice((*range(8, 16), *more)))
        case 4:
            word = encode(Instruction(op=Op.S_ADD, mem=int(rng.choice(list(isa.Reg))), a=int(rng.integers(1 << 16))))
    return word


def legal_chains(rng: np.random.Generator, modes: list[bool]) -> list[int]:
    """Four legal chains that follow each other; each finds the tiles as those before it have left them."""
    program, now = [], list(modes)
    for _ in range(4):
        words = legal_chain(CONFIG, rng, now)
        deque(Sequencer(CONFIG, [*words, *assemble("end")], now).walk(), 0)  # keeps the modes in `now`
        program += words
    return program


def _of_dram(rng: np.random.Generator) -> int:
    """A read or write of a memory that chains with Dram name, with random marks."""
    op, mem = rng.choice((Op.V_RD, Op.M_RD, Op.V_WR, Op.V_WR, Op.M_WR)), rng.choice(
        (Mem.DRAM, Mem.DRAM, Mem.BIAS_RF, Mem.VECTOR_RF, Mem.MATRIX_RF, Mem.NET_Q, Mem.ADDSUB_VRF1))
    marks = ("inc", "integer", "unsigned", "raw", "diagonal", "transposed")
    return int(op) | int(mem) << 16 | sum(1 << isa.FIELDS[mark].lo for mark in marks if rng.random() < 0.25)


async def begin(dut):
    """Start the clock; every instruction at `word` becomes the present one."""
    await start(dut)
    dut.load.value = dut.advance.value = 1


@cocotb.test()
async def matches_spec(dut):
    """Random instructions at every position of random programs."""
    rng, found = np.random.default_rng(cocotb.RANDOM_SEED), set()
    dut.outside.value = dut.values.value = dut.address.value = 0
    await begin(dut)
    for number in range(60):
        modes = random_values.modes(CONFIG, rng)
        generator = ProgramGenerator(CONFIG, rng, modes, budget=300)
        for _ in range(4):
            generator.extend()
        program = generator.end()
        if number % 3 == 0:
            program = [*legal_chains(rng, modes), *assemble("end")]
        for address in rng.integers(0, len(program), 80):
            before, word = program[:address], candidate(rng, program, address)
            where, so_far = after(before)
            violation = check([*before, word], CONFIG, list(modes))
            dut.sum_outside.value = sum_outside(before, word, modes)
            dut.word.value, dut.place.value, dut.chain.value = word, POSITION.join(where), CHAIN.join(so_far)
            await clock(dut, SETTLED)
            # An error that only the whole chain shows is reported at an earlier address.
            want = violation.error if violation and violation.address == address else Error.NONE
            found.add(want)
            assert Error(int(dut.error.value)) == want, f"{address}: {decode(word)}"
    assert found >= {Error.NONE, Error.ILLEGAL, Error.RANGE, Error.FORMAT, Error.LOOP}, found


@cocotb.test()
async def outside_is_the_end(dut):
    """An address beyond the instruction buffer is always an error."""
    dut.word.value = int(Op.END)
    dut.place.value = dut.chain.value = 0
    await begin(dut)
    for outside in (0, 1):
        dut.outside.value = outside
        await clock(dut, SETTLED)
        assert int(dut.error.value) == (Error.END if outside else Error.NONE)


@cocotb.test()
async def ranges(dut):
    """The last address that an instruction touches, and whether it lies in its memory."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    dut.outside.value = dut.place.value = dut.chain.value = 0
    await begin(dut)
    sizes = {Op.VV_ADD0: CONFIG.addsub_vrf, Op.VV_MUL1: CONFIG.multiply_vrf}
    sizes |= {Op.V_WR: CONFIG.vector_rf} if CONFIG.vector_rf else {}
    counts = {Op.MV_MUL: "tiles", Op.M_WR: "iterations", Op.V_WR: "row_tiles"}
    for _ in range(2000):
        op = (*sizes, Op.MV_MUL, Op.M_WR)[rng.integers(len(sizes) + 2)]
        size = sizes.get(op, CONFIG.matrix_tiles)
        names = ["words", "iterations", "tiles", "row_tiles", "span_out", "span_vec"]
        names += ["passes"] * bool(CONFIG.dram_words)
        values = {name: int(rng.integers(1, size + 2)) for name in names}
        vectors = CONFIG.dram_words and int(rng.integers(2))  # the tiles of `m_wr` are made of vectors
        dut.chain.value = CHAIN.join({"memory": INDEX[VRFS[rng.integers(len(VRFS))] if vectors else Mem.NET_Q]})
        counts[Op.M_WR] = "passes" if vectors else "iterations"
        inc = int(rng.integers(2)) if op in sizes else 0
        first = int(rng.integers(size))
        dut.word.value = encode(Instruction(op=op, mem=Mem.VECTOR_RF if op == Op.V_WR else 0, inc=inc))
        dut.address.value = first
        dut.values.value = VALUES.join(values)
        await clock(dut, SETTLED)
        end = first + values[counts.get(op, "words")] + values["span_vec" if op == Op.V_WR else "span_out"] * inc
        assert int(dut.end.value) == end
        assert int(dut.beyond.value) == (end > size), op.name


@cocotb.test(skip=not CONFIG.dram_words)
async def ranges_of_dram(dut):
    """The same for writes of words and packed entries to Dram, and of integers to BiasRf, near both ends of 32 bits."""
    rng, last = np.random.default_rng(cocotb.RANDOM_SEED), {Mem.DRAM: CONFIG.dram_words, Mem.BIAS_RF: CONFIG.bias_words}
    dut.outside.value = dut.place.value = 0
    await begin(dut)
    beyond = 0
    for _ in range(1000):
        mem = Mem.DRAM if rng.random() < 0.7 else Mem.BIAS_RF
        size, (integer, inc) = last[mem], map(int, rng.integers(0, 2, 2))
        raw = int(mem == Mem.DRAM and rng.random() < 0.5)
        span = rng.choice((0, 3, rng.integers(1 << 32))) if rng.random() < 0.3 else rng.integers(20)
        values = {"words": int(rng.integers(1, 40)), "row_tiles": int(rng.integers(1, 20)), "span_out": int(span)}
        count = entries_words(CONFIG, values["row_tiles"], integer=bool(integer)) if raw else values["words"]
        end = int(rng.choice((size, size + 1, size - 1, 1 << 32, count + 3)))
        first = min(max(0, end - count - values["span_out"] * inc), (1 << isa.base_bits(CONFIG) + 1) - 1)
        dut.word.value = encode(Instruction(op=Op.V_WR, mem=mem, inc=inc, raw=raw))
        dut.address.value, dut.values.value = first, VALUES.join(values)
        dut.chain.value = CHAIN.join({"mode": {"integer": integer}, "memory": INDEX[Mem.VECTOR_RF]})
        await clock(dut, SETTLED)
        end = first + count + values["span_out"] * inc
        assert int(dut.end.value) == end
        assert int(dut.beyond.value) == (end > size), mem.name
        beyond += end > size
    assert 200 < beyond < 800
