"""The vector register file, which holds entries: quantised native vectors."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for
from concord.hw.lib.arithmetic import UNCHECKED, low_high
from concord.hw.lib.payloads import ENTRY_READ, entry, entry_reads
from concord.hw.lib.pipeline import delay
from concord.spec.machine.config import Config


def entry_address(config: Config) -> range:
    """Address of an entry."""
    return range(config.vector_rf)


def bank_read(config: Config) -> data.StructLayout:
    """Read of one bank: entry `index` of those that the bank holds."""
    return data.StructLayout({"valid": 1, "index": bits_for(max(1, config.vector_rf // config.tile_engines - 1))})


def entry_words(config: Config) -> data.StructLayout:
    """Words of one entry to write, those that `words` marks, and its exponent."""
    return data.StructLayout({
        "valid": 1, "address": entry_address(config), "words": config.vector_words, "entry": entry(config)})


class VectorRf(wiring.Component):
    """Holds entries in `tile_engines` banks; entry a lies in bank a mod tile_engines.

    Each bank has one read port: products come first, then `gather`, then `host`.

    Args:
        config: The machine; tile_engines is a power of two.

    Members:
        write: In {valid, address, words, entry}. Words of an entry to write.
        columns: In {valid, index}, [bank]. Reads of a product, always served.
        gather, host: In(`entry_reads`). Reads of single entries.
        o: Out. Entry that each bank has read for `columns`.

    Timing:
        Entries follow their reads by `latency` cycles. What is written can be read from the next cycle on; what a read
        of the same entry yields in the same cycle is undefined. Reset does not change the memory.
    """

    latency = ENTRY_READ

    def __init__(self, config: Config):
        self.config = config
        engines = config.tile_engines
        super().__init__({
            "write": In(entry_words(config)), "columns": In(data.ArrayLayout(bank_read(config), engines)),
            "gather": In(entry_reads(config)), "host": In(entry_reads(config)),
            "o": Out(data.ArrayLayout(entry(config), engines))})

    def elaborate(self, platform):
        m = Module()
        banks, gather, host = self.config.tile_engines, self.gather.request, self.host.request
        # At most one of the two is granted in a cycle, so that one multiplexer serves both.
        address = Mux(gather.valid, gather.address, host.address)[:len(self.write.address)]
        bank, index = low_high(address, banks)
        free = ~Cat(self.columns[j].valid & (bank == j) for j in range(banks)).any()
        m.d.comb += [self.gather.grant.eq(gather.valid & free), self.host.grant.eq(host.valid & ~gather.valid & free)]
        for j in range(banks):
            self._bank(m, j, index)
        came_from = delay(m, bank, self.latency)
        for single in (self.gather.entry, self.host.entry):
            m.d.comb += single.eq(self.o.as_value().word_select(came_from, entry(self.config).size))
        return m

    def _bank(self, m, j: int, index):
        """One bank. Words are written one by one, so that no unit collects them.

        Each word keeps a share of the bits of the exponent: no second memory is needed for it.
        """
        config, write, columns, words = self.config, self.write, self.columns[j], self.config.vector_words
        size, share = config.activations.code_bits * config.mfu_lanes, -(-config.activations.exponent_bits // words)
        m.submodules[f"bank{j}"] = memory = Memory(
            shape=words * (size + share), depth=config.vector_rf // config.tile_engines, init=[], attrs=UNCHECKED)
        port, read = memory.write_port(granularity=size + share), memory.read_port()
        bank, line = low_high(write.address, config.tile_engines)
        mantissas, exponent = Value.cast(write.entry.mantissas), Signal(words * share)
        came = delay(m, read.data, 1)
        parts = [came[k * (size + share):(k + 1) * (size + share)] for k in range(words)]
        m.d.comb += [
            exponent.eq(write.entry.exponent), port.addr.eq(line),
            port.data.eq(Cat(Cat(mantissas.word_select(k, size), exponent.word_select(k, share))
                             for k in range(words))),
            port.en.eq(Mux(write.valid & (bank == j), write.words, 0)),
            read.addr.eq(Mux(columns.valid, columns.index, index)),
            Value.cast(self.o[j].mantissas).eq(Cat(part[:size] for part in parts)),
            self.o[j].exponent.eq(Cat(part[size:] for part in parts))]
