"""The matrix-vector multiplier, which computes golden.mvm.mvm in hardware."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for
from concord.hw.lib import message_payloads
from concord.hw.lib.elements import mantissa
from concord.hw.lib.jobs import column_job, entry_job, entry_progress, entry_writers
from concord.hw.lib.payloads import Product, entry_reads, entry_word, operand_word, tile_load, word
from concord.hw.lib.pipeline import delay, delay_control
from concord.hw.lib.queue import Queue
from concord.hw.mvm.accumulator import Accumulator
from concord.hw.mvm.beat_sequencer import BeatSequencer
from concord.hw.mvm.bias_rf import BiasRf
from concord.hw.mvm.column_walker import ColumnWalker
from concord.hw.mvm.converter import Converter
from concord.hw.mvm.entry_reader import EntryReader
from concord.hw.mvm.entry_writer import EntryWriter
from concord.hw.mvm.matrix_loader import MatrixLoader
from concord.hw.mvm.matrix_rf import MatrixRf
from concord.hw.mvm.operand_buffer import OperandBuffer
from concord.hw.mvm.operand_rotator import OperandRotator
from concord.hw.mvm.overflow import EXCESS, OverflowCounter
from concord.hw.mvm.quantizer import Quantizer
from concord.hw.mvm.result_sequencer import ResultSequencer
from concord.hw.mvm.row_groups import lateness
from concord.hw.mvm.row_tiles import sums
from concord.hw.mvm.tile_engine import TileEngine
from concord.hw.mvm.vector_rf import VectorRf
from concord.spec.machine import timing
from concord.spec.machine.config import Config

Activity = data.StructLayout({"busy": 1, "wait_operand": 1, "wait_output": 1})


def events(config: Config) -> data.StructLayout:
    """Events of one cycle: counts, largest excesses in bits, and whether a quantiser met a NaN or infinity."""
    engines, products = range(config.tile_engines + 1), config.tile_engines * config.native_dim * config.lanes
    entries = {"entries_written": 1, "entries_read": engines, "conflict": 1} if config.vector_rf else {}
    return data.StructLayout({
        **entries, "beats": engines, "tiles": engines, "rows_loaded": 1,
        "vectors": bits_for(1 + bool(config.vector_rf)),
        "partial": range(config.native_dim + config.mfu_lanes + 1), "product": range(products + 1),
        "output": range(config.mfu_lanes + 1), "excess_partial": EXCESS, "excess_product": EXCESS,
        "excess_output": EXCESS, "invalid_vector": 1, "invalid_matrix": 1})


class MatrixVectorMultiplier(wiring.Component):
    """Multiplies native tiles by native vectors, from binary16 words to binary16 words.

    Args:
        config: The machine.

    Members:
        product: In(stream Product). One payload for each `mv_mul` chain. Its tiles are loaded, and none is loaded anew
            before `product_done`.
        operand: In(stream {word, integer, unsigned, last}). Words of all columns, iterations and chains in order;
            `last` marks the last word of each iteration.
        result: Out(stream word). Words of MvmQ; each iteration of a product gives its `words` words.
        product_done: Out(1). Pulse: all tiles of a product have been read.
        load: In(stream `tile_load`). One payload for each tile to be quantised.
        matrix_word: In(stream word). Words of that tile, row by row.
        load_done: Out(1). Pulse: a tile that was loaded in this way may be read.
        packed: In(stream {tile, integer, row, group, record, last}). None while a tile is quantised that is not
            `full`, and none for a tile that is read. Products with a tile come at least 4 cycles after its last record,
            since its zero mark takes so long.
        bias_write: In(stream {address, data}). Writes to BiasRf, always taken.
        events: Out. Events of this cycle.
        activity: Out {busy, wait_operand, wait_output}. State of the tile engines.

    A machine with VectorRf has these, too:
        columns: In(stream column_job). Addresses of each product from VectorRf, in the order of `product`.
        entry_job: In(stream entry_job). Each chain that writes VectorRf, at least 2 cycles before its first word.
        entry_word: In {valid, word, last}. Words of those chains, always taken; `last` ends an iteration.
        entry_writers: In. The unfinished ones of those chains. entry_progress: Out {done, low}. Their progress.
        gather, host: In(`entry_reads`). Reads of single entries.
        host_write: In(stream {address, entry}). Entries of the host, taken while no chain writes.

    Timing:
        One beat a cycle, without bubbles between rows of tiles, iterations and products. The first word of a row of
        tiles is in `result` `latency` cycles after its last beat went. No timing depends on data but by zero marks.
    """

    #: Cycles from a beat to its operands. Buffer and VectorRf are read one cycle before the beat.
    operand_after = OperandBuffer.latency - 1
    assert EntryReader.latency == OperandBuffer.latency

    def __init__(self, config: Config):
        config.require_hardware()
        self.config = config
        self.rotator = OperandRotator(config)
        self.engines = [TileEngine(config) for _ in range(config.tile_engines)]
        self.accumulator = Accumulator(config)
        self.converter = Converter(config)
        assert self.latency == timing.product(config), (self.latency, timing.product(config))
        entries = {
            "columns": In(stream.Signature(column_job(config))), "entry_job": In(stream.Signature(entry_job(config))),
            "entry_word": In(entry_word(config)), "entry_writers": In(entry_writers(config)),
            "entry_progress": Out(entry_progress(config)),
            "gather": In(entry_reads(config)), "host": In(entry_reads(config)),
            "host_write": In(stream.Signature(message_payloads.entry_write(config)))} if config.vector_rf else {}
        super().__init__({
            "product": In(stream.Signature(Product)),
            "operand": In(stream.Signature(operand_word(config.mfu_lanes))),
            "result": Out(stream.Signature(word(config))), "product_done": Out(1),
            "load": In(stream.Signature(tile_load(config))), "matrix_word": In(stream.Signature(word(config))),
            "load_done": Out(1),
            "packed": In(stream.Signature(message_payloads.packed(config))),
            "bias_write": In(stream.Signature(message_payloads.bias(config))),
            "events": Out(events(config)), "activity": Out(Activity), **entries})

    @property
    def arithmetic(self) -> int:
        """Cycles from the last beat of a row of tiles to its totals."""
        return (self.operand_after + self.rotator.latency + self.engines[0].latency - Accumulator.terms_after
                + self.accumulator.latency)

    @property
    def latency(self) -> int:
        """Cycles from the last beat of a row of tiles to its first word in `result`."""
        return self.arithmetic + 2 + self.converter.latency + timing.QUEUE

    @property
    def space(self) -> int:
        """Number of words of the result queue: MvmQ, but at least so many that results never wait for space."""
        return max(self.config.mvmq_words, 2 * self.config.vector_words + self.latency)

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.sequencer = sequencer = BeatSequencer(config, self.space)
        m.submodules.matrix_rf = matrix_rf = MatrixRf(config)
        m.submodules.loader = loader = MatrixLoader(config)
        m.submodules.quantizer = quantizer = Quantizer(config.activations, config.mfu_lanes, config.native_dim)
        m.submodules.operands = operands = OperandBuffer(config)
        m.submodules.rotator, m.submodules.accumulator = self.rotator, self.accumulator
        wiring.connect(m, wiring.flipped(self.product), sequencer.product)
        wiring.connect(m, wiring.flipped(self.operand), quantizer.i)
        wiring.connect(m, quantizer.o, operands.i)
        for name, port in (("load", "load"), ("matrix_word", "word"), ("packed", "packed")):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(loader, port))

        beat = sequencer.beat
        weights_after = self.operand_after + self.rotator.latency + TileEngine.weights_after
        m.d.comb += [
            sequencer.complete.eq(operands.complete), sequencer.whole.eq(operands.whole),
            sequencer.marks.eq(matrix_rf.marks), matrix_rf.mark_tile.eq(sequencer.mark_tile),
            *(getattr(operands, name).eq(getattr(sequencer, name)) for name in ("step", "group", "release")),
            matrix_rf.tile.eq(delay(m, beat.tile, weights_after - MatrixRf.latency)),
            matrix_rf.group.eq(delay(m, beat.group, weights_after - MatrixRf.latency)),
            matrix_rf.write.eq(loader.write), matrix_rf.mark.eq(loader.mark),
            self.product_done.eq(delay_control(m, sequencer.done, weights_after)), self.load_done.eq(loader.done),
            self.events.beats.eq(sequencer.beats), self.events.tiles.eq(sequencer.tiles),
            self.events.vectors.eq(quantizer.block), self.events.invalid_vector.eq(quantizer.invalid),
            self.rotator.i.eq(operands.o),
            self.events.rows_loaded.eq(loader.row), self.events.invalid_matrix.eq(loader.invalid),
            *(self.activity[name].eq(getattr(sequencer, name)) for name in ("busy", "wait_operand", "wait_output"))]
        self._multiply(m, beat, matrix_rf)
        self._results(m, sequencer)
        if config.vector_rf:
            self._entries(m, sequencer, quantizer)
        if config.count_overflows:
            self._count(m, delay(m, beat.rows, weights_after), delay_control(m, beat.valid, weights_after), matrix_rf)
        return m

    def _entries(self, m, sequencer, quantizer):
        """Connect VectorRf, its reader and its writer."""
        m.submodules.vector_rf = entries = VectorRf(self.config)
        m.submodules.walker = walker = ColumnWalker(self.config)
        m.submodules.reader = reader = EntryReader(self.config)
        m.submodules.writer = writer = EntryWriter(self.config)
        wiring.connect(m, wiring.flipped(self.columns), walker.job)
        wiring.connect(m, walker.o, reader.i)
        wiring.connect(m, wiring.flipped(self.entry_job), writer.job)
        wiring.connect(m, wiring.flipped(self.host_write), writer.host)
        wiring.connect(m, wiring.flipped(self.gather), entries.gather)
        wiring.connect(m, wiring.flipped(self.host), entries.host)
        m.d.comb += [
            reader.writers.eq(self.entry_writers), reader.progress.eq(writer.progress),
            reader.go.eq(sequencer.read), reader.group.eq(sequencer.group), reader.end.eq(sequencer.end),
            sequencer.entries.eq(reader.ready), entries.columns.eq(reader.reads), reader.entries.eq(entries.o),
            writer.word.eq(self.entry_word), entries.write.eq(writer.write), self.entry_progress.eq(writer.progress),
            self.events.entries_written.eq(writer.written), self.events.conflict.eq(reader.conflict),
            self.events.entries_read.eq(Mux(sequencer.read, sequencer.tiles, 0)),
            self.events.vectors.eq(quantizer.block + writer.block),
            self.events.invalid_vector.eq(quantizer.invalid | writer.invalid)]
        with m.If(delay(m, sequencer.beat.from_entries, self.operand_after)):
            m.d.comb += self.rotator.i.eq(reader.o)

    def _multiply(self, m, beat, matrix_rf):
        """Connect operands and tiles through the tile engines to the accumulators."""
        rotator, accumulator = self.rotator, self.accumulator
        m.d.comb += [getattr(rotator, name).eq(delay(m, beat[name], self.operand_after))
                     for name in ("tile", "columns")]
        integer = delay(m, beat.integer, self.operand_after + rotator.latency)
        for j, engine in enumerate(self.engines):
            m.submodules[f"engine{j}"] = engine
            m.d.comb += [engine.operand.eq(rotator.o[j]), engine.integer.eq(integer),
                         engine.weights.eq(matrix_rf.o[j]), accumulator.terms[j].eq(engine.o)]
        wait = self.operand_after + rotator.latency + self.engines[0].latency - Accumulator.terms_after
        m.d.comb += [accumulator.valid.eq(delay_control(m, beat.valid, wait)),
                     *(getattr(accumulator, name).eq(delay(m, beat[name], wait))
                       for name in ("last", "rows", *sums(self.config)))]

    def _results(self, m, sequencer):
        """Connect the totals through the converter to the result queue."""
        config, accumulator, converter = self.config, self.accumulator, self.converter
        under_way = self.arithmetic // config.vector_words + 6  # rows of tiles between sequencer and converter
        m.submodules.results = results = ResultSequencer(config, under_way)
        m.submodules.bias_rf = bias_rf = BiasRf(config)
        m.submodules.queue = queue = Queue(word(config), self.space, deep=True)
        m.submodules.converter = converter
        wiring.connect(m, sequencer.row_tile, results.i)
        wiring.connect(m, wiring.flipped(self.bias_write), bias_rf.i)
        wiring.connect(m, queue.o, wiring.flipped(self.result))
        m.d.comb += [
            results.totals.eq(accumulator.totals), accumulator.select.eq(results.select),
            bias_rf.address.eq(results.address), converter.i.eq(results.o), converter.sums.eq(accumulator.o),
            converter.start.eq(bias_rf.o), queue.i.valid.eq(converter.valid), queue.i.p.eq(converter.o),
            sequencer.freed.eq(queue.o.valid & queue.o.ready),
            self.events.partial.eq(accumulator.partial + converter.partial), self.events.output.eq(converter.output),
            self.events.excess_partial.eq(Mux(accumulator.excess > converter.excess_partial, accumulator.excess,
                                              converter.excess_partial)),
            self.events.excess_output.eq(converter.excess_output)]

    def _count(self, m, rows, valid, matrix_rf):
        """Count the products that do not fit, over all lanes and engines of the rows that are output."""
        config = self.config
        per_row = config.lanes * config.tile_engines
        operands = [x for engine in self.engines for x in engine.operand.mantissas]
        late = lateness(config)  # all rows count in the cycle of the last one
        operands = [mantissa(delay(m, x, TileEngine.weights_after + late[-1]), config.activations) for x in operands]
        weights = [[mantissa(delay(m, w, late[-1] - each), config.weights)
                    for bank in matrix_rf.o for w in bank[r].mantissas] for r, each in enumerate(late)]
        products = [x * weight for row in weights for x, weight in zip(operands, row, strict=True)]
        m.submodules.products = counter = OverflowCounter(len(products), len(products[0]), config.product_bits)
        m.d.comb += [
            counter.valid.eq(delay_control(m, valid, late[-1])),
            counter.used.eq(delay(m, rows, late[-1]) * per_row), counter.values.eq(Cat(products)),
            self.events.product.eq(counter.misfits), self.events.excess_product.eq(counter.excess)]
