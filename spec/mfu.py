"""Taps: values that a chain writes on its way through the multi-function units."""

from enum import IntEnum

from concord.spec.operations import Stage


class Tap(IntEnum):
    """Which word a tap carries on from a unit. The word after the multiply stage is the next unit's input."""

    PASS = 0  #: what the tap brought in
    INPUT = 1  #: the value as it came in
    ADD = 2  #: the value after the add stage
    ACTIVATION = 3  #: the value after the activation stage


#: The tap that carries on the value as it enters a stage.
TAP_BEFORE = {Stage.ADD: Tap.INPUT, Stage.ACT: Tap.ADD, Stage.MUL: Tap.ACTIVATION}
TAP_BITS = max(Tap).bit_length()  #: width of a Tap on wires
TAPS = 2  #: taps that run beside the value through every unit
