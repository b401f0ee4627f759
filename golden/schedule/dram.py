"""What chains move between Dram and the chip as it is packed there: tiles, entries and integers."""

import numpy as np
from concord.golden.host.counters import Counters
from concord.golden.mvm.elements import decode, encode, from_bits, to_bits
from concord.golden.mvm.overflow import wrap
from concord.golden.schedule.memory import MachineMemory
from concord.spec.host.registers import READS, WRITES
from concord.spec.isa.chain import Chain
from concord.spec.isa.dram import words_of_bits
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config
from concord.spec.numbers.formats import Format


def pack(config: Config, fmt: Format, codes, exponents) -> np.ndarray:
    """Words uint16[words, M] of stored exponents, then codes, as `spec.isa.dram` has them.

    Args:
        config:    The machine.
        fmt:       Format of the codes.
        codes:     Mantissas, integers [...].
        exponents: Stored exponents, integers [...]; none in integer mode.
    """
    fields = (np.asarray(exponents), fmt.exponent_bits), (encode(codes, fmt), fmt.code_bits)
    return np.concatenate([_words(config, to_bits(values.reshape(-1), bits)) for values, bits in fields])


def unpack(config: Config, fmt: Format, words, codes: int, exponents: int) -> tuple[np.ndarray, np.ndarray]:
    """Mantissas int64[codes] and stored exponents int64[exponents] of words that `pack` made."""
    bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), bitorder="little")
    begin = words_of_bits(config, exponents * fmt.exponent_bits) * 16 * config.mfu_lanes
    return (decode(from_bits(bits[begin:begin + codes * fmt.code_bits], fmt.code_bits), fmt),
            from_bits(bits[:exponents * fmt.exponent_bits], fmt.exponent_bits))


def pack_tile(config: Config, mantissas, exponents, *, integer: bool = False, diagonal: bool = False) -> np.ndarray:
    """Words uint16[words, M] of one tile: mantissas [N, N] and stored exponents [N]."""
    codes = np.diagonal(mantissas) if diagonal else mantissas
    return pack(config, config.weights, codes, [] if integer else exponents)


def unpack_tile(config: Config, words, *, integer: bool = False, diagonal: bool = False):
    """Mantissas int64[N, N] and stored exponents int64[N] of a tile."""
    n = config.native_dim
    codes, exponents = unpack(config, config.weights, words, n if diagonal else n * n, 0 if integer else n)
    return (np.diag(codes) if diagonal else codes.reshape(n, n)), (np.zeros(n, np.int64) if integer else exponents)


def _words(config, bits):
    """Words that hold bits, with zeros at the end."""
    size = 16 * config.mfu_lanes
    filled = np.pad(bits, (0, -len(bits) % size))
    return np.packbits(filled, bitorder="little").view("<u2").astype(np.uint16).reshape(-1, config.mfu_lanes)


class PackedMoves:
    """Runs chains that load tiles from Dram, or move entries or integers as they are.

    Args:
        config:   Configuration of the machine.
        memory:   Its memories.
        counters: Its event counters.
    """

    def __init__(self, config: Config, memory: MachineMemory, counters: Counters):
        self.config, self.memory, self.counters = config, memory, counters

    def run(self, chain: Chain):
        """Run a chain, iteration by iteration."""
        step = self._load if chain.loads else self._out if chain.target.raw else self._in
        for iteration in range(chain.registers.iterations):
            step(chain, iteration)

    def _read(self, chain, iteration):
        """The words of an iteration of the source, which lies in Dram."""
        first = chain.source.a + chain.source_offset(iteration)
        self.counters.add(READS[Mem.DRAM], chain.outside)
        return self.memory.vectors[Mem.DRAM][first:first + chain.outside]

    def _load(self, chain, iteration):
        """Load one tile."""
        target = chain.target
        mantissas, exponents = unpack_tile(self.config, self._read(chain, iteration), integer=bool(target.integer),
                                           diagonal=bool(target.diagonal))
        self.memory.matrix.store(chain.tiles[iteration], mantissas[None], exponents[None])

    def _in(self, chain, iteration):
        """Move an iteration from Dram to VectorRf or BiasRf."""
        config, target, words = self.config, chain.target, self._read(chain, iteration)
        first = target.a + chain.offset(target, iteration)
        if target.mem == Mem.BIAS_RF:
            biases = np.ascontiguousarray(words).view("<i4").astype(np.int64).reshape(-1, config.mfu_lanes)
            self.memory.biases[first:first + chain.result_words] = wrap(biases, config.bias_bits)
            return
        codes, exponents = unpack(config, config.activations, words, chain.entries * config.native_dim,
                                  0 if target.integer else chain.entries)
        entries, chosen = self.memory.entries, slice(first, first + chain.entries)
        entries.mantissas[chosen] = codes.reshape(chain.entries, -1)
        entries.exponents[chosen] = 0 if target.integer else exponents
        self.counters.add(WRITES[Mem.VECTOR_RF], chain.entries)

    def _out(self, chain, iteration):
        """Move the entries of an iteration to Dram."""
        config, source, target = self.config, chain.source, chain.target
        first = source.a + chain.source_offset(iteration)
        mantissas, exponents = self.memory.entries.operands(np.arange(first, first + chain.entries))
        self.counters.add(READS[Mem.VECTOR_RF], chain.entries * config.vector_words)
        address = target.a + chain.offset(target, iteration)
        self.memory.vectors[Mem.DRAM][address:address + chain.outside] = pack(
            config, config.activations, mantissas, [] if source.integer else exponents)
        self.counters.add(WRITES[Mem.DRAM], chain.outside)
