"""Taps: values that a chain writes on its way through the multi-function units."""

from enum import IntEnum

from concord.spec.isa.operations import Stage


class Tap(IntEnum):
    """The word that a tap carries out of a unit. The word after the multiply stage is the INPUT of the next unit."""

    PASS = 0  #: the word that the tap carried into the unit
    INPUT = 1  #: the value that enters the unit
    ADD = 2  #: the value after the add stage
    ACTIVATION = 3  #: the value after the activation stage


#: The tap that carries the value before each stage.
TAP_BEFORE = {Stage.ADD: Tap.INPUT, Stage.ACT: Tap.ADD, Stage.MUL: Tap.ACTIVATION}
TAP_BITS = max(Tap).bit_length()  #: number of bits of a Tap on wires
TAPS = 2  #: number of taps that run beside the value through every unit
