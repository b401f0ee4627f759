"""Jobs: what the interlock hands to each pipeline of a chain, and how long a chain waits for older chains.

A ticket is a chain's number within its pipeline. A chain waits for a ticket of another pipeline, or, word by word, for
the writes of a chain with a ticket.
"""

from collections.abc import Iterable

from amaranth import *
from amaranth.lib import data
from concord.hw.lib import payloads
from concord.hw.lib.outside import Walk
from concord.spec.isa.instructions import ADDRESS_BITS, LONG_BITS, REGISTER_BITS
from concord.spec.isa.memories import VRFS
from concord.spec.machine.config import Config

TICKET = 7  #: Bits of a ticket, a chain's number within its pipeline. Tickets in use span less than half of them.
LOOKUP = 5  #: Cycles that the interlock looks hazards of a chain up for.
ENTRY_WRITERS = 4  #: Largest number of unfinished chains that write VectorRf.
ENTRY_JOBS = ("columns", "gather", "entries")  #: Jobs of the readers and of the writer of VectorRf.

Wait = data.StructLayout({"valid": 1, "ticket": TICKET})  #: The chain of another pipeline that must finish first.


def dependency(config: Config) -> data.StructLayout:
    """Older writes that a reader waits for: addresses lo..hi-1, until chain `ticket` of that pipeline has landed."""
    bits = payloads.address_bits(config)
    return data.StructLayout({"valid": 1, "ticket": TICKET, "lo": bits, "hi": bits})


def progress(config: Config) -> data.StructLayout:
    """Progress of a writing pipeline: finished chains, and the lowest address that the next one has not written."""
    return data.StructLayout({
        "done": TICKET, "iteration": REGISTER_BITS, "low": data.ArrayLayout(payloads.address_bits(config), len(VRFS))})


def entry_writers(config: Config) -> data.ArrayLayout:
    """The last chains that write VectorRf; the one with ticket t has the index t mod ENTRY_WRITERS."""
    bits = payloads.address_bits(config)
    return data.ArrayLayout(data.StructLayout({"ticket": TICKET, "lo": bits, "hi": bits}), ENTRY_WRITERS)


def entry_progress(config: Config) -> data.StructLayout:
    """Finished chains that write VectorRf, and the lowest entry that the next one of them has not written."""
    return data.StructLayout({"done": TICKET, "low": payloads.address_bits(config)})


def reader(config: Config) -> data.StructLayout:
    """Read of one memory by a chain, with the older writes of each writing pipeline that it waits for."""
    bits = payloads.address_bits(config)
    return data.StructLayout({
        "valid": 1, "lo": bits, "inc": 1, **payloads.held_mark(config),
        "mfu": dependency(config), "copy": dependency(config)})


def waiting(wait, done):
    """Whether the chain of `wait` is unfinished when `done` chains are finished."""
    return wait.valid & ((wait.ticket - done)[:TICKET].as_signed() > 0)


def youngest(m: Module, name: str, candidates: Iterable[tuple]):
    """The `Wait` for the youngest ticket whose condition holds, from (wait, condition) pairs of one pipeline.

    Registers hold the conditions, and the younger one of each two, of these, and so on: the result is right `LOOKUP`
    cycles after the last change of a condition or a ticket.

    Raises:
        ValueError: there are too many candidates for these cycles.
    """
    level = []
    for k, (wait, condition) in enumerate(candidates):
        level.append(Signal(Wait, name=f"{name}{k}"))
        m.d.sync += level[k].valid.eq(wait.valid & condition)
        m.d.comb += level[k].ticket.eq(wait.ticket)
    depth = 0
    if len(level) > 1 << LOOKUP - 1:
        raise ValueError(f"the youngest of {len(level)} candidates is not found in {LOOKUP} cycles")
    while len(level) > 1:
        depth, pairs, level = depth + 1, level, []
        for k in range(0, len(pairs), 2):
            level.append(Signal(Wait, name=f"{name}_of{2**depth}_{k}"))
            m.d.sync += _younger(level[-1], *pairs[k:k + 2])
    return level[0]


def _younger(found, one, other=None) -> list:
    if other is None:
        return [found.eq(one)]
    newer = (other.ticket - one.ticket)[:TICKET].as_signed() > 0
    return [found.valid.eq(one.valid | other.valid),
            found.ticket.eq(Mux(other.valid & (newer | ~one.valid), other.ticket, one.ticket))]


#: What moves between Dram and VectorRf or BiasRf as it is, to Dram if `writes`, to BiasRf if `bias`: for each iteration
#: this many `entries`, or `words` of integers. Its source begins at `row.first` and moves by `row.stride_x` along x and
#: by `row.stride_y` from row to row; its target begins at `line.first`, moves by `line.step`, and after each row by
#: `line.skip`, which is 0 if the job writes to Dram.
MoveJob = data.StructLayout({
    "writes": 1, "bias": 1, "integer": 1,
    **dict.fromkeys(("entries", "words", "iterations", "iterations_x"), REGISTER_BITS), "tag": ADDRESS_BITS,
    "row": data.StructLayout({"first": LONG_BITS, "stride_x": REGISTER_BITS, "stride_y": REGISTER_BITS}),
    "line": data.StructLayout({"first": LONG_BITS, "step": REGISTER_BITS, "skip": REGISTER_BITS})})


def source_fields(config: Config) -> dict:
    """Fields that say where the words of a chain's source lie; every job that reads a source begins with them."""
    bits = payloads.address_bits(config)
    return {"memory": payloads.memory(config), "source": reader(config), "words": REGISTER_BITS,
            "iterations": REGISTER_BITS, "iterations_x": REGISTER_BITS, "stride_x": bits, "stride_y": bits}


