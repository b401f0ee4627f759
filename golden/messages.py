"""Messages from arrays and back."""

import numpy as np

from golden.packing import pack_tiles
from spec.config import Config
from spec.isa import Mem
from spec.messages import Message, MessageKind, pack


def write_message(config: Config, mem: Mem, words: np.ndarray, address: int = 0) -> bytes:
    """Write uint16[n, M] words to a random-access vector memory."""
    return _message(config, MessageKind.WRITE, words.astype("<u2"), memory=mem, address=address)


def read_message(config: Config, mem: Mem, count: int, address: int = 0) -> bytes:
    """Ask for words of a random-access vector memory."""
    return pack(config, Message(kind=MessageKind.READ, memory=mem, address=address, count=count))


def packed_message(config: Config, mantissas: np.ndarray, stored_exponents: np.ndarray, address: int = 0, *,
                   integer: bool = False) -> bytes:
    """Fill native tiles with mantissas[tiles, N, N] and stored exponents[tiles, N]."""
    return pack(config, Message(kind=MessageKind.PACKED, integer=integer, address=address, count=len(mantissas),
                                payload=pack_tiles(config, mantissas, stored_exponents)))


def bias_message(config: Config, biases: np.ndarray, address: int = 0) -> bytes:
    """Write int[n, M] to BiasRf."""
    return _message(config, MessageKind.BIAS, biases.astype("<i4"), address=address)


def program_message(config: Config, program: list[int], address: int = 0) -> bytes:
    """Write instruction words."""
    return _message(config, MessageKind.PROGRAM, np.array(program, "<u8"), address=address)


def input_message(config: Config, words: np.ndarray) -> bytes:
    """Send uint16[n, M] words to NetQ."""
    return _message(config, MessageKind.INPUT, words.astype("<u2"))


def words_of(config: Config, message: Message) -> np.ndarray:
    """uint16[n, M] words that a WRITE, INPUT or OUTPUT message, or the answer to a READ, carries."""
    return np.frombuffer(message.payload, "<u2").astype(np.uint16).reshape(-1, config.mfu_lanes)


def _message(config, kind, items, memory=0, address=0):
    return pack(config, Message(kind=kind, memory=memory, address=address, count=len(items), payload=items.tobytes()))
