"""What each unit does in each cycle of a run, and what it waits for: which signals say so.

The order of the reasons is that in which a unit looks: first whole chains that come before, then the word itself, then
the way out.
"""

from collections.abc import Sequence

import numpy as np
from concord.spec.isa.memories import STAGE_MEMORIES
from concord.traces.run_view import RunView, UnitCycles
from concord.traces.spans import (
    BANKS,
    BUSY,
    COPIES,
    DECODER,
    ENGINES,
    FETCH,
    GATHER,
    HELD,
    MFU,
    OPERANDS,
    OUTPUT,
    PROGRAM,
)

#: The unit of each pipeline.
_UNITS = {"mfu": MFU, "copy": COPIES, "fetch": FETCH, "product": ENGINES}
_WORD = "a word that the {} have not written"
_ORDER = "its turn after the {}"
_ENTRY = "an entry of VectorRf that is not written"


def units(view: RunView, causes: dict[str, int]) -> list[UnitCycles]:
    """What all units do."""
    fetch, gather, engines, copies = (
        _fetch(view, causes),
        _gather(view, causes),
        _engines(view, causes),
        _copies(view, causes),
    )
    mfu = _mfu(view, causes)
    # Reasons that lead from one unit to another.
    _room(fetch, "core.fetch.room", "space in the operand buffer", engines)
    _room(gather, "core.gather.room", "space in the queue of the MFUs", mfu)
    engines.follow(fetch)
    mfu.follow(gather)
    mfu.follow(engines)
    for unit, rest in (
        (fetch, "the port of its vector memory"),
        (gather, "a port or a bank of its memory"),
        (copies, "its memories"),
        (mfu, "the port of its vector memory"),
        (engines, "the zero marks of its tiles"),
    ):
        unit.because(unit.waits(OPERANDS), rest)
    results = engines.waits(OUTPUT)
    engines.because(results & (view("core.mvm.sequencer.spacing") > 1), "the converters")
    engines.because(engines.waits(OUTPUT), "space for its results", mfu.chain, MFU)
    mfu.because(mfu.waits(OUTPUT), "space in the queue to the host")
    return [
        _program(view, causes),
        _decoder(view, causes),
        fetch,
        engines,
        mfu,
        copies,
        gather,
        _banks(view, causes, engines),
    ]


def _room(unit: UnitCycles, signal: str, cause: str, after: UnitCycles) -> None:
    unit.because(unit.waits(OPERANDS) & (unit.view(signal, 1) == 0), cause, after.chain, after.track)


def _program(view, causes) -> UnitCycles:
    """All cycles of the program."""
    return UnitCycles(view, causes, PROGRAM, np.full(view.cycles, -1), {BUSY: np.ones(view.cycles)})


def _decoder(view, causes) -> UnitCycles:
    """Which chain is decoded, and when it waits for the interlock: that is still busy with the chain before."""
    emitted = view("core.decoder.chains")
    number, count = np.cumsum(emitted) - emitted, len(view.program.chains)
    waits = view("core.decoder.o__valid") & ~view("core.decoder.o__ready") & 1
    there = number < count
    unit = UnitCycles(view, causes, DECODER, np.where(there, number, -1), {BUSY: there & (waits == 0), OUTPUT: waits})
    sending = view("core.interlock.sending").astype(bool)
    unit.because(unit.waits(OUTPUT) & sending, "space in the queues of chains")
    unit.because(unit.waits(OUTPUT), "the interlock")
    return unit


def _behind(unit: UnitCycles, certain: str, cause: str, pipes: Sequence[str], suffix: str = "") -> None:
    """A reason of cycles in which the signal `certain` is 0: `present_PIPE` beside it say which chains come before."""
    view, module = unit.view, certain.rpartition(".")[0]
    waits = {_UNITS[pipe]: view.wait(f"{module}.present_{pipe}{suffix}", pipe) for pipe in pipes}
    unit.because_of(unit.waits(OPERANDS) & (view(certain, 1) == 0), cause, waits)


def _source(unit: UnitCycles, name: str) -> None:
    """Reasons of units that read a vector memory word by word."""
    _behind(unit, f"{name}.certain_written", _WORD, ("mfu", "copy"))


def _fetch(view, causes) -> UnitCycles:
    busy = view("core.fetch.busy")
    unit = UnitCycles(
        view, causes, FETCH, view.by_words("fetch", busy), {BUSY: busy, OPERANDS: view("core.fetch.waits")}
    )
    _behind(unit, "core.fetch.certain_older", _ORDER, ("mfu", "copy"))
    unit.because(
        unit.waits(OPERANDS) & (view("core.fetch.certain_own", 1) == 0),
        "the iteration before, which writes what it reads",
        unit.chain,
        MFU,
    )
    _source(unit, "core.fetch.source")
    unit.because(
        unit.waits(OPERANDS) & (view("core.fetch.room", 1) == 1) & (view("core.fetch.source.present_net") == 1),
        "words from NetQ",
    )
    return unit


