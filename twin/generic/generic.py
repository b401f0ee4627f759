"""Data flow to a script word by word: every step becomes a few calls, whatever the program is."""

from collections.abc import Iterable

from concord.spec.isa.memories import Mem
from concord.spec.machine.config import preset_name
from concord.twin.flow.flow import Flow, Origin, Refs
from concord.twin.generic.items import INPUT, Items
from concord.twin.generic.steps import Steps
from concord.twin.lib.script import Routine, Script, Stored


def generic(flow: Flow, final: Iterable[Mem] = ()) -> Script:
    """A script with the results of a flow.

    Its main routine takes the words that the host sends, [batch, elements]. It returns the words of all output
    messages, [batch, words, M], and the final content of memories: of vector memories, words; of VectorRf, mantissas
    [batch, entries, N] and exponents [batch, entries, 1]; of MatrixRf, the values [batch, tiles, N, N] of the tiles
    that the program has loaded, if there are any.

    Args:
        flow:  The flow.
        final: The memories, in the order in which they are returned.
    """
    items, firmware = Items(flow), flow.firmware
    steps = Steps(items)
    for step in flow.steps:
        steps.add(step)
    results = [items.taken_words(flow.outputs)] if flow.outputs.item.size else []
    for mem in final:
        if mem == Mem.VECTOR_RF:
            results += [items.taken_entries(flow.final[mem], view) for view in ("mantissas", "exponents")]
        elif mem == Mem.MATRIX_RF:
            loaded = loaded_tiles(flow)
            tiles = Refs(value=flow.final[mem].value[loaded], item=flow.final[mem].item[loaded])
            results += [items.taken_tiles(tiles, integer=False)] * bool(loaded)
        else:
            results.append(items.taken_words(flow.final[mem]))
    body = items.lines.used(results)
    stored = {argument.name for call in body for argument in call.arguments if isinstance(argument, Stored)}
    main = Routine(name=firmware.name, title="All chains, word by word", parameters=(INPUT,), results=tuple(results),
                   body=body)
    return Script(
        name=firmware.name, machine=preset_name(firmware.config) or f"{firmware.config.digest:08x}",
        inputs=(flow.values[items.input].count * firmware.config.mfu_lanes,),
        outputs=flow.outputs.item.size * firmware.config.mfu_lanes, classes=(), main=main, routines=(),
        tensors={name: tensor for name, tensor in items.lines.tensors.items() if name in stored})


def loaded_tiles(flow: Flow) -> list[int]:
    """Addresses of the tiles that the program has loaded and not loaded again."""
    values = flow.final[Mem.MATRIX_RF].value.tolist()
    return [address for address, value in enumerate(values) if flow.values[value].origin == Origin.MADE]