def fetch_job(config: Config) -> data.StructLayout:
    """Job of operand fetch: the source of one `mv_mul`. `own`: iterations wait for earlier writes of the chain."""
    return data.StructLayout({
        **source_fields(config), "integer": 1, "unsigned": 1, "mfu": Wait, "copy": Wait, "own": Wait})


def product_job(config: Config) -> data.StructLayout:
    """One product, and the tickets of the loads whose tiles it may read: from NetQ by `copy`, from Dram by `load`."""
    load = {"load": Wait} if config.dram_words else {}
    return data.StructLayout({"product": payloads.Product, "copy": Wait, **load})


#: Native tiles from Dram: `count` of them from `tile` on, once the product that reads older ones there has read them.
LoadJob = data.StructLayout({
    "tile": ADDRESS_BITS, "integer": 1, "diagonal": 1, "count": REGISTER_BITS, "product": Wait})


def column_job(config: Config) -> data.StructLayout:
    """Addresses of the columns of one product from VectorRf.

    `stride_x` and `stride_y` are 0 where iterations do not move. `older` is the ticket of the youngest older chain that
    writes VectorRf.
    """
    bits = payloads.address_bits(config)
    return data.StructLayout({
        **dict.fromkeys(("lo", "stride_x", "stride_y"), bits),
        **dict.fromkeys(("iterations", "iterations_x", "row_tiles", "columns"), REGISTER_BITS),
        "window": payloads.window(config), "older": TICKET})


def gather_job(config: Config) -> data.StructLayout:
    """Job of the gather unit: the source of one chain that pools, or that reads entries of VectorRf as numbers.

    `older` is the ticket of the youngest older chain that writes VectorRf. `pool`: the chain has a `v_pool_max`.
    """
    return data.StructLayout({
        **source_fields(config), "older": TICKET, "mode": payloads.Mode, "pool": 1, "window": payloads.window(config)})


def issue_job(config: Config) -> data.StructLayout:
    """Job of issue: a chain for the multi-function units.

    `targets` are its writes to memories of operands. `pop`: its words come from the product; `gather`: from the gather
    unit. `serial`: each word waits until the word before it has landed. Its first word waits for other pipelines, for
    `product` because the product reads entries that this chain writes. `tail`: that of the `write_job`, for reductions.
    `outside`: its words go to Dram.
    """
    entries = {"gather": 1, "product": Wait} if config.vector_rf else {}
    tail = {"tail": range(config.mfu_lanes)} if config.more_functions else {}
    return data.StructLayout({
        **source_fields(config), **tail,
        "stride_out": payloads.address_bits(config),
        "operands": data.ArrayLayout(reader(config), len(payloads.OPERANDS)),
        "targets": data.ArrayLayout(payloads.write(config), len(payloads.OPERANDS)),
        "control": payloads.controls(config), "net": 1, "pop": 1, "serial": 1, "fetch": Wait, "copy": Wait, **entries,
        **payloads.outside_mark(config)})


def write_job(config: Config) -> data.StructLayout:
    """Job of the last stage of a pipeline: the writes of a chain. `entries`: its words go to VectorRf, too.

    `softmax`: those for NetQ go through the softmax unit. `outside`: its words go to Dram, too.
    """
    entries = {"entries": 1, "entries_select": payloads.Select} if config.vector_rf else {}
    if config.dram_words:
        entries |= {"outside": 1, "outside_select": payloads.Select}
    return data.StructLayout({
        "words": REGISTER_BITS, "tail": range(config.mfu_lanes), "iterations": REGISTER_BITS,
        "stride_out": payloads.address_bits(config),
        "writes": data.ArrayLayout(payloads.write(config), len(VRFS)), "net": 1, "net_select": payloads.Select,
        **entries, **payloads.softmax_mark(config)})


def copy_job(config: Config) -> data.StructLayout:
    """Job of the copy pipeline. With `matrix`, it loads native tiles to MatrixRf, from `tile` on.

    In a machine with Dram, it loads `count` of them, which are made of vectors if `vectors`.
    """
    built = {"vectors": 1, "count": REGISTER_BITS} if config.dram_words else {}
    return data.StructLayout({
        **source_fields(config), **built,
        "matrix": 1, "tile": ADDRESS_BITS, "integer": 1, "serial": 1, "fetch": Wait, "mfu": Wait, "product": Wait})


def build_job(config: Config) -> data.StructLayout:
    """Native tiles that are made of vectors: `count` of them from `tile` on, of `vectors` vectors each.

    A vector comes in `words` words; they are those from `first` on of a native vector, and the last one has `tail`
    elements, or M if that is 0. `transposed`: vectors become columns.
    """
    return data.StructLayout({
        "tile": ADDRESS_BITS, "count": REGISTER_BITS, "integer": 1, "transposed": 1,
        "vectors": range(config.native_dim + 1), "first": range(config.vector_words),
        "words": range(config.vector_words + 1), "tail": range(config.mfu_lanes)})


def entry_job(config: Config) -> data.StructLayout:
    """Entries that one chain writes: `words` words in each iteration make ceil(words * M / N) entries."""
    return data.StructLayout({
        "write": payloads.entry_write(config), **dict.fromkeys(("words", "iterations", "iterations_x"), REGISTER_BITS)})


def job_shapes(config: Config) -> dict:
    """Shape of each job, by the name that it has at the interlock."""
    words = dict.fromkeys(("read_words", "store_words", "tile_words"), Walk)
    outside = words | {"load": LoadJob, "move": MoveJob, "build": build_job(config)} if config.dram_words else {}
    return {"fetch": fetch_job(config), "product": product_job(config), "issue": issue_job(config),
            "write": write_job(config), "copy": copy_job(config), "copy_write": write_job(config),
            "columns": column_job(config), "gather": gather_job(config), "entries": entry_job(config), **outside}
