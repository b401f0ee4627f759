"""Firmware to a script at the level of layers, with the names of layers or without them."""

from dataclasses import replace

from concord.firmware.firmware import Firmware
from concord.twin.flow.flow_of import flow_of
from concord.twin.lib.script import Script
from concord.twin.recovery.layers.layers import scripted
from concord.twin.recovery.nodes.lowering import lower
from concord.twin.recovery.nodes.widening import widen
from concord.twin.recovery.tensors.program import drafted

_PASSES = 4  #: Time steps of the flow that the recovery looks at: the first one has initial values, the last one ends.


def recover(firmware: Firmware, *, unquantized: bool = False) -> Script:
    """The script of firmware.

    Args:
        firmware:    The firmware.
        unquantised: Whether the script computes in float64 with the numbers in full precision, which the firmware must
            carry, and without quantisers.

    Raises:
        Unrecognised: the program does something that has no form here.
    """
    lowered = lower(flow_of(firmware, _PASSES), unquantized=unquantized)
    widen(firmware, lowered)
    return scripted(firmware, drafted(firmware, lowered), unquantized=unquantized)


def without_hints(firmware: Firmware) -> Firmware:
    """The same program and images; the names of layers are left out."""
    return replace(firmware, sections=())
