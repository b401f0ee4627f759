"""Regions cut into routines, one for each layer, and each named from the inside."""

from collections.abc import Iterable
from dataclasses import dataclass

from concord.spec.isa.operations import ACTIVATIONS
from concord.twin.lib.script import ARRANGING
from concord.twin.recovery.layers.labels import multiplies
from concord.twin.recovery.tensors.drafts import Draft, DraftValue, LoopDraft, makes, reads


@dataclass(kw_only=True, slots=True, eq=False)
class LayerCut:
    """Drafts of one layer that follow each other, or one loop.

    Attributes:
        layer:   Name of the layer; empty for a loop.
        drafts:  Its drafts, or the loop.
        takes:   Values from outside that they read, in the order of their first use.
        results: Values that others read.
    """

    layer: str
    drafts: list[Draft | LoopDraft]
    takes: list[DraftValue]
    results: list[DraftValue]


def cuts(lines: list[Draft | LoopDraft], layers: dict[Draft, str], wanted: Iterable[DraftValue],
         old: dict[DraftValue, DraftValue] | None = None) -> list[LayerCut]:
    """Lines in the order of the program, cut where the layer changes.

    Args:
        layers: Layer of each draft.
        wanted: Values that are read after the region.
        old:    Values of states, and those that replace them; drafts that read the first go before the cut that
            makes the second.
    """
    made = {value: line for line in lines for value in makes(line)}
    left, done, parts = list(lines), set(), []
    while left:
        ready = [line for line in left if all(value not in made or made[value] in done for value in reads(line))]
        line = min(ready, key=lambda each: (not _whole(each, left, layers, made, done), *_rank(each, left, old)))
        layer = "" if isinstance(line, LoopDraft) else layers[line]
        part = []
        while line is not None:
            part.append(line)
            left.remove(line)
            done.add(line)
            ready = [each for each in left if layer and isinstance(each, Draft) and layers[each] == layer
                     and all(value not in made or made[value] in done for value in each.reads)]
            line = ready[0] if ready else None
        parts.append((layer, part))
    return [_cut(layer, part, parts, wanted) for layer, part in parts]


def _whole(line, left, layers, made, done) -> bool:
    """Whether nothing stands between the present line and all that is left of its layer."""
    if isinstance(line, LoopDraft):
        return True
    layer = {each for each in left if isinstance(each, Draft) and layers[each] == layers[line]}
    return all(value not in made or made[value] in done or made[value] in layer
               for each in layer for value in each.reads)


def _rank(line, left, old) -> tuple:
    """Early instructions first, but no state before all that read its old value."""
    if isinstance(line, LoopDraft):
        return False, min((each.address for each in line.body), default=0)
    replaced = [value for value, after in (old or {}).items() if after is line.result]
    early = any(value in each.reads for value in replaced for each in left if each is not line)
    return early, line.address


def _cut(layer, part, parts, wanted) -> LayerCut:
    inside = {value for line in part for value in makes(line)}
    takes = list(dict.fromkeys(value for line in part for value in reads(line) if value not in inside))
    read = set(wanted) | {value for _, other in parts if other is not part for line in other for value in reads(line)}
    results = [value for line in part for value in makes(line) if value in read]
    return LayerCut(layer=layer, drafts=part, takes=takes, results=list(dict.fromkeys(results)))


def sorted_drafts(drafts: list[Draft]) -> list[Draft]:
    """Drafts by address, each after those that it reads, and layout directly in front of what reads it."""
    made, done = {draft.result: draft for draft in drafts}, []
    left = [draft for draft in drafts if draft.function not in ARRANGING]

    def above(draft: Draft) -> list[Draft]:
        """The drafts that a draft reads, in order, with layout among them."""
        found = []
        for value in draft.reads:
            each = made.get(value)
            if each is not None:
                found += [*above(each), each] if each.function in ARRANGING else [each]
        return found

    while left:
        waiting = set(left)
        ready = [draft for draft in left if waiting.isdisjoint(above(draft))]
        following = [draft for draft in ready if done and done[-1].result in draft.reads]
        chosen = following[0] if len(following) == 1 else min(ready, key=lambda draft: draft.address)
        done += [each for each in dict.fromkeys(above(chosen)) if each not in done]
        done.append(chosen)
        left.remove(chosen)
    for draft in drafts:
        if draft not in done:
            done += [each for each in dict.fromkeys([*above(draft), draft]) if each not in done]
    return done


def roles(drafts: list[Draft], takes: list[DraftValue]) -> dict[DraftValue, str]:
    """Names of the three values that an attention takes; empty for other layers, or where one value has two roles."""
    products, found = [draft for draft in drafts if multiplies(draft)], {}
    if len(products) != 2:
        return {}
    (queries, keys), (_, values) = (draft.arguments for draft in products)
    for name, value in ("queries", queries), ("keys", keys), ("values", values):
        while value not in takes:
            value = value.draft.reads[0]
        found[value] = name
    return found if len(found) == len(takes) == 3 else {}


def title(drafts: list[Draft], kind: str, step: bool) -> str:
    """First line of the documentation of a routine."""
    attention = [draft for draft in drafts if multiplies(draft)]
    if attention:
        heads, queries, keys = attention[0].result.shape
        return f"Attention of {heads} head{'s' * (heads > 1)}, {queries} queries and {keys} keys."
    products = [draft for draft in drafts if draft.function in ("dense", "accumulated")]
    convolutions = [draft for draft in drafts if draft.function == "convolution"]
    if step and products:
        size = max((draft.result.size for draft in drafts if draft.function in ACTIVATIONS), default=0)
        return f"{kind.upper() if kind != 'cell' else 'Recurrent layer'} of {size} cells, one time step."
    if convolutions:
        draft = convolutions[-1]
        weights = draft.arguments[1].values.shape
        channels = draft.reads[0].shape[2]
        sizes = f"{weights[1]} x {weights[2]}, {channels} to {weights[0]} channels"
        groups = draft.settings.get("groups", 1)
        if groups > 1:
            sizes += f", {groups} groups"
        return f"{'Convolutions, the last one' if len(convolutions) > 1 else 'Convolution'} {sizes}."
    if products:
        draft = products[-1]
        return f"Dense layer, {draft.reads[0].shape[-1]} to {draft.result.shape[-1]}."
    if any(draft.function == "max_pool" for draft in drafts):
        return "Largest value of each window."
    if any(draft.function == "total" for draft in drafts):
        return "Softmax." if any(draft.function == "exp" for draft in drafts) else "Normalisation."
    if any(draft.function == "add" and len(draft.reads) == 2 for draft in drafts):
        return "Sum of tensors."
    return "Layout and scales."
