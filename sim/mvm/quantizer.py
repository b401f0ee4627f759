# amaranth: UnusedElaboratable=no
"""Testbench of hw.mvm.quantizer against golden.mvm.quantizer."""

import os

import cocotb
import numpy as np
from concord.golden.mvm.quantizer import invalid, quantize_block, quantize_integer
from concord.hw.lib.payloads import operand_word
from concord.hw.mvm.quantizer import Quantizer, quantized
from concord.sim.drivers.bench import CONFIG, assert_equal, pack, stored, unpack
from concord.sim.drivers.stream import Sink, StreamSource, every_cycle, moments, start

CONFIGURATIONS = ("tiny", "serial", "wide", "tiny_float")
TESTED = ("tiny", "serial", "wide", "tiny_float")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "(value[:11].any() | value[12])", "new": "1"},
    {"old": "ones = fraction[-fmt.precision:].all()", "new": "ones = 0", "test": "test_floats[quantizer-both]"},
    {"old": "rest[:-1].any() | kept[0]", "new": "1", "file": "hw/lib/elements.py", "config": "tiny_float"},
    {"old": "(bits << zeros)[:len(bits)]", "new": "bits", "file": "hw/lib/elements.py", "config": "tiny_float"},
    {"old": "number.exponent.all()\n", "new": "Const(0)\n", "file": "hw/lib/elements.py", "config": "tiny_float"},
    {"old": "below | ~bits[-1]", "new": "below", "file": "hw/lib/elements.py",
     "test": "test_every_number_becomes_a_float[E5M2]"},
    {"old": "sign & clipped.any()", "new": "sign", "file": "hw/lib/elements.py", "config": "tiny_float"},
)


def component(config, *, short: bool = False) -> Quantizer:
    """The quantiser of a machine's products, or of its entries if `short`."""
    return Quantizer(config.activations, config.mfu_lanes, config.native_dim, short=short)


LANES, SIZE = CONFIG.mfu_lanes, CONFIG.native_dim
SHORT = os.environ.get("SHORT") == "True"  # whether blocks may end early
WORDS = SIZE // LANES


def blocks(rng, count):
    """Blocks of bit patterns: random bits, numbers of one octave, powers of two, single numbers, zeros."""
    raw = rng.integers(0, 1 << 16, (count, SIZE), dtype=np.uint16)
    kind = rng.integers(0, 5, (count, 1))
    scale = rng.integers(-24, 12, (count, 1))
    near = np.ldexp(rng.integers(-512, 513, (count, SIZE)) / 8, scale).astype(np.float16).view(np.uint16)
    power = raw & 0xFC00
    single = np.where(rng.random((count, SIZE)) < 1 / SIZE, raw, raw & 0x8000)
    return np.select([kind == 1, kind == 2, kind == 3], [near, power, single], raw)


def lengths(rng, count):
    """Number of words of each block: whole blocks, or now and then a run of one-word blocks after a whole one."""
    if not SHORT:
        return np.full(count, WORDS)
    mixed = rng.integers(1, WORDS + 1, count)
    runs = np.where(np.arange(count) % (2 * WORDS), 1, WORDS)
    return np.where(np.arange(count) // (4 * WORDS) % 2, runs, mixed)


def golden(bits, integer, unsigned, fmt):
    """Mantissas and stored exponents of blocks."""
    mantissas, exponents = quantize_block(bits, fmt)
    codes = np.where(unsigned[:, None], quantize_integer(bits, fmt, unsigned=True),
                     quantize_integer(bits, fmt, unsigned=False))
    return np.where(integer[:, None], codes, mantissas), np.where(integer, 0, exponents - fmt.e_min)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[(0.0, 0.0), (0.5, 0.0), (0.0, 0.6), (0.3, 0.3)])
