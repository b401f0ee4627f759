"""Wire shapes that several units share, derived from spec."""

from amaranth.hdl import signed
from amaranth.lib import data
from amaranth.utils import bits_for
from concord.spec.config import Config
from concord.spec.isa import VRFS, depth
from concord.spec.mfu import ACT_OP_BITS, ADD_OP_BITS, TAP_BITS, TAPS

TICKET = 7  #: Bits of a chain's number within its pipeline; the interlock keeps the numbers in use within half of it.

#: Index of a vector memory or queue on the wires: its code less one.
INITIAL, ADDSUB0, ADDSUB1, MULTIPLY0, MULTIPLY1, NET, MVM = range(7)
OPERANDS = (ADDSUB0, ADDSUB1, MULTIPLY0, MULTIPLY1)  #: Memories with an operand port, in the order of their indices.


def require_powers_of_two(config: Config) -> None:
    """Refuse what gates are not generated for.

    Raises:
        ValueError: a dimension is not a power of two, or there is but one MFU lane.
    """
    for name in ("native_dim", "lanes", "mfu_lanes", "tile_engines"):
        value = getattr(config, name)
        if value & value - 1:
            raise ValueError(f"hardware needs {name} to be a power of two, not {value}; "
                             f"such a machine runs on the golden model only")
    if config.mfu_lanes < 2:
        raise ValueError("hardware needs mfu_lanes of at least 2")


def word(config: Config) -> data.ArrayLayout:
    """M binary16 values, lane 0 in the low bits."""
    return data.ArrayLayout(16, config.mfu_lanes)


def address_bits(config: Config) -> int:
    """Bits of a vector memory address, wide enough for the address behind the last."""
    return bits_for(max(depth(config, mem) for mem in VRFS))


def dependency(config: Config) -> data.StructLayout:
    """Older writes that a reader waits for: addresses lo..hi-1, until chain `ticket` of that pipeline has landed."""
    bits = address_bits(config)
    return data.StructLayout({"valid": 1, "ticket": TICKET, "lo": bits, "hi": bits})


def progress(config: Config) -> data.StructLayout:
    """How far a writing pipeline is: chains landed, and of the next one the lowest address not yet written."""
    return data.StructLayout({
        "done": TICKET, "iteration": 16, "low": data.ArrayLayout(address_bits(config), len(VRFS))})


Wait = data.StructLayout({"valid": 1, "ticket": TICKET})  #: Start after this chain of another pipeline.

Control = data.StructLayout({  #: Operations of one multi-function unit; `tap` as `MultiFunctionUnit` says.
    "add": ADD_OP_BITS, "act": ACT_OP_BITS, "mul": 1, "tap": data.ArrayLayout(TAP_BITS, TAPS)})

Select = data.StructLayout({"tapped": 1, "tap": range(TAPS)})  #: Written value: a tap, or the chain's last.

Product = data.StructLayout({  #: One `mv_mul`.
    "tile": 16, "columns": 16, "row_tiles": 16, "words": 16, "rows": 16, "iterations": 16, "integer": 1, "unsigned": 1,
    "out_scale": signed(6), "bias": 1, "bias_address": 16})


def access(config: Config) -> data.StructLayout:
    """Words of one memory that a chain reads: first address, one past the last, whether iterations move."""
    bits = address_bits(config)
    return data.StructLayout({"valid": 1, "lo": bits, "hi": bits, "inc": 1})


def write(config: Config) -> data.StructLayout:
    """Words of one memory that a chain writes, and which value; `rising`: no iteration returns to older words."""
    bits = address_bits(config)
    return data.StructLayout({"valid": 1, "lo": bits, "hi": bits, "inc": 1, "rising": 1, "select": Select})


def chain(config: Config) -> data.StructLayout:
    """One checked chain, as the decoder hands it to the interlock."""
    bits = address_bits(config)
    return data.StructLayout({
        "product": Product,
        "mv_mul": 1, "push": 1, "matrix": 1, "pointwise": 1,
        "vector_words": 16, "words": 16, "tail": range(config.mfu_lanes), "iterations": 16, "iterations_x": 16,
        "stride_x": bits, "stride_y": bits, "stride_out": bits,
        "memory": range(7), "source": access(config),
        "operands": data.ArrayLayout(access(config), len(OPERANDS)),
        "writes": data.ArrayLayout(write(config), len(VRFS)), "net": 1, "net_select": Select,
        "control": data.ArrayLayout(Control, 2)})


def reader(config: Config) -> data.StructLayout:
    """A chain's reading of one memory, with the older writes of each writing pipeline that it waits for."""
    bits = address_bits(config)
    return data.StructLayout({
        "valid": 1, "lo": bits, "inc": 1, "mfu": dependency(config), "copy": dependency(config)})


def blocked(dependency, progress, low, address):
    """Whether the word at `address` may still be written by an older chain.

    Args:
        dependency: What the reader waits for in one pipeline.
        progress: How far that pipeline is.
        low: The entry of `progress.low` of the memory concerned.
    """
    ahead = (dependency.ticket - progress.done)[:TICKET].as_signed()
    pending = (address >= dependency.lo) & (address < dependency.hi) & ~((ahead == 1) & (address < low))
    return dependency.valid & (ahead > 0) & pending


def waiting(wait, done):
    """Whether the chain that `wait` names is still to be done, where `done` chains are."""
    return wait.valid & ((wait.ticket - done)[:TICKET].as_signed() > 0)
