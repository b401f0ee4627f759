"""Write the waveform of a fault: the chain whose result differs, and some cycles before it."""

from pathlib import Path

import numpy as np
from concord.firmware.firmware import Firmware
from concord.sim.machines.host import machine
from concord.sim.machines.kinds import MachineKind
from concord.spec.host.registers import Counter
from concord.verification.cutter import Cutter
from concord.verification.diagnosis import Difference
from concord.verification.session import Session

MARGIN = 200  #: Number of clock cycles by which the waveform begins before the chain.


def write_waveform(kind: MachineKind, firmware: Firmware, sample: np.ndarray, difference: Difference, path: Path):
    """Run the program up to the chain whose result differs, and write a VCD of that chain.

    A first run without waveforms tells at which cycle the chain begins. Under cocotb, a waveform cannot begin later
    than the simulation, so that the whole run is written.

    Args:
        kind:       Kind of the machine that differs from golden; golden itself has no waveform.
        firmware:   Firmware of the network.
        sample:     Input patterns, uint16[inputs], or uint16[steps, inputs] if the network is recurrent.
        difference: Difference that the waveform must show.
        path:       File to write.
    """
    cutter = Cutter(firmware, len(sample) if firmware.recurrent else 1)
    before, whole = (cutter.cut(chains).instruction_words for chains in (difference.chain, difference.chain + 1))
    start = _first_cycle(kind, firmware, sample, before, whole) if kind == MachineKind.LIBRARY else 0
    options = {"trace_from": start} if start else {}
    with machine(kind, firmware.config, trace=path, **options) as traced:
        Session(traced, firmware).execute(whole, sample)


def _first_cycle(kind: MachineKind, firmware: Firmware, sample: np.ndarray, before: list[int], whole: list[int]) -> int:
    """Clock cycle since power-up at which the waveform of the last chain of `whole` begins."""
    lasted = []
    for words in (before, whole):
        with machine(kind, firmware.config) as made:
            Session(made, firmware).execute(words, sample)
            end = made.cycles
            lasted.append(made.counter(Counter.CYCLES))
    return max(0, end - (lasted[1] - lasted[0]) - MARGIN)
