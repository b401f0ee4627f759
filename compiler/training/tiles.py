"""How much of a tensor is on the chip at a time, and how sums are cut to the accumulators."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from concord.compiler.training.emitter import MovingView
from concord.compiler.training.regions import ImageRegion
from concord.spec.trainer.config import LANES, TrainerConfig

MOST_TAPS = 63  #: Most taps of an axis of one product.
MOST_PRODUCTS = 16  #: Most products in the body of a loop, so that programs stay short.
ENOUGH = 4  #: Tiles from which on loads are hidden behind products well enough.


@dataclass(frozen=True, slots=True)
class TileSizes:
    """What is on the chip at a time.

    Attributes:
        blocks:      Blocks of whatever the outer loop goes through.
        samples:     Samples of the inner loop.
        outer, inner: Number of regions that each of them takes in turn.
        rows:        Rows of an image, if only a strip of one image is on the chip at a time; 0 for whole images.
    """

    blocks: int
    samples: int
    outer: int
    inner: int
    rows: int = 0


def choose(
    what: str,
    config: TrainerConfig,
    sizes: tuple[int, int],
    words: Callable[[TileSizes], int],
    cost: Callable[[TileSizes], int] = lambda _: 0,
    products: Callable[[TileSizes], int] = lambda _: 1,
    heights: Sequence[int] = (),
) -> TileSizes:
    """The tiles with the least cost that fit.

    Args:
        what:     Names the work in an error.
        config:   The core.
        sizes:    Blocks and samples in all.
        words:    On-chip words of tiles.
        cost:     Cycles of tiles.
        products: Number of instructions in the inner body.
        heights:  Rows that strips of images may have, for images that do not fit.

    Raises:
        ValueError: the smallest tiles do not fit.
    """
    least = None
    for rows in (0, *heights):
        fitting = []
        for blocks, samples in product(_parts(sizes[0]), [1] if rows else _parts(sizes[1])):
            ways = [(2 if part < size else 1) for part, size in zip((blocks, samples), sizes, strict=True)]
            for outer, inner in dict.fromkeys([(ways[0], ways[1]), (1, 1)]):
                tiles = TileSizes(blocks, samples, outer, inner, rows)
                needed = words(tiles)
                least = needed if least is None else min(least, needed)
                if needed > config.words:
                    continue
                count = -(-sizes[0] // blocks) * -(-sizes[1] // samples)
                many = max(products(tiles) - MOST_PRODUCTS, 0)
                fitting.append(((many, cost(tiles), -outer - inner, max(count, ENOUGH), -samples), tiles))
        if fitting:
            return min(fitting, key=lambda each: each[0])[1]
    raise ValueError(
        f"{what} needs {least:,} words of 16 bytes on the chip at a time, and the core has {config.words:,}: give it "
        "more words"
    )


def tile_cycles(groups: int, parts: int, cycles: int, held: int, moved: int) -> int:
    """Cycles of tiles, of which the next one is loaded while products of the present one go on.

    Args:
        groups: Number of groups of weights.
        parts:  Number of parts of the samples; a single one stays on the chip.
        cycles: Cycles of all products.
        held:   Words of all weights, which come with their group; as many times as cores share the server memory.
        moved:  Words of all samples, which come with each part; as many times.
    """
    held, moved, each = held // groups, moved // parts, cycles // (groups * parts)
    stays = moved if parts > 1 else 0
    return held + moved + groups * (max(each, held + stays) + (parts - 1) * max(each, moved))


@dataclass(frozen=True, slots=True)
class Strip:
    """Rows of an image that are made at a time, and the rows of another image that they take.

    Attributes:
        row, rows: The first row that is made, and their number.
        low, high: The first row that is taken, and the one behind the last.
    """

    row: int
    rows: int
    low: int
    high: int


def heights(height: int, align: int) -> list[int]:
    """Rows of strips, from two strips on, each a multiple of `align` rows."""
    return list(dict.fromkeys(-(-height // (count * align)) * align for count in range(2, -(-height // align) + 1)))


def window_strips(height: int, rows: int, seen: int, size: int, stride: int, padding: int) -> list[Strip]:
    """Strips of the sums of a convolution, and the rows of its input that they see; one strip if `rows` is 0.

    Args:
        height:  Rows of sums.
        rows:    Rows of a strip.
        seen:    Rows of the input.
        size, stride, padding: Size, stride and padding of the windows.
    """
    if not rows:
        return [Strip(0, height, 0, seen)]
    found = []
    for row in range(0, height, rows):
        count = min(rows, height - row)
        low = min(max(row * stride - padding, 0), seen - 1)
        found.append(Strip(row, count, low, min(max((row + count - 1) * stride - padding + size, low + 1), seen)))
    return found


def _parts(size: int) -> list[int]:
    """Sizes of parts of equal size, as nearly as possible: from all at once to one at a time."""
    return list(dict.fromkeys(-(-size // count) for count in range(1, size + 1)))


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of sums that are in the accumulators at a time: `rows` rows of images of `samples` samples."""

    sample: int
    samples: int
    row: int
    rows: int


def pieces(samples: int, height: int, width: int, limit: int, what: str) -> Iterator[Piece]:
    """The rows of images, in pieces of equal size of at most `limit` rows of sums.

    Raises:
        ValueError: one row of an image is longer.
    """
    if width > limit:
        raise ValueError(
            f"{what} has images {width} pixels wide, and {limit} rows of the accumulators hold a piece: "
            "give the core more accumulator_rows"
        )
    if height * width <= limit:
        count = -(-samples // (limit // (height * width)))
        size = -(-samples // count)
        for sample in range(0, samples, size):
            yield Piece(sample, min(size, samples - sample), 0, height)
        return
    count = -(-height // (limit // width))
    size = -(-height // count)
    for sample in range(samples):
        for row in range(0, height, size):
            yield Piece(sample, 1, row, min(size, height - row))


def part_of(region: ImageRegion, piece: Piece) -> MovingView:
    """Some rows of some images of a region."""
    return region.operand(
        offset=piece.sample * region.pixels + piece.row * region.width, n0=piece.samples, n1=piece.rows
    )


def windows_of(region: ImageRegion, piece: Piece, width: int, axes: tuple["Axis", "Axis"]) -> MovingView:
    """What each of some rows of sums sees of a region, from its first tap on.

    Args:
        region: Images.
        piece:  Rows of sums.
        width:  Number of sums of a row.
        axes:   How rows and columns are seen.
    """
    first, second = axes
    # Rows above the image keep their number, so that they are zeros; others begin at their own first row.
    begin = first.origin + first.step * piece.row
    skipped = max(begin, 0)
    limit = first.limit and max(first.limit - skipped, 1)
    if skipped >= region.height:  # nothing is seen at all
        skipped, begin, limit = 0, begin, first.limit
    return region.operand(
        offset=piece.sample * region.pixels + skipped * region.width,
        n0=piece.samples,
        n1=piece.rows,
        n2=width,
        step1=first.step,
        origin1=begin - skipped,
        limit1=limit,
        step2=second.step,
        origin2=second.origin,
        limit2=second.limit,
        blocks=1,
    )


@dataclass(frozen=True, slots=True)
class Axis:
    """How sums see an axis of an image: number t begins at origin + step * t, and pixels from `limit` on are zeros."""

    step: int = 1
    origin: int = 0
    limit: int = 0


def block_cycles(blocks: int, vectors: int, planes: int) -> int:
    """Cycles in which blocks of 16 x 16 meet vectors."""
    return blocks * max(LANES, vectors * planes)
