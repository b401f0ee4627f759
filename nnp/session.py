"""One network on one machine, whatever the machine is."""

from typing import Protocol

import numpy as np

from golden.firmware import Firmware, check_machine
from spec.config import Config
from spec.isa import Error
from spec.registers import Control, Counter, Register, Status


class Machine(Protocol):
    """What golden model, library and cocotb have in common."""

    config: Config

    def send(self, data: bytes): ...
    def receive(self) -> list[bytes]: ...
    def run(self) -> Status: ...
    def read_register(self, address: int) -> int: ...
    def write_register(self, address: int, value: int): ...


class Session:
    """Firmware in a machine's memories, ready for input.

    Args:
        machine:  Fresh, or reset.
        firmware: For this machine.

    Raises:
        ValueError: it is for another.
    """

    def __init__(self, machine: Machine, firmware: Firmware):
        check_machine(firmware, machine.config)
        self.machine, self.firmware = machine, firmware
        self._steps = 0
        machine.write_register(Register.CONTROL, Control.RESET)
        machine.write_register(Register.CONTROL, Control.CLEAR)
        for message in firmware.memory_messages():
            machine.send(message)

    def infer(self, sample: np.ndarray) -> np.ndarray:
        """uint16[outputs] of one input.

        Args:
            sample: uint16[inputs], or uint16[steps, inputs] where the network is recurrent.

        Raises:
            ValueError: it has another shape.
            RuntimeError: the machine stopped with an error, or did not finish.
        """
        steps = len(sample) if self.firmware.recurrent else 1
        if steps != self._steps:
            self.machine.send(self.firmware.program_message(steps))
            self._steps = steps
        self.machine.send(self.firmware.input_message(sample))
        self.machine.write_register(Register.CONTROL, Control.START)
        status = self.machine.run()
        error = Error(self.machine.read_register(Register.ERROR))
        if error != Error.NONE or not status & Status.DONE:
            address = self.machine.read_register(Register.ERROR_ADDRESS)
            raise RuntimeError(
                f"the machine stopped at instruction {address} with error {error.name}, status {status!r}"
            )
        return self.firmware.output(self.machine.receive())

    def counters(self) -> dict[Counter, int]:
        """All counters since the session began."""
        return {counter: self.machine.read_register(Register.COUNTERS + 4 * counter) for counter in Counter}
