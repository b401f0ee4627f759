"""Fits a machine to a model: memories that are too small grow, idle ones shrink, formats become those of the model."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from concord.compiler.explain import explain
from concord.compiler.lib.limits import CannotRun, Reason
from concord.compiler.network import Compiled, compile_network
from concord.net.model import Model
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config
from concord.spec.numbers.formats import Format

#: Depths that grow and shrink.
DEPTHS = (*dict.fromkeys(mem.size for mem in Mem), "net_out", "instructions")
#: Depths of memories that have a bank for each tile engine.
BANKED = ("matrix_tiles", "vector_rf")
#: Queues between units that work at the same time, which hold two of what the program moves at once.
DOUBLED = ("net_in", "net_out", "mvmq_words")
#: Other attributes that grow, or become what the model needs. Less of them saves little.
OTHERS = ("operand_columns", "accumulator_rows", "bias_bits", "softmax_words", "more_functions", "weights",
          "activations")
#: Words of a block RAM at its widest: a bank with fewer takes as many block RAMs.
SHALLOW = 512
BUS = 16  #: Bytes of the bus of a machine that gets a memory outside the chip.
MOST = 65_536  #: Largest depth of a machine.
ROUNDS = 12  #: Compilations after which a machine that still lacks something is given up.
SLOWER = 1.05  #: A VectorRf that is smaller than before must not raise the estimated cycles by more than this factor.


@dataclass(frozen=True, kw_only=True, slots=True)
class Fitted:
    """A machine that holds a model.

    Attributes:
        base:     The machine from which the fit began.
        config:   The machine that holds the model.
        compiled: The model, compiled for that machine.
    """

    base: Config
    config: Config
    compiled: Compiled


def fit(model: Model, base: Config) -> Fitted:
    """The machine nearest to `base` that holds a model, which is compiled for it.

    Raises:
        Refused: no depths and formats of memories let the machine run the model.
        ValueError: the model needs more than the largest machine has.
    """
    grown, compiled = _grow(model, base)
    smaller = shrunk(grown, compiled.uses)
    fitted, result = _grow(model, smaller)
    if fitted.vector_rf < grown.vector_rf and _work(result) > SLOWER * _work(compiled):
        fitted, result = _grow(model, replace(smaller, vector_rf=grown.vector_rf))
    return Fitted(base=base, config=fitted, compiled=result)


def shrunk(config: Config, uses: Mapping[str, int]) -> Config:
    """A machine whose depths are those that a program uses, rounded up; none is larger than before.

    A memory shrinks where that saves block RAM. VectorRf and its units are left out where nothing uses them.
    """
    depths = {}
    for name in DEPTHS:
        used = uses.get(name, 0) * (2 if name in DOUBLED else 1)
        shallow = SHALLOW * (config.tile_engines if name in BANKED else 1) // (
            config.groups if name == "matrix_tiles" else 1)
        depths[name] = min(_rounded(config, name, max(used, shallow)), getattr(config, name))
    if not uses.get("vector_rf"):
        depths["vector_rf"] = 0
    return replace(config, **depths)


def _grow(model: Model, config: Config) -> tuple[Config, Compiled]:
    """A machine that has what the compiler asks for, and the model compiled for it."""
    for _ in range(ROUNDS):
        try:
            return config, compile_network(model, config)
        except CannotRun as error:
            refused = error
            if any(reason.attribute not in (*DEPTHS, *OTHERS) for reason in error.reasons):
                raise
            for reason in error.reasons:
                config = _with(config, reason)
    raise refused


def _with(config: Config, reason: Reason) -> Config:
    """The machine with an attribute that removes a reason."""
    name, needed, value = reason.attribute, reason.needed, getattr(config, reason.attribute)
    if isinstance(needed, Format):
        return _with_format(config, name, needed)
    needed = max(needed or 0, value)  # another reason may have raised it already
    if needed > MOST:
        raise ValueError(f"{reason}: the most that {name} can be is {MOST:,}; make the network smaller")
    if name in DEPTHS:
        needed = min(_rounded(config, name, needed), MOST)
    bus = {"dram_bus": BUS} if name == "dram_words" and not config.dram_bus else {}
    return replace(config, **{name: needed}, **bus)


def _with_format(config: Config, name: str, needed: Format) -> Config:
    """The machine with another format, and as many fraction bits of the accumulator as its products need."""
    missing = ((needed.bits - needed.e_min) - (getattr(config, name).bits - getattr(config, name).e_min)
               - config.alignment)
    return replace(config, **{name: needed}, acc_frac=config.acc_frac + max(0, missing))


def _rounded(config: Config, name: str, count: int) -> int:
    """A depth of at least `count`, an eighth larger at most, of equal banks."""
    step = max(8, 1 << max(0, (count - 1).bit_length() - 4))
    if name in BANKED:
        step = max(step // config.tile_engines, 1) * config.tile_engines
    return -(-count // step) * step


def _work(compiled: Compiled) -> int:
    """Cycles in which the busiest unit works for each layer, of all layers."""
    return sum(work.busiest for work in explain(compiled.firmware))
