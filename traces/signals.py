"""The signals that a trace is made of, by the names of `sim.machines.waves`."""

from concord.spec.isa.memories import STAGE_MEMORIES

#: The two ends of a queue.
STREAM = ("i__valid", "i__ready", "o__valid", "o__ready")
_SOURCE = ("certain_written", "present_copy", "present_mfu", "present_net", "present_pop")
_ENTRIES = ("writers_first", "writers_later", "writers_turns")
#: Engines of a machine whose reader of VectorRf is watched.
_COLUMNS = 64

_BY_MODULE = {
    "core.decoder": ("counting", "chains", "o__valid", "o__ready"),
    "core.interlock": ("sending", *(f"ticket_{pipe}" for pipe in ("fetch", "product", "mfu", "copy", "entries"))),
    "core": ("certain_loaded", "valid"),
    "core.fetch": ("busy", "waits", "room", "certain_older", "certain_own", "present_copy", "present_mfu"),
    "core.issue": (
        "go",
        "waits_operand",
        "waits_output",
        "alone",
        "certain_older",
        "present_copy",
        "present_fetch",
        "present_product",
        "present_serial",
        "present_gather",
        *(
            f"{name}{k}"
            for name in ("certain_operand", "present_copy", "present_mfu")
            for k in range(len(STAGE_MEMORIES))
        ),
    ),
    "core.copy": (
        "busy",
        "waits",
        "room",
        "certain_older",
        "present_fetch",
        "present_mfu",
        "present_product",
        "present_serial",
        "present_matrix",
    ),
    **dict.fromkeys((f"core.{unit}.source" for unit in ("fetch", "issue", "copy")), _SOURCE),
    "core.gather": (
        "busy",
        "waits",
        "room",
        "certain_entry",
        "certain_written",
        "present_copy",
        "present_mfu",
        "present_entries",
        *_ENTRIES,
    ),
    "core.mvm.sequencer": ("busy", "wait_operand", "wait_output", "done", "spacing", "o__valid"),
    "core.mvm.reader": (
        "conflict",
        *_ENTRIES,
        *(f"{name}{k}" for name in ("certain_column", "present_waits") for k in range(_COLUMNS)),
    ),
    **dict.fromkeys(("core.mvm.queue", "core.net_in", "core.net_out"), STREAM),
}
SIGNALS = tuple(f"{module}.{name}" for module, names in _BY_MODULE.items() for name in names)
