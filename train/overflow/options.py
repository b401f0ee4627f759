"""The options of overflow-aware training, from which the command line, the Python functions and TOML files are made.

Source: S3.c, S3.e.
"""

import re
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from concord.lib.user_options import UserOptions
from concord.train.overflow.record import STEPS, Adjusted, NetworkKind, RangeSteps

if TYPE_CHECKING:
    from concord.net.layer_overflow import CountFunction, Widths

#: The attributes of `RangeSteps` that a user decides, and the options that do.
STEP_OPTIONS = {
    "threshold": "overflow_threshold", "inputs": "overflow_share", "shrink": "overflow_shrink",
    "every": "overflow_every", "by": "overflow_by", "weights_factor": "overflow_weights",
    "inputs_factor": "overflow_inputs"}


def _option(name: str) -> str:
    """The option of the command line for an attribute; empty for none."""
    return name and f"--{name.replace('_', '-')}"


class CountOn(StrEnum):
    """What counts overflow events."""

    NUMPY = "numpy"  #: numpy, for any widths, with the largest magnitude of each sum
    LIBRARY = "library"  #: the overflow counters of a Verilated machine, which has the widths


@dataclass(frozen=True, kw_only=True, slots=True)
class OverflowOptions(UserOptions):
    """How a network is trained for narrow storage, as a user says it; without a width, nothing is counted.

    Attributes:
        accumulator:        Bits of partial sums, 1 to 64; None for any, or 64 where another width is given.
        product_limit:      Bits of products, 1 to 64; None for 32.
        output_limit:       Bits of totals, 1 to 64; None for 32.
        overflow_threshold: Number of events of a product on the calibration set that are tolerated; None for the
            default of the network's kind, as below.
        overflow_weights:   a1, the factor by which ranges of weights grow in each round with an overflow; None to
            derive it from how often and by how much sums overflow.
        overflow_inputs:    a2, the same for ranges of inputs.
        overflow_share:     Share of a derived growth, as a power, that the ranges of inputs take, 0 to 1.
        overflow_by:        What changes where sums overflow: ranges, or data, the weights themselves.
        overflow_every:     Number of training steps between two counts; None for one count after each epoch alone.
        overflow_shrink:    Smallest factor of one round that shrinks ranges; 1 for no shrinking.
        count_on:           What counts events.
    """

    accumulator: int | None = None
    product_limit: int | None = None
    output_limit: int | None = None
    overflow_threshold: int | None = None
    overflow_weights: float | None = None
    overflow_inputs: float | None = None
    overflow_share: float | None = None
    overflow_shrink: float | None = None
    overflow_by: Adjusted = Adjusted.RANGES
    overflow_every: int | None = None
    count_on: CountOn = CountOn.NUMPY

    @property
    def counts(self) -> bool:
        """Whether overflows are counted."""
        return (self.accumulator, self.product_limit, self.output_limit) != (None, None, None)

    @property
    def widths(self) -> "Widths":
        """The widths of storage."""
        from concord.net.layer_overflow import Widths

        limits = {"product_bits": self.product_limit, "output_bits": self.output_limit}
        return Widths(sum_bits=self.accumulator or 64, **{name: bits for name, bits in limits.items() if bits})

    @property
    def counter(self) -> "CountFunction":
        """What counts the events of a product.

        Raises:
            ValueError: a machine shall count, and there is none.
        """
        from concord.net.layer_overflow import count

        if self.count_on is not CountOn.NUMPY:
            raise ValueError(f"--count-on {self.count_on} needs a machine: make the options by "
                             "workflows.overflow_counts.counted")
        return count

    def steps(self, kind: NetworkKind) -> RangeSteps:
        """The default steps of a kind of network, with those that a user has given."""
        share = 0.0 if self.overflow_by is Adjusted.DATA else self.overflow_share
        given = {name: getattr(self, option) for name, option in STEP_OPTIONS.items()} | {"inputs": share}
        return replace(STEPS[kind], **{name: value for name, value in given.items() if value is not None})

    def check(self, *, integers: bool = True, batch_norm: bool = False, staged: bool = False):
        """Refuse what no training can do.

        Args:
            integers:   Whether the network is trained in integers.
            batch_norm: Whether batch normalisation stays during training.
            staged:     Whether quantisers are initialised in stages.

        Raises:
            ValueError: storage has no such width, a factor is out of range, or options contradict each other.
        """
        for name in "accumulator", "product_limit", "output_limit":
            bits = getattr(self, name)
            if bits is not None and not 1 <= bits <= 64:
                raise ValueError(f"--{name.replace('_', '-')} {bits} is no width: storage has 1 to 64 bits")
        given = [f"--{item.name.replace('_', '-')}" for item in fields(OverflowOptions)
                 if getattr(self, item.name) != item.default]
        if given and not self.counts and self.count_on is CountOn.NUMPY:
            raise ValueError(f"{given[0]} needs a width that sums can overflow: add --accumulator, such as "
                             "--accumulator 16")
        ranges = [name for name in ("overflow_inputs", "overflow_share", "overflow_shrink")
                  if getattr(self, name) is not None]
        if self.overflow_by is Adjusted.DATA and ranges:
            raise ValueError(f"--overflow-by data replaces weights and leaves ranges as they are: leave out "
                             f"--{ranges[0].replace('_', '-')}")
        if given and not integers:
            raise ValueError(f"{given[0]} is for integers, whose sums can overflow: leave it out")
        if given and batch_norm:
            raise ValueError(f"{given[0]} changes ranges, which --batch-norm's statistics do not follow: leave one out")
        if given and staged:
            raise ValueError(f"{given[0]} counts sums of integers, which there are not before the last stage: leave "
                             "--stages out, or train in stages first and go on from that model")
        try:
            self.steps(NetworkKind.DNN)
        except ValueError as error:
            words = re.sub(r"\w+", lambda found: _option(STEP_OPTIONS.get(found[0], "")) or found[0], str(error))
            raise ValueError(words) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedOverflow(OverflowOptions):
    """Options with what counts events on a machine, and the widths of this machine.

    Attributes:
        on_machine: What counts the events of a product.
    """

    on_machine: "CountFunction"

    @property
    def counter(self) -> "CountFunction":
        """What counts the events of a product."""
        return self.on_machine


#: The options where nobody gave any.
ANY_WIDTH = OverflowOptions()
