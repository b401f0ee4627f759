"""The widths of a network's weights and inputs, as a user or a machine gives them."""

import re
from dataclasses import dataclass
from enum import StrEnum

from concord.net.quantize.choices import BlockRecipe
from concord.spec.machine.config import Config
from concord.spec.machine.machine_file import find_config
from concord.spec.numbers.formats import Format

ALONE = 4  #: Bits of an exponent field from which elements need no exponent that their block shares.
WIDEST = 8  #: Bits that stand for elements with exponents of their own in what counts bits.
#: Bits of exponent and fraction of an element with an exponent of its own.
Element = tuple[int, int]


class NetworkArithmetic(StrEnum):
    """The arithmetic of an image network, a recurrent network or an imported one."""

    INTEGER = "integer"
    BFP = "bfp"


@dataclass(frozen=True, kw_only=True, slots=True)
class Widths:
    """Bits of weights and of inputs, and whether inputs leave out their lowest code.

    An element is the (exponent, fraction) bits of weights or inputs that have exponents of their own; None without.
    """

    weights: int
    inputs: int
    symmetric: bool
    weights_element: Element | None = None
    input_element: Element | None = None

    def check_integers(self):
        """Refuse elements with exponents of their own, which integer networks do not have.

        Raises:
            ValueError: there are such elements.
        """
        for what, element in (("weights", self.weights_element), ("inputs", self.input_element)):
            if element:
                raise ValueError(f"{what} of E{element[0]}M{element[1]}: integers have no exponents of their own; "
                                 "quantise in block floating point, with --arithmetic bfp where the command has it")

    @classmethod
    def of(cls, machine: Config) -> "Widths":
        """The widths of a machine's operands."""
        formats = (machine.weights, machine.activations)
        elements = [(fmt.field_bits, fmt.precision - 1) if fmt.precision else None for fmt in formats]
        # The bits of an element with an exponent of its own are those of no integer.
        weights, inputs = (fmt.bits if element is None else WIDEST
                           for fmt, element in zip(formats, elements, strict=True))
        return cls(weights=weights, inputs=inputs, symmetric=machine.activations.symmetric,
                   weights_element=elements[0], input_element=elements[1])


def softmax_elements(machine: str) -> int:
    """Most elements of which a machine computes the softmax; 0 where no machine is named."""
    config = find_config(machine) if machine else None
    return config.softmax_words * config.mfu_lanes if config else 0


def integer_formats(preset: str, asymmetric: bool = False) -> tuple[Format, Format]:
    """Integer formats of weights and inputs on a machine.

    Args:
        asymmetric: Whether weights have zero points, which cost one bit.
    """
    machine = find_config(preset)
    Widths.of(machine).check_integers()
    return (Format(bits=machine.weights.bits - asymmetric, symmetric=True),
            Format(bits=machine.activations.bits, symmetric=machine.activations.symmetric))


def element_of(option: str, text: str, bits: int | None) -> Element | None:
    """The bits of exponent and fraction that the value of an option such as --weights-float names."""
    if not text:
        return None
    if bits is not None:
        raise ValueError(f"--{option}-float {text} decides --{option}-bits: leave one out")
    found = re.fullmatch(r"E(\d+)M(\d+)", text, re.IGNORECASE)
    if not found:
        raise ValueError(f"--{option}-float {text}: bits of exponent and fraction are needed, such as E2M1, or E3M0 "
                         "for powers of two")
    element = int(found[1]), int(found[2])
    try:
        Format.floating(*element)
    except ValueError as error:
        raise ValueError(f"--{option}-float {text}: {error}") from error
    return element


def shared_exponents(element: Element | None) -> tuple[int, int]:
    """Exponents that blocks share without a machine: one alone where elements have long exponents of their own."""
    e_min, e_max = BlockRecipe().exponents
    return (e_max, e_max) if element and element[0] >= ALONE else (e_min, e_max)
