"""Overflow-aware training that the overflow counters of a machine steer."""

from dataclasses import fields
from functools import reduce
from hashlib import sha256

import numpy as np
from concord.firmware.overflow_counters import OverflowCounters, check_counts, counters_of
from concord.golden.mvm.overflow import Events
from concord.lib.extras import require
from concord.net.layer_overflow import Count, Widths
from concord.spec.machine.config import Config
from concord.spec.machine.machine_file import find_config
from concord.train.overflow.options import CountedOverflow, CountOn, OverflowOptions

KNOWN = 10_000  #: Most counts that are kept.
WIDEST = 62  #: Bits of the largest magnitude of a `Count`.


class MachineCounter:
    """A function that counts the events of a product on a machine, which begins with the first call.

    It has the arguments and events of `net.layer_overflow.count`, whose `lanes` are those of the machine. The counters
    hold no sums, so each magnitude is the largest one that they allow: that of the widest number that fits, or of one
    with as many bits more as were lacking.

    Args:
        config: The machine, with the widths of all counts.
        kind:   Kind of the machine, by its name in `sim.machines.host.machine`.
    """

    def __init__(self, config: Config, kind: str = CountOn.LIBRARY):
        check_counts(config)
        self.config, self.kind, self._made = config, kind, None
        self._known: dict[bytes, Count] = {}  # by a hash of the arguments; the predictor counts what has not changed

    def __call__(self, weights: np.ndarray, codes: np.ndarray, start: np.ndarray, widths: Widths) -> Count:
        """Count the events of start + weights @ codes.

        Raises:
            ValueError:   the machine does not hold the product.
            RuntimeError: the machine stopped with an error, or could not be built.
        """
        key = sha256(b"".join(array.tobytes() for array in (weights, codes, start)) + repr(widths).encode()).digest()
        if key not in self._known:
            if len(self._known) >= KNOWN:
                self._known.clear()
            self._known[key] = self._count(weights, codes, start, widths)
        return self._known[key]

    def _count(self, weights: np.ndarray, codes: np.ndarray, start: np.ndarray, widths: Widths) -> Count:
        counters = self._counters
        most, inputs = counters.rows(codes.shape[1]), counters.inputs(codes)

        def by_rows(first: int, last: int) -> list[Events]:
            """The events of each row, halves first: where none are, nothing is counted again."""
            if last - first <= most:
                found = counters.events(weights[first:last], start[first:last], inputs)
                if last - first == 1 or found == Events():
                    return [found] * (last - first)
            middle = (first + last) // 2
            return by_rows(first, middle) + by_rows(middle, last)

        found = by_rows(0, len(weights))
        steps = -(-codes.shape[1] // counters.lanes) + 1
        output = min(widths.sum_bits, widths.output_bits)
        return Count(
            events=reduce(Events.__add__, found), additions=len(codes) * len(found) * steps,
            rows=np.array([row.partial for row in found]),
            partial=_largest(widths.sum_bits, [row.excess_partial for row in found]),
            total=_largest(output, [row.excess_output for row in found]),
            product=_largest(widths.product_bits, [row.excess_product for row in found]))

    def __str__(self) -> str:
        return f"{self.kind} {self.config.digest:08x}"

    @property
    def _counters(self) -> OverflowCounters:
        self._made = self._made or counters_of(self.kind, self.config)
        return self._made


def counted(overflow: OverflowOptions, preset: str) -> OverflowOptions:
    """The options with the machine that counts and its widths, where a machine counts.

    Args:
        overflow: The options.
        preset:   Name of a preset, or a TOML file of a machine; may be empty.

    Raises:
        ValueError: no machine is named, it has no counters, another width is given, or packages of simulation are
            absent.
    """
    if overflow.count_on is CountOn.NUMPY:
        return overflow
    if not preset:
        raise ValueError("--count-on library counts on a machine: name one that has overflow counters with --preset, "
                         "such as --preset serial")
    require("sim")
    config = find_config(preset)
    try:
        config.require_hardware()
        counter = MachineCounter(config)
    except ValueError as error:
        raise ValueError(f"--count-on library with --preset {preset}: {error}") from error
    options = {item.name: getattr(overflow, item.name) for item in fields(overflow)}
    widths = Widths.of(config)
    for name, bits in (("accumulator", widths.sum_bits), ("product_limit", widths.product_bits),
                       ("output_limit", widths.output_bits)):
        if options[name] not in (None, bits):
            raise ValueError(f"--{name.replace('_', '-')} {options[name]} is not what {preset} has, whose counters "
                             f"know {bits} bits alone: leave it out, name another machine, or let numpy count")
        options[name] = bits
    return CountedOverflow(**options, on_machine=counter)


def _largest(bits: int, excess: list[int]) -> np.ndarray:
    """int64[rows], the largest magnitude of each row's number, whose storage of `bits` lacked `excess` bits."""
    return (1 << np.minimum(bits + np.array(excess), WIDEST + 1) - 1) - 1
