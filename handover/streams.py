"""Messages as one AXI4-Stream: bytes, the index of their ends, and hex for `$readmemh`."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from concord.firmware.firmware import Firmware
from concord.firmware.session import check_end
from concord.golden.machine import Machine
from concord.spec.host.messages import HEADER, MessageKind
from concord.spec.host.registers import Register
from concord.spec.isa.instructions import Error
from concord.spec.isa.memories import MEMORY_NAMES, Mem
from concord.spec.machine.config import Config


@dataclass(frozen=True, kw_only=True, slots=True)
class Stream:
    """Messages that follow each other on one AXI4-Stream; TLAST marks the last beat of each.

    Attributes:
        config:   Machine that sends or takes them.
        messages: The bytes of each message, in whole beats.
    """

    config: Config
    messages: tuple[bytes, ...]

    @property
    def beats(self) -> int:
        """Number of beats of all messages."""
        return len(self.bytes) // self.config.message_bytes

    @property
    def bytes(self) -> bytes:
        """The messages without anything between them."""
        return b"".join(self.messages)

    @property
    def hex(self) -> str:
        """One line for each beat: TLAST, TKEEP and TDATA as hexadecimal numbers, with underscores between them."""
        size = self.config.message_bytes
        keep = f"{(1 << size) - 1:x}"
        return "".join(
            f"{int(at + size == len(message))}_{keep}_{message[at:at + size][::-1].hex()}\n"
            for message in self.messages for at in range(0, len(message), size))

    @property
    def index(self) -> str:
        """JSON with the range of bytes of each message, and what its header says."""
        rows, first = [], 0
        for message in self.messages:
            rows.append({"first": first, "end": first + len(message), **_described(message)})
            first += len(message)
        lines = ",\n    ".join(json.dumps(row) for row in rows)
        between = f"\n    {lines}\n  " if rows else ""
        return f'{{\n  "beat_bytes": {self.config.message_bytes},\n  "messages": [{between}]\n}}\n'


def _described(message: bytes) -> dict:
    kind, memory, _, _, address, count, _ = HEADER.unpack_from(message)
    named = kind in (MessageKind.WRITE, MessageKind.READ)
    target = {"memory": MEMORY_NAMES[Mem(memory)]} if named else {}
    return {"kind": MessageKind(kind).name, **target, "address": address, "count": count}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Inference:
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


def golden_runs(firmware: Firmware, samples: Iterable[np.ndarray]) -> list[Inference]:
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
        check_end(firmware, firmware.program(wanted), Error(machine.read_register(Register.ERROR)),
                  machine.read_register(Register.ERROR_ADDRESS), status)
        answer = tuple(machine.receive())
        runs.append(Inference(sample=sample, setup=setup, inputs=inputs, answer=answer, result=firmware.output(answer)))
        steps = wanted
    return runs
