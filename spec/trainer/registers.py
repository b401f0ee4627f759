"""Registers of a trainer: 32 bits at byte addresses. Those that a neural network processor has, too, lie where it has
them; `spec.host.registers` has the bits of CONTROL and STATUS."""

from enum import IntEnum

from concord.spec.numbers.lazy import E_MIN

MANTISSA_BITS = 16  #: Bits of the mantissa of a rate, low bits of its register; E + 126 is above it in 8 bits.


class TrainerRegister(IntEnum):
    """Byte address. Writing a read-only register changes nothing."""

    CONTROL = 0x00  #: Takes START, RESET and CLEAR when written; reads as 0.
    STATUS = 0x04  #: Holds RUNNING, DONE and DRAM_BUSY.
    ERROR = 0x08  #: Holds a code of `spec.trainer.instructions.TrainerError` until reset or start.
    ERROR_ADDRESS = 0x0C  #: Address of the instruction at which the program stopped.
    DIGEST = 0x10  #: Digest of the configuration.
    DRAM_BASE = 0x34  #: Byte address of word 0 of server memory; its low 12 bits do not count.
    LIMIT = 0x38  #: Number of words of 16 bytes of server memory that programs may reach.
    RATE = 0x3C  #: Learning rate: its mantissa of 16 bits, signed, and E + 126 in the 8 bits above.
    DECAY = 0x40  #: Momentum, as RATE.
    COUNTERS = 0x100  #: First counter; counter k has the address COUNTERS + 4 * k, in the order of `TrainerCounter`.
    BASES = 0x200  #: Base register 0; R[k] has the address BASES + 4 * k.
    EXPONENTS = 0x300  #: E + 126 of exponent 0; X[k] has the address EXPONENTS + 4 * k.


#: Registers that the host, and SET, may write.
WRITTEN = (
    TrainerRegister.CONTROL,
    TrainerRegister.DRAM_BASE,
    TrainerRegister.LIMIT,
    TrainerRegister.RATE,
    TrainerRegister.DECAY,
)


class TrainerCounter(IntEnum):
    """Saturating counters of 32 bits."""

    INSTRUCTIONS = 0  #: Number of instructions executed; passes through a loop count each.
    REPEATS = 1  #: Number of times that `repeat` went back.
    STEPS = 2  #: Number of mantissas of parameters that updates changed, of passes that stand.
    CHANGES = 3  #: Number of exponents of parameters that changed.
    ROUNDED = 4  #: Number of joint values that a change of exponent rounded.
    SATURATIONS = 5  #: Number of parameters whose update or mantissa saturated.


def rate_bits(mantissa: int, exponent: int) -> int:
    """The number in RATE or DECAY."""
    return mantissa % (1 << MANTISSA_BITS) | exponent - E_MIN << MANTISSA_BITS


def rate_of(bits: int) -> tuple[int, int]:
    """Mantissa and E of a rate from its register."""
    mantissa = bits & (1 << MANTISSA_BITS) - 1
    return mantissa - (mantissa >> MANTISSA_BITS - 1 << MANTISSA_BITS), (bits >> MANTISSA_BITS & 0xFF) + E_MIN
