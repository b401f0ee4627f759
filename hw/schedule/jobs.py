"""Jobs: what the interlock hands to each pipeline of a chain."""

from amaranth.lib import data
from concord.hw.lib.payloads import (
    MEMORIES,
    OPERANDS,
    TICKET,
    Controls,
    Mode,
    Product,
    Select,
    Wait,
    address_bits,
    reader,
    softmax_mark,
    window,
    write,
)
from concord.spec.isa.instructions import ADDRESS_BITS, REGISTER_BITS
from concord.spec.isa.memories import VRFS
from concord.spec.machine.config import Config


def source_fields(config: Config) -> dict:
    """Fields that say where the words of a chain's source lie; every job that reads a source begins with them."""
    bits = address_bits(config)
    return {"memory": MEMORIES, "source": reader(config), "words": REGISTER_BITS, "iterations": REGISTER_BITS,
            "iterations_x": REGISTER_BITS, "stride_x": bits, "stride_y": bits}


def fetch_job(config: Config) -> data.StructLayout:
    """Job of operand fetch: the source of one `mv_mul`. `own`: iterations wait for earlier writes of the chain."""
    return data.StructLayout({
        **source_fields(config), "integer": 1, "unsigned": 1, "mfu": Wait, "copy": Wait, "own": Wait})


def gather_job(config: Config) -> data.StructLayout:
    """Job of the gather unit: the source of one chain that pools, or that reads entries of VectorRf as numbers.

    `older` is the ticket of the youngest older chain that writes VectorRf. `pool`: the chain has a `v_pool_max`.
    """
    return data.StructLayout({
        **source_fields(config), "older": TICKET, "mode": Mode, "pool": 1, "window": window(config)})


#: One product, and the ticket of the load whose tiles it may read.
ProductJob = data.StructLayout({"product": Product, "copy": Wait})


def issue_job(config: Config) -> data.StructLayout:
    """Job of issue: a chain for the multi-function units.

    `targets` are its writes to memories of operands. `pop`: its words come from the product; `gather`: from the gather
    unit. `serial`: each word waits until the word before it has landed. Its first word waits for other pipelines, for
    `product` because the product reads entries that this chain writes.
    """
    entries = {"gather": 1, "product": Wait} if config.vector_rf else {}
    return data.StructLayout({
        **source_fields(config),
        "stride_out": address_bits(config), "operands": data.ArrayLayout(reader(config), len(OPERANDS)),
        "targets": data.ArrayLayout(write(config), len(OPERANDS)),
        "control": Controls, "net": 1, "pop": 1, "serial": 1, "fetch": Wait, "copy": Wait, **entries})


def write_job(config: Config) -> data.StructLayout:
    """Job of the last stage of a pipeline: the writes of a chain. `entries`: its words go to VectorRf, too.

    `softmax`: those for NetQ go through the softmax unit.
    """
    entries = {"entries": 1, "entries_select": Select} if config.vector_rf else {}
    return data.StructLayout({
        "words": REGISTER_BITS, "tail": range(config.mfu_lanes), "iterations": REGISTER_BITS,
        "stride_out": address_bits(config),
        "writes": data.ArrayLayout(write(config), len(VRFS)), "net": 1, "net_select": Select, **entries,
        **softmax_mark(config)})


def copy_job(config: Config) -> data.StructLayout:
    """Job of the copy pipeline. With `matrix`, it loads native tiles to MatrixRf, from `tile` on."""
    return data.StructLayout({
        **source_fields(config),
        "matrix": 1, "tile": ADDRESS_BITS, "integer": 1, "serial": 1, "fetch": Wait, "mfu": Wait, "product": Wait})
