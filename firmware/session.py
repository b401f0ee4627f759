"""Run one network on one machine, which may be golden or simulated hardware."""

from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np
from concord.firmware.firmware import Firmware, check_machine
from concord.golden.host.messages import contents_of, entries_message, program_message, read_message
from concord.sim.machines.host import Machine, MachineTimeout, machine
from concord.spec.host.messages import unpack
from concord.spec.host.registers import Counter, Status
from concord.spec.isa.check import check
from concord.spec.isa.disassembler import disassemble_word
from concord.spec.isa.instructions import Error
from concord.spec.isa.memories import Mem


class Session:
    """Firmware in a machine's memories, ready for input.

    Args:
        machine:  Any kind of machine.
        firmware: Firmware for the configuration of the machine.

    Raises:
        ValueError: the firmware is for another configuration.
    """

    def __init__(self, machine: Machine, firmware: Firmware):
        check_machine(firmware, machine.config)
        self.machine, self.firmware = machine, firmware
        self._loaded: tuple[int, bool] | None = None  # number of steps and `keep_state` of the program in the machine
        self._begin()

    def infer(self, sample: np.ndarray, *, keep_state: bool = False) -> np.ndarray:
        """Run one sample, and return the outputs of the network, uint16[outputs].

        Args:
            sample:     Input patterns, uint16[inputs], or uint16[steps, inputs] if the network is recurrent.
            keep_state: Whether to start from the states that the last sample left, so that several parts of a sequence
                give the outputs of the whole sequence. It must be False for the first part.

        Raises:
            ValueError:   the sample has another shape, or there are no states to keep.
            Stopped:      the program stopped with an error.
            RuntimeError: the program did not finish.
        """
        if self.firmware.batch > 1:
            return self.infer_all([sample])[0]
        self.prepare(len(sample) if self.firmware.recurrent else 1, keep_state=keep_state)
        return self.firmware.output(self._run(sample))

    def infer_all(self, samples: Sequence[np.ndarray]) -> np.ndarray:
        """uint16[samples, outputs] of samples, as many at once as the firmware takes; errors are those of `infer`."""
        size = self.firmware.batch
        if size == 1:
            return np.stack([self.infer(sample) for sample in samples])
        self.prepare(1)
        parts = [np.stack(samples[first:first + size]) for first in range(0, len(samples), size)]
        return np.concatenate([self.firmware.output(self._run(part))[:len(part)] for part in parts])

    def prepare(self, steps: int, *, keep_state: bool = False):
        """Load the program for samples of some time steps, unless the machine has it."""
        if (steps, keep_state) != self._loaded:
            self._load(self.firmware.program(steps, keep_state=keep_state), self.firmware.resumes if keep_state else 0)
            self._loaded = steps, keep_state

    def check(self, status: Status):
        """Refuse what STATUS says after a run of the program.

        Raises:
            Stopped:      the program stopped with an error.
            RuntimeError: the program did not finish.
        """
        check_end(self.firmware, self._program, *self.machine.error(), status, first=self._first)

    def probe(self, program: list[int], sample: np.ndarray) -> dict[Mem, np.ndarray]:
        """Run another program, and return the contents of each memory in use and, under NetQ, the words sent.

        Args:
            program: Instruction words.
            sample:  Input patterns as in `infer`; the program need not read all of them.
        """
        sent = [self._contents(message) for message in self.execute(program, sample)]
        empty = np.zeros((0, self.machine.config.mfu_lanes), np.uint16)
        return {**self.memories(), Mem.NET_Q: np.concatenate([empty, *sent])}

    def execute(self, program: list[int], sample: np.ndarray) -> list[bytes]:
        """Run another program on memories in their initial state, and return the messages that it sends."""
        self._begin()
        self._loaded = None
        self._load(program)
        return self._run(sample)

    def count(self, program: list[int], sample: np.ndarray | None) -> dict[Counter, int]:
        """Run another program on the memories as they are, and return the counters of this run.

        The input is sent after the start, so that the clock cycles of its transfer are counted.

        Args:
            program: Instruction words.
            sample:  Input patterns as in `infer`, or None for a program that reads none.
        """
        self.machine.settle()  # a reset loses the message under way
        self.machine.reset()
        self.machine.clear()
        self._loaded = None
        self._load(program)
        self._run(sample, late=True)
        return self.machine.counters()

    def memories(self) -> dict[Mem, np.ndarray]:
        """The contents of each memory that the firmware uses, as `contents_of` gives them.

        These are uint16[words, M] for a vector memory, and uint16[entries, N + 1] for VectorRf.
        """
        result = {}
        for mem, size in used_memories(self.firmware).items():
            self.machine.send(read_message(self.machine.config, mem, size))
            (answer,) = self.machine.receive()
            result[mem] = self._contents(answer)
        return result

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.machine.close()

    @property
    def invalid(self) -> list[str]:
        """Names in STATUS of the quantisers that have seen a NaN or an infinity since the start of the session."""
        status = self.machine.status()
        return [flag.name for flag in (Status.INVALID_VECTOR, Status.INVALID_MATRIX) if status & flag]

    def counters(self) -> dict[Counter, int]:
        """The increase of every counter since the last call, or since the start of the session."""
        counters = self.machine.counters()
        self.machine.clear()
        return counters

    def _begin(self):
        """Bring the machine and its memories to their initial state."""
        self.machine.reset()
        self.machine.clear()
        self.machine.send(*first_messages(self.firmware))

    def _load(self, program: list[int], first: int = 0):
        """Load a program into the machine; its first instruction is the one at address `first` of the firmware."""
        self.machine.send(program_message(self.machine.config, program))
        self._program, self._first = program, first

    def _run(self, sample: np.ndarray | None, *, late: bool = False) -> list[bytes]:
        """Run the program on one sample, and return the messages that it sends.

        Args:
            sample: Input patterns as in `infer`, or None to send none.
            late:   Whether the input is sent after the start of the program instead of before.
        """
        sent = sample is not None and self.firmware.inputs
        message = [self.firmware.input_message(sample)] if sent else []
        try:
            self.machine.send(*message[:not late])
            self.machine.start()
            self.machine.send(*message[not late:])
            status = self.machine.run()
        except MachineTimeout as error:
            raise RuntimeError(str(error)) from error
        self.check(status)
        return self.machine.receive()

    def _contents(self, message: bytes) -> np.ndarray:
        return contents_of(self.machine.config, unpack(self.machine.config, message, to_machine=False))


