"""Clock cycles that the units of the machine take where nothing makes them wait.

The units of `hw` have these latencies, or assert that the sum of their parts is one of them. Cycles in which words wait
for each other are not constant, so no function here knows them.
"""

from concord.spec.machine.config import Config

ROUND = 7  #: Rounding of an integer to binary16.

QUEUE = 3  #: From the input of an empty queue in block RAM to its output.
BEAT = 6  #: From a product to its first beat.


def adder(registers: int = 0) -> int:
    """Adders of a multi-function unit; `registers` is the attribute `mfu_registers`, here and below."""
    return registers or 5


def activation(registers: int = 0, *, more: bool = False) -> int:
    """Activation stage of a multi-function unit; the functions of subnormal numbers need one cycle `more`."""
    return registers or 7 + more


def multiplier(registers: int = 0) -> int:
    """Multiply stage of a multi-function unit."""
    return registers or 4


def reducer(lanes: int) -> int:
    """Reductions: the elements as integers, the tree of the lanes, the words so far, rounding, the choice."""
    return 3 + (lanes - 1).bit_length() + 1 + ROUND + 1


def add_stage(lanes: int, registers: int = 0, *, more: bool) -> int:
    """Add stage of a multi-function unit; with `more` functions, reductions are computed beside the sums."""
    return max(adder(registers), reducer(lanes)) if more else adder(registers)


def factor_due(lanes: int, registers: int = 0, *, more: bool) -> int:
    """From a word's entry into a multi-function unit to its multiply stage."""
    return add_stage(lanes, registers, more=more) + activation(registers, more=more)


def mfu(lanes: int, registers: int = 0, *, more: bool) -> int:
    """One multi-function unit."""
    return factor_due(lanes, registers, more=more) + multiplier(registers)


def mfu_pipeline(config: Config) -> int:
    """From the entry of a word to the write of its result, through both multi-function units."""
    return 2 + 2 * mfu(config.mfu_lanes, config.mfu_registers, more=config.more_functions)


def operands_due(config: Config) -> tuple[int, ...]:
    """From the entry of a word to the read of each operand: of both add stages, then of both multiply stages."""
    unit = mfu(config.mfu_lanes, config.mfu_registers, more=config.more_functions)
    factor = factor_due(config.mfu_lanes, config.mfu_registers, more=config.more_functions)
    return 0, unit, factor, unit + factor


def quantizer(lanes: int) -> int:
    """From the last word of a native vector to the first word of its mantissas: `lanes` magnitudes are compared."""
    return (lanes - 1).bit_length() + 12


def tile_engine(config: Config) -> int:
    """From a lane group to its products' sums: weights, adder tree, planes of bits, alignment by three bits a cycle.

    Rows in hardware multipliers take two cycles more than planes do, for their factors and products. Products of floats
    take, instead of planes, a tree of the bits of the shorter significand, a shift, and a sign.
    """
    shift = max(1, sum(fmt.e_max - fmt.e_min for fmt in (config.weights, config.activations)).bit_length())
    precisions = [fmt.precision for fmt in (config.weights, config.activations) if fmt.precision]
    planes = (config.weights.bits - 1).bit_length() + 2 * (config.multipliers > 0)
    joins = (min(precisions) - 1).bit_length() + 2 if precisions else planes
    return 2 + (config.lanes - 1).bit_length() + joins + -(-shift // 3)


def product(config: Config) -> int:
    """From the last beat of a row of tiles to its first result: engines and their sum, totals, rounding, a queue.

    Totals take two cycles until they are chosen, one to read them, and one to add start values.
    """
    engines = config.tile_engines
    return (engines > 1) + tile_engine(config) + (engines - 1).bit_length() + 4 + ROUND + QUEUE


def last_result(config: Config) -> int:
    """From the last beat of a product to its last result at the latest."""
    return product(config) + config.vector_words
