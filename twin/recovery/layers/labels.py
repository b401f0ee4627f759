"""The layer of each draft: as the firmware's sections name them, or by structure."""

import itertools
from collections import Counter
from collections.abc import Callable, Collection

from concord.firmware.firmware import Firmware
from concord.twin.lib.script import ARRANGING, QUANTISERS, SUMS
from concord.twin.recovery.tensors.drafts import RESULTS, Constant, Draft, DraftValue, LoopDraft

#: Functions that only arrange elements, and quantisers: they belong to the layer that reads them.
BEFORE = (*QUANTISERS, *ARRANGING, "clip", "patches", "image", "numbers")
SCALINGS = ("multiply", "add")


def labels(firmware: Firmware, drafts: list[Draft], loop: LoopDraft | None, count: Counter) -> dict[Draft, str]:
    """Name of the layer of each draft of a region.

    Args:
        loop:  The loop whose body the region is, if it is one.
        count: Number of layers of each kind so far, for names.
    """
    users: dict[DraftValue, list[Draft]] = {}
    for draft in drafts:
        for value in draft.reads:
            users.setdefault(value, []).append(draft)
    found = {draft: firmware.layer_at(draft.address) for draft in drafts}
    if not any(found.values()):
        found = _cells(drafts, loop, count) if loop is not None else _products(drafts, users, count)
    _forward(drafts, users, found)
    _quantizers(drafts, users, found)
    return found


def _products(drafts: list[Draft], users, count: Counter) -> dict[Draft, str]:
    """Each product begins a layer, to which what follows it belongs."""
    found: dict[Draft, str] = {}
    for draft in drafts:
        before = [found.get(value.draft, "") for value in draft.reads if value.draft is not None]
        if multiplies(draft) and draft.result.heads == RESULTS:
            found[draft] = before[0]  # that of the scores
        elif draft.function in SUMS:
            kind = "attention" if multiplies(draft) else "convolution" if draft.function == "convolution" else "dense"
            count[kind] += 1
            found[draft] = f"{kind}{count[kind]}"
        else:
            found[draft] = next((each for each in reversed(before) if each), "")
    return found


def multiplies(draft: Draft) -> bool:
    """Whether a draft is a product of two computed tensors."""
    return draft.function in SUMS and isinstance(draft.arguments[1], DraftValue)


def _cells(drafts: list[Draft], loop: LoopDraft, count: Counter) -> dict[Draft, str]:
    """Each cycle through the states of a loop is a layer; products in front of it belong to it."""
    reach = {draft: {value.draft for value in draft.reads if value.draft is not None} for draft in drafts}
    state = {value: after for value, _, after in loop.carried}
    for draft in drafts:
        reach[draft] |= {state[value].draft for value in draft.reads if value in state and state[value].draft}
    closed = _closure(drafts, reach)
    found: dict[Draft, str] = {}
    for draft in drafts:
        if draft in found or draft not in closed[draft]:
            continue
        cycle = [other for other in drafts if other in closed[draft] and draft in closed[other]]
        curves = Counter(other.function for other in cycle)
        kind = cell_kind(curves)
        count[kind] += 1
        found |= dict.fromkeys(cycle, f"{kind}{count[kind]}")
    for draft in reversed(drafts):
        if draft not in found:
            behind = [found[other] for other in drafts if draft in reach[other] and other in found]
            found[draft] = behind[0] if behind and draft.function != "sigmoid" else ""
    for draft in drafts:
        if not found[draft]:
            before = [found.get(value.draft, "") for value in draft.reads]
            found[draft] = next((each for each in before if each), "step")
    return found


def cell_kind(curves: Counter) -> str:
    """Kind of a recurrent cell by the number of its curves."""
    return {(3, 2): "lstm", (2, 1): "gru", (0, 1): "rnn"}.get((curves["sigmoid"], curves["tanh"]), "cell")


def _closure(drafts, reach) -> dict[Draft, set[Draft]]:
    """All drafts that each draft depends on, also by way of earlier passes."""
    closed = {}
    for draft in drafts:
        seen, left = set(), list(reach[draft])
        while left:
            other = left.pop()
            if other in seen or other not in reach:
                continue
            seen.add(other)
            left += reach[other]
        closed[draft] = seen
    return closed


def _forward(drafts, users, found):
    """Drafts without a layer belong to that of the first one that reads them."""
    for draft in reversed(drafts):
        if not found[draft]:
            found[draft] = next((found[user] for user in users.get(draft.result, ()) if found[user]), "")
    for draft in drafts:
        if not found[draft]:
            found[draft] = next((found[value.draft] for value in draft.reads if found.get(value.draft)), "step")


def _quantizers(drafts, users, found):
    """Quantisers, and the scale in front of them, belong to the layer that reads the codes."""
    for draft in drafts:
        if draft.function in ARRANGING and _of_heads(draft.reads[0]):
            found[draft] = found[draft.reads[0].draft]
    for draft in reversed(drafts):
        if draft.function in ARRANGING and _of_heads(draft.reads[0]):
            continue
        readers = users.get(draft.result, [])
        layers = {found[user] for user in readers}
        if len(layers) != 1 or layers == {found[draft]}:
            continue
        if draft.function in BEFORE or (is_scaling(draft) and all(_before_quantizer(user) for user in readers)):
            found[draft] = layers.pop()


def _of_heads(value: DraftValue) -> bool:
    """Whether a value holds heads, or what arranges them."""
    draft = value.draft
    return value.heads > 0 or (draft is not None and draft.function in ARRANGING and any(map(_of_heads, draft.reads)))


def _before_quantizer(draft: Draft) -> bool:
    # A product itself reads the scaled numbers where quantisers are off.
    return draft.function in (*QUANTISERS, "clip", *SUMS) or is_scaling(draft)


def is_scaling(draft: Draft) -> bool:
    """Whether a draft multiplies by, or adds, constants, but not to the sums of a product."""
    if draft.function not in SCALINGS or not any(isinstance(each, Constant) for each in draft.arguments):
        return False
    source = draft.reads[0].draft if draft.reads else None
    if source is not None and source.function == "multiply" and draft.function == "add":
        source = source.reads[0].draft
    return source is None or source.function not in SUMS


def routine_name(layer: str, kind: str, taken: Collection[str], reserved: Callable[[str], bool]) -> str:
    """Name of the routine of a layer: the layer's, if Python may have it, or one that begins with its kind."""
    name = "".join(each if each.isalnum() and each.isascii() else "_" for each in layer).strip("_")
    if not name[:1].isalpha():
        name = f"{kind}_{name}".strip("_")
    if reserved(name):
        name += "_layer"
    return free(f"{name}_", taken, name)


def free(stem: str, taken: Collection[str], first: str = "") -> str:
    """A name that is not taken: the first one, or the stem, or that with the smallest number from 2 on."""
    numbered = (f"{stem}{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain((first or stem,), numbered) if each not in taken)
