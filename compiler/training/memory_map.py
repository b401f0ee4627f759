"""Where the tensors of a step lie in server memory, and which exponents they have.

Exponents lie at word 0, old and new parameters behind them: they have the same addresses for all sizes of the batch, so
that programs for several sizes take turns. Everything else follows, with a region of its own for the whole batch.
Several cores share one map, in which each of them sees its samples.
"""

from dataclasses import dataclass, field, replace

from concord.compiler.training.emitter import Span
from concord.compiler.training.graph import BranchSum, Operation, Pool, Product, Split, StepGraph, StepValue
from concord.compiler.training.regions import ImageRegion
from concord.compiler.training.shares import SUM_WORDS, share
from concord.spec.accelerator.accelerator import ALIGNED
from concord.spec.trainer.config import LANES, PARAMETER_PLANES, TrainerConfig
from concord.spec.trainer.instructions import Space

GRADIENT_PLANES = 2


@dataclass(frozen=True, slots=True)
class Exponents:
    """Numbers of the exponents of a tensor of parameters."""

    value: int
    momentum: int
    gradient: int


@dataclass(frozen=True, slots=True)
class Records:
    """Weights and bias of a layer among the parameters; offsets are counted from the first parameter.

    Attributes:
        weight, bias: Word of plane 0.
        words:        Words of a plane of weights; the planes of the bias have `blocks` words.
        blocks:       Words of a plane of the bias.
        weights, biases: Their exponents.
    """

    weight: int
    bias: int
    words: int
    blocks: int
    weights: Exponents
    biases: Exponents