def first_messages(firmware: Firmware) -> list[bytes]:
    """The messages that bring the memories of a machine to their initial state."""
    config, size, sent = firmware.config, firmware.config.vector_rf, []
    if firmware.uses_entries:  # entries that no chain writes are compared, too
        sent = [entries_message(config, np.zeros((size, config.native_dim), np.int16), np.zeros(size, np.int64))]
    return sent + firmware.memory_messages()


def used_memories(firmware: Firmware) -> dict[Mem, int]:
    """Number of words, or entries, of each memory that firmware uses."""
    sizes = {mem: len(image) for mem, image in firmware.vectors.items()}
    return sizes | ({Mem.VECTOR_RF: firmware.config.vector_rf} if firmware.uses_entries else {})


def outputs_of(kind: str, firmware: Firmware, samples: Iterable[np.ndarray]) -> np.ndarray:
    """uint16[samples, outputs] of a new machine of a kind, by its name in `sim.machines.host.machine`."""
    with machine(kind, firmware.config) as made:
        session = Session(made, firmware)
        return session.infer_all(list(samples))


class Stopped(RuntimeError):
    """A program has stopped with an error. The message names layer, instruction, address and reason."""


def stopped(firmware: Firmware, program: list[int], error: Error, address: int, *, first: int = 0) -> Stopped:
    """Make the exception for an error of a machine.

    Args:
        firmware: Firmware that filled the memories of the machine.
        program:  Instruction words that ran, from the firmware or others.
        error:    Error code of the machine.
        address:  Address at which the machine stopped.
        first:    Address in the firmware of the first instruction of `program`.
    """
    if error == Error.MESSAGE:
        return Stopped(f"{firmware.name}: the machine refused a message, which is damaged, malformed, or for another "
                       "machine (MESSAGE)")
    violation = check(program, firmware.config, firmware.tiles.modes(firmware.config))
    known = violation and (violation.error, violation.address) == (error, address)
    reason = violation.sentence if known else "docs/isa.md says what the error means"
    text = disassemble_word(program[address]) if address < len(program) else "nothing"
    layer = firmware.layer_at(first + address)
    where = f"{firmware.name}, layer {layer}" if layer else firmware.name
    return Stopped(f"{where}: the program stopped at instruction {first + address}, `{text}`: {reason} ({error.name})")


def check_end(firmware: Firmware, program: list[int], error: Error, address: int, status: Status, *, first: int = 0):
    """Refuse what a machine says after a run of a program; the first arguments are those of `stopped`.

    Raises:
        Stopped:      the program stopped with an error.
        RuntimeError: the program did not finish.
    """
    if error != Error.NONE:
        raise stopped(firmware, program, error, address, first=first)
    if not status & Status.DONE:
        raise RuntimeError(f"{firmware.name}: the program waits for more words of NetQ than one input brings")
