"""Testbench of hw.decode.chain_builder against spec.chain: the record that the instructions of a chain add up to."""

import os

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge
from concord.hw.decode.instruction_check import Place
from concord.hw.decode.scalar_registers import Derived
from concord.hw.lib.payloads import chain as chain_layout
from concord.sim.drivers.configs import from_text
from concord.sim.drivers.record import Record
from concord.sim.drivers.stream import start
from concord.sim.stimulus.chains import fields, meaning, random_chains
from concord.spec.chain import Chain
from concord.spec.isa import SPECS, Op, encode
from concord.spec.memories import depth

CONFIG = from_text(os.environ["CONFIG"])
CHAIN, PLACE, VALUES = Record(chain_layout(CONFIG)), Record(Place), Record(Derived)


def values(chain: Chain) -> dict[str, int]:
    """The scalar registers of a chain, and the values derived from them."""
    r = chain.registers
    return {name: getattr(r, name) for name in r.__slots__} | {
        "words": CONFIG.words_of(r.rows), "operand_words": r.columns * CONFIG.vector_words,
        "row_tiles": CONFIG.vectors_of(r.rows),
        "span_source": (r.iterations_x - 1) * r.stride_x + (r.iterations // r.iterations_x - 1) * r.stride_y}


def end(chain: Chain, instruction) -> int:
    """Address after the last word that an operand or a write touches."""
    return instruction.a + chain.result_words + chain.offset(instruction, chain.registers.iterations - 1)


async def build(dut, rng, chain: Chain):
    """Feed the instructions of a chain with random pauses, with the positions that the decoder would give."""
    dut.values.value, position = VALUES.join(values(chain)), 0
    for number, instruction in enumerate(chain.instructions):
        while rng.random() < 0.2:
            dut.fields.value = int.from_bytes(rng.bytes(8), "little")  # noise that the unit must not take
            await RisingEdge(dut.clk)
        dut.place.value, dut.fields.value = PLACE.join({"position": position}), encode(instruction)
        used = instruction.op == Op.V_WR or SPECS[instruction.op].operand
        dut.end.value = end(chain, instruction) if used else 0
        dut.begin.value, dut.add.value = int(number == 0), int(number > 0)
        await RisingEdge(dut.clk)
        dut.begin.value = dut.add.value = 0
        if SPECS[instruction.op].operation:
            position = SPECS[instruction.op].position + 1
    dut.place.value = PLACE.join({"position": position})
    await RisingEdge(dut.clk)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def matches_spec(dut):
    """Random chains of all kinds, one after another."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    for name in ("begin", "add", "fields", "end", "place", "values"):
        getattr(dut, name).value = 0
    await start(dut)
    for chain in random_chains(CONFIG, rng, 200):
        await build(dut, rng, chain)
        want, got = CHAIN.of(CHAIN.join(fields(CONFIG, chain))), CHAIN.of(int(dut.o.value))
        assert meaning(got) == meaning(want), f"chain at {chain.address}"
        assert int(dut.source.value) == chain.source.a
        if chain.random_source:
            assert int(dut.source_end.value) == want["source"]["hi"] <= depth(CONFIG, chain.source.mem)
