"""Testbench of hw.decode.base_registers: a model of the registers beside it."""

import cocotb
import numpy as np
from cocotb.triggers import Timer
from concord.sim.drivers.bench import CONFIG
from concord.sim.drivers.stream import clock, start
from concord.spec.isa.instructions import (
    BASES,
    REGISTER_BITS,
    Instruction,
    Op,
    Reg,
    base_bits,
    encode,
    increment,
    register_value,
)

CONFIGURATIONS = ("vision_dram", "tiny")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "for k in range(1, len(bases)):", "new": "for k in range(len(bases)):"},
    {"old": "total[bits])", "new": "total[bits - 1])"},
    {"old": "f.b - ((f.op == Op.S_ADD) & f.a[-1])", "new": "f.b", "config": "vision_dram"},
)


BITS = base_bits(CONFIG)
EDGES = (0, 1, 0xFFFF, 0x7FFF, 0x8000)


def number(rng: np.random.Generator) -> int:
    """A number of as many bits as instructions give to a base register; often one at an end of a half."""
    halves = [int(rng.choice((*EDGES, rng.integers(1 << REGISTER_BITS)))) for _ in range(BITS // REGISTER_BITS)]
    if len(halves) > 1 and rng.random() < 0.5:
        halves[1] = int(rng.choice((0, 0xFFFF)))
    return sum(half << REGISTER_BITS * k for k, half in enumerate(halves))


async def pass_through(dut):
    """Let the instruction at `fields` become the present one."""
    await clock(dut)
    dut.load.value, dut.advance.value = 0, 1
    dut.fields.value = 0
    await clock(dut)
    dut.advance.value = 0
    await Timer(1, "ns")


@cocotb.test()
async def follows_every_instruction(dut):
    """Sums, their limits and addresses, after random `s_wr` and `s_add`, of which some are not executed."""
    rng, bases = np.random.default_rng(cocotb.RANDOM_SEED), [0] * (1 + len(BASES))
    await start(dut, "fields", "load", "advance", "write", "add", "clear")
    for _ in range(3000):
        dut.write.value = dut.add.value = dut.clear.value = 0
        dut.load.value = 1
        a = number(rng)
        if rng.random() < 0.3:
            base = int(rng.integers(len(bases)))
            a &= (1 << REGISTER_BITS) - 1
            dut.fields.value = encode(Instruction(op=Op.V_RD, base=base, a=a))
            await pass_through(dut)
            assert int(dut.address.value) == a + bases[base]
            assert not dut.moves.value
            await clock(dut)
        else:
            reg = int(rng.choice(BASES if rng.random() < 0.8 else list(Reg)))
            base = 1 + BASES.index(reg) if reg in BASES else 0
            adds = int(rng.integers(2))
            instruction = Instruction(op=Op.S_ADD if adds else Op.S_WR, mem=reg, a=a & 0xFFFF, b=a >> REGISTER_BITS)
            dut.fields.value = encode(instruction)
            total = bases[base] + increment(instruction) if adds else register_value(instruction)
            fits = 0 <= total < 1 << BITS
            await pass_through(dut)
            assert bool(dut.moves.value) == bool(base)
            await clock(dut)
            await Timer(1, "ns")
            assert bool(dut.outside.value) != fits or not adds or not base
            if fits and rng.random() < 0.8:
                dut.write.value, dut.add.value = 1 - adds, adds
                bases[base] = total if base else 0
        if rng.random() < 0.01:
            dut.clear.value, bases = 1, [0] * len(bases)
        dut.fields.value = int.from_bytes(rng.bytes(8), "little")  # of an instruction that waits
        await clock(dut)
