"""Testbench of hw.decode.chain_builder against spec.isa.chain: the record of the instructions of a chain."""

from dataclasses import replace

import cocotb
import numpy as np
from concord.hw.decode.instruction_check import ChainPosition, kind_of
from concord.hw.decode.scalar_registers import derived
from concord.hw.lib.payloads import chain as chain_layout
from concord.sim.drivers.bench import CONFIG, Packer
from concord.sim.drivers.stream import clock, start
from concord.sim.stimulus.chains import fields, meaning, random_chains
from concord.sim.stimulus.entry_chains import legal_chain
from concord.spec.isa.assembler import assemble
from concord.spec.isa.chain import Chain
from concord.spec.isa.check import Sequencer
from concord.spec.isa.instructions import SPECS, Instruction, Op, encode
from concord.spec.isa.memories import ADDRESSED, Mem, depth

CONFIGURATIONS = ("vision_dram", "tiny_softmax", "tiny", "serial", "wide")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "Mux(self.window | self.pool, v.last_pixel, 0)", "new": "Mux(self.window, v.last_pixel, 0)"},
    {"old": "v.stride_vec >= v.row_tiles", "new": "v.stride_vec > v.row_tiles"},
    {"old": "Mux(c.bias, v.words << 1,", "new": "Mux(c.bias, v.words,", "config": "vision_dram"},
    {"old": "c.outside.inside.eq(self.address)", "new": "c.outside.inside.eq(f.a + 1)", "config": "vision_dram"},
    {"file": "hw/lib/packed_words.py", "old": "steps.eq(tiles - 1)", "new": "steps.eq(tiles)", "config": "vision_dram"},
)

CHAIN, POSITION = Packer(chain_layout(CONFIG)), Packer(ChainPosition)
VALUES, KIND = Packer(derived(CONFIG)), Packer(kind_of(CONFIG))


def kind(instruction: Instruction) -> int:
    """The kind of an instruction, as the decoder finds it."""
    mems = {mem.name.lower(): 1 for mem in Mem if mem == instruction.mem}
    return KIND.join({"op": {instruction.op.name.lower(): 1}, "mem": mems,
                      "pointwise": SPECS[instruction.op].operation is not None})


def values(chain: Chain) -> dict[str, int]:
    """The scalar registers of a chain, and the values derived from them."""
    r = chain.registers
    passes = {"passes": r.iterations // r.iterations_x} if CONFIG.dram_words else {}
    return {name: getattr(r, name) for name in r.__slots__} | passes | {
        "words": CONFIG.words_of(r.rows), "operand_words": r.columns * CONFIG.vector_words,
        "row_tiles": CONFIG.vectors_of(r.rows),
        "span_source": (r.iterations_x - 1) * r.stride_x + (r.iterations // r.iterations_x - 1) * r.stride_y
    } | ({} if not chain.windowed and not chain.pools else {
        "last_pixel": chain.pixel_offset(r.window_x - 1, r.window_y - 1),
        "span_group": (chain.row_tiles - 1) * r.window_group if chain.windowed else 0})


async def build(dut, rng, chain: Chain):
    """Feed the instructions of a chain with random pauses, with the positions that the decoder would give."""
    dut.values.value, position = VALUES.join(values(chain)), 0
    for number, instruction in enumerate(chain.instructions):
        while rng.random() < 0.2 and number:
            dut.kind.value = int.from_bytes(rng.bytes(8), "little") & (1 << len(dut.kind)) - 1
            dut.fields.value = int.from_bytes(rng.bytes(8), "little")  # noise that the unit must not take
            await clock(dut)
        dut.place.value = POSITION.join({"position": position})
        dut.fields.value = encode(replace(instruction, a=instruction.a & 0xFFFF))  # the rest is in a base register
        dut.kind.value = kind(instruction)
        used = instruction.op in (Op.V_WR, Op.M_WR, Op.MV_MUL) or SPECS[instruction.op].operand
        dut.address.value = instruction.a
        dut.begin.value, dut.add.value = int(number == 0), int(number > 0)
        await clock(dut)
        dut.begin.value = dut.add.value = 0
        await clock(dut)
        dut.end.value = (chain.tiles if instruction.op in (Op.M_WR, Op.MV_MUL) else
                         chain.result_span(instruction)).stop if used else 0
        if SPECS[instruction.op].operation:
            position = SPECS[instruction.op].position + 1
    dut.place.value = POSITION.join({"position": position})
    await clock(dut, 5)


def _without_addresses(want: dict, got: dict) -> dict:
    """The field `outside`, if there is one, with the addresses of instructions of `got`: the decoder knows them."""
    if "outside" not in want:
        return {}
    outside = want["outside"]
    return {"outside": outside | {use: outside[use] | {"address": got["outside"][use]["address"]}
                                  for use in ("reads", "writes")}}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def matches_spec(dut):
    """Random chains of all kinds, one after another."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    await start(dut, "begin", "add", "kind", "fields", "address", "end", "place", "values")
    modes = [bool(tile % 2) for tile in range(CONFIG.matrix_tiles)]
    programs = [[*legal_chain(CONFIG, rng, modes), *assemble("end")] for _ in range(200)]
    entries = [chain for program in programs for chain in Sequencer(CONFIG, program, list(modes)).walk()]
    for chain in rng.permutation([*random_chains(CONFIG, rng, 200), *entries]):
        await build(dut, rng, chain)
        want, got = CHAIN.of(CHAIN.join(fields(CONFIG, chain))), CHAIN.of(int(dut.o.value))
        assert meaning(got) == meaning(want | _without_addresses(want, got)), f"chain at {chain.address}"
        assert int(dut.source.value) == chain.source.a
        if chain.source.mem in ADDRESSED:
            read = want["outside"]["reads"] if chain.source.mem == Mem.DRAM else want["source"]
            assert int(dut.source_end.value) == read["hi"] <= depth(CONFIG, chain.source.mem)