async def matches_golden(dut, stall):
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    count = 300
    length = lengths(rng, count)
    inside = np.arange(WORDS) < length[:, None]  # words of each block that exist
    bits = blocks(rng, count) * inside.repeat(LANES, 1).astype(np.uint16)
    integer, unsigned, last = rng.random((3, count)) < 0.5
    unsigned &= integer
    last |= length < WORDS
    ends = np.arange(WORDS) == length[:, None] - 1
    block = np.arange(count).repeat(length)
    word = {"word": bits.reshape(count, WORDS, LANES)[inside], "integer": integer[block], "unsigned": unsigned[block],
            "last": (ends & last[:, None])[inside]}
    i, o = StreamSource(dut, "i", stall=stall[0]), Sink(dut, "o", stall=stall[1])
    await start(dut)
    flagged, measured = pulses(dut, dut.invalid), pulses(dut, dut.block)
    i.put(*pack(operand_word(LANES), word))
    got = unpack(quantized(CONFIG.activations, LANES), await o.receive(len(block)))
    mantissas, exponents = golden(bits, integer, unsigned, CONFIG.activations)
    mantissas = stored(mantissas, CONFIG.activations)
    given = {"integer": integer[block], "unsigned": unsigned[block]}
    assert_equal("mantissas", got["mantissas"], mantissas.reshape(count, WORDS, LANES)[inside], number=word["word"],
                 exponent=exponents[block], **given)
    assert_equal("exponent", got["exponent"], exponents[block], block=bits[block], **given)
    assert_equal("last", got["last"], word["last"])
    assert_equal("end", got["end"], ends[inside])
    # INVALID is flagged when a word is taken, and a block is measured before it leaves: both have happened by now.
    assert len(flagged) == sum(invalid(each) for each in word["word"])
    assert len(measured) == count


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(mode=[(0, 0), (1, 0), (1, 1)])
async def numbers_of_every_kind(dut, mode):
    """Of all 65,536 numbers, those that fit 4,096 words: 16 lanes see each one."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    bits = rng.permutation(1 << 16).astype(np.uint16)[:4096 * LANES].reshape(-1, SIZE)
    count, (integer, unsigned) = len(bits) * WORDS, mode
    i, o = StreamSource(dut, "i"), Sink(dut, "o")
    await start(dut)
    words = bits.reshape(-1, LANES)
    i.put(*pack(operand_word(LANES), {"word": words, "last": np.zeros(count, int), **{
        name: np.full(count, value) for name, value in (("integer", integer), ("unsigned", unsigned))}}))
    got = unpack(quantized(CONFIG.activations, LANES), await o.receive(count))
    mantissas, _ = golden(bits, *(np.full(len(bits), bool(value)) for value in mode), CONFIG.activations)
    assert_equal("mantissas", got["mantissas"], stored(mantissas, CONFIG.activations).reshape(-1, LANES), number=words,
                 block=bits.repeat(WORDS, 0))


def pulses(dut, signal):
    """A list that grows by one item in each cycle with a high `signal`."""
    seen = []
    every_cycle(dut, lambda: seen.extend([1] * int(signal.value)))
    return seen


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def takes_and_gives_a_word_every_cycle(dut):
    """Blocks in a row leave no idle cycle, and the first word comes after the promised latency.

    Words of short blocks enter without an idle cycle, too, and each may leave when its block is complete.
    """
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    length = np.concatenate([np.full(20, WORDS), lengths(rng, 60 * SHORT)]).astype(int)
    count = length.sum()
    await start(dut)
    i = StreamSource(dut, "i")
    Sink(dut, "o")
    last = np.zeros(count, int)
    last[length.cumsum() - 1] = SHORT
    i.put(*pack(operand_word(LANES), {"word": blocks(rng, count)[:, :LANES], "last": last, **{
        name: np.zeros(count, int) for name in ("integer", "unsigned")}}))
    taken, given = await moments(dut, "i", "o", cycles=count + 60)
    assert len(taken) == len(given) == count
    assert taken[-1] - taken[0] == count - 1
    latency = component(CONFIG, short=SHORT).latency
    due, first = [], 0
    for words in length:
        start_at = max(taken[first + words - 1] + latency, due[-1] + 1 if due else 0)
        due.extend(range(start_at, start_at + words))
        first += words
    assert given == due
