"""Wire shapes that several units share, derived from spec."""

from amaranth.hdl import Array, signed
from amaranth.lib import data
from amaranth.utils import bits_for
from concord.spec.config import Config
from concord.spec.formats import Format
from concord.spec.isa import ADDRESS_BITS, END_BITS, REGISTER_BITS, WORD
from concord.spec.memories import QUEUES, STAGE_MEMORIES, VRFS, Mem, depth
from concord.spec.mfu import TAP_BITS, TAPS
from concord.spec.operations import MFUS, Stage, code_bits

TICKET = 7  #: Bits of a ticket, a chain's number within its pipeline. Tickets in use span less than half of them.

#: Index of a vector memory or queue on the wires. Vector memories come first, so that arrays of them have it too.
INDEX = {mem: k for k, mem in enumerate((*VRFS, *QUEUES))}
MEMORIES = range(len(INDEX))  #: The indices.
NET, MVM = INDEX[Mem.NET_Q], INDEX[Mem.MVM_Q]
OPERANDS = tuple(INDEX[mem] for mem in STAGE_MEMORIES)  #: Memories with an operand port.


def index_of(code):
    """Index of the vector memory or queue with this code; any index if the code is of neither."""
    return Array(INDEX.get(each, 0) for each in range(max(INDEX) + 1))[code]


def word(config: Config) -> data.ArrayLayout:
    """M binary16 values, lane 0 in the low bits."""
    return data.ArrayLayout(16, config.mfu_lanes)


def operand_word(lanes: int) -> data.StructLayout:
    """One word for a quantiser, which passes `last`, the mark of the last word of an iteration or tile, unchanged."""
    return data.StructLayout({"word": data.ArrayLayout(16, lanes), "integer": 1, "unsigned": 1, "last": 1})


def lane_group(fmt: Format, lanes: int) -> data.StructLayout:
    """Mantissas that are multiplied in one cycle, and the stored exponent of their block."""
    return data.StructLayout({"mantissas": data.ArrayLayout(signed(fmt.bits), lanes), "exponent": fmt.exponent_bits})


def address_bits(config: Config) -> int:
    """Number of bits of a vector memory address, wide enough for the end address of the largest memory."""
    return bits_for(max(depth(config, mem) for mem in VRFS))


def dependency(config: Config) -> data.StructLayout:
    """Older writes that a reader waits for: addresses lo..hi-1, until chain `ticket` of that pipeline has landed."""
    bits = address_bits(config)
    return data.StructLayout({"valid": 1, "ticket": TICKET, "lo": bits, "hi": bits})


def progress(config: Config) -> data.StructLayout:
    """Progress of a writing pipeline: finished chains, and the lowest address that the next one has not written."""
    return data.StructLayout({
        "done": TICKET, "iteration": REGISTER_BITS, "low": data.ArrayLayout(address_bits(config), len(VRFS))})


#: One instruction on its way to the decoder; `outside`: its address is past the end of the instruction buffer.
Fetched = data.StructLayout({"address": END_BITS, "word": WORD, "outside": 1})

Load = data.StructLayout({"tile": ADDRESS_BITS, "integer": 1})  #: One native tile for MatrixRf, and its mode.

Wait = data.StructLayout({"valid": 1, "ticket": TICKET})  #: The chain of another pipeline that must finish first.

#: Control of one multi-function unit: the code of each stage, under the name of the stage, and a `Tap` for each tap.
Control = data.StructLayout({stage.name.lower(): code_bits(stage) for stage in Stage} | {
    "tap": data.ArrayLayout(TAP_BITS, TAPS)})
Controls = data.ArrayLayout(Control, MFUS)

Select = data.StructLayout({"tapped": 1, "tap": range(TAPS)})  #: Value to write: a tap, or the final value.

Product = data.StructLayout({  #: One `mv_mul`.
    "tile": ADDRESS_BITS, **dict.fromkeys(("columns", "row_tiles", "words", "rows", "iterations"), REGISTER_BITS),
    "integer": 1, "unsigned": 1, "out_scale": signed(6), "bias": 1, "bias_address": ADDRESS_BITS})


def access(config: Config) -> data.StructLayout:
    """Words of one memory that a chain reads: first address, end address, and whether iterations move."""
    bits = address_bits(config)
    return data.StructLayout({"valid": 1, "lo": bits, "hi": bits, "inc": 1})


def write(config: Config) -> data.StructLayout:
    """Words of one memory that a chain writes, and the value; `rising`: no iteration rewrites older words."""
    bits = address_bits(config)
    return data.StructLayout({"valid": 1, "lo": bits, "hi": bits, "inc": 1, "rising": 1, "select": Select})


def chain(config: Config) -> data.StructLayout:
    """One checked chain, as the decoder hands it to the interlock."""
    bits = address_bits(config)
    return data.StructLayout({
        "product": Product,
        "mv_mul": 1, "push": 1, "matrix": 1, "pointwise": 1,
        "operand_words": REGISTER_BITS, "words": REGISTER_BITS, "tail": range(config.mfu_lanes),
        "iterations": REGISTER_BITS, "iterations_x": REGISTER_BITS,
        "stride_x": bits, "stride_y": bits, "stride_out": bits,
        "memory": MEMORIES, "source": access(config),
        "operands": data.ArrayLayout(access(config), len(OPERANDS)),
        "writes": data.ArrayLayout(write(config), len(VRFS)), "net": 1, "net_select": Select,
        "control": Controls})


def reader(config: Config) -> data.StructLayout:
    """Read of one memory by a chain, with the older writes of each writing pipeline that it waits for."""
    bits = address_bits(config)
    return data.StructLayout({
        "valid": 1, "lo": bits, "inc": 1, "mfu": dependency(config), "copy": dependency(config)})


def blocked(dependency, progress, low, address):
    """Whether the word at `address` may still be written by an older chain.

    Args:
        dependency: Writes of one pipeline that the reader waits for.
        progress: Progress of that pipeline.
        low: Entry of `progress.low` for the memory that is read.
    """
    ahead = (dependency.ticket - progress.done)[:TICKET].as_signed()
    pending = (address >= dependency.lo) & (address < dependency.hi) & ~((ahead == 1) & (address < low))
    return dependency.valid & (ahead > 0) & pending


def waiting(wait, done):
    """Whether the chain of `wait` is unfinished when `done` chains are finished."""
    return wait.valid & ((wait.ticket - done)[:TICKET].as_signed() > 0)
