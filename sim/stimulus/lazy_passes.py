"""Random passes of the lazy update that reach every corner case."""

from dataclasses import dataclass

import numpy as np
from concord.golden.lazy.lazy_update import Parameters, Pass, one_pass
from concord.spec.machine.config import Config, preset
from concord.spec.numbers.lazy import E_MAX, E_MIN, LazyFormat, Repeat


def lazy_format(config: Config) -> LazyFormat:
    """The format that testbenches use on a machine: the default one, small widths, a residual of more than one unit."""
    return {preset("serial"): LazyFormat(bits=3, residual=5, shift=4, update=5, guard=2),
            preset("wide"): LazyFormat(bits=6, residual=12, shift=8, update=16, guard=4)}.get(config, LazyFormat())


@dataclass(frozen=True, slots=True)
class Given:
    """The inputs of one pass: a tensor, an update int64[n] with its E, and the change of the tensor's exponent."""

    old: Parameters
    update: np.ndarray
    update_exponent: int
    change: int = 0

    @property
    def golden(self) -> Pass:
        """The result of the pass in golden."""
        return one_pass(self.old, self.update, self.update_exponent, self.change)


def random_pass(rng, fmt: LazyFormat, size: int) -> Given:
    """A random pass over `size` elements, mostly without a change of the exponent."""
    some = rng.random() < 0.9
    old = Parameters(some * _mantissas(rng, fmt, size), some * _residuals(rng, fmt, size), _exponent(rng), fmt)
    change = int(rng.choice(fmt.changes)) if rng.random() < 0.2 else 0
    return Given(old, _update(rng, fmt, size), _update_exponent(rng, old.exponent, fmt), change)


def again(done: Pass, given: Given) -> Given:
    """The next pass that a result asks for; a tensor of zeros first gets the exponent of its update."""
    if done.repeat & Repeat.FRESH:
        old = Parameters(given.old.mantissas, given.old.residuals, given.update_exponent, given.old.fmt)
        return Given(old, given.update, given.update_exponent)
    return Given(given.old, given.update, given.update_exponent, done.change)


def overflowing(rng, fmt: LazyFormat, size: int) -> Given:
    """A pass with an update near the limit, whose answer takes the longest time."""
    old = Parameters(_mantissas(rng, fmt, size), _residuals(rng, fmt, size), 0, fmt)
    shift = fmt.update - 1 - fmt.limit.bit_length()  # of what is almost a power of two
    return Given(old, np.full(size, 1 - (1 << fmt.update - 1)), _exponent_at(shift, 0, fmt))


def bins(given: Given, done: Pass) -> dict[str, bool]:
    """The bins of functional coverage, and whether the pass hits each."""
    fmt, old = given.old.fmt, given.old
    shift = fmt.alignment(old.exponent, given.update_exponent)
    return {
        "zero block": not old.mantissas.any() and not old.residuals.any(), "zero update": not given.update.any(),
        "fresh exponent": bool(done.repeat & Repeat.FRESH),
        "exponent rises": done.change > 0, "it falls": done.change < 0,
        "it rises by several": done.change > 1, "shift to the left": shift < 0, "shift to the right": shift > 0,
        "no shift": shift == 0, "beyond guard": shift < -fmt.limit.bit_length(), "all shifted out": shift > fmt.update,
        "change to the left": given.change < 0, "change to the right": given.change > 0, "rounded": done.rounded > 0,
        "stays": not done.repeat, "limited": done.saturations > 0, "lowest exponent": old.exponent == E_MIN,
        "highest exponent": old.exponent == E_MAX, "out of exponents": old.exponent == E_MAX and done.saturations > 0,
        "several units": not given.change and bool((abs(done.mantissas - old.mantissas) > 1).any()),
        "power of two": bool((old.mantissas == fmt.lowest).any()), "one element": len(given.update) == 1}


def _mantissas(rng, fmt, size):
    if rng.random() < 0.2:
        return rng.choice([fmt.lowest, fmt.highest, fmt.small, -fmt.small, fmt.small - 1, 0], size)
    return rng.integers(fmt.lowest, fmt.highest + 1, size) >> rng.choice([0, 0, 1, 2, fmt.bits - 1])


def _residuals(rng, fmt, size):
    """Residuals: mostly values that an update can leave, sometimes any that the width holds."""
    half = 1 << fmt.shift - 1
    low, high = (-half, half) if rng.random() < 0.7 else (-(1 << fmt.residual - 1), (1 << fmt.residual - 1) - 1)
    anything, zeros = rng.integers(low, high + 1, size), np.zeros(size, int)
    return [anything, rng.choice([low, high, 0], size), anything >> rng.integers(fmt.residual), zeros][rng.integers(4)]


def _exponent(rng) -> int:
    return int(rng.choice([E_MIN, E_MAX, 0, rng.integers(E_MIN, E_MAX + 1)], p=[0.15, 0.15, 0.2, 0.5]))


def _update(rng, fmt, size):
    anything = rng.integers(-(1 << fmt.update - 1), 1 << fmt.update - 1, size)
    powers = rng.choice([-1, 1], size) << rng.integers(0, fmt.update - 1, size)
    ends = rng.choice([-(1 << fmt.update - 1), (1 << fmt.update - 1) - 1, 0, 1, -1], size)
    single = np.where(np.arange(size) == rng.integers(size), anything, 0)
    return [anything, anything >> rng.integers(fmt.update), powers, ends, single, np.zeros(size, int)][rng.integers(6)]


def _exponent_at(shift: int, exponent: int, fmt) -> int:
    """Exponent E of an update that is shifted right by `shift` bits, or the nearest legal exponent."""
    return int(np.clip(fmt.alignment(exponent, 0) - shift, E_MIN, E_MAX))


def _update_exponent(rng, exponent, fmt) -> int:
    if rng.random() < 0.2:
        return _exponent(rng)
    limit = fmt.limit.bit_length()  # the third brings the largest updates to just about the limit
    shift = rng.choice([0, fmt.update, fmt.update - 1 - limit, rng.integers(-limit - 2, fmt.update + 3)])
    return _exponent_at(int(shift), exponent, fmt)
