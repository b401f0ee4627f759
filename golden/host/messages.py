"""Conversion between arrays and host messages, and where the messages of a machine go in a pipeline of machines."""

from collections.abc import Iterable

import numpy as np
from concord.golden.lazy.lazy_update import Parameters, Pass
from concord.golden.mvm.elements import pack_entries, pack_tiles, unpack_entries
from concord.spec.host.messages import Message, MessageKind, exponents, pack
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config
from concord.spec.numbers.lazy import E_MIN, LazyFormat, Repeat


def write_message(config: Config, mem: Mem, words: np.ndarray, address: int = 0) -> bytes:
    """The WRITE message for uint16[n, M] words of a random-access vector memory."""
    return _message(config, MessageKind.WRITE, words.astype("<u2"), memory=mem, address=address)


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
    return _message(config, MessageKind.BIAS, biases.astype("<i4"), address=address)


def program_message(config: Config, program: list[int], address: int = 0) -> bytes:
    """The PROGRAM message for instruction words."""
    return _message(config, MessageKind.PROGRAM, np.array(program, "<u8"), address=address)


def input_message(config: Config, words: np.ndarray) -> bytes:
    """The INPUT message for uint16[n, M] words of NetQ."""
    return _message(config, MessageKind.INPUT, words.astype("<u2"))


def update_message(config: Config, old: Parameters, update: np.ndarray, update_exponent: int, change: int = 0) -> bytes:
    """The UPDATE message for parameters and their update, int64[n]: one pass through the lazy update."""
    fields = [old.mantissas, old.residuals, update, update >> 16]
    words = np.stack([_padded(config, field) for field in fields], 1)
    address = old.exponent - E_MIN | update_exponent - E_MIN << 8
    return _message(config, MessageKind.UPDATE, words.astype("<u2"), memory=change + 1, address=address)


def updated_message(config: Config, address: int, done: Pass) -> bytes:
    """The UPDATED message that answers an UPDATE: mantissas, residuals and the request of the unit."""
    words = np.stack([_padded(config, done.mantissas), _padded(config, done.residuals)], 1)
    answer = np.pad([done.repeat, done.change], (0, config.mfu_lanes - 2))
    items = np.concatenate([words.reshape(-1, config.mfu_lanes), answer[None]])
    return _message(config, MessageKind.UPDATED, items.astype("<u2"), address=address)


def update_of(config: Config, message: Message) -> tuple[Parameters, np.ndarray, int, int]:
    """Parameters, update, its exponent and the change of exponent, from an UPDATE message."""
    mantissas, residuals, low, high = words_of(config, message).reshape(-1, 4, config.mfu_lanes).swapaxes(0, 1)
    exponent, update_exponent = exponents(message.address)
    update = (low.astype(np.uint32) | high.astype(np.uint32) << 16).view(np.int32)
    old = Parameters(_signed(mantissas & 0xFF, 8), _signed(residuals, 16), exponent, LazyFormat())
    return old, update.ravel().astype(np.int64), update_exponent, message.memory - 1


def updated_of(config: Config, message: Message, size: int) -> tuple[np.ndarray, np.ndarray, Repeat, int]:
    """Mantissas and residuals int64[size], the request of the unit and the change, from an UPDATED message."""
    words = _signed(words_of(config, message), 16).reshape(-1, config.mfu_lanes)
    mantissas, residuals = words[:-1].reshape(-1, 2, config.mfu_lanes).swapaxes(0, 1)
    return mantissas.ravel()[:size], residuals.ravel()[:size], Repeat(int(words[-1, 0])), int(words[-1, 1])


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


def _padded(config, field):
    """The low 16 bits of a vector as words uint16[n, M]."""
    field = np.pad(np.asarray(field, np.int64), (0, -len(field) % config.mfu_lanes))
    return (field & 0xFFFF).astype(np.uint16).reshape(-1, config.mfu_lanes)


def _signed(values, bits):
    """int64 of two's complement numbers."""
    values = np.ravel(values).astype(np.int64)
    return values - ((values >> bits - 1) << bits)


def _message(config, kind, items, memory=0, address=0):
    return pack(config, Message(kind=kind, memory=memory, address=address, count=len(items), payload=items.tobytes()))


def routed(messages: Iterable[bytes]) -> tuple[list[bytes], list[bytes]]:
    """The messages for the host, and those for the next machine: INPUT messages, which results become by PEER."""
    host, behind = [], []
    for message in messages:
        (behind if message[0] == MessageKind.INPUT else host).append(message)
    return host, behind
