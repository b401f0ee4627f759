"""Helpers for tests: golden machines whose memories are given in ordinary numbers."""

import numpy as np
from concord.golden.host.messages import input_message, program_message, words_of, write_message
from concord.golden.machine import Machine
from concord.spec.host.messages import MessageKind, unpack
from concord.spec.host.registers import Register
from concord.spec.isa.assembler import assemble
from concord.spec.isa.memories import Mem
from concord.spec.machine import timing
from concord.spec.machine.config import Config

#: From a job to its first word: the address, a queue, older chains, the grant of the memory, and its answer.
READ = 8


def bits(values) -> np.ndarray:
    """The binary16 patterns of numbers, uint16."""
    return np.asarray(values, np.float16).view(np.uint16)


def words(config: Config, values) -> np.ndarray:
    """Numbers as words uint16[n, M], padded with zeros."""
    flat = bits(values).reshape(-1)
    return np.pad(flat, (0, -len(flat) % config.mfu_lanes)).reshape(-1, config.mfu_lanes)


def chain_latency(config: Config) -> int:
    """Cycles from the first word of a product's operand to the write of its first result, where nothing waits."""
    before = timing.quantizer(config.mfu_lanes) + timing.BEAT + timing.product(config)
    return READ + before + timing.mfu_pipeline(config) + 1


def loaded(config: Config, text: str, *, inputs=None, **memories) -> Machine:
    """A machine with a program, words in NetQ, and numbers in memories from word 0 on, by the names of `Mem`."""
    machine = Machine(config)
    machine.send(program_message(config, assemble(text)))
    for name, values in memories.items():
        machine.send(write_message(config, Mem[name.upper()], words(config, values)))
    if inputs is not None:
        machine.send(input_message(config, words(config, inputs)))
    return machine


def ran(config: Config, text: str, **kwargs) -> Machine:
    """The machine of `loaded` after its program, which must end without an error."""
    machine = loaded(config, text, **kwargs)
    machine.start()
    machine.run()
    assert machine.read_register(Register.ERROR) == 0
    return machine


def numbers(machine: Machine, mem, first: int, count: int) -> list[float]:
    """`count` numbers of a memory from word `first` on."""
    return machine.memory.vectors[mem][first:].reshape(-1)[:count].view(np.float16).tolist()


def outputs(machine: Machine) -> list[list[float]]:
    """The numbers of each output message."""
    messages = [unpack(machine.config, data, to_machine=False) for data in machine.receive()]
    assert all(message.kind == MessageKind.OUTPUT for message in messages)
    return [words_of(machine.config, message).reshape(-1).view(np.float16).tolist() for message in messages]
