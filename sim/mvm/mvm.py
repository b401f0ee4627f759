"""Testbench of hw.mvm.mvm, the whole matrix-vector multiplier, against golden.mvm.mvm."""

import os
from dataclasses import dataclass

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge
from concord.golden.mvm.mvm import multiply, multiply_groups
from concord.golden.mvm.overflow import Events
from concord.golden.mvm.packing import marks, pack_tiles, unpack_tiles
from concord.golden.mvm.quantizer import invalid, quantize_block, quantize_integer
from concord.hw.lib import message_payloads
from concord.hw.lib.payloads import Load, Product, operand_word, word
from concord.hw.mvm.mvm import Activity, events
from concord.sim.drivers.comparison import assert_equal
from concord.sim.drivers.configs import from_text
from concord.sim.drivers.stream import Sink, Source, pack, start, unpack
from concord.sim.reference.entry_traffic import EntryTraffic
from concord.sim.stimulus import windows
from concord.sim.stimulus.entry_addresses import columns
from concord.spec.chain import Chain, Registers
from concord.spec.config import Config

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "delay(m, beat.integer, rotator.latency)", "new": "delay(m, beat.integer, rotator.latency + 1)"},
    {"old": "m.If(sequencer.beat.from_entries)", "new": "m.If(sequencer.read)"},
)

CONFIG = from_text(os.environ["CONFIG"])
COUNTS = ("beats", "tiles", "vectors", "rows_loaded", "partial", "product", "output", "entries_written", "entries_read",
          "conflict")


class Tiles:
    """The tiles that the register file holds."""

    def __init__(self, config: Config):
        n, tiles = config.native_dim, config.matrix_tiles
        self.config = config
        self.mantissas = np.zeros((tiles, n, n), np.int64)
        self.exponents = np.zeros((tiles, n), np.int64)
        self.marks = np.zeros(tiles, np.int64)

    def put(self, at: int, mantissas, exponents) -> None:
        """Note tiles from address `at` on."""
        where = slice(at, at + len(mantissas))
        self.mantissas[where], self.exponents[where] = mantissas, exponents
        self.marks[where] = marks(self.config, mantissas)


def numbers(rng, shape, span):
    """Bit patterns of numbers of magnitudes of about 2**-span to 2**span, some of them not finite."""
    value = np.ldexp(rng.normal(size=shape), rng.integers(-span, span + 1, shape))
    bits = np.clip(value, -60000, 60000).astype(np.float16).view(np.uint16)
    return np.where(rng.random(shape) < 0.002, rng.choice(np.array([0x7C00, 0xFC00, 0x7E01], np.uint16), shape), bits)


