"""The machine configuration: every width and depth, written once."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any

from concord.spec.numbers.formats import EXACT_BITS, Format, Rule, check_types, product_sum_bits
from concord.spec.numbers.lazy import MOST_LANES
from concord.spec.numbers.softmax import MOST_ELEMENTS

#: Smallest and largest value of each attribute that is a number and not in `_RANGES`.
_RANGE = (1, 65536)
_RANGES = {
    "mfu_lanes": (2, 65536),  # A message carries no less than 32 bits of a word at once.
    "multipliers": (0, 65536),
    "acc_int": (0, 80),
    "acc_frac": (0, 63),  # The converter's shift is a signed number of 7 bits.
    "bias_bits": (2, 32),
    "vector_rf": (0, 65536),
    "softmax_words": (0, MOST_ELEMENTS // 2),
    "mfu_registers": (0, 3),
    "partial_sums": (0, 256),
    "dram_words": (0, 1 << 30),
    "dram_bus": (0, 64),
}
DRAM_BYTES = 1 << 32  #: Most bytes of Dram: addresses on its bus have 32 bits.

WIDEST_CODE = 8  #: Most bits of an element with an exponent of its own in hardware.
MOST_WORDS = (1 << 16) - 1  #: Most words of a product's operand, and of a tile of numbers, which hardware counts.

#: Attributes whose default, 0 or False, stands for a machine without the unit or memory, or as machines are without a
#: choice. Records leave them out where they have it, so that the digest of such a machine, and thus its firmware, does
#: not depend on them.
_OPTIONAL = ("softmax_words", "more_functions", "mfu_registers", "partial_sums", "dram_words", "dram_bus")


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """One neural network processor.

    A *word* is `mfu_lanes` binary16 values; vector memories, queues, lengths and strides count words.

    Attributes:
        native_dim:       N, the number of elements of a native vector, and of rows and columns of a tile.
        lanes:            Number of products per row that one tile engine adds in one cycle; it divides N.
        tile_engines:     Number of tile engines, which multiply neighbouring tiles of one row of tiles in parallel.
        multipliers:      Number of 18 x 18-bit multipliers of the device that the tile engines use at most.
        mfu_lanes:        M, the number of binary16 lanes of converters, MFUs and memories; it divides N.
        weights:          Operand format of matrix tiles.
        activations:      Operand format of the vectors that the tile engines multiply.
        acc_int:          Number of integer bits of the accumulator, sign included.
        acc_frac:         Number of fraction bits of the accumulator.
        bias_bits:        Number of bits of one integer of BiasRf, 2 to 32.
        product_bits:     Number of bits that a product may have without an overflow event.
        output_bits:      Number of bits that an integer-mode total may have without an overflow event.
        count_overflows:  Whether the machine has overflow counters.
        initial_vrf:      Number of words of InitialVrf.
        addsub_vrf:       Number of words of each AddSubVrf.
        multiply_vrf:     Number of words of each MultiplyVrf.
        net_in:           Number of words of the queue from the host.
        net_out:          Number of words of the queue to the host.
        mvmq_words:       Number of words of MvmQ.
        vector_rf:        Number of entries of VectorRf, native vectors after the quantiser; 0 for a machine that has
                          neither VectorRf nor windows nor the pooling unit.
        matrix_tiles:     Number of native tiles of MatrixRf.
        bias_words:       Number of words of BiasRf; a word of BiasRf has M integers.
        instructions:     Number of instructions that the instruction buffer holds.
        accumulator_rows: Largest number of rows of one product.
        operand_columns:  Largest number of native vectors of one product that operand fetch supplies.
        chain_queue:      Number of decoded chains that can wait for each pipeline.
        message_bytes:    Number of bytes of one message beat: 4, 8 or 16.
        clock_mhz:        Clock frequency in MHz for which the machine is meant. Nothing is computed from it: reports
                          give times for a clock that was measured, or that `nnp verify --clock` names.
        lazy_update:      Whether the machine has the lazy-update unit, which trains parameters that the host sends.
        softmax_words:    Largest number of words of an output that `v_softmax` takes; 0 for a machine without softmax
                          unit.
        more_functions:   Whether the activation stages compute exp, reciprocal, reciprocal root and root, too, the add
                          stages the largest element and the sum of a vector, and operands can be held.
        mfu_registers:    Number of registers of each stage of the multi-function units: 3, or 0 for as many as let a
                          unit alone reach 125 MHz. It is 0 with `more_functions`, whose reductions take longer than 3.
        partial_sums:     Number of rows of tiles whose sums of a product's first columns are kept, so that the engines
                          work while its last columns are on their way; 0 for rows of tiles one after the other. It
                          is 0 with `vector_rf`.
        dram_words:       Number of words of Dram, the memory outside the chip; 0 for a machine without one.
        dram_bus:         Number of bytes of the data bus of Dram: 4, 8, 16, 32 or 64; 0 without one.

    Raises:
        ValueError: a sentence that names the attribute.
    """

    native_dim: int
    lanes: int
    tile_engines: int = 1
    multipliers: int = 0
    mfu_lanes: int
    weights: Format
    activations: Format
    acc_int: int
    acc_frac: int
    bias_bits: int = 32
    product_bits: int = 32
    output_bits: int = 32
    count_overflows: bool = False
    initial_vrf: int = 256
    addsub_vrf: int = 256
    multiply_vrf: int = 256
    net_in: int = 256
    net_out: int = 256
    mvmq_words: int = 256
    vector_rf: int = 0
    matrix_tiles: int = 64
    bias_words: int = 64
    instructions: int = 512
    accumulator_rows: int = 1024
    operand_columns: int = 32
    chain_queue: int = 4
    message_bytes: int = 4
    clock_mhz: int = 50
    lazy_update: bool = False
    softmax_words: int = 0
    more_functions: bool = False
    mfu_registers: int = 0
    partial_sums: int = 0
    dram_words: int = 0
    dram_bus: int = 0

    def __post_init__(self):
        check_types(self)
        for name in (field.name for field in fields(self) if field.type is int):
            lowest, highest = _RANGES.get(name, _RANGE)
            if not lowest <= getattr(self, name) <= highest:
                raise ValueError(f"{name} = {getattr(self, name)} is out of range: it lies in {lowest}..{highest}")
        for name in ("lanes", "mfu_lanes"):
            if self.native_dim % getattr(self, name):
                lowest = _RANGES.get(name, _RANGE)[0]
                divisors = [n for n in range(lowest, self.native_dim + 1) if self.native_dim % n == 0]
                raise ValueError(f"{name} = {getattr(self, name)} must divide native_dim = {self.native_dim}: "
                                 f"{_nearest(divisors, getattr(self, name))}")
        for name in ("matrix_tiles", "vector_rf"):  # their banks are of equal size, one for each engine
            if getattr(self, name) % self.tile_engines:
                lowest, highest = _RANGES.get(name, _RANGE)
                near = [n for n in range(0, highest + 1, self.tile_engines) if n >= lowest]
                raise ValueError(f"{name} = {getattr(self, name)} must be a multiple of tile_engines = "
                                 f"{self.tile_engines}: {_nearest(near, getattr(self, name))}")
        if self.message_bytes not in (4, 8, 16):
            raise ValueError(f"message_bytes = {self.message_bytes} must be 4, 8 or 16")
        self._check_dram()
        self._check_elements()
        if self.alignment < 0:
            raise ValueError(f"acc_frac = {self.acc_frac} drops bits of small blocks: it must be at least "
                             f"{self.acc_frac - self.alignment}")
        if not 2 <= self.sum_bits <= 80:
            raise ValueError(f"acc_int + acc_frac = {self.sum_bits} is out of range: an accumulator has 2 to 80 bits")
        if self.lazy_update and self.mfu_lanes > MOST_LANES:
            raise ValueError(f"mfu_lanes = {self.mfu_lanes} must be at most {MOST_LANES} with lazy_update")
        if self.softmax_words * self.mfu_lanes > MOST_ELEMENTS:
            raise ValueError(f"softmax_words = {self.softmax_words} is too large: a softmax of more than "
                             f"{MOST_ELEMENTS} elements is not exact enough, so {MOST_ELEMENTS // self.mfu_lanes} "
                             f"words of {self.mfu_lanes} lanes would do")
        if self.partial_sums and self.vector_rf:
            raise ValueError(f"partial_sums = {self.partial_sums} must be 0 with vector_rf = {self.vector_rf}, from "
                             "which columns come row of tiles by row of tiles")
        if self.mfu_registers not in (0, 3):
            raise ValueError(f"mfu_registers = {self.mfu_registers} must be 0 or 3")
        if self.mfu_registers and self.more_functions:
            raise ValueError(f"mfu_registers = {self.mfu_registers} must be 0 with more_functions: the reductions of "
                             "an add stage take more cycles")

    def _check_dram(self):
        """Refuse a bus that no memory outside the chip has, and more words than its addresses reach."""
        widths = (4, 8, 16, 32, 64) if self.dram_words else (0,)
        if self.dram_bus not in widths:
            raise ValueError(f"dram_bus = {self.dram_bus} must be {' or '.join(map(str, widths))} with "
                             f"dram_words = {self.dram_words}")
        if self.dram_words * 2 * self.mfu_lanes > DRAM_BYTES:
            raise ValueError(f"dram_words = {self.dram_words} is too large: {DRAM_BYTES // (2 * self.mfu_lanes)} words "
                             f"of {self.mfu_lanes} lanes are {DRAM_BYTES:,} bytes")

    def _check_elements(self):
        """Refuse operands whose elements have exponents of their own where sums or multipliers cannot take them."""
        bits = product_sum_bits(self.weights, self.activations, self.native_dim)
        if bits > EXACT_BITS:
            raise ValueError(f"weights of {self.weights.element} and activations of {self.activations.element}: the "
                             f"sum of {self.native_dim} products needs {bits} bits, and golden holds {EXACT_BITS}; "
                             "choose elements with shorter exponent fields")
        if self.weights.precision and self.multipliers:
            raise ValueError(f"multipliers = {self.multipliers} must be 0: weights of {self.weights.element} are "
                             "multiplied in lookup tables")

    @classmethod
    def from_record(cls, record: dict) -> "Config":
        """Make a configuration from what `record` or `dataclasses.asdict` made, also after a trip through JSON.

        Raises:
            ValueError: it lacks an attribute, has an unknown one, or one that no machine has.
        """
        known = [field.name for field in fields(cls)]
        for name in known:
            if name not in record and name not in _OPTIONAL:
                raise ValueError(f"the configuration lacks the attribute {name}")
        for name in record:
            if name not in known:
                raise ValueError(f"a configuration has no attribute {name}: it has {', '.join(known)}")
        made: dict[str, Any] = record | {name: Format.from_record(record[name]) for name in ("weights", "activations")}
        return cls(**made)

    def lacks(self, name: str) -> bool:
        """Whether the machine is without the unit or memory of an attribute."""
        return name in _OPTIONAL and not getattr(self, name)

    def record(self) -> dict:
        """The attributes as `from_record` takes them; those of units that the machine lacks may be left out."""
        made = {name: value for name, value in asdict(self).items() if not self.lacks(name)}
        for name in ("weights", "activations"):
            if not made[name]["precision"]:
                del made[name]["precision"]
        return made

    def require_hardware(self) -> None:
        """Refuse a configuration for which no hardware can be generated.

        Raises:
            ValueError: a sentence that names the attribute.
        """
        for name in ("weights", "activations"):
            fmt = getattr(self, name)
            if fmt.precision and fmt.code_bits > WIDEST_CODE:
                raise ValueError(f"{name} of {fmt.element} are stored in {fmt.code_bits} bits, and hardware takes "
                                 f"floats of at most {WIDEST_CODE} bits, such as E4M3 or E5M2; such a machine runs on "
                                 "the golden model only")
        for name in ("native_dim", "lanes", "mfu_lanes"):
            self._require_power_of_two(name, "")
        for name in ("vector_rf", "dram_words"):
            if getattr(self, name):
                self._require_power_of_two("tile_engines", f" with {name}")
        for name, of in ("operand_columns", "of a product"), ("native_dim", "of a tile"):
            if (words := getattr(self, name) * self.vector_words) > MOST_WORDS:
                raise ValueError(f"hardware counts at most {MOST_WORDS:,} words {of}, and {name} = "
                                 f"{getattr(self, name):,} native vectors of {self.vector_words} words have {words:,}; "
                                 "such a machine runs on the golden model only")

    def _require_power_of_two(self, name: str, why: str):
        value = getattr(self, name)
        if value & value - 1:
            raise ValueError(f"hardware needs {name} to be a power of two{why}, not {value}; such a machine runs on "
                             "the golden model only")

    def words_of(self, elements: int) -> int:
        """Number of words that hold `elements` numbers; the last word is padded."""
        return -(-elements // self.mfu_lanes)

    def vectors_of(self, elements: int) -> int:
        """Number of native vectors that hold `elements` numbers; the last one is padded."""
        return -(-elements // self.native_dim)

    @property
    def vector_words(self) -> int:
        """Number of words of a native vector, N/M."""
        return self.native_dim // self.mfu_lanes

    @property
    def groups(self) -> int:
        """Number of lane groups of a native tile, N/lanes; a tile engine multiplies one in each cycle."""
        return self.native_dim // self.lanes

    @property
    def products(self) -> int:
        """Largest number of products of a weight and an activation in one cycle."""
        return self.tile_engines * self.native_dim * self.lanes

    @property
    def sum_bits(self) -> int:
        """Number of bits of the accumulator, which adds modulo 2**sum_bits."""
        return self.acc_int + self.acc_frac

    @property
    def alignment(self) -> int:
        """Left shift of a dot product whose two blocks have the smallest exponents."""
        return (self.acc_frac - (self.weights.bits - 1) - (self.activations.bits - 1)
                + self.weights.e_min + self.activations.e_min)

    @property
    def digest(self) -> int:
        """32-bit hash that identifies this configuration; messages and firmware carry it."""
        return _digest(self)


def _nearest(legal: Sequence[int], value: int) -> str:
    """The legal values next to a value, as the end of a sentence."""
    around = [max((n for n in legal if n < value), default=None), min((n for n in legal if n > value), default=None)]
    return f"{' or '.join(str(n) for n in around if n is not None)} would do"


@lru_cache
def _digest(config: Config) -> int:
    text = json.dumps(config.record(), sort_keys=True)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")


_FULL8 = Format(bits=8)
_E4M3 = Format.floating(4, 3, e_min=4, e_max=4)
_SYMMETRIC8 = Format(bits=8, symmetric=True, e_min=-11, e_max=4)
_TRAINED8 = Format(bits=8, e_min=-11, e_max=4)  # mantissas as training by lazy update leaves them
_VISION = Config(
    native_dim=16, lanes=16, multipliers=112, mfu_lanes=8, weights=_SYMMETRIC8, activations=_SYMMETRIC8, acc_int=12,
    acc_frac=36, bias_bits=32, initial_vrf=512, addsub_vrf=2048, multiply_vrf=256, net_in=512, net_out=512,
    mvmq_words=256, matrix_tiles=384, bias_words=128, instructions=1024, accumulator_rows=1024, operand_columns=64,
    vector_rf=2048, message_bytes=16, clock_mhz=50)
_VISION_LARGE = replace(
    _VISION, tile_engines=2, matrix_tiles=1536, addsub_vrf=4096, multiply_vrf=512, bias_words=512, vector_rf=5120)

_ULX3S = Config(
    native_dim=32, lanes=32, multipliers=128, mfu_lanes=4, weights=Format(bits=4, symmetric=True, e_min=-7, e_max=0),
    activations=Format(bits=4, symmetric=True, e_min=-5, e_max=2), acc_int=14, acc_frac=18, bias_bits=18,
    initial_vrf=1024, addsub_vrf=512, multiply_vrf=512, net_in=512, net_out=512, mvmq_words=512, vector_rf=1024,
    matrix_tiles=512, bias_words=512, instructions=512, accumulator_rows=4096, operand_columns=64, clock_mhz=50)

_TINY = Config(
    native_dim=8, lanes=4, multipliers=20, mfu_lanes=2, weights=_FULL8, activations=_FULL8, acc_int=30, acc_frac=44,
    product_bits=14, output_bits=15, count_overflows=True, initial_vrf=64, addsub_vrf=64, multiply_vrf=64, net_in=256,
    net_out=256, mvmq_words=32, vector_rf=48, matrix_tiles=32, bias_words=32, instructions=512, accumulator_rows=64,
    operand_columns=8, clock_mhz=50, lazy_update=True)

#: The comment above each preset says what it is for; docs/presets.md shows it.
PRESETS = {
    # For tests: full formats and ranges of exponents, every counter.
    "tiny": _TINY,
    # For tests: one product per row and cycle, so that overflows count serially; narrow accumulators, the ceil rule.
    "serial": Config(
        native_dim=4, lanes=1, mfu_lanes=4, weights=Format(bits=5, symmetric=True, e_min=-3, e_max=4, rule=Rule.CEIL),
        activations=Format(bits=6, e_min=-4, e_max=3, rule=Rule.CEIL), acc_int=4, acc_frac=16, bias_bits=16,
        product_bits=9, output_bits=10, count_overflows=True, initial_vrf=48, addsub_vrf=40, multiply_vrf=36,
        net_in=64, net_out=64, mvmq_words=16, vector_rf=30, matrix_tiles=24, bias_words=20, instructions=300,
        accumulator_rows=24, operand_columns=5, chain_queue=2, message_bytes=8, clock_mhz=40),
    # For tests: four tile engines, no count of overflows.
    "wide": Config(
        native_dim=16, lanes=8, tile_engines=4, multipliers=64, mfu_lanes=4,
        weights=Format(bits=3, e_min=-6, e_max=9), activations=Format(bits=4, symmetric=True, e_min=-15, e_max=16),
        acc_int=34, acc_frac=40, bias_bits=24, initial_vrf=128, addsub_vrf=96, multiply_vrf=80, net_in=512, net_out=512,
        mvmq_words=64, vector_rf=64, matrix_tiles=64, bias_words=48, instructions=400, accumulator_rows=128,
        operand_columns=16, chain_queue=8, message_bytes=16, clock_mhz=100),
    # For perceptrons and image networks of 4 bits on a Lattice ECP5-85F: 1,024 products of 4 x 4 bits a cycle.
    "ulx3s": _ULX3S,
    # For image networks of 8 bits on a Lattice ECP5-85F: one tile engine and wide words.
    "vision": _VISION,
    # For recurrent networks and perceptrons of 8 bits.
    "speech": Config(
        native_dim=16, lanes=16, tile_engines=2, multipliers=128, mfu_lanes=4, weights=_SYMMETRIC8,
        activations=_SYMMETRIC8, acc_int=12, acc_frac=36, bias_bits=32, initial_vrf=512, addsub_vrf=512,
        multiply_vrf=512, net_in=512, net_out=512, mvmq_words=256, matrix_tiles=256, bias_words=256, instructions=512,
        accumulator_rows=2048, operand_columns=64, clock_mhz=50),
    # For larger image networks of 8 bits, in simulation and on larger devices: two tile engines, larger memories.
    "vision_large": _VISION_LARGE,
    # For perceptrons of any size on a Lattice ECP5-85F: `ulx3s` with a port to 32 MB of memory outside the chip.
    "ulx3s_dram": replace(_ULX3S, dram_words=1 << 22, dram_bus=16),
    # For image networks with any number of weights on a Lattice ECP5-85F: `vision`, words of 4 numbers, 32 MB outside.
    "vision_dram": replace(
        _VISION, mfu_lanes=4, dram_words=1 << 22, dram_bus=16, initial_vrf=1024, multiply_vrf=1024, net_in=1024,
        net_out=1024, mvmq_words=512, bias_words=1024, instructions=2048),
    # For networks with any number of weights, in simulation and on larger devices: `vision_large` with 256 MB outside.
    "vision_large_dram": replace(_VISION_LARGE, dram_words=1 << 24, dram_bus=16),
    # For networks trained by lazy update: operands of 8 bits as that training makes them, and the unit that trains.
    "trainer": Config(
        native_dim=16, lanes=16, tile_engines=2, mfu_lanes=4, weights=_TRAINED8, activations=_TRAINED8, acc_int=13,
        acc_frac=36, bias_bits=32, initial_vrf=512, addsub_vrf=512, multiply_vrf=512, net_in=512, net_out=512,
        mvmq_words=256, matrix_tiles=256, bias_words=256, instructions=512, accumulator_rows=2048, operand_columns=64,
        clock_mhz=50, lazy_update=True),
    # For image networks trained by lazy update: `vision_large` with operands of 8 bits as that training makes them.
    "vision_bfp8": replace(_VISION_LARGE, weights=_TRAINED8, activations=_TRAINED8, acc_int=13),
    # For tests: `tiny` with a softmax unit for 12 elements.
    "tiny_softmax": replace(_TINY, softmax_words=6),
    # For tests: `tiny` with exp, reciprocal and roots.
    "tiny_vector": replace(_TINY, more_functions=True),
    # For tests: `tiny` with weights and inputs of E4M3, floats of 8 bits up to 15.
    "tiny_float": replace(_TINY, multipliers=0, weights=_E4M3, activations=_E4M3, acc_frac=36, acc_int=12),
    # For golden only: the published large shape.
    "brainwave_s10": Config(
        native_dim=400, lanes=40, tile_engines=6, mfu_lanes=40, weights=Format(bits=3), activations=Format(bits=3),
        acc_int=34, acc_frac=40, initial_vrf=512, addsub_vrf=512, multiply_vrf=512, net_in=512, net_out=512,
        mvmq_words=512, matrix_tiles=306, bias_words=512, instructions=1024, accumulator_rows=8000, operand_columns=50,
        message_bytes=16, clock_mhz=250),
}


def preset(name: str) -> Config:
    """The configuration called `name`.

    Raises:
        ValueError: there is no such preset.
    """
    if name not in PRESETS:
        raise ValueError(f"there is no preset {name!r}: choose one of {', '.join(PRESETS)}")
    return PRESETS[name]


def preset_name(config: Config) -> str:
    """The name of the preset that a configuration is; empty for a machine of one's own."""
    return next((name for name, known in PRESETS.items() if known == config), "")
