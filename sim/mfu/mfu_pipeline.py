"""Testbench of hw.mfu.mfu_pipeline against sim.reference.multifunction: two units with their operands."""

from collections import deque

import cocotb
import numpy as np
from amaranth.lib import data
from concord.hw.lib.payloads import OPERANDS, VECTOR_READ, address_bits, controls, turn, word
from concord.hw.schedule.writeback import results
from concord.sim.drivers.bench import CONFIG, assert_equal, pack, unpack
from concord.sim.drivers.stream import clock, start
from concord.sim.reference.multifunction import multifunction, turns
from concord.spec.isa.memories import VRFS, depth
from concord.spec.isa.operations import MFUS, TAPS, Stage, Tap, codes
from concord.spec.machine import timing

CONFIGURATIONS = ("tiny", "serial", "tiny_vector")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "second.tap.eq(first.tap_out)", "new": "second.tap.eq(first.tap)"},
)

LATENCY = timing.mfu_pipeline(CONFIG)
LANES = CONFIG.mfu_lanes
ADDRESSES = data.ArrayLayout(address_bits(CONFIG), len(OPERANDS))
READ = data.ArrayLayout(word(CONFIG), len(OPERANDS))


def numbers(rng, count):
    """Words of random bit patterns, half of which are numbers near one."""
    bits = rng.integers(0, 1 << 16, (count, LANES), dtype=np.uint16)
    return np.where(rng.random((count, 1)) < 0.5, bits & 0x8FFF | 0x3000, bits)


async def stream(dut, inputs: dict[str, list[int]], memories: list[np.ndarray]) -> list[tuple[int, int]]:
    """Return `valid` and `o` of every cycle; `operands` carries what `reads` addressed VECTOR_READ before."""
    shown, coming = [], deque([0] * (VECTOR_READ - 1))
    for cycle in range(len(inputs["go"]) + LATENCY):
        for name, payloads in inputs.items():
            getattr(dut, name).value = int(payloads[cycle]) if cycle < len(payloads) else 0
        await clock(dut)
        shown.append((int(dut.valid.value), int(dut.o.value)))
        reads = unpack(ADDRESSES, [int(dut.reads.value)])[0]
        found = [memory[min(address, len(memory) - 1)] for memory, address in zip(memories, reads, strict=True)]
        coming.append(pack(READ, np.array([found]))[0])
        dut.operands.value = coming.popleft()
    return shown


@cocotb.test()
@cocotb.parametrize(rate=[1.0, 0.5])
async def matches_golden(dut, rate):
    """Random words, operations and taps; a word comes in every cycle, or with random gaps."""
    rng, count = np.random.default_rng(cocotb.RANDOM_SEED), 1200
    memories = [numbers(rng, depth(CONFIG, VRFS[v])) for v in OPERANDS]
    addresses = np.stack([rng.integers(0, len(memory), count) for memory in memories], 1)
    value, go = numbers(rng, count), rng.random(count) < rate
    control = {stage.name.lower(): rng.choice(codes(stage, more=CONFIG.more_functions), (count, MFUS))
               for stage in Stage}
    control["tap"] = rng.integers(0, len(Tap), (count, MFUS, TAPS))
    turned = turns(rng, count, LANES, go) if CONFIG.more_functions else None
    held = rng.random((count, len(OPERANDS))) < 0.3
    brought = {"turn": pack(turn(LANES), turned), "held": (held << np.arange(len(OPERANDS))).sum(1)} if turned else {}
    await start(dut, "go", "control", "addresses", "word", "operands", *brought)
    words = pack(word(CONFIG), value)
    shown = await stream(dut, {
        "go": go, "control": pack(controls(CONFIG), control), "addresses": pack(ADDRESSES, addresses),
        "word": [0, *words], **brought}, memories)

    assert_equal("valid", [valid for valid, _ in shown[LATENCY:]], go)
    got = unpack(results(CONFIG), [o for _, o in shown[LATENCY:]])
    operands = [memory[addresses[:, k]] for k, memory in enumerate(memories)]
    if turned:
        operands = [np.where(held[:, k:k + 1], operand[:, :1], operand) for k, operand in enumerate(operands)]
    addend0, addend1, factor0, factor1 = operands
    taps = np.zeros((count, TAPS, LANES), np.uint16)
    first, second = ({name: code[:, unit] for name, code in control.items()} for unit in range(MFUS))
    want, taps = multifunction(value, addend0, factor0, taps, turn=turned, **first)
    want, taps = multifunction(want, addend1, factor1, taps, turn=turned, **second)
    given = {"word": value, "addend0": addend0, "factor0": factor0, "addend1": addend1, "factor1": factor1}
    given |= {each.name.lower(): (control[each.name.lower()], each) for each in Stage} | {"tap": (control["tap"], Tap)}
    assert_equal("value", got["value"], want, where=go[:, None], **given)
    assert_equal("taps", got["taps"], taps, where=go[:, None, None], **given)
