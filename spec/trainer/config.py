"""A trainer: the sizes of a core that computes steps of training on tensors in block floating point."""

import hashlib
from dataclasses import asdict, dataclass

from concord.spec.numbers.lazy import ACCUMULATOR_BITS

LANES = 16  #: Bytes of a word on the chip and in server memory, rows and columns of a block, lanes of all engines.
NONE = 31  #: Number of a view or base that means "none".
LOOP_DEPTH = 4  #: Largest number of loops inside each other.
MOST_PASSES = 8  #: Most times that `repeat` goes back in a row: more than that is a fault.
PLAIN_LANE = LANES  #: Lane of the accumulators that holds plain sums of a gradient, for biases.
PARAMETER_PLANES = 5  #: Planes of bytes of a parameter: mantissa, residual (2) and momentum (2).
PARAMETER_PARTS = slice(0, 1), slice(1, 3), slice(3, 5)  #: Where these three are among the planes.
SUM_PLANES = ACCUMULATOR_BITS // 8  #: Planes of bytes of the accumulators.
PATCH_ROW_BYTES = LANES - 1  #: Most bytes of one row of a patch: they are counted in 4 bits.

_LIMITS = {
    "words": (256, 1 << 16),
    "accumulator_rows": (16, 512),
    "views": (1, NONE),
    "bases": (2, NONE),
    "exponents": (16, 64),
    "instructions": (16, 1 << 12),
}
_MULTIPLES = {"words": 16 * LANES, "accumulator_rows": LANES, "exponents": LANES}


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerConfig:
    """Sizes of a trainer.

    Attributes:
        words:            Words of 16 bytes of the on-chip memory, in four memories of equal size; a multiple of 256.
        accumulator_rows: Rows of the accumulators, a multiple of 16; a row has 16 lanes and the plain lane.
        views:            Number of views, V0 up.
        bases:            Number of base registers, R0 up.
        exponents:        Number of exponents, X0 up; a multiple of 16.
        instructions:     Words of 128 bits of the instruction buffer.

    Raises:
        ValueError: a sentence that names the attribute.
    """

    words: int = 8192
    accumulator_rows: int = 512
    views: int = NONE
    bases: int = NONE
    exponents: int = 64
    instructions: int = 2048

    def __post_init__(self):
        for name, (low, high) in _LIMITS.items():
            value, step = getattr(self, name), _MULTIPLES.get(name, 1)
            if not low <= value <= high or value % step:
                multiple = f"a multiple of {step} " if step > 1 else ""
                raise ValueError(f"{name} = {value} of a trainer must be {multiple}in {low}..{high}")

    @property
    def memory(self) -> int:
        """Words of one of the four memories on the chip, each of which takes one read and one write a cycle."""
        return 1 << (self.words - 1).bit_length() - 2

    @property
    def digest(self) -> int:
        """32 bits that depend on every size."""
        text = f"trainer {asdict(self)}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")


def trainer_of(text: str) -> TrainerConfig:
    """The core whose sizes a text gives, as "words=4096,exponents=32"; the other ones are those of every core.

    Raises:
        ValueError: a part of the text is none of these, or a size is out of range.
    """
    sizes = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if name.strip() not in _LIMITS or not value.strip().isdecimal():
            raise ValueError(f"--trainer {text}: give sizes as words=4096,exponents=32; there are {', '.join(_LIMITS)}")
        sizes[name.strip()] = int(value)
    return TrainerConfig(**sizes)
