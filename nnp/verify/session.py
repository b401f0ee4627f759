"""One network on one machine, whatever the machine is."""

import numpy as np
from concord.golden.host.firmware import Firmware, check_machine
from concord.golden.host.messages import program_message, read_message, words_of
from concord.golden.host.stops import stopped
from concord.sim.machines.host import Machine, MachineTimeout
from concord.spec.isa import Error
from concord.spec.memories import Mem
from concord.spec.messages import unpack
from concord.spec.registers import Counter, Status


class Session:
    """Firmware in a machine's memories, ready for input.

    Args:
        machine:  Any.
        firmware: For this machine.

    Raises:
        ValueError: it is for another.
    """

    def __init__(self, machine: Machine, firmware: Firmware):
        check_machine(firmware, machine.config)
        self.machine, self.firmware = machine, firmware
        self._loaded: tuple[int, bool] | None = None  # steps and `keep_state` of the program in the machine
        self._begin()

    def infer(self, sample: np.ndarray, *, keep_state: bool = False) -> np.ndarray:
        """uint16[outputs] of one input.

        Args:
            sample:     uint16[inputs], or uint16[steps, inputs] where the network is recurrent.
            keep_state: Go on from the states that the last input left, so that several parts of a sequence give what
                the whole sequence gives; the first part goes without.

        Raises:
            ValueError: it has another shape, or there are no states.
            Stopped: the program stopped with an error.
            RuntimeError: it did not finish.
        """
        steps = len(sample) if self.firmware.recurrent else 1
        if (steps, keep_state) != self._loaded:
            self._load(self.firmware.program(steps, keep_state=keep_state), self.firmware.loop if keep_state else 0)
            self._loaded = steps, keep_state
        return self.firmware.output(self._run(sample))

    def probe(self, program: list[int], sample: np.ndarray) -> dict[Mem, np.ndarray]:
        """What another program leaves: the words of each vector memory in use, and under NetQ those that it sent.

        Args:
            program: Instruction words.
            sample:  As for `infer`; the program need not read all of it.
        """
        sent = [self._words(message) for message in self.execute(program, sample)]
        empty = np.zeros((0, self.machine.config.mfu_lanes), np.uint16)
        return {**self.memories(), Mem.NET_Q: np.concatenate([empty, *sent])}

    def execute(self, program: list[int], sample: np.ndarray) -> list[bytes]:
        """The messages that another program sends, on memories in their first state; arguments as for `probe`."""
        self._begin()
        self._loaded = None
        self._load(program)
        return self._run(sample)

    def memories(self) -> dict[Mem, np.ndarray]:
        """uint16[words, M] of each vector memory that the firmware uses."""
        result = {}
        for mem, image in self.firmware.vectors.items():
            self.machine.send(read_message(self.machine.config, mem, len(image)))
            (answer,) = self.machine.receive()
            result[mem] = self._words(answer)
        return result

    @property
    def invalid(self) -> list[str]:
        """Flags of the quantisers that have met a NaN or an infinity since the beginning, by their names in STATUS."""
        status = self.machine.status()
        return [flag.name for flag in (Status.INVALID_VECTOR, Status.INVALID_MATRIX) if status & flag]

    def counters(self) -> dict[Counter, int]:
        """What every counter has counted since the last call, or since the beginning."""
        counters = self.machine.counters()
        self.machine.clear()
        return counters

    def _begin(self):
        """Bring the machine and its memories to their first state."""
        self.machine.reset()
        self.machine.clear()
        self.machine.send(*self.firmware.memory_messages())

    def _load(self, program: list[int], first: int = 0):
        """Bring a program to the machine; its first instruction is the firmware's at `first`."""
        self.machine.send(program_message(self.machine.config, program))
        self._program, self._first = program, first

    def _run(self, sample: np.ndarray) -> list[bytes]:
        """The messages that the program sends on one input."""
        if self.firmware.inputs:
            self.machine.send(self.firmware.input_message(sample))
        try:
            self.machine.start()
            status = self.machine.run()
        except MachineTimeout as error:
            raise RuntimeError(str(error)) from error
        error, address = self.machine.error()
        if error != Error.NONE:
            raise stopped(self.firmware, self._program, error, address, first=self._first)
        if not status & Status.DONE:
            raise RuntimeError(f"{self.firmware.name}: the program waits for more words of NetQ than one input brings")
        return self.machine.receive()

    def _words(self, message: bytes) -> np.ndarray:
        return words_of(self.machine.config, unpack(self.machine.config, message, to_machine=False))
