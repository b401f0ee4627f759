"""Cycles of firmware on its machine without numbers, which has the cycles of the machine, at many times the speed."""

from dataclasses import dataclass

import numpy as np
from concord.firmware.firmware import Firmware
from concord.firmware.layer_costs import LayerCost, layer_costs
from concord.firmware.session import Session
from concord.sim.machines.timing_library import timing_machine
from concord.spec.host.registers import Counter


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Timed:
    """The time of one run of firmware.

    Attributes:
        firmware: The firmware.
        counters: All counters of the run; those of overflows are 0.
        costs:    The share of each layer; empty where nobody asked for it.
    """

    firmware: Firmware
    counters: dict[Counter, int]
    costs: tuple[LayerCost, ...]

    @property
    def whole(self) -> LayerCost:
        """The cost of the whole run."""
        return LayerCost(layers=(), counters=self.counters)


def timed(firmware: Firmware, steps: int, *, layers: bool = False, **options) -> Timed:
    """Run firmware once on its machine without numbers. All numbers of the sample are 0: they do not change the time.

    Args:
        firmware: The firmware.
        steps:    Number of time steps of the sample, where the firmware does not fix it.
        layers:   Whether to find the share of each layer, too, whose run begins before its input arrives.
        options:  As for `sim.machines.timing_library.timing_machine`.

    Raises:
        ValueError: hardware is not generated for the machine.
    """
    sample = np.zeros((*[firmware.steps or steps] * firmware.recurrent, firmware.inputs), np.uint16)
    with timing_machine(firmware.config, **options) as made:
        session = Session(made, firmware)
        session.prepare(len(sample) if firmware.recurrent else 1)
        session.counters()
        session.infer(sample)
        counters = session.counters()
        return Timed(firmware=firmware, counters=counters, costs=tuple(layer_costs(session, sample)) if layers else ())
