"""The lazy update: parameters trained in a few bits, without a wider copy of them.

A parameter is a mantissa w and a residual r, worth w - r / 2**t units of its tensor. An update goes to the residual;
what the residual then holds of whole units steps over to the mantissa. The *joint value* (w << t) - r falls by exactly
the rounded update and changes by nothing else, except where the tensor changes its exponent, which rounds it once.

Source: S2, lazy update, with its erratum; numerics.md of the specification.
"""

from dataclasses import dataclass

import numpy as np
from concord.golden.lazy.tensor import TrainingTensor, round_shift, to_training_tensor
from concord.spec.numbers.lazy import E_MAX, E_MIN, LazyFormat, Repeat


@dataclass(frozen=True, slots=True)
class Parameters:
    """What is kept of a tensor of parameters: mantissas and residuals under one exponent.

    Attributes:
        mantissas: int64[...], of `bits` bits.
        residuals: int64[...], of `residual` bits; |r| <= 2**(t - 1) after an update.
        exponent:  E of the mantissas: one unit is 2**(E - (bits - 1)).
        fmt:       Widths.
    """

    mantissas: np.ndarray
    residuals: np.ndarray
    exponent: int
    fmt: LazyFormat

    @property
    def joint(self) -> np.ndarray:
        """int64[...], in units of 2**(E - (bits - 1) - t)."""
        return (self.mantissas << self.fmt.shift) - self.residuals

    @property
    def values(self) -> np.ndarray:
        """float64[...]: what the mantissas are worth."""
        return np.ldexp(self.mantissas.astype(np.float64), self.exponent - (self.fmt.bits - 1))


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of a tensor through the unit.

    Attributes:
        mantissas, residuals: int64[...]. They are kept where `repeat` is 0.
        repeat: Why the tensor must pass again, from where it began.
        change: With Repeat.CHANGE: what the exponent must change by.
        steps:  Mantissas that moved.
        rounded: Joint values that a change of the exponent rounded.
        saturations: Elements whose update or mantissa was limited.
        ends:    Smallest and largest joint value before a change of the exponent, with 0.
        largest: Largest magnitude of the mantissas before they are limited.
        inside:  Whether no mantissa was limited.
    """

    mantissas: np.ndarray
    residuals: np.ndarray
    repeat: Repeat
    change: int
    steps: int
    rounded: int
    saturations: int
    ends: tuple[int, int]
    largest: int
    inside: bool


@dataclass(slots=True)
class Counts:
    """What has happened in a number of updates."""

    steps: int = 0
    changes: int = 0
    rounded: int = 0
    saturations: int = 0


def align(update, shift: int, fmt: LazyFormat):
    """Update mantissas in units of the residual, half away from zero, and which of them saturate.

    Args:
        update: int64[...], of `fmt.update` bits.
        shift:  To the right; negative to the left.
    """
    left, aligned = max(-shift, 0), round_shift(update, max(shift, 0))
    over = np.abs(aligned) > fmt.limit >> left
    return np.where(over, np.sign(aligned) * fmt.limit, np.where(over, 0, aligned) << min(left, 62)), over


def split(joint, fmt: LazyFormat):
    """Mantissa round(joint / 2**t), half away from zero, and residual, of joint values."""
    mantissas = round_shift(joint, fmt.shift)
    return mantissas, (mantissas << fmt.shift) - joint


def one_pass(old: Parameters, update, update_exponent: int, change: int = 0) -> Pass:
    """Send a tensor through the unit once, to the exponent `old.exponent + change`.

    Args:
        old:             Where the tensor begins.
        update:          int64[...], mantissas of what is subtracted.
        update_exponent: Its E.
        change:          One of `fmt.changes`.
    """
    fmt = old.fmt
    aligned, limited = align(update, fmt.alignment(old.exponent, update_exponent), fmt)
    joint = old.joint - aligned
    if change:
        shifted = round_shift(joint, change)
        rounded = int((joint & (1 << max(change, 0)) - 1 != 0).sum())
        mantissas, residuals = split(shifted, fmt)
    else:
        total, rounded = old.residuals + aligned, 0
        step = round_shift(total, fmt.shift)
        mantissas, residuals = old.mantissas - step, total - (step << fmt.shift)
    inside = (mantissas >= fmt.lowest) & (mantissas <= fmt.highest)
    repeat, wanted = Repeat(0), 0
    ends = int(joint.min(initial=0)), int(joint.max(initial=0))
    largest = int(np.abs(mantissas).max(initial=0))
    if not change:
        wanted = next_change(*ends, largest, bool(inside.all()), old.exponent, fmt)
        repeat |= Repeat.CHANGE if wanted else Repeat(0)
        fresh = not old.mantissas.any() and not old.residuals.any() and np.asarray(update).any()
        repeat |= Repeat.FRESH if fresh and update_exponent != old.exponent else Repeat(0)
    clipped = np.clip(mantissas, fmt.lowest, fmt.highest)
    return Pass(clipped, np.where(inside, residuals, 0), repeat, wanted, int((clipped != old.mantissas).sum()), rounded,
                int((limited | ~inside).sum()), ends, largest, bool(inside.all()))


def next_change(lowest: int, highest: int, largest: int, inside: bool, exponent: int, fmt: LazyFormat) -> int:
    """What the exponent of a tensor must change by: the least that brings all mantissas into their range, or -1 where
    all are small, or 0. It never leaves E_MIN..E_MAX.

    Args:
        lowest, highest: Of the joint values.
        largest:         Magnitude of the mantissas.
        inside:          Whether all mantissas are in range.
    """
    if not inside:
        for change in range(1, min(fmt.changes[-1], E_MAX - exponent) + 1):
            ends = split(round_shift([lowest, highest], change), fmt)[0]
            if ends[0] >= fmt.lowest and ends[1] <= fmt.highest:
                return change
        return max(0, min(fmt.changes[-1], E_MAX - exponent))
    return -1 if largest < fmt.small and (lowest or highest) and exponent > E_MIN else 0


def lazy_update(old: Parameters, update: TrainingTensor, counts: Counts | None = None) -> Parameters:
    """Subtract an update from a tensor, in as many passes as it asks for.

    Args:
        old:    The tensor.
        update: A tensor of mantissas of `fmt.update` bits.
        counts: To which what happens is added.
    """
    counts = Counts() if counts is None else counts
    mantissas, exponent = update.mantissas, int(update.exponent.item())
    done, change = one_pass(old, mantissas, exponent), 0
    if done.repeat & Repeat.FRESH:
        old = Parameters(old.mantissas, old.residuals, exponent, old.fmt)
        done = one_pass(old, mantissas, exponent)
    if done.repeat & Repeat.CHANGE:
        change = done.change
        done = one_pass(old, mantissas, exponent, change)
    counts.steps += done.steps
    counts.changes += change != 0
    counts.rounded += done.rounded
    counts.saturations += done.saturations
    return Parameters(done.mantissas, done.residuals, old.exponent + change, old.fmt)


def initial_parameters(values, fmt: LazyFormat) -> Parameters:
    """Parameters from real numbers: the mantissas take what they can show, the residuals what those cut off.

    Args:
        values: float64[...], which share one exponent.
    """
    tensor = to_training_tensor(values, fmt.bits + fmt.shift)
    exponent = int(tensor.exponent.item())
    mantissas, residuals = split(tensor.mantissas, fmt)
    if mantissas.max(initial=0) > fmt.highest:  # a maximum close to a power of two
        exponent += 1
        mantissas, residuals = split(round_shift(tensor.mantissas, 1), fmt)
    return Parameters(mantissas, residuals, exponent, fmt)