def sparse(rng, config, tiles):
    """Mask of elements that may be other than zero; some tiles lack their last columns, some are all zero."""
    keep = rng.choice([0, config.native_dim // 4, config.native_dim, config.native_dim], (tiles, 1, 1))
    return np.broadcast_to(np.arange(config.native_dim) < keep, (tiles, config.native_dim, config.native_dim))


@dataclass(kw_only=True)
class Run:
    """A multiplier, the contents of its memories and its events so far; inputs and outputs stall at random."""

    dut: object
    stall: float
    slow: float
    rng: np.random.Generator

    async def begin(self):
        dut, seed = self.dut, cocotb.RANDOM_SEED
        self.tiles = Tiles(CONFIG)
        self.bias = np.zeros((CONFIG.bias_words, CONFIG.mfu_lanes), np.int64)
        names = ("product", "operand", "load", "matrix_word", "packed", "bias_write")
        self.sources = {name: Source(dut, name, seed=seed, stall=self.stall) for name in names}
        self.result = Sink(dut, "result", seed=seed, stall=self.slow)
        await start(dut)
        self.count = dict.fromkeys((*COUNTS, "product_done", "load_done"), 0)
        self.cycle, self.busy = 0, []  # number of cycles so far, and the cycles with a beat
        self.excess = dict.fromkeys(("partial", "product", "output"), 0)
        self.flags = {"invalid_vector": 0, "invalid_matrix": 0}
        self.expected, self.products = dict.fromkeys(COUNTS, 0), 0
        self.overflow, self.invalid = Events(), {"vector": False, "matrix": False}
        cocotb.start_soon(self.watch())

    async def watch(self):
        """Count the events of every cycle."""
        edge, dut = RisingEdge(self.dut.clk), self.dut
        while True:
            await edge
            raw = int(dut.events.value)
            for name in ("product_done", "load_done"):
                self.count[name] += int(getattr(dut, name).value)
            self.cycle += 1
            if int(dut.activity.value) >> Activity["busy"].offset & 1:
                self.busy.append(self.cycle)
            if raw:
                happened = {name: int(value[0]) for name, value in unpack(events(CONFIG), [raw]).items()}
                for name in COUNTS:
                    self.count[name] += happened[name]
                for name in self.excess:
                    self.excess[name] = max(self.excess[name], happened[f"excess_{name}"])
                for name in self.flags:
                    self.flags[name] |= happened[name]

    async def load_packed(self, at: int, count: int, integer: bool, *, full: bool = False):
        """Load random tiles as packed records; `full` tiles have no zeros."""
        fmt, n, rng = CONFIG.weights, CONFIG.native_dim, self.rng
        mantissas = rng.integers(fmt.lowest, fmt.highest + 1, (count, n, n)) * sparse(rng, CONFIG, count)
        mantissas = np.where((mantissas == 0) & full, 1, mantissas)
        exponents = rng.integers(0, fmt.e_max - fmt.e_min + 1, (count, n))
        mantissas, exponents = unpack_tiles(CONFIG, pack_tiles(CONFIG, mantissas, exponents))
        self.tiles.put(at, mantissas, exponents)
        shape = message_payloads.packed(CONFIG)
        size = CONFIG.lanes * fmt.bits
        tile, row, group = (index.ravel() for index in np.indices((count, n, CONFIG.groups)))
        lanes = mantissas.reshape(-1, CONFIG.lanes) & (1 << fmt.bits) - 1
        records = [sum(int(v) << k * fmt.bits for k, v in enumerate(values)) | int(e) << size
                   for values, e in zip(lanes, exponents.repeat(CONFIG.groups), strict=True)]
        payloads = pack(shape, {
            "tile": tile + at, "integer": np.full(tile.shape, integer), "row": row, "group": group,
            "record": np.array(records, object), "last": (row == n - 1) & (group == CONFIG.groups - 1)})
        await self.sources["packed"].send(*payloads)

    def load_words(self, at: int, count: int, integer: bool):
        """Queue random tiles as words."""
        n = CONFIG.native_dim
        bits = numbers(self.rng, (count, n, n), 6) * sparse(self.rng, CONFIG, count).astype(np.uint16)
        if integer:
            self.tiles.put(at, quantize_integer(bits, CONFIG.weights, unsigned=False), 0)
        else:
            mantissas, exponents = quantize_block(bits, CONFIG.weights)
            self.tiles.put(at, mantissas, exponents - CONFIG.weights.e_min)
        self.sources["load"].put(*pack(Load, {"tile": at + np.arange(count), "integer": np.full(count, integer)}))
        self.sources["matrix_word"].put(*pack(word(CONFIG), bits.reshape(-1, CONFIG.mfu_lanes)))
        self.expected["rows_loaded"] += count * n
        self.invalid["matrix"] |= invalid(bits)

    async def load_bias(self):
        """Fill BiasRf with random words."""
        span = 1 << CONFIG.bias_bits - 1
        smaller = self.rng.integers(0, CONFIG.bias_bits, (len(self.bias), 1))
        self.bias = self.rng.integers(-span, span, self.bias.shape) >> smaller
        await self.sources["bias_write"].send(*pack(message_payloads.bias(CONFIG), {
            "address": np.arange(len(self.bias)), "data": self.bias}))

    def multiply(self, tile: int, rows: int, columns: int, iterations: int, integer: bool):
        """Queue a product, and return the words that it should yield and its inputs by name."""
        n, lanes, rng = CONFIG.native_dim, CONFIG.mfu_lanes, self.rng
        row_tiles, words = CONFIG.vectors_of(rows), CONFIG.words_of(rows)
        unsigned, bias = (integer and rng.random() < 0.5 for _ in range(2))
        out_scale = int(rng.integers(-10, 20)) if integer else int(rng.integers(-32, 32))
        address = int(rng.integers(0, CONFIG.bias_words - words + 1)) if bias else 0
        operand = numbers(rng, (iterations, columns, n), 4 if integer else 8)
        self._queue(tile=tile, columns=columns, row_tiles=row_tiles, words=words, rows=rows, iterations=iterations,
                    integer=integer, unsigned=unsigned, out_scale=out_scale, bias=bias, bias_address=address)
        count = iterations * columns * CONFIG.vector_words
        self.sources["operand"].put(*pack(operand_word(lanes), {
            "word": operand.reshape(count, lanes), "integer": np.full(count, integer),
            "unsigned": np.full(count, unsigned),
            "last": np.arange(1, count + 1) % (columns * CONFIG.vector_words) == 0}))
        where = slice(tile, tile + row_tiles * columns)
        bits, overflow = multiply(
            CONFIG, *self._weights(where, row_tiles), operand,
            self.bias[address:address + words].ravel()[:rows] if bias else None, rows=rows, integer=integer,
            unsigned=unsigned, out_scale=out_scale)
        self._count(where, iterations, overflow)
        self.invalid["vector"] |= invalid(operand)
        self.expected["vectors"] += iterations * columns
        return bits, {"integer": integer, "unsigned": unsigned, "out_scale": out_scale, "bias": bias, "tile": tile,
                      "columns": columns, "operand": operand.reshape(iterations, 1, -1)}

    def multiply_entries(self, entries: EntryTraffic, chain: Chain):
        """Queue a product from VectorRf, and return the words that it should yield and its inputs by name."""
        registers, words, rng = chain.registers, chain.result_words, self.rng
        rows, integer, out_scale = registers.rows, bool(chain.product.integer), registers.out_scale
        bias = bool(integer and words <= CONFIG.bias_words and rng.random() < 0.5)
        address = int(rng.integers(0, CONFIG.bias_words - words + 1)) if bias else 0
        mantissas, exponents = entries.read(chain, self.products)
        self._queue(tile=chain.tiles.start, columns=registers.columns, row_tiles=chain.row_tiles, words=words,
                    rows=rows, iterations=registers.iterations, integer=integer, out_scale=out_scale, bias=bias,
                    bias_address=address, from_entries=1)
        where = slice(chain.tiles.start, chain.tiles.stop)
        bits, overflow = multiply_groups(
            CONFIG, *self._weights(where, chain.row_tiles), mantissas, exponents,
            self.bias[address:address + words].ravel()[:rows] if bias else None, rows=rows, integer=integer,
            out_scale=out_scale)
        self._count(where, registers.iterations, overflow)
        self.expected["entries_read"] += mantissas.shape[0] * len(chain.tiles)
        self.expected["conflict"] += sum(windows.duration(CONFIG, step) - 1 for step in windows.steps(CONFIG, chain))
        return bits, {"integer": integer, "out_scale": out_scale, "bias": bias, "tile": where.start, "rows": rows,
                      "columns": registers.columns, "addresses": columns(chain).reshape(len(bits), 1, -1)}

    def _queue(self, **fields):
        """Queue a product with these fields; those that are left out are 0."""
        self.sources["product"].put(*pack(Product, {
            name: np.array([fields.get(name, 0)]) for name in Product.members}))
        self.products += 1

    def _weights(self, where: slice, row_tiles: int):
        """Mantissas and exponents of tiles, [row_tiles, columns, ...]."""
        n = CONFIG.native_dim
        return self.tiles.mantissas[where].reshape(row_tiles, -1, n, n), self.tiles.exponents[where].reshape(
            row_tiles, -1, n)

    def _count(self, where: slice, iterations: int, overflow: Events):
        """Expect the events of a product with these tiles."""
        self.overflow += overflow
        self.expected["beats"] += iterations * int(self.tiles.marks[where].sum())
        self.expected["tiles"] += iterations * (where.stop - where.start)

    async def results(self, bits, given):
        """Take the words of a product and compare them with `bits`, one row for each iteration."""
        iterations, rows = bits.shape
        words = CONFIG.words_of(rows)
        got = unpack(word(CONFIG), await self.result.receive(iterations * words)).reshape(iterations, -1)[:, :rows]
        assert_equal("result", got, bits, **given)

    async def settle(self):
        """Wait for the last events, and compare all events with golden."""
        for _ in range(40):
            await RisingEdge(self.dut.clk)
        for name in ("partial", "product", "output"):
            self.expected[name] = getattr(self.overflow, name)
            assert self.excess[name] == getattr(self.overflow, f"excess_{name}"), name
        assert {name: self.count[name] for name in COUNTS} == self.expected
        for name, flag in self.invalid.items():
            assert self.flags[f"invalid_{name}"] == flag, name


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize((("stall", "slow", "begin"), [(0.0, 0.0, False), (0.3, 0.3, True), (0.1, 0.95, False)]))
async def matches_golden(dut, stall, slow, begin):
    """Products of all sizes in both modes, while tiles for the next ones are loaded.

    The first tiles are packed, with exponents even in integer mode, which must ignore them. With `slow` results the
    result queue fills up.
    """
    run = Run(dut=dut, stall=stall, slow=slow, rng=np.random.default_rng(cocotb.RANDOM_SEED))
    await run.begin()
    await run.load_bias()
    rng, half, products = run.rng, CONFIG.matrix_tiles // 2, 0
    await run.load_packed(0, half, begin)
    for turn in range(6):
        integer, there = bool(turn & 1) ^ begin, turn % 2 * half
        want = []
        for _ in range(4):
            columns = int(rng.integers(1, min(CONFIG.operand_columns, half) + 1))
            row_tiles = int(rng.integers(1, min(half // columns, CONFIG.bias_words // CONFIG.vector_words) + 1))
            rows = row_tiles * CONFIG.native_dim - int(rng.integers(CONFIG.native_dim))
            tile = there + int(rng.integers(half - row_tiles * columns + 1))
            want.append(run.multiply(tile, rows, columns, int(rng.integers(1, 4)), integer))
        products += len(want)
        loaded = run.count["load_done"]
        run.load_words(half - there, half, not integer)
        for each in want:
            await run.results(*each)
        while run.count["load_done"] < loaded + half or run.count["product_done"] < products:
            await RisingEdge(dut.clk)
    await run.settle()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def modes_alternate(dut):
    """Products of the two modes follow each other without a gap: rows of tiles hide the arrival of the next operand."""
    run = Run(dut=dut, stall=0.0, slow=0.0, rng=np.random.default_rng(cocotb.RANDOM_SEED))
    await run.begin()
    half = CONFIG.matrix_tiles // 2
    for first in (0, half):
        await run.load_packed(first, half, first > 0)
    await run.load_bias()
    for each in [run.multiply(k % 2 * half, 4 * CONFIG.native_dim, 1 + k % 3, 1, bool(k % 2)) for k in range(20)]:
        await run.results(*each)
    await run.settle()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def engines_never_wait(dut):
    """Products in a row keep the engines busy in every cycle, once the first operand is there."""
    run = Run(dut=dut, stall=0.0, slow=0.0, rng=np.random.default_rng(cocotb.RANDOM_SEED))
    await run.begin()
    # So many columns that the converter keeps up, so many rows of tiles that the next operand arrives in time.
    columns = CONFIG.tile_engines * max(1, CONFIG.vector_words // CONFIG.groups)
    row_tiles = max(1, CONFIG.vector_words * CONFIG.tile_engines // CONFIG.groups)
    await run.load_packed(0, row_tiles * columns, False, full=True)
    want = [run.multiply(0, row_tiles * CONFIG.native_dim, columns, 3, False) for _ in range(5)]
    for each in want:
        await run.results(*each)
    await run.settle()
    beats = row_tiles * CONFIG.groups * columns // CONFIG.tile_engines  # beats of one iteration
    assert len(run.busy) == 5 * 3 * beats
    assert run.busy[-1] - run.busy[beats] == 14 * beats - 1


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize((("stall", "slow"), [(0.0, 0.0), (0.3, 0.3), (0.05, 0.95)]))
async def entries_match_golden(dut, stall, slow):
    """Products from VectorRf among fetched ones, while chains write the entries that products read before and after."""
    run = Run(dut=dut, stall=stall, slow=slow, rng=np.random.default_rng(cocotb.RANDOM_SEED))
    await run.begin()
    await run.load_bias()
    await run.load_packed(0, CONFIG.matrix_tiles, False)
    entries, want = EntryTraffic(dut, CONFIG, run.rng, stall=stall), []
    await entries.fill()
    for _ in range(60):
        kind = run.rng.random()
        if kind < 0.4:
            entries.write()
        elif kind < 0.8:
            want.append(run.multiply_entries(entries, windows.random_chain(CONFIG, run.rng)))
        else:
            columns = int(run.rng.integers(1, CONFIG.operand_columns + 1))
            rows = int(run.rng.integers(1, CONFIG.native_dim + 1))
            tile = int(run.rng.integers(CONFIG.matrix_tiles - columns + 1))
            want.append(run.multiply(tile, rows, columns, int(run.rng.integers(1, 3)), bool(run.rng.integers(2))))
    for each in want:
        await run.results(*each)
    while not entries.idle or run.count["product_done"] < len(want):
        await RisingEdge(dut.clk)
    run.expected["vectors"] += entries.blocks
    run.expected["entries_written"] = entries.blocks
    run.invalid["vector"] |= entries.invalid
    await run.settle()
    assert entries.landed == [entries.entry(address) for address in range(CONFIG.vector_rf)]
    assert entries.checked > 50


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(pixels=[False, True])
async def engines_never_wait_for_entries(dut, pixels):
    """Products in a row from VectorRf keep the engines busy in every cycle; windows have a pixel for each engine."""
    run = Run(dut=dut, stall=0.0, slow=0.0, rng=np.random.default_rng(cocotb.RANDOM_SEED))
    await run.begin()
    steps = max(2, CONFIG.vector_words // CONFIG.groups)  # so many that the converter keeps up
    columns, row_tiles = CONFIG.tile_engines * steps, 2
    await run.load_packed(0, row_tiles * columns, False, full=True)
    entries = EntryTraffic(dut, CONFIG, run.rng, stall=0.0)
    await entries.fill()
    engines = CONFIG.tile_engines
    window = {"window_vectors": engines, "window_x": steps, "window_step": engines} if pixels else {}
    chain = windows.chain(CONFIG, 0, 0, window=pixels, integer=False, inc=True, registers=Registers(
        rows=row_tiles * CONFIG.native_dim, columns=columns, iterations=6, iterations_x=3, stride_x=1, stride_y=4,
        stride_out=1, **window))
    want = [run.multiply_entries(entries, chain) for _ in range(5)]
    for each in want:
        await run.results(*each)
    await run.settle()
    beats = 5 * 6 * row_tiles * CONFIG.groups * steps
    assert len(run.busy) == beats
    assert run.busy[-1] - run.busy[0] == beats - 1
