"""`update` and `measure`: momenta, parameters, and the exponents that their passes are found to need.

In one lane, S is the exact gradient in the accumulators (lsb of eg is its unit), E' a guess and E the exponent before:

    g = S under the exponent Eg', 32 bits
    T = momentum * v_old + g, exact in the finer unit of the two, but at most 15 bits finer than the coarser one
    v = T under Ev', 16 bits;  P = learning rate * v, exact
    (w, r) = the lazy update of w_old, r_old under Ew by P, rounded to units of the residual once

`golden.lazy` brings P to 32 bits before that: a shift to the left, which changes no bit but where
`TrainerError.UNDERFLOW` says so, or where |P| exceeds 2^128.
"""

import numpy as np
from concord.golden.lazy.lazy_update import Parameters, one_pass
from concord.golden.lazy.tensor import TrainingTensor, requantize
from concord.golden.lazy.tensor_layers import add_exact, unit, whole
from concord.golden.lazy.tensor_training import MOMENTUM_REACH, product
from concord.golden.trainer.core import TrainerCore, check_apart, refuse
from concord.golden.trainer.exponents import Exponent, length
from concord.golden.trainer.memory import joined, planes_of, read_parts, write_parts
from concord.golden.trainer.summary import FORMAT, Summary
from concord.spec.numbers.lazy import E_MAX, E_MIN, Width
from concord.spec.trainer.config import LANES, PARAMETER_PARTS, PARAMETER_PLANES, PLAIN_LANE
from concord.spec.trainer.instructions import MeasureKind, TrainerError, TrainerInstruction

#: Below this exponent of the parameters, an update below E_MIN may reach one half unit of the residual.
_SAFE = E_MIN + FORMAT.bits + FORMAT.shift


def update(core: TrainerCore, i: TrainerInstruction):
    """Execute an `update`: rows of accumulators and of the old parameter to rows of the new one."""
    old, new = core.seen(i["old"], (PARAMETER_PLANES,), "old"), core.seen(i["new"], (PARAMETER_PLANES,), "new")
    rows = old.view.rows
    refuse(
        new.view.rows != rows or old.view.blocks != 1 or new.view.blocks != 1,
        TrainerError.SIZE,
        "old and new have one block and as many rows as each other",
    )
    check_apart(core.check(new, "new", written=True), core.check(old, "old"), "old")
    core.check_rows(i["acc"], rows * LANES if i["bias"] else rows)
    numbers = i["ew"], i["ev"], i["eg"]
    ew, ev, eg = (core.exponents[number] for number in numbers)
    kept = product(core.decay, whole(np.zeros((rows, LANES), np.int64), ev.now, Width.GRADIENT))
    lsb = max(min(unit(kept), eg.next - 31), max(unit(kept), eg.next - 31) - MOMENTUM_REACH)
    refuse(
        core.summary.exponents not in (None, numbers),
        TrainerError.MISMATCH,
        "updates of two tensors meet between two measures",
    )
    core.check_unit(i["ev"], lsb)
    sums = _sums(core, i, rows)
    parts = read_parts(core.chip, old)[:, 0]
    w, r, v = (joined(parts[planes]) for planes in PARAMETER_PARTS)
    eg.record(sums, eg.lsb)
    gradient = requantize(sums, eg.lsb, Width.LINEAR, exponent=eg.next)
    gradient = whole(gradient.mantissas, eg.next, Width.LINEAR)
    momenta = whole(v, ev.now, Width.GRADIENT)
    total, found = add_exact(product(core.decay, momenta), gradient, MOMENTUM_REACH)
    assert found == lsb
    momenta = whole(ev.convert(total, lsb, 2), ev.next, Width.GRADIENT)
    exact = product(core.rate, momenta)
    done = one_pass(Parameters(w, r, ew.now, FORMAT), exact.mantissas, unit(exact) + FORMAT.update - 1, ew.change)
    _meet(core.summary, numbers, exact, done, bool(w.any() or r.any()))
    planes = [
        planes_of(values, count) for values, count in ((done.mantissas, 1), (done.residuals, 2), (momenta.mantissas, 2))
    ]
    write_parts(core.chip, new, np.concatenate(planes)[:, None])


