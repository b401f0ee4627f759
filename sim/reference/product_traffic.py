"""Products and tiles of a matrix-vector multiplier: what it is given, and what golden.mvm.mvm makes of it."""

import numpy as np
from concord.golden.mvm.elements import encode, pack_tiles, unpack_tiles
from concord.golden.mvm.mvm import multiply, multiply_groups
from concord.golden.mvm.overflow import Events
from concord.golden.mvm.quantizer import invalid
from concord.golden.schedule.memory import MatrixRf
from concord.hw.lib import message_payloads
from concord.hw.lib.payloads import Load, Product, operand_word, word
from concord.hw.mvm.mvm import Activity, events
from concord.sim.drivers.bench import Packer, assert_equal, pack, unpack
from concord.sim.drivers.stream import Sink, StreamSource, clock, every_cycle, start
from concord.sim.reference.entry_traffic import EntryTraffic
from concord.sim.stimulus import products
from concord.sim.stimulus.entry_chains import columns
from concord.sim.stimulus.random_values import legal, numbers, sparse
from concord.spec.isa.chain import Chain
from concord.spec.machine.config import Config

COUNTS = ("beats", "tiles", "vectors", "rows_loaded", "partial", "product", "output", "entries_written", "entries_read",
          "conflict")


class ProductTraffic:
    """Drives the ports of the multiplier `dut` that belong to products, tiles and biases, and checks its results.

    Args:
        stall: Probability that an input waits for a cycle.
        slow:  Probability that the result is not taken in a cycle.

    Attributes:
        count:    Number of events so far, by name. expected: Those of `COUNTS` that golden has.
        busy:     Cycles with a beat.
        products: Number of products that have been queued.
        invalid:  Whether an operand ("vector") or a tile ("matrix") holds a NaN or an infinity.
    """

    def __init__(self, dut, config: Config, rng: np.random.Generator, *, stall: float, slow: float):
        self.dut, self.config, self.rng, self.events = dut, config, rng, Packer(events(config))
        self.tiles = MatrixRf(config)
        self.bias = np.zeros((config.bias_words, config.mfu_lanes), np.int64)
        names = ("product", "operand", "load", "matrix_word", "packed", "bias_write")
        self.sources = {name: StreamSource(dut, name, stall=stall) for name in names}
        self.result = Sink(dut, "result", stall=slow)
        self.count = dict.fromkeys((*COUNTS, "product_done", "load_done"), 0)
        self.cycle, self.busy = 0, []  # number of cycles so far, and the cycles with a beat
        self.excess = dict.fromkeys(("partial", "product", "output"), 0)
        self.flags = {"invalid_vector": 0, "invalid_matrix": 0}
        self.expected, self.products = dict.fromkeys(COUNTS, 0), 0
        self.overflow, self.invalid = Events(), {"vector": False, "matrix": False}

    async def begin(self):
        """Reset the unit, and begin to count its events."""
        await start(self.dut)
        every_cycle(self.dut, self.watch)

    def watch(self):
        """Count the events of a cycle."""
        dut = self.dut
        raw = int(dut.events.value)
        for name in ("product_done", "load_done"):
            self.count[name] += int(getattr(dut, name).value)
        self.cycle += 1
        if int(dut.activity.value) >> Activity["busy"].offset & 1:
            self.busy.append(self.cycle)
        if raw:
            happened = self.events.of(raw)
            for name in COUNTS:
                self.count[name] += happened[name]
            for name in self.excess:
                self.excess[name] = max(self.excess[name], happened[f"excess_{name}"])
            for name in self.flags:
                self.flags[name] |= happened[name]

    async def load_packed(self, at: int, count: int, integer: bool, *, full: bool = False):
        """Load random tiles as packed records; `full` tiles have no zeros."""
        fmt, n, rng = self.config.weights, self.config.native_dim, self.rng
        mantissas = legal(rng.integers(fmt.lowest, fmt.highest + 1, (count, n, n)), fmt)
        mantissas = mantissas * sparse(rng, self.config, count)
        mantissas = np.where((mantissas == 0) & full, 1, mantissas)
        exponents = rng.integers(0, fmt.e_max - fmt.e_min + 1, (count, n))
        mantissas, exponents = unpack_tiles(self.config, pack_tiles(self.config, mantissas, exponents))
        self.tiles.store(at, mantissas, exponents)
        shape = message_payloads.packed(self.config)
        size = self.config.lanes * fmt.code_bits
        tile, row, group = (index.ravel() for index in np.indices((count, n, self.config.groups)))
        lanes = encode(mantissas, fmt).reshape(-1, self.config.lanes)
        records = [sum(int(v) << k * fmt.code_bits for k, v in enumerate(values)) | int(e) << size
                   for values, e in zip(lanes, exponents.repeat(self.config.groups), strict=True)]
        payloads = pack(shape, {
            "tile": tile + at, "integer": np.full(tile.shape, integer), "row": row, "group": group,
            "record": np.array(records, object), "last": (row == n - 1) & (group == self.config.groups - 1)})
        await self.sources["packed"].send(*payloads)
        await clock(self.dut, 4)  # zero marks are written later than records

    def load_words(self, at: int, count: int, integer: bool):
        """Queue random tiles as words."""
        n = self.config.native_dim
        bits = numbers(self.rng, (count, n, n), 6) * sparse(self.rng, self.config, count).astype(np.uint16)
        for tile, each in enumerate(bits, at):
            self.tiles.load(tile, each, integer=integer)
        self.sources["load"].put(*pack(Load, {"tile": at + np.arange(count), "integer": np.full(count, integer)}))
        self.sources["matrix_word"].put(*pack(word(self.config), bits.reshape(-1, self.config.mfu_lanes)))
        self.expected["rows_loaded"] += count * n
        self.invalid["matrix"] |= invalid(bits)

    async def load_bias(self):
        """Fill BiasRf with random words."""
        span = 1 << self.config.bias_bits - 1
        smaller = self.rng.integers(0, self.config.bias_bits, (len(self.bias), 1))
        self.bias = self.rng.integers(-span, span, self.bias.shape) >> smaller
        await self.sources["bias_write"].send(*pack(message_payloads.bias(self.config), {
            "address": np.arange(len(self.bias)), "data": self.bias}))

    def multiply(self, tile: int, rows: int, columns: int, iterations: int, integer: bool):
        """Queue a product, and return the words that it should yield and its inputs by name."""
        n, lanes, rng = self.config.native_dim, self.config.mfu_lanes, self.rng
        row_tiles, words = self.config.vectors_of(rows), self.config.words_of(rows)
        unsigned, bias = (integer and rng.random() < 0.5 for _ in range(2))
        out_scale = int(rng.integers(-10, 20)) if integer else int(rng.integers(-32, 32))
        address = int(rng.integers(0, self.config.bias_words - words + 1)) if bias else 0
        operand = numbers(rng, (iterations, columns, n), 4 if integer else 8)
        self._queue(tile=tile, columns=columns, row_tiles=row_tiles, words=words, rows=rows, iterations=iterations,
                    integer=integer, unsigned=unsigned, out_scale=out_scale, bias=bias, bias_address=address)
        count = iterations * columns * self.config.vector_words
        self.sources["operand"].put(*pack(operand_word(lanes), {
            "word": operand.reshape(count, lanes), "integer": np.full(count, integer),
            "unsigned": np.full(count, unsigned),
            "last": np.arange(1, count + 1) % (columns * self.config.vector_words) == 0}))
        where = range(tile, tile + row_tiles * columns)
        bits, overflow = multiply(
            self.config, *self.tiles.weights(where, row_tiles), operand,
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
        bias = bool(integer and words <= self.config.bias_words and rng.random() < 0.5)
        address = int(rng.integers(0, self.config.bias_words - words + 1)) if bias else 0
        mantissas, exponents = entries.read(chain, self.products)
        self._queue(tile=chain.tiles.start, columns=registers.columns, row_tiles=chain.row_tiles, words=words,
                    rows=rows, iterations=registers.iterations, integer=integer, out_scale=out_scale, bias=bias,
                    bias_address=address, from_entries=1)
        bits, overflow = multiply_groups(
            self.config, *self.tiles.weights(chain.tiles, chain.row_tiles), mantissas, exponents,
            self.bias[address:address + words].ravel()[:rows] if bias else None, rows=rows, integer=integer,
            out_scale=out_scale)
        self._count(chain.tiles, registers.iterations, overflow)
        self.expected["entries_read"] += mantissas.shape[0] * len(chain.tiles)
        self.expected["conflict"] += sum(
            products.duration(self.config, step) - 1 for step in products.entry_steps(self.config, chain))
        return bits, {"integer": integer, "out_scale": out_scale, "bias": bias, "tile": chain.tiles.start, "rows": rows,
                      "columns": registers.columns, "addresses": columns(chain).reshape(len(bits), 1, -1)}

    def _queue(self, **fields):
        """Queue a product with these fields; those that are left out are 0."""
        self.sources["product"].put(*pack(Product, {
            name: np.array([fields.get(name, 0)]) for name in Product.members}))
        self.products += 1

    def _count(self, where: range, iterations: int, overflow: Events):
        """Expect the events of a product with these tiles."""
        self.overflow += overflow
        self.expected["beats"] += iterations * int(self.tiles.marks[where.start:where.stop].sum())
        self.expected["tiles"] += iterations * len(where)

    async def results(self, bits, given):
        """Take the words of a product and compare them with `bits`, one row for each iteration."""
        iterations, rows = bits.shape
        words = self.config.words_of(rows)
        got = unpack(word(self.config), await self.result.receive(iterations * words)).reshape(iterations, -1)[:, :rows]
        assert_equal("result", got, bits, **given)

    async def settle(self):
        """Wait for the last events, and compare all events with golden."""
        await clock(self.dut, 40)
        for name in ("partial", "product", "output"):
            self.expected[name] = getattr(self.overflow, name)
            assert self.excess[name] == getattr(self.overflow, f"excess_{name}"), name
        assert {name: self.count[name] for name in COUNTS} == self.expected
        for name, flag in self.invalid.items():
            assert self.flags[f"invalid_{name}"] == flag, name
