"""Example inferences on the golden model: the messages that go in, and those that come out."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from concord.firmware.firmware import Firmware
from concord.firmware.stops import stopped
from concord.golden.machine import Machine
from concord.spec.host.registers import Register, Status
from concord.spec.isa.instructions import Error


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Run:
    """One inference.

    Attributes:
        sample: uint16[inputs], or uint16[steps, inputs] where the network is recurrent.
        setup:  Messages before the start of the program: a program of as many time steps, where it changes.
        inputs: Messages after the start.
        answer: Messages of the golden model.
        result: uint16[outputs] of the golden model.
    """

    sample: np.ndarray
    setup: tuple[bytes, ...]
    inputs: tuple[bytes, ...]
    answer: tuple[bytes, ...]
    result: np.ndarray


def load_messages(firmware: Firmware) -> tuple[bytes, ...]:
    """The messages that bring firmware into a machine: the contents of its memories, then the program of one step."""
    return (*firmware.memory_messages(), firmware.program_message())


def golden_runs(firmware: Firmware, samples: Iterable[np.ndarray]) -> list[Run]:
    """Run samples on one golden machine, which gets the messages that a board gets.

    Raises:
        Stopped:      the program stopped with an error.
        RuntimeError: the program waits for more words than one input brings.
    """
    machine, runs, steps = Machine(firmware.config), [], 1
    for message in load_messages(firmware):
        machine.send(message)
    for sample in samples:
        wanted = len(sample) if firmware.loop is not None else 1
        setup = () if wanted == steps else (firmware.program_message(wanted),)
        inputs = (firmware.input_message(sample),) if firmware.inputs else ()
        for message in (*setup, *inputs):
            machine.send(message)
        machine.start()
        status = machine.run()
        _check(firmware, machine, status, wanted)
        answer = tuple(machine.receive())
        runs.append(Run(sample=sample, setup=setup, inputs=inputs, answer=answer, result=firmware.output(answer)))
        steps = wanted
    return runs


def _check(firmware: Firmware, machine: Machine, status: Status, steps: int):
    error = Error(machine.read_register(Register.ERROR))
    if error != Error.NONE:
        raise stopped(firmware, firmware.program(steps), error, machine.read_register(Register.ERROR_ADDRESS))
    if not status & Status.DONE:
        raise RuntimeError(f"{firmware.name}: the program waits for more words of NetQ than one input brings")
