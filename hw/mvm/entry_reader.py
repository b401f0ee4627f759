"""Reads the columns of products from VectorRf."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import low_high
from concord.hw.lib.jobs import entry_progress, entry_writers
from concord.hw.lib.lookahead import Ahead, EntryWriters
from concord.hw.lib.payloads import entry
from concord.hw.lib.pipeline import delay
from concord.hw.lib.queue import Queue
from concord.hw.mvm.column_walker import column_addresses
from concord.hw.mvm.operand_buffer import operand
from concord.hw.mvm.vector_rf import VectorRf, bank_read
from concord.spec.machine.config import Config

STEPS = 3  # steps that wait for their beats


class EntryReader(wiring.Component):
    """Reads the columns of a step with each of its beats. Until then they stay in VectorRf: no buffer holds them.

    Of the columns of a step that share a bank, all but the last one are read before its first beat, one in each cycle.

    Args:
        config: The machine; tile_engines and lanes are powers of two.

    Members:
        i: In(stream column_addresses). Steps in order; taken before it is known whether older chains may still write
            their columns.
        writers, progress: In. The chains that write VectorRf, and their progress.
        ready: Out(1). The next beat may go.
        go, group: In. A beat goes, and its lane group. end: In(1). It is the last beat of the step.
        reads: Out, entries: In. Reads of the banks of VectorRf, and what they yield `latency` cycles later.
        conflict: Out(1). A column is read before the first beat of its step.
        o: Out. One operand for each column of the step.

    Timing:
        One beat a cycle; the first one of a step 4 cycles after the step, or after the progress for which it waits.
        `o` follows `go` by `latency` cycles. A step takes one more cycle for each column beyond the
        first one in its fullest bank.
    """

    latency = VectorRf.latency

    def __init__(self, config: Config):
        self.config = config
        banks = config.tile_engines
        super().__init__({
            "i": In(stream.Signature(column_addresses(config))),
            "writers": In(entry_writers(config)), "progress": In(entry_progress(config)),
            "ready": Out(1), "go": In(1), "group": In(range(config.groups)), "end": In(1),
            "reads": Out(data.ArrayLayout(bank_read(config), banks)),
            "entries": In(data.ArrayLayout(entry(config), banks)), "conflict": Out(1),
            "o": Out(data.ArrayLayout(operand(config), banks))})

    def elaborate(self, platform):
        m = Module()
        engines, i = self.config.tile_engines, self.i
        m.submodules.steps = steps = Queue(i.p.shape(), STEPS)
        valid, certain, move = Signal(), Signal(), Signal()  # there is a step whose columns are looked up
        words = Ahead(m, coming=i.valid, advance=move, begins=1, move=move)
        step, writers = words.present("step", i.p), EntryWriters(m, self.writers, self.progress)
        m.d.comb += [
            certain.eq(Cat(self._written(words, writers, step, j) for j in range(engines)).all()),
            move.eq(~valid | (certain & steps.i.ready)), i.ready.eq(move),
            steps.i.valid.eq(valid & certain), steps.i.p.eq(step), steps.o.ready.eq(self.go & self.end)]
        with m.If(move):
            m.d.sync += valid.eq(i.valid)

        addresses = [low_high(address, engines) for address in steps.o.p.addresses]
        there = [j < steps.o.p.columns for j in range(engines)]
        early = [there[j] & Cat(there[k] & (addresses[k][0] == addresses[j][0]) for k in range(j + 1, engines)).any()
                 for j in range(engines)]
        done = Signal(engines)  # columns that have been read early
        pending = Cat(early) & ~done
        wanted = Mux(pending.any(), pending, Cat(there) & ~Cat(early))
        m.d.comb += [self.ready.eq(steps.o.valid & ~pending.any()), self.conflict.eq(steps.o.valid & pending.any())]
        picked = self._read(m, [bank for bank, _ in addresses], [index for _, index in addresses], wanted)
        m.d.sync += done.eq(Mux(self.go & self.end, 0, done | Mux(self.conflict, picked, 0)))
        self._collect(m, [bank for bank, _ in addresses], early, Mux(self.conflict, picked, 0))
        return m

    def _written(self, words, writers, step, j):
        """Whether all older chains have written column j of the present step, if it has one."""
        coming, columns = self.i.p.addresses[j], self.i.p.columns
        waits = writers.waits(f"coming{j}", self.i.p.older, coming, j < columns)
        present = words.present(f"waits{j}", waits)
        return words.certain(f"column{j}", lambda choose: ~writers.unfinished(
            choose(waits, present), choose(coming, step.addresses[j])))

    def _read(self, m, banks, indices, wanted):
        """In each bank, read the first column that is wanted there; return the columns that are read."""
        picked, active = Signal(len(banks)), self.go | self.conflict
        for b, read in enumerate(self.reads):
            here = [wanted[j] & (bank == b) for j, bank in enumerate(banks)]
            m.d.comb += read.valid.eq(active & Cat(here).any())
            for j in reversed(range(len(banks))):
                with m.If(here[j]):
                    m.d.comb += read.index.eq(indices[j])
        for j, bank in enumerate(banks):
            m.d.comb += picked[j].eq(wanted[j] & ~Cat(wanted[k] & (banks[k] == bank) for k in range(j)).any())
        return picked

    def _collect(self, m, banks, early, picked):
        """Keep the columns that were read early, and give the lane group of all columns."""
        config = self.config
        group = delay(m, self.group, self.latency)
        for j, bank in enumerate(banks):
            came = self.entries.as_value().word_select(delay(m, bank, self.latency), entry(config).size)
            if j < len(banks) - 1:  # no column after the last one shares its bank
                kept = Signal(entry(config).size, name=f"kept{j}", reset_less=True)
                with m.If(delay(m, picked[j], self.latency)):
                    m.d.sync += kept.eq(came)
                came = Mux(delay(m, early[j], self.latency), kept, came)
            came = data.View(entry(config), came)
            m.d.comb += [
                self.o[j].exponent.eq(came.exponent), self.o[j].mantissas.as_value().eq(
                    came.mantissas.as_value().word_select(group, config.lanes * config.activations.code_bits))]
