"""The field `outside` of the record that the decoder makes of a chain, on machines with Dram."""

from concord.spec.isa.chain import Chain
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config


def outside_fields(config: Config, chain: Chain) -> dict:
    """The field `outside` of `hw.lib.payloads.chain`, all but `writes`."""
    r, source, target = chain.registers, chain.source, chain.target
    record = {"load": chain.loads and source.mem == Mem.DRAM, "diagonal": target.diagonal, "raw": chain.moves,
              "bias": target.mem == Mem.BIAS_RF, "count": chain.outside, "stride_x": r.stride_x,
              "stride_y": r.stride_y, "stride_out": r.stride_out}
    if source.mem == Mem.DRAM:
        span = chain.source_span()
        record["reads"] = {"valid": 1, "lo": span.start, "hi": span.stop, "inc": source.inc, "address": chain.address}
    if source.raw:
        record |= {"inside": target.a, "inside_inc": target.inc}
    if chain.loads or chain.product:
        record["tiles"] = {"hi": chain.tiles.stop}
    if chain.builds:
        record |= {"vectors": 1, "transposed": target.transposed, "place": source.a % config.vector_words,
                   "passes": r.iterations // r.iterations_x}
    return record


def outside_meaning(record: dict) -> dict:
    """The field `outside` of a record without the fields that have no meaning in it."""
    outside = record["outside"]
    reads, writes, raw, load = (outside[name] for name in ("reads", "writes", "raw", "load"))
    vectors = outside["vectors"]
    kept = {"load": load, "raw": raw, "vectors": vectors, "reads": reads if reads["valid"] else {}, "writes": {}}
    if writes["valid"]:
        select = writes["select"]
        kept["writes"] = writes | {"select": select if select["tapped"] else {}}
    names = ["diagonal"] * load + ["count"] * (load or raw) + ["tiles"] * (record["mv_mul"] or record["matrix"])
    names += ["transposed", "place", "passes"] * vectors
    names += ["bias", "inside", "inside_inc"] * (raw and reads["valid"])
    names += ["stride_x", "stride_y"] * (reads["valid"] and not load or raw) + ["stride_out"] * (raw or writes["valid"])
    return kept | {name: outside[name] for name in names}
