"""Regions of tensors in memories, and what instructions see of them."""

from dataclasses import dataclass, replace

from concord.compiler.training.emitter import MovingView, ProgramLoop, Span
from concord.spec.trainer.config import LANES, NONE
from concord.spec.trainer.instructions import Space
from concord.spec.trainer.views import TrainerView


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRegion:
    """Images one behind the other, in planes and blocks of columns.

    Attributes:
        space:         Memory.
        offset:        First word.
        samples:       Number of images.
        height, width: Rows and columns of an image.
        apart:         Words from image to image; 0 if they lie close together.
        blocks, block: Number of blocks of 16 columns, and words from one to the next.
        planes, plane: Number of planes, and words from one to the next.
        steps, base:   As those of an operand.
    """

    space: Space = Space.CHIP
    offset: int
    samples: int
    height: int = 1
    width: int = 1
    apart: int = 0
    blocks: int = 1
    block: int = 0
    planes: int = 1
    plane: int = 0
    steps: tuple[tuple[ProgramLoop, int], ...] = ()
    base: int = NONE

    @property
    def pixels(self) -> int:
        return self.height * self.width

    @property
    def sample(self) -> int:
        """Words from image to image."""
        return self.apart or self.pixels

    def moved(self, words: int, span: Span | None = None, unit: int = 0) -> "ImageRegion":
        """The same `words` further on, and `unit` words for each element before a span."""
        if span is None:
            return replace(self, offset=self.offset + words)
        steps = dict(self.steps)
        for loop, stride in span.steps:
            steps[loop] = steps.get(loop, 0) + stride * unit
        return replace(self, offset=self.offset + words + span.start * unit, steps=tuple(steps.items()))

    def sampled(self, span: Span) -> "ImageRegion":
        """Some of the images."""
        return replace(self.moved(0, span, self.sample), samples=span.count)

    def rowed(self, first: int, count: int) -> "ImageRegion":
        """Some rows of each image."""
        return replace(self.moved(first * self.width), height=count, apart=self.sample)

    def blocked(self, span: Span) -> "ImageRegion":
        """Some of the blocks."""
        return replace(self.moved(0, span, self.block), blocks=span.count)

    def column(self, number: int) -> "ImageRegion":
        """One block."""
        return replace(self.moved(number * self.block), blocks=1)

    def operand(self, **changed: int) -> MovingView:
        """All of it, or as the fields of a view say otherwise; `offset` is counted from the first word."""
        changed["offset"] = self.offset + changed.get("offset", 0)
        fields = {
            "space": self.space,
            "planes": self.planes,
            "plane": self.plane,
            "blocks": self.blocks,
            "block": self.block,
            "n0": self.samples,
            "s0": self.sample,
            "n1": self.height,
            "pitch1": self.width,
            "n2": self.width,
            "pitch2": 1,
        }
        return MovingView(TrainerView(**fields | changed), self.steps, self.base)


def cut(region: ImageRegion, blocks: Span, samples: Span) -> ImageRegion:
    """A region of the chip, as far as a span fills it."""
    return ImageRegion(
        offset=region.offset,
        samples=samples.count,
        height=region.height,
        width=region.width,
        blocks=blocks.count,
        block=region.block,
        planes=region.planes,
        plane=region.plane,
    )


def outside(region: ImageRegion, blocks: Span, samples: Span) -> ImageRegion:
    """The same blocks and samples of a region of server memory."""
    return region.blocked(blocks).sampled(samples)


def rounded(words: int) -> int:
    """A multiple of 16 words."""
    return -(-words // LANES) * LANES


def on_chip(address: int, samples: int, height: int, width: int, blocks: int, planes: int = 1) -> ImageRegion:
    """A region of the on-chip memory whose planes and blocks begin at multiples of 16 words."""
    block = rounded(samples * height * width)
    return ImageRegion(
        offset=address,
        samples=samples,
        height=height,
        width=width,
        blocks=blocks,
        block=block,
        planes=planes,
        plane=blocks * block,
    )


class ChipRoom:
    """Regions of the on-chip memory, one behind the other.

    Args:
        used:   Words that are taken already.
        memory: Words of a memory, if what is read beside each other lies in several of them; 0 if all lies close.

    Attributes:
        used: Words that are taken.
    """

    def __init__(self, used: int = 0, memory: int = 0):
        self.used, self.memory = used, memory

    def apart(self):
        """What comes next is read in the same cycles as what came before: it begins in the next memory."""
        if self.memory:
            self.used += -self.used % self.memory

    def images(self, samples: int, height: int, width: int, blocks: int, planes: int = 1) -> ImageRegion:
        """Room for images."""
        made = on_chip(self.used, samples, height, width, blocks, planes)
        self.used += made.plane * planes
        return made

    def words(self, count: int) -> int:
        """Room for words: the first of them."""
        self.used += rounded(count)
        return self.used - rounded(count)
