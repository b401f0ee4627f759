"""Firmware on machines against the software twins of firmware that is known to be right."""

import numpy as np
from concord.firmware.cascade import Cascade
from concord.firmware.firmware import Firmware, check_machine
from concord.sim.machines.kinds import MachineKind
from concord.spec.isa.disassembler import disassemble_word
from concord.verification.diagnosis import Difference, alone, entered, first_difference_of
from concord.verification.twin_session import TwinSession


class TwinCheck:
    """Compares the outputs of firmware with those of twins.

    Args:
        firmware:  The firmware that runs.
        reference: The firmware whose twins are computed; it has the same programs.

    Attributes:
        differing: Number of samples whose outputs differ.

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
        self.differing = 0
        self._first: tuple[int, np.ndarray] | None = None
        self._firmware, self._reference = firmware, reference
        self._alone = alone(reference)
        self._twins = [TwinSession(one) for one in self._alone]

    def add(self, index: int, sample: np.ndarray, outputs: np.ndarray):
        """Compare the outputs uint16[outputs] of a sample."""
        *_, entering = entered(self._alone, sample, [twin.sent for twin in self._twins])
        if np.array_equal(self._twins[-1].infer(entering), outputs):
            return
        self.differing += 1
        self._first = self._first or (index, sample)

    def locate(self, kind: MachineKind) -> Difference | None:
        """Find the first difference of the first sample whose outputs differ, on machines of a kind; None if no output
        differs.
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
