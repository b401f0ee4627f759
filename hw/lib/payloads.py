"""Wire shapes that several units share, derived from spec."""

from amaranth.hdl import Array, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for
from concord.spec.isa.instructions import ADDRESS_BITS, END_BITS, REGISTER_BITS, WORD, base_bits
from concord.spec.isa.memories import ADDRESSED, QUEUES, STAGE_MEMORIES, VRFS, Mem, addressed, depth, present
from concord.spec.isa.operations import MFUS, TAP_BITS, TAPS, Stage, code_bits
from concord.spec.machine.config import Config
from concord.spec.numbers.formats import Format

#: Index of a memory on the wires. Vector memories come first, so that arrays of them have it too.
INDEX = {mem: k for k, mem in enumerate(dict.fromkeys((*VRFS, *QUEUES, *ADDRESSED)))}
NET, MVM, ENTRIES, DRAM = (INDEX[mem] for mem in (Mem.NET_Q, Mem.MVM_Q, Mem.VECTOR_RF, Mem.DRAM))
OPERANDS = tuple(INDEX[mem] for mem in STAGE_MEMORIES)  #: Memories with an operand port.


def indices(config: Config) -> dict[Mem, int]:
    """Indices of the memories of a machine on its wires."""
    return {mem: INDEX[mem] for mem in present(config) if mem in INDEX}


def memory(config: Config) -> range:
    """The shape of such an index."""
    return range(max(indices(config).values()) + 1)


def index_of(config: Config, code):
    """Index of the source memory with this code; any index if the code is of another memory."""
    known = indices(config)
    return Array(known.get(each, 0) for each in range(max(known) + 1))[code]


def word(config: Config) -> data.ArrayLayout:
    """M binary16 values, lane 0 in the low bits."""
    return data.ArrayLayout(16, config.mfu_lanes)


def operand_word(lanes: int) -> data.StructLayout:
    """One word for a quantiser, which passes `last`, the mark of the last word of an iteration or tile, unchanged."""
    return data.StructLayout({"word": data.ArrayLayout(16, lanes), "integer": 1, "unsigned": 1, "last": 1})


def lane_group(fmt: Format, lanes: int) -> data.StructLayout:
    """Mantissas that are multiplied in one cycle, and the stored exponent of their block.

    Elements with an exponent of their own are codes of `code_bits` bits, as golden.mvm.elements encodes them.
    """
    element = unsigned(fmt.code_bits) if fmt.precision else signed(fmt.bits)
    return data.StructLayout({"mantissas": data.ArrayLayout(element, lanes), "exponent": fmt.exponent_bits})


def address_bits(config: Config) -> int:
    """Bits of the address of a word or an entry on the chip, wide enough for the end address of the largest memory."""
    return bits_for(max(depth(config, mem) for mem in addressed(config) if mem.kind.on_chip))


def reach_bits(config: Config) -> int:
    """Bits of an address with its base register, and of how far addresses move."""
    return base_bits(config) + 1


#: One instruction on its way to the decoder; `outside`: its address is past the end of the instruction buffer.
Fetched = data.StructLayout({"address": END_BITS, "word": WORD, "outside": 1})

Load = data.StructLayout({"tile": ADDRESS_BITS, "integer": 1})  #: One native tile for MatrixRf, and its mode.


def tile_load(config: Config) -> data.StructLayout:
    """One native tile for the matrix quantiser. In a machine with Dram, `full`: its zero mark says that it is full."""
    return data.StructLayout({**Load.members, "full": 1}) if config.dram_words else Load


Select = data.StructLayout({"tapped": 1, "tap": range(TAPS)})  #: Value to write: a tap, or the final value.

Mode = data.StructLayout({"integer": 1, "unsigned": 1})  #: Mode in which entries of VectorRf are written or read.

Product = data.StructLayout({  #: One `mv_mul`; `from_entries`: its columns lie in VectorRf.
    "tile": ADDRESS_BITS, **dict.fromkeys(("columns", "row_tiles", "words", "rows", "iterations"), REGISTER_BITS),
    "from_entries": 1, "integer": 1, "unsigned": 1, "out_scale": signed(6), "bias": 1, "bias_address": ADDRESS_BITS})


def control(*, more: bool) -> data.StructLayout:
    """Control of one multi-function unit: the code of each stage under its name, and a `Tap` for each tap.

    Args:
        more: Whether the activation stage has the functions of machines with `more_functions`.
    """
    return data.StructLayout({stage.name.lower(): code_bits(stage, more=more) for stage in Stage} | {
        "tap": data.ArrayLayout(TAP_BITS, TAPS)})


def turn(lanes: int) -> data.StructLayout:
    """Position of a word in its iteration, for reductions: the first one; number of lanes with elements, 0 for all.

    `valid`: there is a word.
    """
    return data.StructLayout({"valid": 1, "first": 1, "tail": range(lanes)})


def controls(config: Config) -> data.ArrayLayout:
    """Control of all multi-function units of a machine."""
    return data.ArrayLayout(control(more=config.more_functions), MFUS)


def access(config: Config) -> data.StructLayout:
    """Words of one memory that a chain reads: first address, end address, whether iterations move, `held_mark`."""
    bits = address_bits(config)
    return data.StructLayout({"valid": 1, "lo": bits, "hi": bits, "inc": 1, **held_mark(config)})


