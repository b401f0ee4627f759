"""Testbench of hw.mvm.matrix_loader against golden.mvm.quantizer and golden.mvm.elements."""

import cocotb
import numpy as np
from concord.golden.mvm.elements import marks
from concord.golden.mvm.quantizer import quantize_block, quantize_integer
from concord.hw.lib import message_payloads
from concord.hw.lib.payloads import tile_load, word
from concord.hw.mvm.matrix_rf import mark_write, record, record_write
from concord.sim.drivers.bench import CONFIG, assert_equal, loaded, pack, stored, unpack
from concord.sim.drivers.stream import StreamSource, every_cycle, start, until
from concord.sim.stimulus.random_values import legal

CONFIGURATIONS = ("vision_dram", "tiny", "serial", "wide", "tiny_float")
TESTED = ("tiny", "serial", "wide")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "(write.row == 0) & (write.group == 0)", "new": "write.group == 0"},
    {"old": "valid & ~full, 2)", "new": "valid, 2)", "config": "vision_dram"},
)


class RegisterFile:
    """A model of the matrix register file."""

    def __init__(self, dut):
        n, tiles = CONFIG.native_dim, CONFIG.matrix_tiles
        self.dut, self.done, self.marked = dut, 0, []
        self.mantissas = np.zeros((tiles, n, CONFIG.groups, CONFIG.lanes), np.int64)
        self.exponents = np.zeros((tiles, n, CONFIG.groups), np.int64)
        self.marks = np.zeros(tiles, np.int64)
        every_cycle(dut, self.watch)

    def watch(self):
        if int(self.dut.done.value):
            self.done += 1
            assert self.done <= len(self.marked), "a tile is done before its mark has been written"
        write = unpack(record_write(CONFIG), [int(self.dut.write.value)])
        if write["valid"][0]:
            at = tuple(int(write[name][0]) for name in ("tile", "row", "group"))
            self.mantissas[at] = loaded(write["record"]["mantissas"][0], CONFIG.weights)
            self.exponents[at] = write["record"]["exponent"][0]
        mark = unpack(mark_write(CONFIG), [int(self.dut.mark.value)])
        if mark["valid"][0]:
            self.marks[mark["tile"][0]] = mark["mark"][0]
            self.marked.append(int(mark["tile"][0]))


def compare(register_file: RegisterFile, tiles, mantissas, exponents, *, full: bool = False):
    """Compare what has been written of `tiles` with mantissas [tiles, n, n] and exponents [tiles, n].

    Args:
        full: Whether the tiles are marked as full.
    """
    count, n = exponents.shape
    assert_equal("mantissas", register_file.mantissas[tiles].reshape(count, n, n), mantissas, tile=tiles)
    assert_equal("exponents", register_file.exponents[tiles], exponents[..., None].repeat(CONFIG.groups, 2), tile=tiles)
    marked = np.full(count, CONFIG.groups) if full else marks(CONFIG, mantissas)
    assert_equal("marks", register_file.marks[tiles], marked, tile=tiles)


def sparse(rng, shape):
    """A mask that clears the last columns of some tiles, single elements of others, and some whole tiles."""
    keep = rng.choice([0, 1, CONFIG.lanes, CONFIG.native_dim], (shape[0], 1, 1))
    return (np.arange(CONFIG.native_dim) < keep) & (rng.random(shape) < rng.choice([0.05, 1], (shape[0], 1, 1)))


