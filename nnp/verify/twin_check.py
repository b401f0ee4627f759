"""Firmware on a machine against the software twin of firmware that is known to be right."""

import numpy as np
from concord.golden.host.firmware import Firmware, check_machine
from concord.nnp.lib.options import MachineKind
from concord.nnp.verify.diagnosis import Difference, first_difference
from concord.nnp.verify.session import Session
from concord.nnp.verify.twin_session import TwinSession
from concord.sim.machines.host import machine
from concord.spec.disassembler import disassemble_word


class TwinCheck:
    """Compares the outputs of firmware with those of a twin.

    Args:
        firmware:  The firmware that runs.
        reference: The firmware whose twin is computed; it has the same program.

    Attributes:
        differing: Number of samples whose outputs differ.

    Raises:
        ValueError: the programs differ, or are for different machines.
    """

    def __init__(self, firmware: Firmware, reference: Firmware):
        check_machine(reference, firmware.config)
        _check_programs(firmware, reference)
        self._firmware, self._twin = firmware, TwinSession(reference)
        self._first: tuple[int, np.ndarray] | None = None
        self.differing = 0

    def add(self, index: int, sample: np.ndarray, outputs: np.ndarray):
        """Compare the outputs uint16[outputs] of a sample."""
        if np.array_equal(self._twin.infer(sample), outputs):
            return
        self.differing += 1
        self._first = self._first or (index, sample)

    def locate(self, kind: MachineKind, session: Session) -> Difference | None:
        """Find the first difference of the first sample whose outputs differ; None if no output differs.

        Args:
            kind:    Kind of the machine.
            session: Session on the machine, which is loaded again.
        """
        if self._first is None:
            return None
        index, sample = self._first
        if kind == MachineKind.GOLDEN:
            return first_difference({"twin": self._twin, "golden": session}, sample, index)
        with machine(MachineKind.GOLDEN, self._firmware.config) as golden:
            sessions = {"twin": self._twin, "RTL": session, "golden": Session(golden, self._firmware)}
            return first_difference(sessions, sample, index)


def _check_programs(firmware: Firmware, reference: Firmware):
    mine, other = (each.instruction_words.tolist() for each in (firmware, reference))
    if mine != other or firmware.loop != reference.loop:
        address = next((k for k, words in enumerate(zip(mine, other, strict=False)) if len(set(words)) > 1),
                       min(len(mine), len(other)))
        texts = [f"`{disassemble_word(words[address])}`" if address < len(words) else "nothing"
                 for words in (mine, other)]
        raise ValueError(f"the programs of both firmware files differ at instruction {address}: {texts[0]} runs, and "
                         f"the twin has {texts[1]}; choose firmware that was compiled from the same model")
