"""Firmware to a script at the level of layers, with the names of layers or without them."""

from dataclasses import replace

import numpy as np
from concord.firmware.firmware import Firmware, Tiles
from concord.firmware.resident import resident
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
        ValueError:   the firmware takes several samples at once.
    """
    firmware = resident(firmware)
    flow = flow_of(firmware, _PASSES)
    multiplied = max((step.chain.tiles.stop for step in flow.steps if step.chain.product), default=0)
    if multiplied > len(firmware.tiles.mantissas):
        return recover(with_tiles(firmware, multiplied), unquantized=unquantized)
    lowered = lower(flow, unquantized=unquantized)
    widen(firmware, lowered)
    return scripted(firmware, drafted(firmware, lowered), unquantized=unquantized)


def with_tiles(firmware: Firmware, count: int) -> Firmware:
    """The same firmware with `count` tiles; those that it did not bring are zero, as memories are before a start."""
    missing, tiles, n = count - len(firmware.tiles.mantissas), firmware.tiles, firmware.config.native_dim
    zeros = {"mantissas": np.zeros((missing, n, n), tiles.mantissas.dtype), "integer": np.zeros(missing, bool),
             "exponents": np.full((missing, n), firmware.config.weights.e_min, np.int8)}
    return replace(firmware, tiles=Tiles(**{
        name: np.concatenate([getattr(tiles, name), more]) for name, more in zeros.items()}))


def without_hints(firmware: Firmware) -> Firmware:
    """The same program and images; the names of layers are left out."""
    return replace(firmware, sections=())