def _gather(view, causes) -> UnitCycles:
    busy = view("core.gather.busy")
    unit = UnitCycles(
        view, causes, GATHER, view.by_words("gather", busy), {BUSY: busy, OPERANDS: view("core.gather.waits")}
    )
    _source(unit, "core.gather")
    unit.because(
        unit.waits(OPERANDS) & (view("core.gather.certain_entry", 1) == 0),
        _ENTRY,
        view.entry_wait("core.gather", "present_entries"),
        MFU,
    )
    return unit


def _copies(view, causes) -> UnitCycles:
    busy = view("core.copy.busy")
    unit = UnitCycles(
        view, causes, COPIES, view.by_words("copy", busy), {BUSY: busy, OPERANDS: view("core.copy.waits")}
    )
    _behind(unit, "core.copy.certain_older", _ORDER, ("fetch", "mfu", "product"))
    _source(unit, "core.copy.source")
    unit.because(unit.waits(OPERANDS) & (view("core.copy.room", 1) == 0), "space for its words")
    unit.because(unit.waits(OPERANDS) & (view("core.copy.source.present_net") == 1), "words from NetQ")
    unit.because(unit.waits(OPERANDS) & (view("core.copy.present_matrix") == 1), "the matrix quantiser")
    return unit


def _engines(view, causes) -> UnitCycles:
    """The tile engines. A product that waits for its tiles has not come to them: that time is in no counter."""
    name = "core.mvm.sequencer"
    chain = view.by_ends("product", view(f"{name}.done"))
    busy, operand, output = (view(f"{name}.{state}") for state in ("busy", "wait_operand", "wait_output"))
    held = view("core.valid") & ~view("core.certain_loaded", 1) & ~(busy | operand | output) & 1
    unit = UnitCycles(view, causes, ENGINES, chain, {HELD: held, BUSY: busy, OPERANDS: operand, OUTPUT: output})
    loads = np.append(view.program.loads(), -1)[chain]
    for via, pipe in ((COPIES, "copy"), ("", "")):
        known = np.isin(loads, view.program.of["copy"]) if pipe else np.ones(view.cycles, bool)
        unit.because(unit.waits(HELD) & known, "a load of its tiles", loads if pipe else None, via)
    from_entries = np.append([each.from_entries for each in view.program.chains], False)[chain]
    unit.because(
        unit.waits(OPERANDS) & (view("core.mvm.reader.conflict") == 1), "columns that share a bank of VectorRf"
    )
    waiting, config = np.full(view.cycles, -1), view.program.firmware.config
    for k in range(config.tile_engines if config.vector_rf else 0):
        blocked = view(f"core.mvm.reader.certain_column{k}", 1) == 0
        older = view.entry_wait("core.mvm.reader", f"present_waits{k}")
        waiting = np.maximum(waiting, np.where(blocked, older, -1))
    unit.because(unit.waits(OPERANDS) & from_entries & (waiting >= 0), _ENTRY, waiting, MFU)
    step = view(f"{name}.o__valid") == 1
    unit.because(unit.waits(OPERANDS) & from_entries & step, "its columns of VectorRf, which are looked up")
    unit.because(
        unit.waits(OPERANDS) & ~from_entries & step, "its vector, which is fetched and quantised", chain, FETCH
    )
    return unit


def _mfu(view, causes) -> UnitCycles:
    go = view("core.issue.go")
    chain = view.by_words("mfu", go)
    unit = UnitCycles(
        view,
        causes,
        MFU,
        chain,
        {BUSY: go, OPERANDS: view("core.issue.waits_operand"), OUTPUT: view("core.issue.waits_output")},
    )
    _behind(unit, "core.issue.certain_older", _ORDER, ("fetch", "copy", "product"))
    _source(unit, "core.issue.source")
    for k, memory in enumerate(STAGE_MEMORIES):
        cause = f"an operand of {memory.title} that the {{}} have not written"
        _behind(unit, f"core.issue.certain_operand{k}", cause, ("mfu", "copy"), suffix=str(k))
    serial = (view("core.issue.present_serial") == 1) & (view("core.issue.alone", 1) == 0)
    unit.because(unit.waits(OPERANDS) & serial, "the word before, which writes what it reads", chain, MFU)
    unit.because(
        unit.waits(OPERANDS) & (view("core.issue.present_gather") == 1), "a word of the gather unit", chain, GATHER
    )
    pops = np.append([view.program.pops(k) for k in range(len(view.program.chains))], False)[chain]
    made = np.append(view.program.products(), -1)
    popped = np.cumsum(go * pops) - go * pops
    unit.because(unit.waits(OPERANDS) & pops, "a word of a product", made[np.clip(popped, 0, len(made) - 1)], ENGINES)
    unit.because(unit.waits(OPERANDS) & (view("core.issue.source.present_net") == 1), "words from NetQ")
    return unit


def _banks(view, causes, engines) -> UnitCycles:
    """Cycles in which columns are read ahead of their beat, because they share a bank."""
    return UnitCycles(view, causes, BANKS, engines.chain, {BUSY: view("core.mvm.reader.conflict")})
