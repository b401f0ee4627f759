"""The data flow of firmware: which value every instruction reads, whatever memory, queue or loop it came through.

Addresses are gone: an operand names the value and the item in it. A value is what one instruction of one step has made,
an image that the firmware brings, or the input. An item is a word of M binary16 numbers, an entry of N codes, or a
native tile.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from concord.firmware.firmware import Firmware
from concord.spec.isa.chain import Chain
from concord.spec.isa.memories import Mem


class Origin(StrEnum):
    """Where a value comes from."""

    INPUT = "input"  #: words that the host sends to NetQ, in order
    IMAGE = "image"  #: content of a memory before the program starts
    MADE = "made"  #: what an instruction of a step has written


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowValue:
    """Items that exist at one time.

    Attributes:
        origin: Where it comes from.
        mem:    Memory or queue of an image, and of what is written; NetQ for the input.
        step:   Index of the step that has made it; -1 for others.
        index:  Index of the instruction in its chain that has made it; -1 for others.
        count:  Number of items.
    """

    origin: Origin
    mem: Mem
    step: int = -1
    index: int = -1
    count: int


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Refs:
    """What is read: items of values.

    Attributes:
        value: int32[...], indices in `Flow.values`.
        item:  int32[...] of the same shape, index of the item in that value.
    """

    value: np.ndarray
    item: np.ndarray


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FlowStep:
    """Words of a chain that are computed together, instruction by instruction, in one pass of the loops around it.

    Attributes:
        chain:  The chain, with its registers.
        passes: Number of the pass of each loop around it, the outermost first.
        span:   First and last position (iteration * words + word; the last is not part of it).
        reads:  Items by index of the instruction that reads. Of a point-wise operand, for each position. Of the source
            for each position and pixel of the pooling window; of the source of a product, [iterations, words] or, from
            VectorRf, [iterations, columns] or [iterations, row tiles, columns], as in
            `golden.schedule.vectorisation.WordPlan`; of the source of loaded tiles [tiles, words], and of vectors of
            which tiles are made [iterations, words]. Where a chain reads VectorRf as numbers, `item` counts words: word
            k of item i has the number i * N/M + k. A step that ends or begins inside an iteration of a product has the
            operand of the whole iteration.
        tiles:  Tiles of a product [row tiles, columns], otherwise None.
        makes:  Index of the value by index of the instruction that writes. Lanes beyond Rows of the last word of each
            iteration are +0 in it. A value of VectorRf has the entries whose last word the step has; where a step is
            shorter than an iteration, their first words may come from the steps of the chain before it. The same holds
            for the messages of a `v_softmax`, which needs all words of an iteration.
    """

    chain: Chain
    passes: tuple[int, ...]
    span: tuple[int, int]
    reads: Mapping[int, Refs]
    tiles: Refs | None
    makes: Mapping[int, int]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Flow:
    """The data flow of firmware for one input, which runs directly after the memories were loaded.

    Attributes:
        firmware: The firmware.
        steps:    All steps in the order of the program.
        values:   All values; those of images and the input come first. The image of a memory has an item for each
            address; those that the firmware does not bring are zero.
        outputs:  Words of all OUTPUT messages, in order.
        final:    Items that each addressed memory holds at the end, by address.
    """

    firmware: Firmware
    steps: tuple[FlowStep, ...]
    values: tuple[FlowValue, ...]
    outputs: Refs
    final: Mapping[Mem, Refs]
