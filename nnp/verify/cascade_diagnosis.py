"""The first machine of several in a row that differs from golden, and its first chain, instruction and element.

Each machine runs alone, on what the machine before it sends if it is right.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from concord.golden.host.cascade import Cascade, net_words
from concord.golden.host.firmware import Firmware
from concord.nnp.verify.diagnosis import Difference, Probed, first_difference
from concord.nnp.verify.session import Session
from concord.nnp.verify.twin_session import TwinSession
from concord.sim.machines.host import machine
from concord.spec.memories import Mem


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineDifference:
    """The first difference on several machines.

    Attributes:
        machine:    Number of the machine, from 1.
        difference: The first difference between this machine and the right one.
    """

    machine: int
    difference: Difference

    def __str__(self) -> str:
        return f"machine {self.machine}, {self.difference}"


def first_difference_of(right: Cascade, other: Cascade, kind: str, sample: np.ndarray, index: int, *,
                        reference: str = "golden") -> MachineDifference | None:
    """The first difference between machines and right ones on one sample; None if each machine alone is right.

    Args:
        right:     Firmware that is known to be right, of the same programs.
        other:     Firmware of the machines.
        kind:      Kind of the machines, one of `host.KINDS`.
        sample:    Input patterns as in `Firmware.words_of`.
        index:     Index of the sample, for the report.
        reference: What the machines are compared with: "golden", or "twin" for the software twins.
    """
    firmware = alone(right)
    send = [TwinSession(one).sent if reference == "twin" else partial(_sent, one) for one in firmware]
    for number, (one, wrong, entering) in enumerate(
            zip(firmware, alone(other), entered(firmware, sample, send), strict=True), 1):
        with ExitStack() as files:
            sessions = _sessions(one, wrong, kind, reference, files)
            if found := first_difference(sessions, entering, index):
                return MachineDifference(machine=number, difference=found)
    return None


def alone(cascade: Cascade) -> list[Firmware]:
    """The firmware of each machine, which takes the words of the machine before it as numbers, in their order."""
    found = [cascade.first]
    for part in cascade.parts[1:]:
        words, _ = net_words(part)
        found.append(replace(part, inputs=words * part.config.mfu_lanes, input_words=words, input_layout=None))
    return found


def entered(
    firmware: Sequence[Firmware], sample: np.ndarray, send: Sequence[Callable[[np.ndarray], np.ndarray]],
) -> Iterator[np.ndarray]:
    """What enters each machine for one sample: the sample, and then what the machine before sends.

    Args:
        firmware: The firmware of each machine, see `alone`.
        send:     For each machine, the words uint16[words, M] that it sends for what enters.
    """
    yield sample
    for sends, behind in zip(send, firmware[1:], strict=False):
        sample = sends(sample).reshape(-1, behind.inputs)
        sample = sample if behind.recurrent else sample[0]
        yield sample


def _sent(firmware: Firmware, sample: np.ndarray) -> np.ndarray:
    """The words uint16[words, M] that a golden machine sends for a sample."""
    with machine("golden", firmware.config) as golden:
        program = firmware.program(len(sample) if firmware.recurrent else 1)
        return Session(golden, firmware).probe(program, sample)[Mem.NET_Q]


def _sessions(right: Firmware, other: Firmware, kind: str, reference: str, files: ExitStack) -> dict[str, Probed]:
    """What is compared for one machine: the right one, the machine, and the third one to tell which is at fault."""
    def run(name: str, firmware: Firmware) -> Session:
        return Session(files.enter_context(machine(name, firmware.config)), firmware)

    name = "golden" if kind == "golden" else "RTL"
    if reference == "twin":
        found = {"twin": TwinSession(right), name: run(kind, other)}
        return found if kind == "golden" else found | {"golden": run("golden", other)}
    return {"golden": run("golden", right), "machine" if kind == "golden" else name: run(kind, other),
            "twin": TwinSession(right)}
