"""Drafts in an order in which each stands behind those that it reads, without those that nobody needs."""

from collections.abc import Iterable

from concord.twin.recovery.tensors.drafts import Draft, LoopDraft, Value


def reads(draft: Draft | LoopDraft) -> list[Value]:
    """Values from outside that a draft or a loop reads."""
    if isinstance(draft, Draft):
        return draft.reads
    made = {each.result for each in draft.body} | {value for value, _, _ in draft.items} | {
        value for value, _, _ in draft.carried}
    inner = [value for each in draft.body for value in each.reads]
    outside = [sequence for _, sequence, _ in draft.items]
    outside += [initial for _, initial, _ in draft.carried if isinstance(initial, Value)]
    return outside + [value for value in inner if value not in made]


def makes(draft: Draft | LoopDraft) -> list[Value]:
    """Values that a draft or a loop makes for what follows."""
    if isinstance(draft, Draft):
        return [draft.result]
    return [outer for outer, _ in [*draft.finals, *draft.collected]]


def needed(drafts: Iterable[Draft | LoopDraft], wanted: Iterable[Value]) -> list[Draft | LoopDraft]:
    """The drafts that the wanted values depend on; loops lose what nobody needs of them.

    Args:
        drafts: Drafts, each behind those that it reads.
    """
    used, kept = set(wanted), []
    for draft in reversed(list(drafts)):
        if used.isdisjoint(makes(draft)):
            continue
        if isinstance(draft, LoopDraft):
            draft.finals = [pair for pair in draft.finals if pair[0] in used]
            draft.collected = [pair for pair in draft.collected if pair[0] in used]
            _trim(draft)
        used.update(reads(draft))
        kept.insert(0, draft)
    return kept


def _trim(loop: LoopDraft):
    """Leave out what neither results nor the next pass need."""
    wanted = {inner for _, inner in [*loop.finals, *loop.collected]}
    carried = loop.carried
    while True:
        body = needed(loop.body, wanted)
        read = {value for draft in body for value in draft.reads} | wanted
        more = {after for value, _, after in carried if value in read} - wanted
        if not more:
            break
        wanted |= more
    loop.body = body
    loop.carried = [each for each in carried if each[0] in read]
    loop.items = [each for each in loop.items if each[0] in read]
