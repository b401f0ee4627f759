"""States of loops in their simplest form: each once, and as the cell has them, not as the next product reads them."""

import numpy as np
from concord.golden.lib import float16
from concord.twin.recovery.tensors.drafts import Constant, Draft, DraftValue, LoopDraft
from concord.twin.vocabulary import numpy_functions

_ROUNDING = 1e-14  #: Relative error of a product and a quotient in float64.


def simplify(loop: LoopDraft):
    """Merge states that are always equal, and carry what a state is computed from, if only a constant lies between.

    A state s = h * R becomes the state h, and each pass begins with h * R: then R belongs to the product that reads it.
    """
    while _moved(loop):
        pass
    _merge(loop)


def behind(loop: LoopDraft) -> list[Draft]:
    """Drafts after a loop that arrange its last results, instead of every pass."""
    found: list[Draft] = []
    while True:
        pair = next((pair for pair in loop.finals if pair[1].draft in loop.body and _arranges(pair[1].draft)), None)
        if pair is None:
            return found
        outer, inner = pair
        loop.finals.remove(pair)
        outer.draft = Draft(function=inner.draft.function, settings=inner.draft.settings, result=outer,
                            arguments=[_final(loop, value) for value in inner.draft.arguments],
                            address=inner.draft.address)
        found.insert(0, outer.draft)


def _arranges(draft: Draft) -> bool:
    return draft.function in ("join", "part", "flatten", "reshape", "transpose")


def _final(loop: LoopDraft, inner: DraftValue) -> DraftValue:
    """The value after a loop that is the last one of a value of its body."""
    for outer, other in loop.finals:
        if other is inner:
            return outer
    outer = DraftValue(shape=inner.shape, codes=inner.codes, zero=inner.zero, limit=inner.limit)
    loop.finals.append((outer, inner))
    return outer


def _merge(loop: LoopDraft):
    kept: list[tuple[DraftValue, DraftValue | Constant, DraftValue]] = []
    for value, initial, after in loop.carried:
        same = next((other for other, first, last in kept if last is after and _equal(first, initial)), None)
        if same is None:
            kept.append((value, initial, after))
        else:
            _replace(loop, value, same)
    loop.carried = kept


def _equal(one, other) -> bool:
    """Whether initial values are the same."""
    if one is other:
        return True
    constants = [_constant(each) for each in (one, other)]
    if not all(constants) or constants[0].values.shape != constants[1].values.shape:
        return False
    one, other = (each.values for each in constants)
    if one.dtype == other.dtype == np.float64:  # A scale in full precision is taken out again with a rounding.
        return np.allclose(one, other, rtol=_ROUNDING, atol=0)
    return one.tobytes() == other.tobytes()


def _constant(initial) -> Constant | None:
    """The stored tensor that an initial value is."""
    if isinstance(initial, DraftValue) and initial.draft is not None and initial.draft.function == "start":
        return initial.draft.arguments[1]
    return None


def _replace(loop: LoopDraft, old: DraftValue, new: DraftValue):
    for draft in loop.body:
        draft.arguments = [new if argument is old else argument for argument in draft.arguments]


def _moved(loop: LoopDraft) -> bool:
    """Whether a state could be exchanged for what it is computed from."""
    states = {value for value, _, _ in loop.carried}
    for number, (value, initial, after) in enumerate(loop.carried):
        draft, stored = after.draft, _constant(initial)
        if draft is None or draft not in loop.body or stored is None or after in states:
            continue
        source = draft.arguments[0] if isinstance(draft.arguments[0], DraftValue) else None
        first = _before(draft, stored) if source is not None and source.shape == value.shape else None
        if first is None:
            continue
        begun = DraftValue(shape=value.shape)
        like = initial.draft.arguments[0]
        start = DraftValue(shape=value.shape)
        memory, places = (stored.memory, stored.places) if first.tobytes() == stored.values.tobytes() else ("", None)
        start.draft = Draft(function="start", arguments=[like, Constant(
            values=first, role="initial", memory=memory, places=places)], result=start, address=initial.draft.address)
        if any(last is source and not _equal(begin, start) for _, begin, last in loop.carried):
            continue  # Another state becomes the source after each pass, but begins with other numbers.
        loop.before.append(start.draft)
        others = [_stored_as(stored, each) for each in draft.arguments[1:]]
        value.draft = Draft(function=draft.function, arguments=[begun, *others], settings=draft.settings,
                            result=value, address=draft.address)
        loop.body.insert(0, value.draft)
        loop.carried[number] = begun, start, source
        return True
    return False


def _stored_as(product: Constant, factor: DraftValue | Constant) -> DraftValue | Constant:
    """The factor of a state, without its place where the firmware also stores its product with a first state."""
    if isinstance(factor, Constant) and product.values.any():
        return Constant(values=factor.values, role=factor.role)
    return factor


def _before(draft: Draft, stored: Constant) -> np.ndarray | None:
    """Numbers from which an operation makes a state's initial values; None where none are found."""
    if draft.function in ("integers", "floats"):
        codes = stored.values
        with np.errstate(over="ignore"):
            numbers = codes.astype(np.float16)
        made = getattr(numpy_functions, draft.function)(numbers, **draft.settings)
        return numbers if np.array_equal(made, codes) else None
    if draft.function != "multiply" or not isinstance(draft.arguments[1], Constant):
        return None
    if stored.values.dtype == np.float64:
        with np.errstate(all="ignore"):
            numbers = stored.values / draft.arguments[1].values
        return numbers if np.isfinite(numbers).all() else None
    wanted, factor = stored.values.view(np.uint16), draft.arguments[1].values.view(np.uint16)
    with np.errstate(all="ignore"):
        guess = (wanted.view(np.float16) / factor.view(np.float16)).view(np.uint16)
    for distance in (0, 1, -1, 2, -2):
        first = (guess.astype(np.int64) + distance & 0xFFFF).astype(np.uint16)
        if np.array_equal(float16.mul(first, factor), wanted):
            return first.view(np.float16)
    return None