@dataclass(slots=True, kw_only=True)
class MemoryMap:
    """A map of server memory, in words.

    Attributes:
        whole:      Number of samples of all cores.
        samples:    Samples of the core, which regions have.
        core, cores: Number of the core, and of all.
        words:      Number of words in all.
        exponents:  Words of the exponents, from word 0.
        old, new:   First word of each copy of the parameters.
        parameters: Words of one copy.
        records:    By name of the layer.
        values:     Region of each value.
        gradients:  Region of the gradient of each value.
        chosen:     Region of the numbers that a maximum pooling has chosen, by its operation.
        raster:     Region of the network's input as rows of pixels, if the first layer takes patches.
        scales, gradient_scales: Number of the exponent of each value and gradient.
        identity:   First word and exponent of the identity, a block of weights, if a program needs it.
        exchange:   First word of the regions of a `sum`, if a program needs them.
    """

    whole: int
    samples: Span
    core: int = 0
    cores: int = 1
    words: int = 0
    exponents: int = 0
    old: int = 0
    new: int = 0
    parameters: int = 0
    records: dict[str, Records] = field(default_factory=dict)
    values: dict[StepValue, ImageRegion] = field(default_factory=dict)
    gradients: dict[StepValue, ImageRegion] = field(default_factory=dict)
    chosen: dict[Operation, ImageRegion] = field(default_factory=dict)
    raster: ImageRegion | None = None
    scales: dict[StepValue, int] = field(default_factory=dict)
    gradient_scales: dict[StepValue, int] = field(default_factory=dict)
    numbers: int = 0
    identity: tuple[int, int] | None = None
    exchange: int | None = None

    @property
    def batch(self) -> int:
        """Number of samples of the core."""
        return self.samples.count

    @property
    def remakes(self) -> bool:
        """Whether patches are made again on the way back, rather than kept: more than two cores want the port of server
        memory for longer than each takes to make its own.
        """
        return self.cores > 2

    @property
    def mask(self) -> int:
        """Mask of all cores; 0 for a core that works alone."""
        return (1 << self.cores) - 1 if self.cores > 1 else 0

    def take(self, words: int) -> int:
        """Room for words: the first of them."""
        self.words += words
        return self.words - words

    def copy(self) -> int:
        """Room for a copy of the parameters, at an address that a RUN command can name."""
        self.take(-self.words % (ALIGNED // LANES))
        return self.take(self.parameters)

    def number(self) -> int:
        """A new exponent."""
        self.numbers += 1
        return self.numbers - 1

    def identity_region(self) -> tuple[int, int]:
        """First word and exponent of the identity, which the host writes ahead of a backward program."""
        self.identity = self.identity or (self.take(LANES), self.number())
        return self.identity

    def exchange_regions(self, rows: int) -> int:
        """First word of the regions of a `sum`, each of them for so many rows of the accumulators."""
        if self.exchange is None:
            self.exchange = self.take(self.cores * rows * SUM_WORDS)
        return self.exchange

    def together(self) -> "MemoryMap":
        """The same map with the samples of all cores."""
        every = Span(-self.samples.start, self.whole)

        def seen(regions: dict) -> dict:
            return {name: region.sampled(every) for name, region in regions.items()}

        return replace(
            self,
            samples=Span(0, self.whole),
            values=seen(self.values),
            gradients=seen(self.gradients),
            chosen=seen(self.chosen),
            raster=self.raster and self.raster.sampled(every),
        )

    def images(self, value: StepValue, planes: int = 1) -> ImageRegion:
        """Room for a value of the whole batch, of which the core sees its samples."""
        block = self.whole * value.pixels
        region = ImageRegion(
            space=Space.SERVER,
            offset=self.take(planes * value.blocks * block),
            samples=self.whole,
            height=value.height,
            width=value.width,
            blocks=value.blocks,
            block=block,
            planes=planes,
            plane=value.blocks * block,
        )
        return region.sampled(self.samples)


def map_memory(
    made: StepGraph, batch: int, config: TrainerConfig, shared: bool = False, core: int = 0, cores: int = 1
) -> MemoryMap:
    """Addresses and exponents of a step.

    Args:
        made:   The step.
        batch:  Number of samples of all cores, one for each of them at least.
        config: The core.
        shared: Whether gradients of parameters of all layers share two exponents: each needs its own only until its
            update is done, and then guesses better in the next step.
        core, cores: Number of the core, and of all; addresses are the same for all of them.
    """
    found = MemoryMap(
        whole=batch,
        samples=share(batch, core, cores),
        core=core,
        cores=cores,
        exponents=config.exponents // LANES,
    )
    found.take(found.exponents)
    common = (found.number(), found.number()) if shared else ()
    for product in made.products:
        _records(found, product, common)
    found.old, found.new = found.copy(), found.copy()
    _value(found, made.x)
    for operation in made.operations:
        _operation(found, operation)
    return found


def _records(found: MemoryMap, product: Product, common: tuple[int, ...]):
    words, blocks = product.weight_words, product.blocks
    weight = found.parameters
    bias = weight + PARAMETER_PLANES * words
    found.parameters = bias + PARAMETER_PLANES * blocks
    numbers = [Exponents(found.number(), found.number(), common[k] if common else found.number()) for k in range(2)]
    found.records[product.name] = Records(weight, bias, words, blocks, *numbers)


def _value(found: MemoryMap, value: StepValue):
    """Give a value, and the gradient that it needs, regions and exponents."""
    found.scales[value] = found.scales[value.scale] if value.scale else found.number()
    found.values[value] = found.values[value.same] if value.same else found.images(value, value.planes)


def _operation(found: MemoryMap, operation: Operation):
    match operation:
        case Product():
            if operation.patch:
                source = operation.source
                words = -(-source.width * source.channels // LANES)
                raster = ImageRegion(
                    space=Space.SERVER,
                    offset=found.take(found.whole * source.height * words),
                    samples=found.whole,
                    height=source.height,
                    width=words,
                )
                found.raster = raster.sampled(found.samples)
                _value(found, operation.x)
            if operation.pool:
                found.chosen[operation] = found.images(operation.y)
            _value(found, operation.y)
        case Pool():
            if not operation.windows.mean and operation.windows.size > 1:
                found.chosen[operation] = found.images(operation.y)
            _value(found, operation.y)
        case BranchSum():
            _value(found, operation.y)
        case Split():
            _value(found, operation.a)
            _value(found, operation.b)


def add_gradient(found: MemoryMap, value: StepValue, number: int | None = None):
    """Give the gradient of a value a region, and an exponent if it does not share one."""
    found.gradients[value] = found.images(value, GRADIENT_PLANES)
    found.gradient_scales[value] = found.number() if number is None else number


def weights(records: Records, product: Product, base: int, planes: int = 1) -> ImageRegion:
    """Weights as images: one sample for each tap, whose rows are blocks of channels and whose columns are outputs."""
    return ImageRegion(
        space=Space.SERVER,
        offset=records.weight,
        samples=product.taps,
        height=product.x.blocks,
        width=product.padded,
        planes=planes,
        plane=records.words,
        base=base,
    )


def biases(records: Records, base: int, planes: int = 1) -> ImageRegion:
    """A bias: one word for each block of outputs."""
    return ImageRegion(
        space=Space.SERVER,
        offset=records.bias,
        samples=1,
        width=records.blocks,
        planes=planes,
        plane=records.blocks,
        base=base,
    )