def _sums(core: TrainerCore, i: TrainerInstruction, rows: int) -> np.ndarray:
    """int64[rows, 16]: the exact gradients, of which those of a bias lie in the plain lane, 16 rows for each word."""
    if i["bias"]:
        return core.accumulators[i["acc"] : i["acc"] + LANES * rows, PLAIN_LANE].reshape(rows, LANES)
    return core.accumulators[i["acc"] : i["acc"] + rows, :LANES]


def _meet(summary: Summary, numbers: tuple[int, int, int], exact: TrainingTensor, done, holds: bool):
    """Add rows to a summary."""
    summary.exponents = numbers
    summary.length = max(summary.length, length(exact.mantissas))
    summary.lowest, summary.highest = min(summary.lowest, done.ends[0]), max(summary.highest, done.ends[1])
    summary.largest = max(summary.largest, done.largest)
    summary.outside |= not done.inside
    summary.holds |= holds
    summary.steps += done.steps
    summary.rounded += done.rounded
    summary.saturations += done.saturations


def measure(core: TrainerCore, i: TrainerInstruction, summary: Summary) -> bool:
    """Execute a `measure`, whose lengths are those of all cores already.

    Args:
        core:    The core.
        i:       The instruction.
        summary: Summary of the updates of all cores, for the kind update.

    Returns:
        Whether the pass must be repeated.
    """
    e = core.exponents[i["e"]]
    if i["kind"] != MeasureKind.UPDATE:
        before, found = e.next, e.take(e.length)
        e.set(found[i["kind"]])
        return e.next != before
    ew, eg = core.exponents[i["ew"]], core.exponents[i["eg"]]
    again = _measure_update(core, ew, e, eg, summary)
    core.summary = Summary()
    return again


def check_measure(core: TrainerCore, i: TrainerInstruction):
    """Refuse a `measure` of the kind update whose summary is of other exponents."""
    named = core.summary.exponents
    refuse(
        i["kind"] == MeasureKind.UPDATE and named not in (None, (i["ew"], i["e"], i["eg"])),
        TrainerError.MISMATCH,
        f"the updates before name other exponents: ew, ev and eg are {named}",
    )


def check_underflow(core: TrainerCore, i: TrainerInstruction, summary: Summary):
    """Refuse an update that golden would round twice, once its momenta stand."""
    if i["kind"] != MeasureKind.UPDATE or not summary.length:
        return
    ew, ev = core.exponents[i["ew"]], core.exponents[i["e"]]
    refuse(
        _stands(core.exponents[i["eg"]], 1)
        and _stands(ev, 0)
        and ew.now < _SAFE
        and summary.length - 1 + _update_unit(core, ev) < E_MIN,
        TrainerError.UNDERFLOW,
        f"the largest update lies below 2^{E_MIN}, and the parameters have the exponent {ew.now}",
    )


def _stands(exponent: Exponent, kind: int) -> bool:
    """Whether a guess is what has been measured; nothing begins anew."""
    before, written = exponent.length, exponent.written
    found = exponent.take(before)[kind]
    exponent.length, exponent.written = before, written
    return found == exponent.next


def _update_unit(core: TrainerCore, ev: Exponent) -> int:
    """Exponent of one unit of P under the guess of the momenta."""
    return unit(core.rate) + ev.next - (Width.GRADIENT - 1)


def _measure_update(core: TrainerCore, ew: Exponent, ev: Exponent, eg: Exponent, summary: Summary) -> bool:
    """The first of these that is wrong is made right, and the pass repeated: Eg, Ev, Ew of zeros, the change of Ew."""
    gradient, momenta = eg.take(eg.length)[1], ev.take(ev.length)[0]
    if gradient != eg.next:
        eg.set(gradient)
        return True
    if momenta != ev.next:
        ev.next = momenta
        return True
    fresh = min(max(summary.length - 1 + _update_unit(core, ev), E_MIN), E_MAX)
    if not summary.holds and summary.length and fresh != ew.now:
        ew.set(fresh)
        return True
    if not ew.change and (change := summary.change(ew.now)):
        ew.change = change
        return True
    ew.set(min(max(ew.now + ew.change, E_MIN), E_MAX))
    summary.count(core.counts, ew.change)
    ew.change = 0
    ev.set(ev.next)
    return False
