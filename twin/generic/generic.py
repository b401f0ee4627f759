"""Data flow to a script word by word: every step becomes a few calls, whatever the program is.

A network has what its users give and get around the words of its program.
"""

from collections.abc import Iterable

import numpy as np
from concord.firmware.firmware import Firmware
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import preset_name
from concord.twin.flow.flow import Flow, Origin, Refs
from concord.twin.flow.flow_of import flow_of
from concord.twin.generic.items import INPUT, Items
from concord.twin.generic.steps import StepCalls
from concord.twin.lib.script import Call, Routine, Script, Stored, StoredTensor


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
    steps = StepCalls(items)
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


def network(firmware: Firmware) -> Script:
    """The script of firmware whose inputs have one size, with one line or more for every instruction that runs.

    Raises:
        ValueError: inputs are sequences of any length, whose program has no fixed number of chains.
    """
    if firmware.loop is not None:
        raise ValueError(f"{firmware.name} takes sequences of any length, and a twin word by word has as many lines as "
                         "its program runs instructions")
    words = generic(flow_of(firmware))
    sent, kept = _sent(firmware)[:words.inputs[0]], firmware.result(np.arange(words.outputs))
    tensors = {"input_index": sent, "output_index": kept}
    chains = Routine(name="chains", title="All chains, word by word", parameters=words.main.parameters,
                     results=words.main.results, body=words.main.body)
    body = (
        Call(results=("x",), function="flatten", arguments=("x",)),
        Call(results=("zero",), function="start", arguments=("x", Stored(name="no_input"))),
        Call(results=("x",), function="take", arguments=(Stored(name="input_index"), "x", "zero")),
        Call(results=("y",), function="chains", arguments=("x",)),
        Call(results=("y",), function="take", arguments=(Stored(name="output_index"), "y")))
    main = Routine(name="network", title=f"{firmware.name}, word by word", parameters=("x",), results=("y",), body=body)
    stored = {name: StoredTensor(values=index.astype(np.int32)) for name, index in tensors.items()}
    return Script(
        name=firmware.name, machine=preset_name(firmware.config), inputs=_shape(firmware), outputs=firmware.outputs,
        classes=firmware.classes, main=main, routines=(chains,),
        tensors=words.tensors | stored | {"no_input": StoredTensor(values=np.zeros(1, np.float16))})


def _shape(firmware: Firmware) -> tuple[int, ...]:
    """Shape of an input: a vector, an image by channel, row and column, or a sequence."""
    if firmware.recurrent:
        return firmware.steps, firmware.inputs
    return firmware.image or (firmware.inputs,)


def _sent(firmware: Firmware) -> np.ndarray:
    """Index of the element of an input in each element of the words that the host sends; zeros follow all elements."""
    shape = _shape(firmware)
    count = int(np.prod(shape))
    numbers = np.arange(1, count + 1).reshape(shape if firmware.recurrent else -1)
    low, high = (firmware.words_of((numbers >> shift & 0xFFFF).astype(np.uint16)).reshape(-1).astype(np.int64)
                 for shift in (0, 16))
    found = (high << 16) + low
    return np.where(found == 0, count, found - 1)
