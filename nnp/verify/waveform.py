"""The waveform of a fault: only the chain whose result differs, and some cycles before it."""

from pathlib import Path

import numpy as np
from concord.golden.host.firmware import Firmware
from concord.nnp.lib.options import MachineKind
from concord.nnp.verify.diagnosis import Cutter, Difference
from concord.nnp.verify.session import Session
from concord.sim.machines.host import machine
from concord.spec.registers import Counter

MARGIN = 200  #: Clock cycles that the waveform begins before the chain.


def write_waveform(kind: MachineKind, firmware: Firmware, sample: np.ndarray, difference: Difference, path: Path):
    """Run the program up to the chain whose result differs, and write a VCD of that chain.

    A first run, of a machine without waveforms, tells at which cycle the chain begins. Under cocotb, which cannot begin
    a waveform later, the whole run is written.

    Args:
        kind:       Kind of machine that differs from golden; not golden, which has no waveform.
        sample:     uint16[inputs], or uint16[steps, inputs] where the network is recurrent.
        difference: What the waveform must show.
        path:       File to write.
    """
    cutter = Cutter(firmware, len(sample) if firmware.recurrent else 1)
    before, whole = (cutter.cut(chains).instruction_words for chains in (difference.chain, difference.chain + 1))
    start = _first_cycle(kind, firmware, sample, before, whole) if kind == MachineKind.LIBRARY else 0
    options = {"trace_from": start} if start else {}
    with machine(kind, firmware.config, trace=path, **options) as traced:
        Session(traced, firmware).execute(whole, sample)


def _first_cycle(kind: MachineKind, firmware: Firmware, sample: np.ndarray, before: list[int], whole: list[int]) -> int:
    """Cycle, since power-up, at which a waveform of the last chain of `whole` begins."""
    lasted = []
    for words in (before, whole):
        with machine(kind, firmware.config) as made:
            Session(made, firmware).execute(words, sample)
            end = made.cycles
            lasted.append(made.counter(Counter.CYCLES))
    return max(0, end - (lasted[1] - lasted[0]) - MARGIN)