def put_words(sources: dict, tiles, bits, integer, *, full: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Send tiles of binary16 patterns [tiles, n, n]; returns their mantissas and stored exponents."""
    mark = {"full": np.full(len(tiles), full)} if CONFIG.dram_words else {}
    sources["load"].put(*pack(tile_load(CONFIG), {"tile": tiles, "integer": integer} | mark))
    sources["word"].put(*pack(word(CONFIG), bits.reshape(-1, CONFIG.mfu_lanes)))
    mantissas, exponents = quantize_block(bits, CONFIG.weights)
    return (np.where(integer[:, None, None], quantize_integer(bits, CONFIG.weights, unsigned=False), mantissas),
            np.where(integer[:, None], 0, exponents - CONFIG.weights.e_min))


def records(tiles, mantissas, exponents) -> list[int]:
    """Payloads of packed tiles, record by record."""
    count, n, fmt = len(tiles), CONFIG.native_dim, CONFIG.weights
    tile, row, group = (index.ravel() for index in np.indices((count, n, CONFIG.groups)))
    packed = pack(record(CONFIG), {"mantissas": stored(mantissas, fmt).reshape(-1, CONFIG.lanes),
                                   "exponent": exponents.repeat(CONFIG.groups)})
    return pack(message_payloads.packed(CONFIG), {
        "tile": np.asarray(tiles)[tile], "integer": tile & 1, "row": row, "group": group,
        "record": np.array(packed, object), "last": (row == n - 1) & (group == CONFIG.groups - 1)})


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.4])
async def loads_words(dut, stall):
    """Tiles in both modes, in random order."""
    rng, n = np.random.default_rng(cocotb.RANDOM_SEED), CONFIG.native_dim
    sources = {name: StreamSource(dut, name, stall=stall) for name in ("load", "word", "packed")}
    await start(dut)
    register_file = RegisterFile(dut)
    tiles = rng.permutation(CONFIG.matrix_tiles)[:12]
    integer = rng.random(len(tiles)) < 0.5
    shape = len(tiles), n, n
    bits = np.ldexp(rng.normal(size=shape), rng.integers(-8, 8, shape)).astype(np.float16).view(np.uint16)
    bits = bits * sparse(rng, shape).astype(np.uint16)
    mantissas, exponents = put_words(sources, tiles, bits, integer)
    await until(dut, lambda: register_file.done >= len(tiles))
    assert register_file.marked == tiles.tolist()
    compare(register_file, tiles, mantissas, exponents)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.4])
async def loads_records(dut, stall):
    """Packed tiles; a tile that ends after some records does not change the zero mark of the next one."""
    rng, n, fmt = np.random.default_rng(cocotb.RANDOM_SEED), CONFIG.native_dim, CONFIG.weights
    sources = {name: StreamSource(dut, name, stall=stall) for name in ("load", "word", "packed")}
    await start(dut)
    register_file = RegisterFile(dut)
    count = 10
    mantissas = legal(rng.integers(fmt.lowest, fmt.highest + 1, (count, n, n)) * sparse(rng, (count, n, n)), fmt)
    exponents = rng.integers(0, fmt.e_max - fmt.e_min + 1, (count, n))
    payloads = records(np.arange(count), mantissas, exponents)
    size = n * CONFIG.groups
    sources["packed"].put(*payloads[:size // 2], *payloads)
    await sources["packed"].drain()
    await until(dut, lambda: len(register_file.marked) >= count)
    assert register_file.marked == list(range(count))
    compare(register_file, np.arange(count), mantissas, exponents)
    assert register_file.done == 0


@cocotb.test(timeout_time=1, timeout_unit="ms", skip=not CONFIG.dram_words)
@cocotb.parametrize(stall=[0.0, 0.4])
async def loads_both(dut, stall):
    """Tiles of words that are marked as full, and packed tiles at the same time: each has its zero mark."""
    rng, n, fmt = np.random.default_rng(cocotb.RANDOM_SEED), CONFIG.native_dim, CONFIG.weights
    sources = {name: StreamSource(dut, name, stall=stall) for name in ("load", "word", "packed")}
    await start(dut)
    register_file = RegisterFile(dut)
    tiles = rng.permutation(CONFIG.matrix_tiles)[:16]
    made, packed = tiles[:8], tiles[8:]
    shape = len(made), n, n
    integer = rng.random(len(made)) < 0.5
    bits = rng.normal(size=shape).astype(np.float16).view(np.uint16) * sparse(rng, shape).astype(np.uint16)
    codes = legal(rng.integers(fmt.lowest, fmt.highest + 1, shape) * sparse(rng, shape), fmt)
    exponents = rng.integers(0, fmt.e_max - fmt.e_min + 1, (len(packed), n))
    expected = put_words(sources, made, bits, integer, full=True)
    sources["packed"].put(*records(packed, codes, exponents))
    await sources["packed"].drain()
    await until(dut, lambda: len(register_file.marked) >= len(tiles) and register_file.done >= len(made))
    compare(register_file, made, *expected, full=True)
    compare(register_file, packed, codes, exponents)
    assert register_file.done == len(made)
