"""Firmware on a machine against the software twin of firmware that is known to be right."""

import numpy as np
from concord.golden.host.cascade import Cascade
from concord.golden.host.firmware import Firmware, check_machine
from concord.nnp.lib.options import MachineKind
from concord.nnp.verify.cascade_diagnosis import MachineDifference, alone, entered, first_difference_of
from concord.nnp.verify.cascade_session import CascadeSession
from concord.nnp.verify.diagnosis import Difference, first_difference
from concord.nnp.verify.session import Session
from concord.nnp.verify.twin_session import TwinSession
from concord.sim.machines.host import machine
from concord.spec.disassembler import disassemble_word


class Check:
    """Compares the outputs of firmware with those of a twin, whatever it is.

    Attributes:
        differing: Number of samples whose outputs differ.
    """

    def __init__(self):
        self._first: tuple[int, np.ndarray] | None = None
        self.differing = 0

    def add(self, index: int, sample: np.ndarray, outputs: np.ndarray):
        """Compare the outputs uint16[outputs] of a sample."""
        if np.array_equal(self._infer(sample), outputs):
            return
        self.differing += 1
        self._first = self._first or (index, sample)


class TwinCheck(Check):
    """Compares the firmware of one machine with its twin.

    Args:
        firmware:  The firmware that runs.
        reference: The firmware whose twin is computed; it has the same program.

    Raises:
        ValueError: the programs differ, or are for different machines.
    """

    def __init__(self, firmware: Firmware, reference: Firmware):
        check_machine(reference, firmware.config)
        _check_programs(firmware, reference)
        super().__init__()
        self._firmware, self._twin = firmware, TwinSession(reference)

    def _infer(self, sample: np.ndarray) -> np.ndarray:
        return self._twin.infer(sample)

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


class CascadeCheck(Check):
    """Compares the firmware of several machines with the twins of each.

    Args:
        firmware:  The firmware that runs.
        reference: The firmware whose twins are computed; it has the same programs.

    Raises:
        ValueError: the machines or their programs differ.
    """

    def __init__(self, firmware: Cascade, reference: Cascade):
        if len(firmware.parts) != len(reference.parts):
            raise ValueError(f"the firmware is for {len(firmware.parts)} machines, and that of the twin for "
                             f"{len(reference.parts)}; choose firmware that was compiled from the same model")
        for one, right in zip(firmware.parts, reference.parts, strict=True):
            check_machine(right, one.config)
            _check_programs(one, right)
        super().__init__()
        self._firmware, self._reference = firmware, reference
        self._alone = alone(reference)
        self._twins = [TwinSession(one) for one in self._alone]

    def _infer(self, sample: np.ndarray) -> np.ndarray:
        *_, entering = entered(self._alone, sample, [twin.sent for twin in self._twins])
        return self._twins[-1].infer(entering)

    def locate(self, kind: MachineKind, session: CascadeSession) -> MachineDifference | None:
        """Find the first difference of the first sample whose outputs differ, on machines of a kind; None if there is
        none.
        """
        if self._first is None:
            return None
        index, sample = self._first
        return first_difference_of(self._reference, self._firmware, kind, sample, index, reference="twin")


def _check_programs(firmware: Firmware, reference: Firmware):
    mine, other = (each.instruction_words.tolist() for each in (firmware, reference))
    if mine != other or firmware.loop != reference.loop:
        address = next((k for k, words in enumerate(zip(mine, other, strict=False)) if len(set(words)) > 1),
                       min(len(mine), len(other)))
        texts = [f"`{disassemble_word(words[address])}`" if address < len(words) else "nothing"
                 for words in (mine, other)]
        raise ValueError(f"the programs of both firmware files differ at instruction {address}: {texts[0]} runs, and "
                         f"the twin has {texts[1]}; choose firmware that was compiled from the same model")
