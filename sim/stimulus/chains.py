"""Random checked chains, and the record that the decoder makes of a chain."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from concord.hw.lib.payloads import INDEX, OPERANDS, address_bits
from concord.sim.stimulus import random_values
from concord.sim.stimulus.outside_fields import outside_fields, outside_meaning
from concord.sim.stimulus.program_generator import ProgramGenerator
from concord.spec.isa.chain import Chain
from concord.spec.isa.check import Sequencer
from concord.spec.isa.instructions import SPECS, STAGES, Op
from concord.spec.isa.memories import ADDRESSED, VRFS, Mem
from concord.spec.isa.operations import TAP_BEFORE, TAPS, Stage
from concord.spec.machine.config import Config


def random_chains(config: Config, rng: np.random.Generator, count: int,
                  wanted: Callable[[Chain], bool] = lambda _: True) -> list[Chain]:
    """`count` chains of random legal programs, in program order; chains that are not `wanted` are left out."""
    chains = []
    while len(chains) < count:
        modes = random_values.modes(config, rng)
        generator = ProgramGenerator(config, rng, modes, budget=600)
        for _ in range(10):
            generator.extend()
        program = list(Sequencer(config, generator.end(), list(modes)).walk())
        while sum(chain.pushes - chain.pops for chain in program):  # the next program begins with an empty MvmQ
            program.pop()
        chains += filter(wanted, program)
    return chains[:count]


def pipelines(chain: Chain) -> tuple[str, ...]:
    """Names of the pipelines that a chain runs through, readers and writer of VectorRf included."""
    pointwise = any(SPECS[i.op].operation for i in chain.instructions)
    entries = ("entries",) if any(i.op == Op.V_WR and i.mem == Mem.VECTOR_RF for i in chain.instructions) else ()
    if chain.product:
        reader = "columns" if chain.source.mem == Mem.VECTOR_RF else "fetch"
        return (reader, "product") if chain.pushes else (reader, "product", "mfu", *entries)
    if chain.gathers:
        return ("gather", "mfu", *entries)
    return ("mfu", *entries) if pointwise or chain.pops or entries else ("copy",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Word:
    """The addresses that one word of a chain reads and writes; of a chain with a product, one word of its result.

    Memories are numbered as in `hw.lib.payloads`.

    Attributes:
        source:   Pair (memory, address); None if the word comes from a queue, a product or the gather unit.
        operands: Addresses of the operands, by memory.
        writes:   Addresses of the writes, by memory.
    """

    iteration: int
    index: int
    source: tuple[int, int] | None
    operands: dict[int, int]
    writes: dict[int, int]

    @property
    def reads(self) -> list[tuple[int, int]]:
        return [self.source] * (self.source is not None) + list(self.operands.items())


def chain_words(chain: Chain) -> list[Word]:
    """The words of all iterations of a chain, in order."""
    found, source = [], chain.source
    for iteration in range(chain.registers.iterations):
        for index in range(chain.result_words):
            at = {"operands": {}, "writes": {}}
            for i in chain.instructions[1:]:
                mem, kind = (i.mem, "writes") if i.op == Op.V_WR else (SPECS[i.op].operand, "operands")
                if mem in VRFS:
                    at[kind][INDEX[mem]] = i.a + chain.offset(i, iteration) + index * (not i.held)
            read = INDEX[source.mem], source.a + chain.source_offset(iteration) + index
            found.append(Word(iteration=iteration, index=index, **at,
                              source=read if chain.random_source and not chain.product and not chain.gathers
                              else None))
    return found


def feeds_itself(chain: Chain) -> bool:
    """Whether a word reads what an earlier word of the same chain wrote."""
    written = set()
    for word in chain_words(chain):
        if not written.isdisjoint(word.reads):
            return True
        written.update(word.writes.items())
    return False


def fields(config: Config, chain: Chain) -> dict:
    """The fields of `hw.lib.payloads.chain` for a chain."""
    r, source, product = chain.registers, chain.source, chain.product
    words, address = config.words_of(r.rows), (1 << address_bits(config)) - 1
    record = {
        "mv_mul": bool(product), "push": bool(chain.pushes), "matrix": chain.loads,
        "operand_words": r.columns * config.vector_words & 0xFFFF, "words": words, "tail": r.rows % config.mfu_lanes,
        "iterations": r.iterations, "iterations_x": r.iterations_x, "stride_x": r.stride_x & address,
        "stride_y": r.stride_y & address, "stride_out": r.stride_out & address, "memory": INDEX[source.mem],
        "control": {0: {}, 1: {}}, "operands": {}, "writes": {}}
    if source.mem in ADDRESSED and source.mem != Mem.DRAM:
        span = chain.source_span()
        record["source"] = {"valid": 1, "lo": span.start, "hi": span.stop, "inc": source.inc}
        record |= _windows(chain, address)
    if product:
        record["product"] = {
            "tile": product.a, "columns": r.columns, "row_tiles": chain.row_tiles, "words": words, "rows": r.rows,
            "iterations": r.iterations, "integer": product.integer, "unsigned": product.unsigned,
            "from_entries": source.mem == Mem.VECTOR_RF, "out_scale": r.out_scale, "bias": product.bias,
            "bias_address": product.b}
    if chain.loads:
        record["product"] = {"tile": chain.target.a, "integer": chain.target.integer}
    if config.softmax_words:
        record["softmax"] = chain.normalises
    if config.dram_words:
        record["outside"] = outside_fields(config, chain)
    if chain.moves:
        record["product"] = {"row_tiles": chain.entries}
    _operations(config, chain, record)
    record["pointwise"] = any(any(unit.values()) for unit in record["control"].values())
    _writes(chain, record, address)
    return record


def _windows(chain, mask):
    """How a chain reads entries or windows; `mask` has the bits of an address on the wires."""
    r, source, windows = chain.registers, chain.source, chain.windowed or chain.pools
    window = {
        "vectors": r.window_vectors if chain.windowed else r.columns, "x": r.window_x if windows else 1,
        "y": r.window_y if windows else 1, "step": r.window_step & mask, "pitch": r.window_pitch & mask,
        "group": r.window_group & mask if chain.windowed else 0}
    return {"gather": chain.gathers, "pool": chain.pools, "window": window,
            "mode": {"integer": source.integer, "unsigned": source.unsigned}}


def _access(chain, instruction):
    span = chain.result_span(instruction)
    return {"valid": 1, "lo": span.start, "hi": span.stop, "inc": instruction.inc}


def _operations(config, chain, record):
    for instruction in chain.instructions:
        spec = SPECS[instruction.op]
        if spec.operation:
            record["control"][spec.mfu][spec.stage.name.lower()] = spec.operation.code
        if spec.operand is not None:
            record["operands"][OPERANDS.index(INDEX[spec.operand])] = _access(chain, instruction)
            if config.more_functions:
                record["operands"][OPERANDS.index(INDEX[spec.operand])]["held"] = instruction.held


def _writes(chain, record, mask):
    """The writes, each with the stages that its word has passed; writes before the end of the chain are taps.

    Args:
        mask: The bits of an address on the wires.
    """
    writes, passed = [], 0
    for address, instruction in enumerate(chain.instructions, chain.address):
        spec = SPECS[instruction.op]
        passed = spec.position + 1 if spec.operation else passed
        if instruction.op == Op.V_WR:
            writes.append((Mem(instruction.mem), instruction, passed, address))
    taps = list(dict.fromkeys(position for _, _, position, _ in writes))[:TAPS]
    for tap, position in enumerate(taps):
        if position < STAGES:
            mfu, stage = divmod(position, len(Stage))
            record["control"][mfu].setdefault("tap", {})[tap] = TAP_BEFORE[stage]
    for mem, instruction, position, address in writes:
        select = {"tapped": position != passed, "tap": taps.index(position) if position != passed else 0}
        if mem in VRFS:
            rising = instruction.inc and chain.registers.stride_out >= chain.result_words
            record["writes"][INDEX[mem]] = _access(chain, instruction) | {"rising": rising, "select": select}
        if mem == Mem.VECTOR_RF:
            record["entries"] = _access(chain, instruction) | {
                "rising": instruction.inc and chain.registers.stride_vec >= chain.entries, "select": select,
                "stride": chain.registers.stride_vec & mask, "skip": chain.registers.skip_vec & mask,
                "mode": {"integer": instruction.integer, "unsigned": instruction.unsigned}}
        if mem == Mem.DRAM:
            record["outside"]["writes"] = _access(chain, instruction) | {"address": address, "select": select}
        if mem == Mem.NET_Q:
            record |= {"net": 1, "net_select": select}


def meaning(record: dict) -> dict:
    """A record of `hw.lib.payloads.chain` without the fields that have no meaning in it."""
    outside = record.get("outside")
    writes = [*record["writes"].values(), record["entries"]] + ([outside["writes"]] if outside else [])
    writes = [w for w in writes if w["valid"]]
    selects = [w["select"] for w in writes] + [record["net_select"]] * record["net"]
    used = {select["tap"] for select in selects if select["tapped"]}
    product = record["product"] if record["mv_mul"] else {
        name: record["product"][name] for name in ("tile", "integer") if record["matrix"]}
    if outside and outside["raw"]:
        product = {"row_tiles": record["product"]["row_tiles"]}  # entries of an iteration
    return record | ({"outside": outside_meaning(record)} if outside else {}) | {
        "product": product, "source": _valid(record["source"]),
        "operands": {k: _valid(operand) for k, operand in record["operands"].items()},
        "writes": {k: _write(w) for k, w in record["writes"].items()}, "entries": _write(record["entries"]),
        "window": _window(record), "mode": record["mode"] if record["gather"] else {},
        "net_select": _select(record["net_select"]) if record["net"] else {},
        "control": {k: unit | {"tap": {t: code for t, code in unit["tap"].items() if t in used}}
                    for k, unit in record["control"].items()}}


def _valid(access):
    return access if access["valid"] else {"valid": 0}


def _write(write):
    return write | {"select": _select(write["select"])} if write["valid"] else {"valid": 0}


def _window(record):
    """The window, as far as the chain reads more than one entry or pixel with it."""
    w, product = record["window"], record["mv_mul"] and record["product"]["from_entries"]
    if not product and not record["gather"]:
        return {}
    return {"x": w["x"], "y": w["y"], "step": w["step"] if w["x"] > 1 else 0, "pitch": w["pitch"] if w["y"] > 1 else 0
            } | ({"vectors": w["vectors"], "group": w["group"]} if product else {})


def _select(select):
    return select if select["tapped"] else {"tapped": 0}
