"""Conversion between arrays and host messages, and where the messages of a machine go in a pipeline of machines."""

from collections.abc import Iterable

import numpy as np
from concord.golden.mvm.elements import pack_entries, pack_tiles, unpack_entries
from concord.spec.host.messages import Message, MessageKind, pack
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config


def write_message(config: Config, mem: Mem, words: np.ndarray, address: int = 0) -> bytes:
    """The WRITE message for uint16[n, M] words of a random-access vector memory."""
    return message_with(config, MessageKind.WRITE, words.astype("<u2"), memory=mem, address=address)


def read_message(config: Config, mem: Mem, count: int, address: int = 0) -> bytes:
    """The READ message that requests words of a random-access vector memory, or entries of VectorRf."""
    return pack(config, Message(kind=MessageKind.READ, memory=mem, address=address, count=count))


def entries_message(config: Config, mantissas: np.ndarray, stored_exponents: np.ndarray, address: int = 0, *,
                    kind: MessageKind = MessageKind.WRITE) -> bytes:
    """The message with entries of VectorRf, mantissas[n, N] and stored exponents[n]: WRITE, or the answer to a READ."""
    return pack(config, Message(kind=kind, memory=Mem.VECTOR_RF, address=address, count=len(mantissas),
                                payload=pack_entries(config, mantissas, stored_exponents)))


def packed_message(config: Config, mantissas: np.ndarray, stored_exponents: np.ndarray, address: int = 0, *,
                   integer: bool = False) -> bytes:
    """The PACKED message for native tiles of mantissas[tiles, N, N] and stored exponents[tiles, N]."""
    return pack(config, Message(kind=MessageKind.PACKED, integer=integer, address=address, count=len(mantissas),
                                payload=pack_tiles(config, mantissas, stored_exponents)))


def bias_message(config: Config, biases: np.ndarray, address: int = 0) -> bytes:
    """The BIAS message for int[n, M] words of BiasRf."""
    return message_with(config, MessageKind.BIAS, biases.astype("<i4"), address=address)


def program_message(config: Config, program: list[int], address: int = 0) -> bytes:
    """The PROGRAM message for instruction words."""
    return message_with(config, MessageKind.PROGRAM, np.array(program, "<u8"), address=address)


def input_message(config: Config, words: np.ndarray) -> bytes:
    """The INPUT message for uint16[n, M] words of NetQ."""
    return message_with(config, MessageKind.INPUT, words.astype("<u2"))


def entries_of(config: Config, message: Message) -> tuple[np.ndarray, np.ndarray]:
    """Mantissas int64[n, N] and stored exponents int64[n] of a message with entries of VectorRf."""
    return unpack_entries(config, message.payload)


def contents_of(config: Config, message: Message) -> np.ndarray:
    """The words uint16[n, M] of an answer to READ; for VectorRf uint16[n, N + 1], mantissas and the stored exponent."""
    if message.memory != Mem.VECTOR_RF:
        return words_of(config, message)
    mantissas, stored = entries_of(config, message)
    return np.concatenate([mantissas, stored[:, None]], axis=1).astype(np.uint16)


def words_of(config: Config, message: Message) -> np.ndarray:
    """The words uint16[n, M] of a message."""
    return np.frombuffer(message.payload, "<u2").astype(np.uint16).reshape(-1, config.mfu_lanes)


def message_with(config: Config, kind: MessageKind, items: np.ndarray, memory: int = 0, address: int = 0) -> bytes:
    """The message of a kind that carries items, one for each element of the first axis."""
    return pack(config, Message(kind=kind, memory=memory, address=address, count=len(items), payload=items.tobytes()))


def routed(messages: Iterable[bytes]) -> tuple[list[bytes], list[bytes]]:
    """The messages for the host, and those for the next machine: INPUT messages, which results become by PEER."""
    host, behind = [], []
    for message in messages:
        (behind if message[0] == MessageKind.INPUT else host).append(message)
    return host, behind