def held_mark(config: Config) -> dict[str, int]:
    """The field `held` of operands whose first element all words of an iteration take, in a machine that has it."""
    return {"held": 1} if config.more_functions else {}


def write(config: Config) -> data.StructLayout:
    """Words of one memory that a chain writes, and the value; `rising`: no iteration rewrites older words."""
    bits = address_bits(config)
    return data.StructLayout({"valid": 1, "lo": bits, "hi": bits, "inc": 1, "rising": 1, "select": Select})


def entry(config: Config) -> data.StructLayout:
    """One entry of VectorRf: N mantissas and the stored exponent."""
    return lane_group(config.activations, config.native_dim)


VECTOR_READ = 2  #: Cycles from the grant of a read of a vector memory to the word.
ENTRY_READ = 2  #: Cycles from the grant of a read of VectorRf to the entry.


def entry_reads(config: Config) -> wiring.Signature:
    """Reads of single entries of VectorRf: a request, its grant, and the entry ENTRY_READ cycles after."""
    request = data.StructLayout({"valid": 1, "address": address_bits(config)})
    return wiring.Signature({"request": Out(request), "grant": In(1), "entry": In(entry(config))})


def window(config: Config) -> data.StructLayout:
    """A window, as the registers Window... describe it.

    A product without `window` has one pixel of Columns vectors, a gather without pooling one pixel; `group` is 0 then.
    """
    return data.StructLayout({
        **dict.fromkeys(("vectors", "x", "y"), REGISTER_BITS),
        **dict.fromkeys(("step", "pitch", "group"), address_bits(config))})


def entry_write(config: Config) -> data.StructLayout:
    """Entries that a chain writes to VectorRf; `rising` and `select` are those of `write`."""
    bits = address_bits(config)
    return data.StructLayout({
        "valid": 1, "lo": bits, "hi": bits, "inc": 1, "rising": 1, "stride": bits, "skip": bits, "mode": Mode,
        "select": Select})


def outside(config: Config) -> dict[str, data.StructLayout]:
    """The field `outside` of chains, in a machine with Dram.

    `reads`, `writes`: the chain's source or one of its writes lies in Dram, at the words `lo` to `hi` - 1. `inc`:
    iterations move. `address`: of the instruction. `vectors`: it makes tiles of vectors, `transposed` or not, which lie
    `place` words after the beginning of a native vector. `passes`: Iterations / IterationsX, the number of these tiles.
    `load`: it loads tiles, which are `diagonal`. `raw`: it moves
    entries or integers as they are; those that it reads go to BiasRf if `bias`, to `inside` and on. `count`: words of
    Dram of an iteration that is packed. `tiles.hi`: one past the last tile that the chain multiplies or loads.
    Strides are whole registers.
    """
    if not config.dram_words:
        return {}
    use = {"valid": 1, "lo": base_bits(config), "hi": reach_bits(config), "inc": 1, "address": ADDRESS_BITS}
    return {"outside": data.StructLayout({
        "reads": data.StructLayout(use), "writes": data.StructLayout({**use, "select": Select}),
        "vectors": 1, "transposed": 1, "place": range(config.vector_words), "passes": REGISTER_BITS,
        "load": 1, "diagonal": 1, "raw": 1, "bias": 1, "inside": ADDRESS_BITS, "inside_inc": 1,
        "count": REGISTER_BITS + 1, "tiles": data.StructLayout({"hi": END_BITS}),
        **dict.fromkeys(("stride_x", "stride_y", "stride_out"), REGISTER_BITS)})}


def chain(config: Config) -> data.StructLayout:
    """One checked chain, as the decoder hands it to the interlock.

    `gather`: the gather unit reads the source, in windows of one or more pixels; `pool`: the chain has a `v_pool_max`;
    `mode` is that of entries read as numbers. `source.lo` and `source.hi` count entries where `memory` is ENTRIES.
    `softmax`: the words for NetQ go through the softmax unit.
    """
    bits = address_bits(config)
    return data.StructLayout({
        "product": Product,
        "mv_mul": 1, "push": 1, "matrix": 1, "pointwise": 1,
        "operand_words": REGISTER_BITS, "words": REGISTER_BITS, "tail": range(config.mfu_lanes),
        "iterations": REGISTER_BITS, "iterations_x": REGISTER_BITS,
        "stride_x": bits, "stride_y": bits, "stride_out": bits,
        "memory": memory(config), "source": access(config), "gather": 1, "pool": 1, "mode": Mode,
        "window": window(config),
        "operands": data.ArrayLayout(access(config), len(OPERANDS)),
        "writes": data.ArrayLayout(write(config), len(VRFS)), "net": 1, "net_select": Select,
        "entries": entry_write(config), "control": controls(config), **softmax_mark(config),
        **outside(config)})


def softmax_mark(config: Config) -> dict[str, int]:
    """The field `softmax` of chains and jobs, in a machine that has a softmax unit."""
    return {"softmax": 1} if config.softmax_words else {}


def outside_mark(config: Config) -> dict[str, int]:
    """The field `outside` of jobs of chains that write words to Dram, in a machine with it."""
    return {"outside": 1} if config.dram_words else {}


def entry_word(config: Config) -> data.StructLayout:
    """A word of results for VectorRf; `last` marks the last word of an iteration, whose last entry may lack words."""
    return data.StructLayout({"valid": 1, "word": word(config), "last": 1})


