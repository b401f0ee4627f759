"""A short test of a machine and of the way to it: registers, a memory, and a program."""

import time
from dataclasses import dataclass

import numpy as np
from concord.golden.host.messages import (
    contents_of,
    input_message,
    program_message,
    read_message,
    write_message,
)
from concord.sim.machines.host import Machine
from concord.spec.host.messages import unpack
from concord.spec.host.registers import Register, Status
from concord.spec.isa.assembler import assemble
from concord.spec.isa.memories import Mem, depth

ROUNDS = 8  #: Times that a memory is written and read back.
COPY = "s_wr Rows, {}\nv_rd NetQ\nv_wr NetQ\nend_chain\nend\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """What a self-test found.

    Attributes:
        bits:    Number of bits that came back wrong.
        carried: Number of bytes of messages in both directions.
        seconds: How long it took.
    """

    bits: int
    carried: int
    seconds: float


def self_test(machine: Machine, seed: int = 0) -> Tested:
    """Write random words to a memory and read them back, and copy some by a program.

    Raises:
        MachineTimeout: the machine does not answer.
        RuntimeError:   a program has not ended, or a message did not come back.
    """
    config, rng, begin = machine.config, np.random.default_rng(seed), time.monotonic()
    registers = {Register.DIGEST: config.digest, Register.NATIVE_DIM: config.native_dim,
                 Register.LANES: config.lanes, Register.MFU_LANES: config.mfu_lanes}
    wrong = sum((machine.read_register(register) ^ value).bit_count() for register, value in registers.items())
    carried = 0
    count = min(depth(config, Mem.INITIAL_VRF), 64)
    for _ in range(ROUNDS):
        words = rng.integers(0, 1 << 16, (count, config.mfu_lanes)).astype(np.uint16)
        sent = [write_message(config, Mem.INITIAL_VRF, words), read_message(config, Mem.INITIAL_VRF, count)]
        machine.send(*sent)
        wrong += _differing(machine, words)
        carried += sum(map(len, sent)) + len(sent[0])
    words = rng.integers(1, 1 << 10, (1, config.mfu_lanes)).astype(np.float16).view(np.uint16)  # bits of real numbers
    machine.send(program_message(config, assemble(COPY.format(config.mfu_lanes))), input_message(config, words))
    machine.start()
    status = machine.run()
    if not status & Status.DONE:
        raise RuntimeError(f"a program that copies a word has not ended: STATUS is {status!r}")
    wrong += _differing(machine, words)
    return Tested(bits=wrong, carried=carried, seconds=time.monotonic() - begin)


def _differing(machine: Machine, words: np.ndarray) -> int:
    """Number of bits in which the one message that has come differs from words."""
    messages = machine.receive()
    if len(messages) != 1:
        raise RuntimeError(f"{len(messages)} messages came back instead of one")
    found = contents_of(machine.config, unpack(machine.config, messages[0], to_machine=False))
    return int(np.bitwise_count(found ^ words).sum())
